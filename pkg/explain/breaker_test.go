package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

func TestTheBreakerOfTheTargetIsShownAndRefuses(t *testing.T) {
	soon := time.Now().Add(4*time.Second + 400*time.Millisecond)
	for name, c := range map[string]struct {
		breaker Breaker
		words   string // in the text
		refused string // by which stage
	}{
		"closed":          {Breaker{State: "closed", Calls: 12, Failures: 2}, "its breaker is closed; of the latest 12 calls 2 failed\n", ""},
		"closed and slow": {Breaker{State: "closed", Calls: 12, Slow: 3}, "of the latest 12 calls 0 failed and 3 were slow", ""},
		"open": {
			Breaker{State: "open", Why: "failures", Until: &soon, Calls: 20, Failures: 10},
			"its breaker is open, since 10 of 20 calls failed, for another 4s", "breaker",
		},
		"open again":  {Breaker{State: "open", Why: "failures", Until: &soon}, "since calls that were to find out whether it is back failed", "breaker"},
		"slow":        {Breaker{State: "open", Why: "slow", Calls: 20, Slow: 12}, "since 12 of 20 calls were slow", "breaker"},
		"half-open":   {Breaker{State: "half-open"}, "a few calls find out whether it is back, the others are refused", ""},
		"forced":      {Breaker{State: "open", Why: "forced", Forced: "ann"}, "its breaker is open, forced by ann", "breaker"},
		"let through": {Breaker{State: "closed", Why: "forced", Forced: "ann"}, "its breaker is closed, forced by ann", ""},
		"no endpoint": {Breaker{State: "open", Why: "no_endpoint"}, "since no endpoint can serve the target", "forward"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(false)
			g.ready = c.refused != "forward"
			g.Breaker = func(target *inference.Target) *Breaker {
				if target.Name != "model_v1" {
					t.Errorf("asked about %s", target.Name)
				}
				return &c.breaker
			}
			r, err := g.Explain(t.Context(), Question{Model: "fraud"})
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), c.words) {
				t.Errorf("%v\n%s", err, text.String())
			}
			switch {
			case c.refused == "" && (r.Refusal != nil || !r.Served):
				t.Errorf("refused: %+v", r.Refusal)
			case c.refused != "" && (r.Refusal == nil || r.Refusal.Stage != c.refused || r.Served):
				t.Errorf("not refused by %s: %+v", c.refused, r.Refusal)
			}
		})
	}
}
