#!/bin/sh
# Installs what the rig needs, pinned, into the ignored folder .cache: a virtual environment with a real Triton for CPU, and
# grpcurl. Does nothing when it is there already; a change of requirements.txt makes a new one. Run as often as you like,
# side by side too. Needs Python 3.11 (PYTHON=… names another interpreter) and Go.
set -eu
cd "$(dirname "$0")/.."
GRPCURL=github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3

fail() {
    echo "rig/setup.sh: $*" >&2
    exit 1
}

PYTHON=${PYTHON:-$(command -v python3.11 || command -v python3 || true)}
[ -n "$PYTHON" ] || fail "Python is missing; on Debian: apt-get install python3 python3-venv"
PYV=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
# The pins are for 3.11. Triton's wheel has a Python stub for 3.8 to 3.13, but the closure was resolved for this one.
[ "$PYV" = 3.11 ] || fail "$PYTHON is Python $PYV, and the pins are for 3.11; set PYTHON=/path/to/python3.11"

# Triton's Python stub is linked against the shared library of the interpreter, which a minimal system may lack.
have_libpython() {
    { ldconfig -p 2>/dev/null || /sbin/ldconfig -p; } | grep -q "libpython$PYV\.so\.1\.0"
}
if ! have_libpython; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "rig/setup.sh: installing libpython$PYV"
        { apt-get update -q && apt-get install -q -y --no-install-recommends "libpython$PYV"; } >&2
    fi
    have_libpython || fail "libpython$PYV.so.1.0 is missing; on Debian, as root: apt-get install libpython$PYV"
fi

mkdir -p .cache/rig .cache/bin
exec 9>.cache/rig/lock
flock 9

KEY=$({ echo "$PYV"; cat rig/requirements.txt; } | sha256sum | cut -c1-12)
VENV=.cache/rig/venv-$KEY
if [ ! -f "$VENV/complete" ]; then
    echo "rig/setup.sh: installing Triton and its clients into $VENV (about 600 MB, once)" >&2
    rm -rf "$VENV"
    "$PYTHON" -m venv "$VENV" || fail "cannot make a virtual environment; on Debian: apt-get install python3-venv"
    "$VENV/bin/python" -m pip install -q --disable-pip-version-check --prefer-binary -r rig/requirements.txt
    touch "$VENV/complete"
    for old in .cache/rig/venv-*; do # those of earlier pins
        [ "$old" = "$VENV" ] || rm -rf "$old"
    done
fi
ln -sfn "venv-$KEY" .cache/rig/venv

if [ ! -x .cache/bin/grpcurl ] || [ "$(cat .cache/bin/grpcurl.version 2>/dev/null)" != "$GRPCURL" ]; then
    echo "rig/setup.sh: building $GRPCURL" >&2
    GOBIN=$(pwd)/.cache/bin GOFLAGS= go install "$GRPCURL"
    echo "$GRPCURL" >.cache/bin/grpcurl.version
fi
