package explain

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

func TestATimeoutSaysWhatItGoesBy(t *testing.T) {
	second := Duration(time.Second)
	known := Dynamic{Timeout: 3 * second, Source: "prometheus", P999: 2 * second, Samples: 12345, Needs: 10000, Age: 7 * second, Asks: true, Floor: 2 * second, Factor: 1.5}
	for want, change := range map[string]func(d *Dynamic){
		"dynamic, 3s for this target: of 12345 attempts within an hour 999 in 1000 took at most 2s (Prometheus, 7s ago); it moves toward 1.5 times that, at least 2s, a step every 15s": func(*Dynamic) {},
		"took at most 2s (Prometheus, 7s ago, and it has said nothing good since)":                                                                                                      func(d *Dynamic) { d.Source = "stale" },
		"took at most 2s (this gateway's own attempts, 7s ago; Prometheus does not tell)":                                                                                               func(d *Dynamic) { d.Source = "stats" },
		"took at most 2s (this gateway's own attempts, 7s ago);":                                                                                                                        func(d *Dynamic) { d.Source, d.Asks = "stats", false },
		"1 in 1000 took longer than 1m0s (Prometheus":                                                                                                                                   func(d *Dynamic) { d.P999, d.Beyond = 60*second, true },
		"shadow: no call ends by it, but it would be 3s for":                                                                                                                            func(d *Dynamic) { d.Mode = "shadow" },
		"; timeout.max is not above its floor, and holds":                                                                                                                               func(d *Dynamic) { d.Floor = 60 * second },
		"no dynamic timeout yet: Prometheus or this gateway has seen 3 of the 10000 attempts within an hour that it takes":                                                              func(d *Dynamic) { d.Source, d.Samples = "max", 3 },
		"no dynamic timeout yet: this gateway has seen 3 of the 10000 attempts":                                                                                                         func(d *Dynamic) { d.Source, d.Samples, d.Asks = "max", 3, false },
		"no dynamic timeout: there are calls enough, but nobody can tell how long they took":                                                                                            func(d *Dynamic) { d.Source = "max" },
	} {
		d := known
		change(&d)
		if got := d.why(time.Minute); !strings.Contains(got, want) {
			t.Errorf("%q does not say %q", got, want)
		}
	}
}

func TestOnlyAModelWithADynamicTimeoutIsToldOfIt(t *testing.T) {
	g := newGateway(false)
	asked := 0
	g.Dynamic = func(_ *inference.Model, target *inference.Target) *Dynamic {
		asked++
		return &Dynamic{Timeout: Duration(500 * time.Millisecond), Source: "stats", P999: Duration(400 * time.Millisecond), Samples: 20000, Needs: 10000}
	}
	text := func() string {
		r, err := g.Explain(t.Context(), Question{Model: "fraud"})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := r.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if got := text(); asked != 0 || strings.Contains(got, "dynamic") {
		t.Errorf("a model without:\n%s", got)
	}
	fraud, err := g.Model(t.Context(), "fraud")
	if err != nil {
		t.Fatal(err)
	}
	fraud.Timeouts.Dynamic = inference.Dynamic{Floor: 100 * time.Millisecond, Factor: 1.25}
	if got := text(); asked != 1 || !strings.Contains(got, "dynamic, 500ms for this target") || !strings.Contains(got, "toward 1.25 times that, at least 100ms") {
		t.Errorf("a model with one:\n%s", got)
	}
}
