package telemetry

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

func TestMetricsOfBreakersAreAsPeoplesAlertsKnowThem(t *testing.T) {
	m := New(Build{})
	states := []BreakerState{
		{Model: "fraud", Version: "1", Target: "model_v1", State: BreakerOpen},
		{Model: "fraud", Version: "2", Target: "model_v1", State: BreakerClosed}, // what it was before the last change of the file
		{Model: "fraud", Version: "3", Target: "model_v3", State: BreakerHalfOpen},
		{Model: "rank", Version: "1", Target: "model_v1", State: BreakerOpen, Forced: "open"},
	}
	promises := []Promise{{"fraud", "0.99", .12}, {"fraud", "0.999", .8}, {"fraud", "0.999", .8}}
	b := NewBreakers(m, func() []BreakerState { return states }, func() []Promise { return promises })
	v1 := &inference.Target{Asked: "fraud", Version: "1", Name: "model_v1"}
	b.Changed(v1, "open", "failures")
	b.Changed(v1, "half-open", "waited")
	b.Changed(v1, "open", "failures")
	b.Rejected(v1, "failures")
	b.Rejected(v1, "failures")
	b.Rejected(v1, "probing")
	for _, name := range []string{"a", "b"} {
		b.Rejected(inference.Nowhere(name, errors.New("x")), "no_endpoint")
	}
	_, body := scrape(t, m, "text/plain")
	var got strings.Builder
	for line := range strings.Lines(body) {
		if strings.Contains(line, "gateway_breaker_") || strings.Contains(line, "gateway_slo_") {
			got.WriteString(line)
		}
	}
	path := filepath.Join("testdata", "breakers.golden")
	if *update {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("got\n%s", got.String())
	}
	problems, err := promlint.New(strings.NewReader(got.String())).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

func TestCountingARejectedCallAllocatesNothing(t *testing.T) {
	b := NewBreakers(New(Build{}), func() []BreakerState { return nil }, func() []Promise { return nil })
	v1 := &inference.Target{Asked: "fraud", Version: "1", Name: "model_v1"}
	b.Rejected(v1, "failures")
	if n := testing.AllocsPerRun(100, func() { b.Rejected(v1, "failures") }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
