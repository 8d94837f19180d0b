package catalog

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

func TestTheStableVersionOfASplitModelIsTheLowestAndMovesOnlyWhenItHasGone(t *testing.T) {
	now := time.Unix(1000, 0)
	ready := func(v string) inference.VersionState {
		return inference.VersionState{Version: v, Anywhere: true, Everywhere: true, Since: now}
	}
	listed := func(v string) inference.VersionState { return inference.VersionState{Version: v, Since: now} }
	unloaded := func(v string, ago time.Duration) inference.VersionState {
		return inference.VersionState{Version: v, Unloaded: true, Since: now.Add(-ago)}
	}
	type states = []inference.VersionState
	for name, tt := range map[string]struct {
		current string
		states  states
		want    string
	}{
		"the first choice is the lowest that is listed": {"", states{ready("3"), listed("2")}, "2"},
		"also when it is not ready":                     {"", states{listed("1"), ready("2")}, "1"},
		"never one that is unloaded":                    {"", states{unloaded("1", 0), ready("2")}, "2"},
		"nothing gives nothing":                         {"", nil, ""},
		"a newer one moves nothing":                     {"1", states{ready("1"), ready("2")}, "1"},
		"an outage moves nothing":                       {"1", states{listed("1"), ready("2")}, "1"},
		"one that has just been unloaded is held":       {"1", states{unloaded("1", 9*time.Second), ready("2")}, "1"},
		"and given up when that lasts":                  {"1", states{unloaded("1", 10*time.Second), ready("2"), ready("3")}, "2"},
		"for the next one, ready or not":                {"1", states{unloaded("1", time.Minute), listed("2"), ready("3")}, "2"},
		"one that nobody knows any more is given up":    {"1", states{ready("3"), ready("2")}, "2"},
		"all unloaded moves nothing":                    {"1", states{unloaded("1", time.Minute), unloaded("2", time.Minute)}, ""},
		"a lower one that serves takes over":            {"2", states{ready("1"), ready("2")}, "1"},
		"one that is being loaded does not yet":         {"2", states{listed("1"), ready("2")}, "2"},
		"numbers are compared as numbers":               {"", states{ready("10"), ready("9")}, "9"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := lowest(tt.current, tt.states, now); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestAModelIsServedByItsLowestVersionWhereAScriptOrRulesSplitIt(t *testing.T) {
	a := &fake{name: "a", models: map[string][]string{"cnn": {"1", "2", "3"}, "bert": {"4", "5"}}}
	a.know("fraud", "1", "2")
	a.know("ruled", "2", "3")
	cfg := unversioned("fraud")
	cfg.Models[0].Scripted = true
	cfg.Models = append(cfg.Models, config.Model{
		Name: "rules", Upstream: "a", UpstreamModel: "ruled", Pins: config.PinsAny,
		Split: []config.SplitRule{{Name: "always", To: "model_v3"}},
	})
	cfg.Passthrough = true
	var scripts atomic.Value
	scripts.Store("")
	c := New()
	c.Scripted(func(model string) bool { return strings.Contains(scripts.Load().(string), model) })
	reload(t, c, cfg, a)
	for _, tt := range []struct{ scripts, risk, cnn string }{{"", "2", "3"}, {"risk cnn", "1", "1"}, {"cnn", "2", "1"}} {
		scripts.Store(tt.scripts)
		if got := chosen(t, c, "risk").Version; got != tt.risk {
			t.Errorf("scripts %q: risk is served by version %s", tt.scripts, got)
		}
		if got := chosen(t, c, "cnn").Version; got != tt.cnn {
			t.Errorf("scripts %q: cnn, which passes through, is served by version %s", tt.scripts, got)
		}
		if got := chosen(t, c, "rules").Version; got != "2" {
			t.Errorf("rules are served by version %s", got)
		}
		m, _ := c.Model(t.Context(), "cnn")
		if !m.Scripted || m.Current() == nil || m.Current().Version != tt.cnn {
			t.Errorf("scripts %q: cnn is shown with %v", tt.scripts, m.Current())
		}
	}
	if m := c.Declared("rules"); m.Scripted || len(m.Split) != 1 || m.Split[0].To.Version != "3" {
		t.Errorf("rules: %+v", m.Split)
	}
}

func TestAStableVersionIsHeldThroughAnOutageAndOverAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fake{name: "a"}
		a.know("fraud", "1", "2")
		cfg := unversioned("fraud")
		cfg.Models[0].Scripted = true
		c := New()
		c.Scripted(func(string) bool { return true })
		reload(t, c, cfg, a)
		before := chosen(t, c, "risk")
		a.mu.Lock()
		a.states["fraud"] = []inference.VersionState{{Version: "1", Unloaded: true, Since: time.Now()}, {Version: "2", Anywhere: true, Everywhere: true, Since: time.Now()}}
		a.mu.Unlock()
		for range 9 {
			time.Sleep(time.Second) //nolint:forbidigo // the bubble's clock
			reload(t, c, cfg, a)
			if now := chosen(t, c, "risk"); now != before {
				t.Fatalf("version %s took over", now.Version)
			}
		}
		time.Sleep(2 * time.Second) //nolint:forbidigo // the bubble's clock
		if now := chosen(t, c, "risk"); now.Version != "2" {
			t.Errorf("version 1 has gone for good, and calls go to %s", now.Version)
		}
	})
}

func TestATargetIsFoundByItsNameWhileItsVersionIsThereAndNobodyIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fake{name: "a", models: map[string][]string{"cnn": {"1", "2"}}}
		c := catalogOf(t, &config.Config{Passthrough: true}, a)
		m, err := c.Model(t.Context(), "cnn")
		if err != nil {
			t.Fatal(err)
		}
		asked := a.asked.Load()
		expect := func(when string, want ...string) {
			t.Helper()
			for _, name := range []string{"model_v1", "model_v2", "model_v3", "model_v02", "model", "", "canary"} {
				target, there := m.Named(name), false
				for _, w := range want {
					there = there || w == name
				}
				if (target != nil) != there || target != nil && target.Name != name {
					t.Errorf("%s, %q is %+v", when, name, target)
				}
			}
		}
		expect("by what the upstream answered", "model_v1", "model_v2")
		a.know("cnn", "2", "3")
		time.Sleep(time.Second) //nolint:forbidigo // the bubble's clock
		expect("by the readiness table", "model_v2", "model_v3")
		a.mu.Lock()
		a.states["cnn"][0] = inference.VersionState{Version: "2", Unloaded: true}
		a.mu.Unlock()
		time.Sleep(time.Second) //nolint:forbidigo // the bubble's clock
		expect("after version 2 was unloaded", "model_v3")
		if n := a.asked.Load() - asked; n != 0 {
			t.Errorf("the upstream was asked %d times", n)
		}
	})
}

func TestRulesOfDeclaredTargetsCompileToThem(t *testing.T) {
	cfg := routed()
	cfg.Models[0].Split = []config.SplitRule{
		{Name: "in", When: &config.When{Header: "x-region", Op: config.WhenIs, Values: []string{"eu", "us"}}, To: "model_v2"},
		{Name: "is", When: &config.When{Metadata: "tier", Op: config.WhenIs, Values: []string{"gold"}}, To: "model_v2"},
		{Name: "prefix", When: &config.When{Who: config.WhoUser, Op: config.WhenPrefix, Values: []string{"qa-"}}, To: "model_v2"},
		{Name: "regex", When: &config.When{Who: config.WhoCaller, Op: config.WhenRegex, Values: []string{"^b[ao]t"}}, Script: "night"},
		{Name: "weights", Weights: []config.Weight{{Target: "model_v2", Share: 10}, {Target: "model_v1", Share: 90}}, Salt: "s", SetHeaders: map[string]string{"x-mesh": "a"}},
	}
	cfg.Models[0].Mirror = &config.Mirror{To: "model_v2", Percent: 5}
	m := catalogOf(t, cfg, &fake{name: "triton"}).Declared("risk")
	two := m.Targets["model_v2"]
	if m.Mirror.To != two || m.Mirror.Percent != 5 || m.Named("model_v2") != two || m.Named("model_v3") != nil {
		t.Errorf("mirror %+v, named %v", m.Mirror, m.Named("model_v2"))
	}
	for i, tt := range []struct {
		yes, no inference.Call
	}{
		{inference.Call{Incoming: map[string][]string{"x-region": {"us"}}}, inference.Call{Incoming: map[string][]string{"x-region": {"eu-west"}}}},
		{inference.Call{Head: inference.Head{Metadata: map[string]string{"tier": "gold"}}}, inference.Call{Incoming: map[string][]string{"tier": {"gold"}}}},
		{inference.Call{Identity: inference.Identity{User: "qa-1"}}, inference.Call{Identity: inference.Identity{User: "an-qa-1"}}},
		{inference.Call{Identity: inference.Identity{Caller: &inference.Caller{Name: "bot-1"}}}, inference.Call{Identity: inference.Identity{Caller: &inference.Caller{Name: "robot"}}}},
	} {
		if !m.Split[i].Match.Meets(&tt.yes) || m.Split[i].Match.Meets(&tt.no) || m.Split[i].Match.Says == "" {
			t.Errorf("rule %s does not compare as it says", m.Split[i].Name)
		}
	}
	if m.Split[3].Script != "night" || m.Split[3].To != nil {
		t.Errorf("%+v", m.Split[3])
	}
	w := m.Split[4]
	if w.Match != nil || w.Weights[0].Target != two || w.Weights[0].Low != 0 || w.Weights[1].High != 1<<32 || w.Weights[0].High != w.Weights[1].Low || w.Salt != "s" || w.SetHeaders["x-mesh"] != "a" {
		t.Errorf("%+v", w)
	}
	long := strings.Repeat("b", maxSubject-3)
	if h := holds(&config.When{Op: config.WhenRegex, Values: []string{"bat$"}}); !h(long+"bat") || h(long+"bbat") {
		t.Error("the bound on what an expression is tried on is another")
	}
}

func BenchmarkNamed(b *testing.B) {
	a := &fake{name: "a", models: map[string][]string{"cnn": {"1", "2"}}}
	a.know("cnn", "1", "2")
	c := New()
	cfg := &config.Config{Passthrough: true, Upstreams: []config.Upstream{{Name: "a"}}}
	s, err := c.Build(cfg, map[string]Source{"a": a})
	if err != nil {
		b.Fatal(err)
	}
	c.Use(s)
	m, err := c.Model(b.Context(), "cnn")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if m.Named("model_v2") == nil {
			b.Fatal("not there")
		}
	}
}
