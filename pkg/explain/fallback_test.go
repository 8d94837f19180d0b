package explain

import (
	"testing"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

func TestWhatAnswersInPlaceOfATargetIsSaidAsItIsForTheCall(t *testing.T) {
	score := 0.5
	v1, v2 := &inference.Target{Name: "model_v1"}, &inference.Target{Name: "model_v2"}
	chain := &inference.Fallback{
		To: v1, Predict: true, V2: true, Outage: true, Overload: true,
		Else: &inference.Fallback{Model: &inference.Model{Name: "small"}, Else: &inference.Fallback{Score: &score}},
	}
	const all = "model_v1, else model small, else score 0.5, over predict and v2, in place of an outage or overload"
	for name, tt := range map[string]struct {
		c    inference.Call
		want string
	}{
		"another target": {inference.Call{Target: v2}, all},
		"its own target": {inference.Call{Target: v1}, "model small, else score 0.5, over predict and v2, in place of an outage or overload"},
		"pinned":         {inference.Call{Target: v2, Pinned: true}, "score 0.5, over predict and v2, in place of an outage or overload"},
		"no target":      {inference.Call{}, all},
	} {
		tt.c.Model = &inference.Model{Fallback: chain}
		if got := fallbackOf(&tt.c); got == nil || got.words() != tt.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for _, f := range []*inference.Fallback{nil, {To: v1, Predict: true, Outage: true}} {
		if got := fallbackOf(&inference.Call{Target: v1, Model: &inference.Model{Fallback: f}}); got != nil {
			t.Errorf("%+v", got)
		}
	}
}
