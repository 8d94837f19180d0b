#!/usr/bin/env bash
# Measures the gateway beside its peers, with the harness in the folder PEERS (its ./setup must have printed the variables
# that name the peers' binaries; evaluate them first):
#
#   eval "$(cd "$PEERS" && ./setup)" && PEERS=… loadtest/peers/run.sh -rounds 5
#
# Further arguments go to the harness. gateway and gateway-predict are the gateway as it ships, configured by TRITON_GRPC_HOST alone.
set -euo pipefail
: "${PEERS:?name the folder of the harness}"
root=$(cd "$(dirname "$0")/../.." && pwd)
out=$root/.cache/peers
mkdir -p "$out"
(cd "$root" && CGO_ENABLED=0 go build -tags grpcnotrace -trimpath -ldflags '-s -w' -o "$out/gateway" ./cmd/gateway)
# The harness expands variables in commands, not in the names of bodies.
sed "s|@here@|$root/loadtest/peers|" "$root/loadtest/peers/targets.json" >"$out/targets.json"
if [ -n "${PROFILE:-}" ]; then # profile.sh: operators' ports beside the others, with profiles
	sed -i 's|"127.0.0.1:19\(...\)", "GATEWAY_ADMIN": "off"|"127.0.0.1:19\1", "GATEWAY_ADMIN": "127.0.0.1:19\1"|; s|"GATEWAY_ADMIN": "127.0.0.1:191|"GATEWAY_ADMIN": "127.0.0.1:194|; s|"serve", |"serve", "--pprof", |' "$out/targets.json"
fi
cd "$PEERS"
GATEWAY_BIN=$out/gateway GATEWAY_PEERS=$root/loadtest/peers PEERS_OUT=${PEERS_OUT:-$out/results.json} exec ./run -targets "conf/targets.json,$out/targets.json" "$@"
