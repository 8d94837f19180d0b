package explain

import (
	"slices"
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

func TestATargetThatCannotStandInIsSaidToBePassedOverAndWhy(t *testing.T) {
	score := 0.5
	tensors := func(name, datatype string) *inference.Tensors {
		return &inference.Tensors{Outputs: []inference.Tensor{{Name: name, Datatype: datatype, Shape: []int64{-1}}}}
	}
	deputy := func(name string, k *inference.Tensors) *inference.Model {
		return &inference.Model{Name: name, Tensors: k, Stable: &inference.Target{Name: "model_v1"}}
	}
	double, renamed := deputy("double", tensors("S", "FP64")), deputy("renamed", tensors("T", "FP32"))
	for name, tt := range map[string]struct {
		chain  *inference.Fallback
		words  string
		passed []string
	}{
		"of another datatype": {
			&inference.Fallback{Model: double, Predict: true, V2: true, Outage: true, Else: &inference.Fallback{Score: &score}},
			"score 0.5, over predict and v2, in place of an outage",
			[]string{`model double is passed over (predict, v2): its output "S" is FP64 [-1], and "S" of this model is FP32 [-1]`},
		},
		"of another name, which Predict has none of": {
			&inference.Fallback{Model: renamed, Predict: true, V2: true, Outage: true},
			"model renamed, over predict and v2, in place of an outage",
			[]string{`model renamed is passed over (v2): it has no output "S", as this model has`},
		},
		"all there is": {
			&inference.Fallback{Model: double, Predict: true, Outage: true},
			"none that could answer: the error itself",
			[]string{`model double is passed over (predict): its output "S" is FP64 [-1], and "S" of this model is FP32 [-1]`},
		},
		"alike": {&inference.Fallback{Model: deputy("same", tensors("S", "FP32")), Predict: true, Outage: true}, "model same, over predict, in place of an outage", nil},
	} {
		c := &inference.Call{Target: &inference.Target{Name: "model_v1"}, Model: &inference.Model{Tensors: tensors("S", "FP32"), Fallback: tt.chain}}
		got := fallbackOf(c)
		if got == nil {
			t.Fatal(name)
		}
		var passed []string
		for _, p := range got.PassedOver {
			passed = append(passed, p.words())
		}
		if got.words() != tt.words || !slices.Equal(passed, tt.passed) {
			t.Errorf("%s: %q, %q", name, got.words(), passed)
		}
	}
}
