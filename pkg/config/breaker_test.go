package config

import (
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

func TestABreakerIsAsTheModelSaysElseTheDefaultsElseUs(t *testing.T) {
	c := good(t, oneUpstream+`passthrough: true
defaults: {breaker: {window: 20s, failures: 25%, slow_after: 3s}}
models:
  - name: plain
  - {name: own, breaker: {min_calls: 50, failures: 12.5%, open: 1s, open_max: 1s, probes: 1}}
  - {name: promising, slo: {p99: 100ms, p999: 800ms}}
  - {name: both, slo: {p999: 800ms}, breaker: {slow: 90%, slow_after: 1s}}
`)
	all := defaultBreaker
	all.Window, all.Failures, all.SlowAfter = 20*time.Second, .25, 3*time.Second
	own, promising, both := all, all, all
	own.MinCalls, own.Failures, own.Open, own.OpenMax, own.Probes = 50, .125, time.Second, time.Second, 1
	promising.SlowAfter = 800 * time.Millisecond
	both.Slow, both.SlowAfter = .9, time.Second
	for i, want := range []inference.Breaker{all, own, promising, both} {
		if got := c.Models[i].Breaker; got != want {
			t.Errorf("%s: %+v, want %+v", c.Models[i].Name, got, want)
		}
	}
	if c.Breaker != all {
		t.Errorf("models that pass through: %+v", c.Breaker)
	}
	if got := c.Models[2].SLO; got != (SLO{100 * time.Millisecond, 800 * time.Millisecond}) {
		t.Errorf("promised: %+v", got)
	}
}

func TestWithoutAPromiseNoCallIsSlow(t *testing.T) {
	c := good(t, oneUpstream+"models: [{name: m, slo: {p99: 1s}}]")
	if b := c.Models[0].Breaker; b != defaultBreaker || b.SlowAfter != 0 {
		t.Errorf("got %+v", b)
	}
}

func TestAShareIsAPercentageAboveZero(t *testing.T) {
	for text, want := range map[Percent]float64{"50%": .5, "0.1%": .001, "100%": 1, "12.5 %": .125} {
		if got, err := text.parse(); got != want || err != nil {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []Percent{"", "%", "0%", "-1%", "101%", "50", "half", "1e1%", "NaN%", "Inf%", "0x1p2%", "1_0%"} {
		if got, err := text.parse(); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}
