package authorize

import (
	"context"
	"errors"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/access"
	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

var errNext = errors.New("went on")

// run takes a call through the stage and reports whether it went on; else why not.
func run(t *testing.T, wrap func(inference.Handler) inference.Handler, c *inference.Call) (bool, *fault.Fault) {
	t.Helper()
	err := wrap(func(context.Context, *inference.Call) error { return errNext })(t.Context(), c)
	if errors.Is(err, errNext) {
		return true, nil
	}
	return false, fault.Of(err)
}

func policy(hide bool) *access.Policy {
	return access.New(hide, []access.Rule{
		{Callers: []string{"ann"}, Models: []string{"fraud", "rank-*"}, Allow: []inference.Kind{inference.Infer}},
		{Callers: []string{"sre"}, Models: []string{"rank-*"}, Allow: []inference.Kind{inference.Repository}},
		{Callers: []string{"sre"}, Allow: []inference.Kind{inference.Trace}},
	}, true)
}

func call(caller, model string) *inference.Call {
	c := &inference.Call{Head: inference.Head{Model: model}}
	if caller != "" {
		c.Caller = &inference.Caller{Name: caller}
	}
	return c
}

func TestACallGoesOnOnlyWhereARuleLetsIt(t *testing.T) {
	s := Stage{Access: policy(false)}
	for _, c := range []struct {
		caller, model string
		want          string // the reason it is refused with
	}{
		{"ann", "fraud", ""},
		{"ann", "rank-a/b", ""},
		{"ann", "other", "MODEL_FORBIDDEN"},
		{"ann", "", "INVALID_ARGUMENT"},
		{"sre", "rank-1", "MODEL_FORBIDDEN"},
		{"bob", "fraud", "MODEL_FORBIDDEN"},
		{"", "fraud", "AUTH_MISSING"},
	} {
		on, f := run(t, s.Wrap, call(c.caller, c.model))
		if on != (c.want == "") || (f != nil && f.Kind.Reason() != c.want) {
			t.Errorf("%s on %s: %v", c.caller, c.model, f)
		}
	}
}

func TestARefusalIsCountedUnderADeclaredModelOnly(t *testing.T) {
	declared := &inference.Model{Name: "other", Route: true}
	s := Stage{Access: policy(true), Declared: func(name string) *inference.Model {
		if name == "other" {
			return declared
		}
		return nil
	}}
	for name, want := range map[string]*inference.Model{"other": declared, "made-up": nil} {
		c := call("ann", name)
		if on, f := run(t, s.Wrap, c); on || f.Kind != fault.ModelNotFound || c.Model != want {
			t.Errorf("%s: %v, counted under %v", name, f, c.Model)
		}
	}
}

func TestEachMessageOfAStreamIsAskedAnew(t *testing.T) {
	s := Stage{Access: policy(false)}
	stream := &inference.Stream{Identity: inference.Identity{Caller: &inference.Caller{Name: "ann"}}}
	for _, c := range []struct {
		model string
		want  bool
	}{{"fraud", true}, {"other", false}, {"rank-1", true}} {
		m := &inference.Call{Stream: stream, Identity: stream.Identity, Head: inference.Head{Model: c.model}}
		if on, f := run(t, s.Wrap, m); on != c.want {
			t.Errorf("%s: %v %v", c.model, on, f)
		}
	}
}

func TestControlTakesTheKindAndQuestionsAboutModelsAreLeftToWhoAnswers(t *testing.T) {
	for _, hide := range []bool{false, true} {
		s := Stage{Access: policy(hide)}
		for _, c := range []struct {
			caller string
			kind   inference.Kind
			want   bool
		}{
			{"bob", inference.Metadata, true},
			{"bob", inference.Repository, false},
			{"bob", inference.SharedMemory, false},
			{"bob", inference.Trace, false},
			{"bob", inference.Log, false},
			{"sre", inference.Repository, true},
			{"sre", inference.Trace, true},
			{"sre", inference.Log, false},
			{"", inference.Log, false},
		} {
			m := call(c.caller, "")
			m.Kind = c.kind
			on, f := run(t, s.Question, m)
			if on != c.want || (f != nil && c.caller != "" && f.Kind != fault.Forbidden) {
				t.Errorf("%s %s, hide %v: %v", c.caller, c.kind, hide, f)
			}
		}
	}
}

func TestWithoutAuthenticationTheStageStandsInNobodysWay(t *testing.T) {
	s := Stage{Access: access.New(true, nil, false)}
	if on, f := run(t, s.Wrap, call("", "anything")); !on {
		t.Error(f)
	}
	for _, kind := range []inference.Kind{inference.Metadata, inference.Repository, inference.SharedMemory, inference.Trace, inference.Log} {
		c := call("", "")
		c.Kind = kind
		if on, f := run(t, s.Question, c); !on {
			t.Error(kind, f)
		}
	}
}

func BenchmarkStage(b *testing.B) {
	b.ReportAllocs()
	h := Stage{Access: policy(true)}.Wrap(func(context.Context, *inference.Call) error { return nil })
	c := call("ann", "fraud")
	for b.Loop() {
		_ = h(context.Background(), c)
	}
}
