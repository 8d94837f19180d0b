#!/usr/bin/env bash
# Renews cmd/gateway/default.pgo, the profile that the binary is built with: the gateway under load in each of the ways that
# run.sh measures. To be run, on a machine that does nothing else, when the path of a call has changed. It needs what run.sh
# needs, and takes a minute.
#
#   eval "$(cd "$PEERS" && ./setup)" && PEERS=… loadtest/peers/profile.sh
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$out"' EXIT

profile() { # of the gateway whose operators' port is $1, for as long as that port lets it take
	until curl -sf -o /dev/null "http://127.0.0.1:$1/livez"; do sleep 0.2; done
	curl -sSf -o "$out/$1.pprof" "http://127.0.0.1:$1/debug/pprof/profile?seconds=50"
}
for port in 19470 19471 19472 19473; do profile "$port" & done
PROFILE=1 "$here/run.sh" -only gateway,gateway-predict,gateway-lease,gateway-exact -sizes small -rounds 4 -open 0 -closed 2s -warm 300ms -max-wait 0s
wait
cd "$root"
go tool pprof -proto "$out"/*.pprof >"$out/merged.pgo"
# The name of the binary is in it with its folder, which is nobody's business: dots of the same length.
bin=$(cd "$root/.cache/peers" && pwd -P)/
gzip -dc "$out/merged.pgo" | perl -0777 -pe "s{\Q$bin\E}{'.' x length(\$&)}ge" | gzip -9n >cmd/gateway/default.pgo
