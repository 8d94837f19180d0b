#!/bin/sh
# Runs the real Triton (CPU) on triton-models/ in the foreground, prints its addresses once it serves, stops it on Ctrl-C.
# rig/triton.sh --help lists the flags; flags after -- go to tritonserver.
set -eu
cd "$(dirname "$0")/.."
rig/setup.sh
exec .cache/rig/venv/bin/python rig/triton.py "$@"
