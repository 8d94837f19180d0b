package split

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

var v1, v2, v3 = target("1"), target("2"), target("3")

func target(version string) *inference.Target {
	return &inference.Target{Name: "model_v" + version, Model: "fraud", Version: version, Upstream: "triton", Asked: "fraud"}
}

func named(targets ...*inference.Target) func(string) *inference.Target {
	return func(name string) *inference.Target {
		for _, t := range targets {
			if t.Name == name {
				return t
			}
		}
		return nil
	}
}

// declared is a model of three declared targets with rules.
func declared(rules ...inference.Rule) *inference.Model {
	return &inference.Model{
		Name: "fraud", Stable: v1, Split: rules, Named: named(v1, v2, v3),
		Targets: map[string]*inference.Target{v1.Name: v1, v2.Name: v2, v3.Name: v3},
		Pin:     func(context.Context, string) (*inference.Target, error) { return v3, nil },
	}
}

// undeclared is a model whose upstream has versions 1 and 2 now.
func undeclared(rules ...inference.Rule) *inference.Model {
	return &inference.Model{
		Name: "fraud", Split: rules, Named: named(v1, v2),
		Choose: func(context.Context) (*inference.Target, error) { return v1, nil },
		Pin:    func(context.Context, string) (*inference.Target, error) { return v3, nil },
	}
}

func is(want string) func(string) bool { return func(got string) bool { return got == want } }

func premium(to *inference.Target) inference.Rule {
	return inference.Rule{Name: "header x-user-type", Match: &inference.Match{Header: "x-user-type", Holds: is("premium"), Says: `is "premium"`}, To: to}
}

// under puts a rule under the condition of premium.
func under(userType string, r inference.Rule) inference.Rule {
	r.Match = &inference.Match{Header: "x-user-type", Holds: is(userType)}
	return r
}

func script(name string) inference.Rule { return inference.Rule{Name: "script " + name, Script: name} }

// weights makes a rule whose first target gets what the others leave.
func weights(salt string, targets []*inference.Target, shares ...float64) inference.Rule {
	r := inference.Rule{Name: "weights", Salt: salt}
	for i, span := range inference.Spans(shares, 0) {
		r.Weights = append(r.Weights, inference.Weight{Target: targets[i], Share: shares[i], Span: span})
	}
	return r
}

// fakeScripts answers for scripts by their names.
type fakeScripts map[string]func(*inference.Call) (string, string, bool)

func (f fakeScripts) Has(name string) bool { return f[name] != nil }

func (f fakeScripts) Decide(_ context.Context, _, script string, c *inference.Call) (string, string, bool) {
	return f[script](c)
}

func says(target, reason string, opinion bool) func(*inference.Call) (string, string, bool) {
	return func(*inference.Call) (string, string, bool) { return target, reason, opinion }
}

// chosen takes c through the stage.
func chosen(t testing.TB, s *Stage, c *inference.Call) *inference.Call {
	t.Helper()
	if err := s.Wrap(func(context.Context, *inference.Call) error { return nil })(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return c
}

func header(values ...string) map[string][]string { return map[string][]string{"x-user-type": values} }

func TestTheFirstRuleWithAnAnswerDecidesAndElseTheStableTarget(t *testing.T) {
	scripts := fakeScripts{
		"v3": says("model_v3", "night", true), "none": says("", "", false), "failed": says("", "timeout", true),
		"nonsense": says("model_v9", "", true),
	}
	all := []*inference.Target{v1, v2, v3}
	for name, tt := range map[string]struct {
		model  *inference.Model
		call   inference.Call
		target *inference.Target
		by     string
		reason string
	}{
		"no rules":                                    {model: declared(), target: v1, by: "stable"},
		"a header that holds":                         {model: declared(premium(v2)), call: inference.Call{Incoming: header("premium")}, target: v2, by: "header"},
		"the second of two values":                    {model: declared(premium(v2)), call: inference.Call{Incoming: header("free", "premium")}, target: v2, by: "header"},
		"a header that does not":                      {model: declared(premium(v2)), call: inference.Call{Incoming: header("free")}, target: v1, by: "stable"},
		"no such header":                              {model: declared(premium(v2)), target: v1, by: "stable"},
		"the next rule":                               {model: declared(premium(v2), script("v3")), target: v3, by: "script", reason: "night"},
		"the first rule":                              {model: declared(premium(v2), script("v3")), call: inference.Call{Incoming: header("premium")}, target: v2, by: "header"},
		"weights under a condition that holds":        {model: declared(under("premium", weights("s", all, 0, 100))), call: inference.Call{Incoming: header("premium")}, target: v2, by: "weights"},
		"weights under a condition that does not":     {model: declared(under("premium", weights("s", all, 0, 100))), target: v1, by: "stable"},
		"a script under a condition that does not":    {model: declared(under("premium", script("v3"))), target: v1, by: "stable"},
		"a script without an opinion":                 {model: declared(script("none"), inference.Rule{Name: "always", To: v2}), target: v2, by: "always"},
		"a script that failed":                        {model: declared(script("failed"), inference.Rule{Name: "always", To: v2}), target: v1, by: "stable", reason: "script failed: timeout"},
		"a script that answers no target":             {model: declared(script("nonsense"), inference.Rule{Name: "always", To: v2}), target: v1, by: "stable", reason: "script nonsense: model_v9 is no target now"},
		"a script that answers a version that is not": {model: undeclared(script("v3")), target: v1, by: "stable", reason: "script v3: model_v3 is no target now"},
		"a rule to a version that is not":             {model: undeclared(inference.Rule{Name: "always", To: v3}), target: v1, by: "stable", reason: "model_v3 is not on the upstream now"},
		"a rule to a version that is":                 {model: undeclared(inference.Rule{Name: "always", To: v2}), target: v2, by: "always"},
		"weights of which one is not there":           {model: undeclared(weights("s", all, 0, 0, 100)), call: inference.Call{Identity: inference.Identity{User: "ann"}}, target: v1, by: "stable", reason: "model_v3 is not on the upstream now"},
		"a pinned version goes before":                {model: declared(inference.Rule{Name: "always", To: v2}), call: inference.Call{Head: inference.Head{Version: "3"}}, target: v3, by: "pinned"},
	} {
		t.Run(name, func(t *testing.T) {
			c := tt.call
			c.Model = tt.model
			chosen(t, &Stage{Scripts: scripts}, &c)
			if c.Target != tt.target || c.Choice.By != tt.by || c.Choice.Reason != tt.reason {
				t.Errorf("went to %s by %s (%q), want %s by %s (%q)", c.Target.Name, c.Choice.By, c.Choice.Reason, tt.target.Name, tt.by, tt.reason)
			}
		})
	}
}

func TestConditionsAreOnMetadataUserAndCallerToo(t *testing.T) {
	rule := func(m inference.Match) *inference.Model {
		return declared(inference.Rule{Name: "when", Match: &m, To: v2})
	}
	for by, tt := range map[string]struct {
		match inference.Match
		holds inference.Call
	}{
		"metadata": {inference.Match{Field: "region", Holds: is("eu")}, inference.Call{Head: inference.Head{Metadata: map[string]string{"region": "eu"}}}},
		"user":     {inference.Match{User: true, Holds: is("ann")}, inference.Call{Identity: inference.Identity{User: "ann"}}},
		"caller":   {inference.Match{Caller: true, Holds: is("batch")}, inference.Call{Identity: inference.Identity{Caller: &inference.Caller{Name: "batch"}}}},
	} {
		c := tt.holds
		c.Model = rule(tt.match)
		if chosen(t, &Stage{}, &c); c.Target != v2 || c.Choice.By != by {
			t.Errorf("%s: %s by %s", by, c.Target.Name, c.Choice.By)
		}
		tt.match.Holds = is("")
		other := &inference.Call{Model: rule(tt.match)}
		if chosen(t, &Stage{}, other); other.Target != v1 {
			t.Errorf("%s: a call without one meets a condition on nothing", by)
		}
	}
}

func TestAModelWithoutDeclaredTargetsHasTheScriptOfItsNameElseTheDefault(t *testing.T) {
	own, other := says("model_v2", "own", true), says("model_v2", "default", true)
	for name, tt := range map[string]struct {
		scripts  fakeScripts
		scripted bool
		reason   string
		target   *inference.Target
	}{
		"its own":                    {fakeScripts{"fraud": own, "default": other}, true, "own", v2},
		"the default":                {fakeScripts{"default": other}, true, "default", v2},
		"none":                       {fakeScripts{"elsewhere": own}, true, "", v1},
		"a name scripts cannot have": {fakeScripts{"fraud": own, "default": other}, false, "", v1},
	} {
		m := undeclared()
		m.Scripted = tt.scripted
		c := chosen(t, &Stage{Scripts: tt.scripts}, &inference.Call{Model: m})
		if c.Target != tt.target || c.Choice.Reason != tt.reason {
			t.Errorf("%s: %s, %q", name, c.Target.Name, c.Choice.Reason)
		}
	}
}

func TestAScriptNeverFailsACall(t *testing.T) {
	none := fault.New(fault.ModelNotReady, "nothing ready")
	m := undeclared(script("failed"))
	m.Choose = func(context.Context) (*inference.Target, error) { return nil, none }
	s := &Stage{Scripts: fakeScripts{"failed": says("", "timeout", true)}}
	err := s.Wrap(func(context.Context, *inference.Call) error { return nil })(t.Context(), &inference.Call{Model: m})
	if !errors.Is(err, none) { // the model's own trouble, and nothing else
		t.Errorf("got %v", err)
	}
	if c := chosen(t, new(Stage), &inference.Call{Model: declared(script("any"))}); c.Target != v1 {
		t.Errorf("without scripts: %s", c.Target.Name)
	}
}

func TestARuleThatDecidesSetsItsHeaders(t *testing.T) {
	r := premium(v2)
	r.SetHeaders = map[string]string{"x-mesh-route": "canary"}
	c := chosen(t, new(Stage), &inference.Call{Model: declared(r), Incoming: header("premium")})
	if diff := cmp.Diff(r.SetHeaders, c.Choice.SetHeaders); diff != "" {
		t.Error(diff)
	}
	if c := chosen(t, new(Stage), &inference.Call{Model: declared(r)}); c.Choice.SetHeaders != nil {
		t.Errorf("the rule did not decide, and sets %v", c.Choice.SetHeaders)
	}
}

func TestAMillionUsersArePlacedByTheirSharesAndStay(t *testing.T) {
	shares := []float64{70, 20, 10}
	before := declared(weights("fraud-2026-11", []*inference.Target{v1, v2, v3}, shares...))
	after := declared(weights("fraud-2026-11", []*inference.Target{v1, v2, v3}, 60, 30, 10))
	s, counts, moved := new(Stage), map[*inference.Target]int{}, 0
	h := s.Wrap(func(context.Context, *inference.Call) error { return nil })
	for i := range users {
		a := inference.Call{Model: before, Identity: inference.Identity{User: fmt.Sprint("user-", i)}}
		b := inference.Call{Model: after, Identity: a.Identity}
		if h(t.Context(), &a) != nil || h(t.Context(), &b) != nil {
			t.Fatal("a call failed")
		}
		counts[a.Target]++
		if a.Target != b.Target {
			moved++
			if a.Target != v1 || b.Target != v2 {
				t.Fatalf("user-%d moved from %s to %s", i, a.Target.Name, b.Target.Name)
			}
		}
	}
	for i, target := range []*inference.Target{v1, v2, v3} {
		p := shares[i] / 100
		if off := math.Abs(float64(counts[target]) - users*p); off > 5*math.Sqrt(users*p*(1-p)) {
			t.Errorf("%s has %d of %d users", target.Name, counts[target], users)
		}
	}
	if off := math.Abs(float64(moved) - users*.1); off > 5*math.Sqrt(users*.1*.9) {
		t.Errorf("%d users moved, not a tenth", moved)
	}
}

func TestAUserStaysWhateverElseTheCallCarries(t *testing.T) {
	m := declared(weights("s", []*inference.Target{v1, v2}, 50, 50))
	rapid.Check(t, func(rt *rapid.T) {
		user := rapid.StringN(1, 40, 200).Draw(rt, "user")
		first := chosen(t, new(Stage), &inference.Call{Model: m, Identity: inference.Identity{User: user, RequestID: "a"}})
		again := chosen(t, new(Stage), &inference.Call{Model: m, Identity: inference.Identity{User: user, RequestID: "b"}, Incoming: header("premium")})
		if first.Target != again.Target || first.Choice.Bucket != again.Choice.Bucket || first.Choice.Bucket > 999 {
			rt.Fatalf("%q goes to %s and to %s", user, first.Target.Name, again.Target.Name)
		}
	})
}

func TestCallsWithoutAUserAreSpreadByTheirIDs(t *testing.T) {
	m := declared(weights("s", []*inference.Target{v1, v2}, 50, 50))
	counts := map[*inference.Target]int{}
	for i := range 1000 {
		counts[chosen(t, new(Stage), &inference.Call{Model: m, Identity: inference.Identity{RequestID: fmt.Sprint("r-", i)}}).Target]++
	}
	if counts[v1] < 420 || counts[v2] < 420 {
		t.Errorf("%d and %d", counts[v1], counts[v2])
	}
}

func TestOtherSaltsPlaceTheSameUsersElsewhere(t *testing.T) {
	a, b := declared(weights("a", []*inference.Target{v1, v2}, 90, 10)), declared(weights("b", []*inference.Target{v1, v2}, 90, 10))
	both := 0
	for i := range 10_000 {
		id := inference.Identity{User: fmt.Sprint("user-", i)}
		if chosen(t, new(Stage), &inference.Call{Model: a, Identity: id}).Target == v2 && chosen(t, new(Stage), &inference.Call{Model: b, Identity: id}).Target == v2 {
			both++
		}
	}
	if both < 60 || both > 140 { // a tenth of a tenth
		t.Errorf("%d of 10000 users are first in both experiments", both)
	}
}

type counts map[string]int

func (c counts) SplitChose(t *inference.Target, by string) { c[t.Name+" "+by]++ }

func TestChoicesAreCountedWhereThereIsSomethingToChoose(t *testing.T) {
	counted := counts{}
	s := &Stage{Counts: counted, Scripts: fakeScripts{"fraud": says("model_v2", "", true)}}
	scripted := undeclared()
	scripted.Scripted = true
	for _, m := range []*inference.Model{declared(), undeclared(), declared(premium(v2)), scripted} {
		chosen(t, s, &inference.Call{Model: m, Incoming: header("premium")})
		chosen(t, s, &inference.Call{Model: m, Head: inference.Head{Version: "3"}})
	}
	want := counts{"model_v2 header": 1, "model_v2 script": 1, "model_v3 pinned": 2}
	if !maps.Equal(want, counted) {
		t.Errorf("counted %v", counted)
	}
}

func TestEveryRuleSaysWhatItWouldAnswerAndWhy(t *testing.T) {
	s := &Stage{Scripts: fakeScripts{"night": says("model_v3", "after 22:00", true), "none": says("", "", false), "failed": says("", "no_key", true)}, Counts: counts{}}
	failed := &inference.Call{Model: declared(script("failed"))}
	if said, err := s.Explain(t.Context(), failed); err != nil || failed.Target != v1 || len(said) != 1 || !said[0].Decides || said[0].Why != "it ended with no_key, so the stable target serves" {
		t.Errorf("%+v, %v", said, err)
	}
	m := declared(premium(v2), script("none"), script("night"), weights("salt", []*inference.Target{v1, v2}, 90, 10))
	c := &inference.Call{Model: m, Incoming: header("free"), Identity: inference.Identity{User: "ann"}}
	said, err := s.Explain(t.Context(), c)
	if err != nil || c.Target != v3 || c.Choice.Reason != "after 22:00" {
		t.Fatalf("%v, %v", c.Target, err)
	}
	placed := v1
	for _, w := range m.Split[3].Weights {
		if w.Holds(inference.Hash("ann", "salt")) {
			placed = w.Target
		}
	}
	want := []inference.Considered{
		{Rule: "header x-user-type", By: "header", Why: `header x-user-type is "free"; the rule is for calls where it is "premium"`},
		{Rule: "script none", By: "script", Why: "the script has no opinion"},
		{Rule: "script night", By: "script", Target: "model_v3", Why: "the script says: after 22:00", Decides: true},
		{Rule: "weights", By: "weights", Target: placed.Name},
	}
	if len(said) == 4 {
		if !strings.HasPrefix(said[3].Why, `by salt "salt" the user is at `) || !strings.HasSuffix(said[3].Why, " %)") {
			t.Errorf("weights: %s", said[3].Why)
		}
		said[3].Why = ""
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Error(diff)
	}
	if len(s.Counts.(counts)) != 0 {
		t.Error("a question is counted")
	}
}

func TestAnExplanationChoosesAsACallDoes(t *testing.T) {
	s := &Stage{Scripts: fakeScripts{"fraud": says("model_v2", "", true), "failed": says("", "timeout", true), "odd": says("x", "", true)}}
	scripted := undeclared()
	scripted.Scripted = true
	for _, m := range []*inference.Model{
		declared(), undeclared(), scripted, declared(premium(v2)), declared(script("failed"), inference.Rule{To: v2}), declared(script("odd"), inference.Rule{To: v2}),
		undeclared(inference.Rule{To: v3}), declared(weights("s", []*inference.Target{v1, v2}, 40, 60)),
	} {
		for _, version := range []string{"", "3"} {
			call := inference.Call{Model: m, Incoming: header("premium"), Identity: inference.Identity{User: "ann"}, Head: inference.Head{Version: version}}
			question := call
			chosen(t, s, &call)
			if _, err := s.Explain(t.Context(), &question); err != nil || question.Target != call.Target || question.Choice.By != call.Choice.By || question.Choice.Reason != call.Choice.Reason {
				t.Errorf("explained as %v by %+v, is %v by %+v", question.Target, question.Choice, call.Target, call.Choice)
			}
		}
	}
}

func BenchmarkSplit(b *testing.B) {
	none := undeclared()
	none.Scripted = true
	for name, m := range map[string]*inference.Model{
		"none": declared(), "no script": none, "header": declared(premium(v2)),
		"weights": declared(weights("fraud-2026-11", []*inference.Target{v1, v2}, 95, 5)),
		"both":    declared(premium(v2), weights("fraud-2026-11", []*inference.Target{v1, v2}, 95, 5)),
	} {
		b.Run(name, func(b *testing.B) {
			s := &Stage{Scripts: fakeScripts{}}
			h := s.Wrap(func(context.Context, *inference.Call) error { return nil })
			c := &inference.Call{Model: m, Incoming: header("free"), Identity: inference.Identity{User: "user-1234567"}}
			b.ReportAllocs()
			for b.Loop() {
				_ = h(b.Context(), c)
			}
		})
	}
}

func TestRulesAndWeightsAllocateNothing(t *testing.T) {
	m := declared(premium(v2), weights("fraud-2026-11", []*inference.Target{v1, v2}, 95, 5))
	h := new(Stage).Wrap(func(context.Context, *inference.Call) error { return nil })
	ctx := t.Context()
	for _, values := range []string{"premium", "free"} {
		c := &inference.Call{Model: m, Incoming: header(values), Identity: inference.Identity{User: "user-1234567"}}
		if n := testing.AllocsPerRun(100, func() { _ = h(ctx, c) }); n != 0 {
			t.Errorf("%s: %v allocations", values, n)
		}
	}
}
