#!/bin/sh
# Runs the contract tests of the gateway against real parts; everything it starts it ends. rig/run.sh --help lists what it can do.
#
#   rig/run.sh all        real Triton, then the embedded server, then the comparison, the load tester and the compose check
#   rig/run.sh real       only in front of the real Triton
#   rig/run.sh embedded   only in front of the embedded model server
#
# Closes with a line `N passed, N failed`; exit code 0 only when all passed.
set -eu
cd "$(dirname "$0")/.."
rig/setup.sh
exec .cache/rig/venv/bin/python rig/run.py "$@"
