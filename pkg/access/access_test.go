package access

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

var everyKind = []inference.Kind{
	inference.Infer, inference.Metadata, inference.Repository, inference.SharedMemory, inference.Trace, inference.Log, inference.Admin,
}

func caller(name string) *inference.Caller { return &inference.Caller{Name: name} }

// The rules of the documentation's example.
var example = []Rule{
	{Callers: []string{"recommend", "mesh"}, Models: []string{"fraud", "rank-*"}, Allow: []inference.Kind{inference.Infer, inference.Metadata}},
	{Callers: []string{"batch"}, Models: []string{"*"}, Allow: []inference.Kind{inference.Infer}},
	{Callers: []string{"sre"}, Models: []string{"*"}, Allow: []inference.Kind{inference.Repository}},
	{Callers: []string{"sre"}, Allow: []inference.Kind{inference.Admin}},
}

func TestRulesGrantWhatTheySayAndNothingElse(t *testing.T) {
	p := New(false, example, true)
	for _, c := range []struct {
		caller, model string
		kind          inference.Kind
		want          bool
	}{
		{"recommend", "fraud", inference.Infer, true},
		{"recommend", "fraud", inference.Metadata, true},
		{"recommend", "fraud", inference.Repository, false},
		{"recommend", "fraud2", inference.Infer, false},
		{"recommend", "rank-a/b", inference.Infer, true},
		{"recommend", "rank-", inference.Infer, true},
		{"recommend", "xrank-a", inference.Infer, false},
		{"batch", "team/bert", inference.Infer, true},
		{"batch", "team/bert", inference.Metadata, false},
		{"sre", "fraud", inference.Repository, true},
		{"sre", "fraud", inference.Infer, false},
		{"sre", "", inference.Admin, true},
		{"sre", "whatever", inference.Admin, true},
		{"sre", "", inference.SharedMemory, false},
		{"stranger", "fraud", inference.Infer, false},
		{"", "fraud", inference.Infer, false},
	} {
		if got := p.Allows(caller(c.caller), c.model, c.kind); got != c.want {
			t.Errorf("%s %s %s: %v", c.caller, c.kind, c.model, got)
		}
	}
}

func TestWithoutRulesAnAuthenticatedCallerInfersAndSees(t *testing.T) {
	p := New(false, nil, true)
	for _, k := range everyKind {
		if got, want := p.Allows(caller("a"), "m", k), k == inference.Infer || k == inference.Metadata; got != want {
			t.Errorf("%s: %v", k, got)
		}
		if p.Allows(nil, "m", k) {
			t.Errorf("nobody may %s", k)
		}
	}
}

func TestWithoutAuthenticationOnlyTheAdminPortAsksWhoItIs(t *testing.T) {
	for _, rules := range [][]Rule{nil, example} {
		p := New(true, rules, false)
		for _, k := range everyKind {
			if got := p.Allows(nil, "m", k); got != (k != inference.Admin) {
				t.Errorf("%d rules, %s: %v", len(rules), k, got)
			}
		}
		if got := p.Allows(caller("sre"), "", inference.Admin); got != (rules != nil) {
			t.Errorf("%d rules, sre on the admin port: %v", len(rules), got)
		}
	}
}

func TestARoleGrantsToWhoeverCarriesItAndToNobodyByThatName(t *testing.T) {
	p := New(true, []Rule{
		{Callers: []string{"role:ml-admins"}, Models: []string{"rank-*"}, Allow: []inference.Kind{inference.Repository}},
		{Callers: []string{"web"}, Models: []string{"*"}, Allow: []inference.Kind{inference.Infer}},
		{Callers: []string{"role:ops"}, Allow: []inference.Kind{inference.Admin}},
	}, true)
	web := func(roles ...string) *inference.Caller { return &inference.Caller{Name: "web", Roles: roles} }
	for _, c := range []struct {
		caller *inference.Caller
		model  string
		kind   inference.Kind
		want   bool
		rule   string
	}{
		{web("reader", "ml-admins"), "rank-a", inference.Repository, true, "access.rules[0] grants repository to a role of the caller"},
		{web("ml-admins"), "fraud", inference.Repository, false, "no access rule grants the caller repository on this model"},
		{web("ml-admins"), "fraud", inference.Infer, true, "access.rules[1] grants infer"},
		{web(), "rank-a", inference.Repository, false, "no access rule grants the caller repository"},
		{web("ML-Admins"), "rank-a", inference.Repository, false, "no access rule grants the caller repository"},
		{web("ops"), "", inference.Admin, true, "access.rules[2] grants admin to a role of the caller"},
		{caller("ml-admins"), "rank-a", inference.Repository, false, "no access rule names the caller"},
		{caller("role:ml-admins"), "rank-a", inference.Repository, false, "no access rule names the caller"},
	} {
		if got := p.Explain(c.caller, c.model, c.kind); got.Allowed != c.want || got.Why != c.rule {
			t.Errorf("%+v %s %s: %+v, want %v %s", c.caller, c.kind, c.model, got, c.want, c.rule)
		}
	}
	if p.Everything(web("ml-admins"), inference.Repository) || !p.Somewhere(web("ml-admins"), inference.Repository) || p.Somewhere(web(), inference.Repository) {
		t.Error("a role grants on more or fewer models than its rule says")
	}
}

func TestNoPolicyAllowsNothing(t *testing.T) {
	var none *Policy
	var unset Current
	for _, k := range everyKind {
		if none.Allows(caller("a"), "m", k) || none.Everything(caller("a"), k) || none.Somewhere(caller("a"), k) || unset.Allows(caller("a"), "m", k) {
			t.Errorf("%s was allowed", k)
		}
		if none.Check(caller("a"), "m", k) == nil || unset.CheckKind(caller("a"), k) == nil {
			t.Errorf("%s was not refused", k)
		}
	}
	if New(false, nil, true).Allows(caller("a"), "m", inference.Kind(200)) {
		t.Error("a kind that is not there was allowed")
	}
}

// naive reads the rules as a person would.
func naive(rules []Rule, required bool, c *inference.Caller, model string, kind inference.Kind) bool {
	if !required && kind != inference.Admin {
		return true
	}
	if c == nil {
		return false
	}
	if len(rules) == 0 {
		return kind == inference.Infer || kind == inference.Metadata
	}
	for _, r := range rules {
		mine := func(entry string) bool {
			role, ok := strings.CutPrefix(entry, "role:")
			return ok && slices.Contains(c.Roles, role) || !ok && entry == c.Name
		}
		if !slices.ContainsFunc(r.Callers, mine) || !slices.Contains(r.Allow, kind) {
			continue
		}
		if kind >= inference.SharedMemory {
			return true
		}
		for _, m := range r.Models {
			if config.MatchModel(m, model) {
				return true
			}
		}
	}
	return false
}

var (
	names    = rapid.SampledFrom([]string{"a", "b", "c", "", "a*"})
	roles    = rapid.SampledFrom([]string{"a", "x", "y"})
	entries  = rapid.OneOf(names, rapid.Map(roles, func(role string) string { return "role:" + role }))
	models   = rapid.StringMatching(`[ab/é]{0,6}`)
	patterns = rapid.StringMatching(`[ab/é*]{0,6}`)
	oddOnes  = rapid.SampledFrom([]string{"*", "**", "?", "a?b", "[ab]", "[ab]*", `\*`, `a\*`, "[^a]*", "*[a-b]?", "[", `a\`, "?*?"})
	aRule    = rapid.Custom(func(t *rapid.T) Rule {
		return Rule{
			Callers: rapid.SliceOfN(entries, 0, 3).Draw(t, "callers"),
			Models:  rapid.SliceOfN(rapid.OneOf(models, patterns, oddOnes), 0, 4).Draw(t, "models"),
			Allow:   rapid.SliceOfN(rapid.SampledFrom(everyKind), 1, 4).Draw(t, "allow"),
		}
	})
)

// unlessEmpty keeps the naive reading from an empty pattern on an empty name, which is nobody's.
func unlessEmpty(rules []Rule) {
	for i := range rules {
		rules[i].Models = slices.DeleteFunc(rules[i].Models, func(m string) bool { return m == "" })
	}
}

func TestThePolicyIsTheRulesReadNaively(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := rapid.SliceOfN(aRule, 0, 6).Draw(t, "rules")
		unlessEmpty(rules)
		required := rapid.Bool().Draw(t, "required")
		p := New(rapid.Bool().Draw(t, "hide"), rules, required)
		for range 20 {
			var c *inference.Caller
			if rapid.IntRange(0, 9).Draw(t, "nobody") > 0 {
				c = caller(names.Draw(t, "caller"))
				c.Roles = rapid.SliceOfN(roles, 0, 2).Draw(t, "roles")
			}
			model, kind := models.Draw(t, "model"), rapid.SampledFrom(everyKind).Draw(t, "kind")
			got, want := p.Allows(c, model, kind), naive(rules, required, c, model, kind)
			if got != want {
				t.Fatalf("%v %q %s: %v, the rules say %v", c, model, kind, got, want)
			}
			if (p.Check(c, model, kind) == nil) != want {
				t.Fatalf("%v %q %s: Check says otherwise", c, model, kind)
			}
			if d := p.Explain(c, model, kind); d.Allowed != want || d.Why == "" {
				t.Fatalf("%v %q %s: explained as %+v", c, model, kind, d)
			} else if d.Rule != "" {
				var i int
				if _, err := fmt.Sscanf(d.Rule, "access.rules[%d]", &i); err != nil || !naive(rules[i:i+1], required, c, model, kind) {
					t.Fatalf("%s does not grant it", d.Rule)
				}
			}
			if got && !p.Somewhere(c, kind) {
				t.Fatal("allowed here, and nowhere")
			}
			if p.Everything(c, kind) && !got {
				t.Fatal("allowed everywhere, but not here")
			}
		}
	})
}

func TestARuleMoreNeverTakesAwayOnceThereIsOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := rapid.SliceOfN(aRule, 1, 5).Draw(t, "rules")
		fewer, more := New(false, rules, true), New(false, append(slices.Clone(rules), aRule.Draw(t, "one more")), true)
		c, model, kind := caller(names.Draw(t, "caller")), models.Draw(t, "model"), rapid.SampledFrom(everyKind).Draw(t, "kind")
		if fewer.Allows(c, model, kind) && !more.Allows(c, model, kind) {
			t.Fatalf("%s may no longer %s %q", c.Name, kind, model)
		}
	})
}

func TestPatternsMatchAsTheConfigurationSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, name := rapid.OneOf(patterns, oddOnes).Draw(t, "pattern"), models.Draw(t, "name")
		if !strings.ContainsAny(text, special) {
			t.Skip("a plain name")
		}
		p := compile(text)
		if got, want := p.match(name), config.MatchModel(text, name); got != want {
			t.Fatalf("%q on %q: %v", text, name, got)
		}
	})
}

func TestAHiddenModelIsRefusedWordForWordLikeOneThatIsNotThere(t *testing.T) {
	p := New(true, example, true)
	for _, kind := range []inference.Kind{inference.Infer, inference.Metadata, inference.Repository} {
		err := p.Check(caller("stranger"), "fraud", kind)
		got, want := fault.Of(err), fault.UnknownModel("fraud")
		if *got != *want {
			t.Errorf("%s: %+v, want %+v", kind, got, want)
		}
	}
	for _, kind := range []inference.Kind{inference.SharedMemory, inference.Trace, inference.Log, inference.Admin} {
		if err := p.Check(caller("stranger"), "fraud", kind); fault.Of(err).Kind != fault.Forbidden || strings.Contains(err.Error(), "fraud") {
			t.Errorf("%s, which is about no model: %v", kind, err)
		}
	}
}

func TestARefusalSaysWhoMayNotDoWhatAndWhatToAskFor(t *testing.T) {
	p := New(false, example, true)
	for kind, want := range map[inference.Kind]string{
		inference.Infer:        `MODEL_FORBIDDEN: caller "bob" may not infer model "fraud"; ask the operator for a rule (access.rules)`,
		inference.Metadata:     `MODEL_FORBIDDEN: caller "bob" may not see model "fraud"; ask the operator for a rule (access.rules)`,
		inference.Repository:   `MODEL_FORBIDDEN: caller "bob" may not load or unload model "fraud"; ask the operator for a rule (access.rules)`,
		inference.SharedMemory: `MODEL_FORBIDDEN: caller "bob" may not use shared memory (shm); ask the operator for a rule (access.rules)`,
		inference.Admin:        `MODEL_FORBIDDEN: caller "bob" may not use the admin port (admin); ask the operator for a rule (access.rules)`,
	} {
		if err := p.Check(caller("bob"), "fraud", kind); err == nil || err.Error() != want {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if err := p.CheckKind(caller("bob"), inference.Repository); err == nil || !strings.Contains(err.Error(), "may not load or unload any model") {
		t.Errorf("got %v", err)
	}
	if f := fault.Of(p.Check(nil, "fraud", inference.Infer)); f.Kind != fault.AuthMissing {
		t.Errorf("nobody: %v", f)
	}
}

func TestANewPolicyIsInForceAtOnce(t *testing.T) {
	var c Current
	c.Use(New(false, nil, false))
	if err := c.Check(nil, "m", inference.Infer); err != nil {
		t.Error(err)
	}
	c.Use(New(false, nil, true))
	if c.Check(nil, "m", inference.Infer) == nil || !c.Allows(caller("a"), "m", inference.Infer) || c.Everything(caller("a"), inference.Log) {
		t.Error("the old policy is still in force")
	}
	if !c.Policy().Allows(caller("a"), "m", inference.Infer) || fault.Of(c.Refusal(caller("a"), "m", inference.Log)).Kind != fault.Forbidden {
		t.Error("Policy and Refusal speak of another policy")
	}
}

func TestADecisionAllocatesNothing(t *testing.T) {
	p, c := many()
	p.roles = map[string]*grants{"some": {}}
	c.Roles = []string{"one", "some"}
	for _, model := range []string{"model-7", "team-3/x-b", "nobody's"} {
		if n := testing.AllocsPerRun(100, func() { p.Allows(c, model, inference.Infer) }); n != 0 {
			t.Errorf("%s: %v allocations", model, n)
		}
	}
}

// many is the policy of a gateway with many callers, whose rules have plain names and patterns.
func many() (*Policy, *inference.Caller) {
	var rules []Rule
	for i := range 200 {
		rules = append(rules, Rule{
			Callers: []string{fmt.Sprint("c", i)}, Allow: []inference.Kind{inference.Infer, inference.Metadata},
			Models: []string{"model-7", "model-8", "rank-*", "team-3/*-b", "*-shared"},
		})
	}
	return New(true, rules, true), caller("c100")
}

func BenchmarkAllows(b *testing.B) {
	p, c := many()
	for name, model := range map[string]string{"name": "model-7", "pattern": "rank-3", "none": "somebody-elses-model"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.Allows(c, model, inference.Infer)
			}
		})
	}
}
