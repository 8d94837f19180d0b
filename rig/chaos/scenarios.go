package main

var onBoth = []string{castEmbedded, castReal}

// scenarios are all there are, in the order of the table.
var scenarios = []scenario{
	{name: "kill -9 one of two", about: "0 unary calls hurt; each message of a broken stream answered in band; normal ≤ 5 s after it is back", short: castReal, long: onBoth, run: killOne},
	{name: "kill -9 both, restart", about: "degraded ≤ 2 s, normal ≤ 5 s after a server is ready, no herd, the gateway ready throughout", short: castEmbedded, long: onBoth, run: killBoth},
	{name: "SIGSTOP one of two", about: "out within 7 s, its calls answered by the other; back after SIGCONT", short: castEmbedded, long: onBoth, run: freeze},
	{name: "SIGTERM one of two", about: "0 calls hurt", long: onBoth, run: drainOne},
	{name: "one answers after 5 s", about: "0 failures; at most 5 % of calls are slow", long: []string{castEmbedded}, run: slowOne},
	{name: "one fails half of its calls", about: "ejected within 5 s, then 0 failures", long: []string{castEmbedded}, run: failingOne},
	{name: "GOAWAY storm", about: "0 calls hurt", long: onBoth, run: goaways},
	{name: "connections reset", about: "0 unary calls hurt", long: onBoth, run: resets},
	{name: "half-written frames", about: "0 unary calls hurt", long: onBoth, run: halves},
	{name: "frames in pieces", about: "0 calls hurt", long: []string{castEmbedded}, run: pieces},
	{name: "DNS change", about: "new addresses are found, old ones left, 0 calls hurt", long: []string{castEmbedded}, run: names},
	{name: "models unloaded and loaded", about: "0 hurt one server at a time; all: degraded ≤ 2 s, normal ≤ 5 s", long: onBoth, run: reloadModels},
	{name: "queue full", about: "answered or refused at once, other models untouched, no breaker opens", long: []string{castReal}, run: queueFull},
	{name: "a model that fails to load", about: "0 calls to others hurt", long: onBoth, run: failingLoad},
	{name: "gateway SIGTERM, two replicas", about: "0 unary calls hurt, exit 0, streams end with their reason", short: castEmbedded, long: []string{castEmbedded}, run: restarts},
	{name: "config reloads", about: "0 calls hurt", short: castEmbedded, long: onBoth, run: reloads},
	{name: "Prometheus killed, then empty", about: "timeouts keep the last good value for a minute, then go by the gateway's own; 0 calls hurt", long: []string{castEmbedded}, run: noPrometheus},
	{name: "1,000 long calls cancelled", about: "nothing left running in the gateway or a server", short: castEmbedded, long: onBoth, run: cancels},
}
