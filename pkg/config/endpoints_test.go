package config

import (
	"strings"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

func TestUpstreamsAreWatchedAsTheySay(t *testing.T) {
	c, err := Parse("endpoints.yaml", []byte(`
version: 1
defaults: {pick: round_robin, probe: {infer: true}}
upstreams:
  triton:
    kind: triton
    endpoints: "triton:8001"
    keepalive: {time: 30s, timeout: 10s, permitted: true}
    eject: {consecutive_failures: 7, for: 20s, at_most: 25%}
    max_in_flight: 200
  plain: {kind: triton, endpoints: "plain:8001", keepalive: {time: 400s}}
models:
  - {name: fraud, upstream: triton, pick: hash(user)}
  - {name: other, upstream: plain, probe: {infer: false}}
`), func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	u, plain := c.Upstreams[0], c.Upstreams[1]
	if u.Keepalive != (Keepalive{30 * time.Second, 10 * time.Second}) || u.Eject != (Eject{7, 20 * time.Second, .25}) {
		t.Errorf("%+v %+v", u.Keepalive, u.Eject)
	}
	if u.MaxInFlight != 200 || plain.MaxInFlight != 0 {
		t.Errorf("%d and %d calls at once", u.MaxInFlight, plain.MaxInFlight)
	}
	if plain.Keepalive != (Keepalive{Time: 400 * time.Second}) || plain.Eject != (Eject{}) {
		t.Errorf("%+v %+v", plain.Keepalive, plain.Eject)
	}
	if c.Pick != inference.RoundRobin || c.Models[0].Pick != inference.HashUser || c.Models[1].Pick != inference.RoundRobin {
		t.Errorf("picks %v, %v, %v", c.Pick, c.Models[0].Pick, c.Models[1].Pick)
	}
	if !c.ProbeInfer || !c.Models[0].ProbeInfer || c.Models[1].ProbeInfer {
		t.Errorf("probes %t, %t, %t", c.ProbeInfer, c.Models[0].ProbeInfer, c.Models[1].ProbeInfer)
	}
}

func TestADNSServerMayBeNamed(t *testing.T) {
	for target, want := range map[string]string{
		"dns:///triton:8001":               "dns:///triton:8001",
		"dns://10.0.0.10/triton:8001":      "dns://10.0.0.10:53/triton:8001",
		"dns://10.0.0.10:8600/triton:8001": "dns://10.0.0.10:8600/triton:8001",
		"dns://[::1]/triton:8001":          "dns://[::1]:53/triton:8001",
		"dns://ns.local:53/triton:8001":    "dns://ns.local:53/triton:8001",
	} {
		c, err := Parse("dns.yaml", []byte("upstreams: {triton: {endpoints: \""+target+"\"}}"), func(string) string { return "" })
		if err != nil {
			t.Error(err)
		} else if got := c.Upstreams[0].Addresses(); len(got) != 1 || got[0] != want {
			t.Errorf("%s is %v, want %s", target, got, want)
		}
	}
	for _, target := range []string{"dns://triton:8001", "dns://10.0.0.10:0/triton:8001", "dns://a b/triton:8001", "dns://10.0.0.10/triton", "dns://10.0.0.10/a/b:1", "dns://:53/triton:8001"} {
		if _, err := Parse("dns.yaml", []byte("upstreams: {triton: {endpoints: \""+target+"\"}}"), func(string) string { return "" }); err == nil {
			t.Errorf("%s is taken", target)
		}
	}
}

func TestPingsThatTritonTakesForAnAttackAreRefusedUnlessItsFlagsAreSaidToPermitThem(t *testing.T) {
	_, err := Parse("endpoints.yaml", []byte(`
version: 1
upstreams:
  triton:
    kind: triton
    endpoints: "triton:8001"
    keepalive: {time: 30s, timeout: 10s}
    eject: {consecutive_failures: -1, for: 20m, at_most: 0%}
    max_in_flight: 0
models:
  - {name: fraud, pick: at random}
`), func(string) string { return "" })
	for _, want := range []string{
		"line 7", "upstreams.triton.keepalive.time", "under 5m", "--grpc-http2-min-recv-ping-interval-without-data=15000", "--grpc-http2-max-ping-strikes=0", "permitted: true",
		"line 8", "eject.consecutive_failures", "1 to 1000", "eject.for", "1s to 5m", "eject.at_most", "line 9", "upstreams.triton.max_in_flight: must be 1 to 100000", "line 11", "models[0].pick",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}
