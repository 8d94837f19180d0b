#!/bin/sh
# Prints the path of a prometheus server, and unpacks one if there is none: the distribution's package, its one binary alone,
# into the ignored folder .cache, so that no service is started and nothing else is installed. Does nothing when there is one
# already. Tests look in the same places; see pkg/internal/promtest.
set -eu
cd "$(dirname "$0")/.."

found() {
    for one in "${PROMETHEUS:-}" .cache/bin/prometheus "$(command -v prometheus || true)"; do
        if [ -n "$one" ] && "$one" --version 2>/dev/null | grep -q '^prometheus, version [23]'; then
            case $one in /*) echo "$one" ;; *) echo "$(pwd)/$one" ;; esac
            return 0
        fi
    done
    return 1
}

found && exit 0

mkdir -p .cache/bin
exec 9>.cache/prometheus.lock
flock 9
found && exit 0 # whoever had the lock has installed it

if command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then
    echo "rig/prometheus.sh: unpacking the package prometheus into .cache" >&2
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    get='apt-get -q -o APT::Sandbox::User=root download prometheus' # the folder is nobody else's
    (cd "$folder" && { $get || { apt-get update -q && $get; }; }) >&2
    dpkg-deb --fsys-tarfile "$folder"/prometheus_*.deb | tar -xO ./usr/bin/prometheus >"$folder/prometheus"
    chmod +x "$folder/prometheus"
    mv "$folder/prometheus" .cache/bin/prometheus
    found && exit 0
fi
echo "rig/prometheus.sh: no prometheus; on Debian, as root: apt-get install prometheus, or set PROMETHEUS=/path/to/one" >&2
exit 1
