package catalog

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// unversioned has a route "risk" to a model without declared targets.
func unversioned(model string) *config.Config {
	return &config.Config{Models: []config.Model{{Name: "risk", Upstream: "a", UpstreamModel: model, Pins: config.PinsAny}}}
}

// know makes versions ready everywhere, as of now.
func (f *fake) know(model string, versions ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.states == nil {
		f.states = make(map[string][]inference.VersionState)
	}
	f.states[model] = nil
	for _, v := range versions {
		f.states[model] = append(f.states[model], inference.VersionState{Version: v, Anywhere: true, Everywhere: true, Since: time.Now()})
	}
}

// chosen gives the target of unpinned calls to name.
func chosen(t *testing.T, c *Catalog, name string) *inference.Target {
	t.Helper()
	m, err := c.Model(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	target, err := m.Choose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return target
}

func TestAReloadMovesNoUnpinnedCallToAnotherVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fake{name: "a"}
		a.know("fraud", "1")
		c := catalogOf(t, unversioned("fraud"), a)
		before := chosen(t, c, "risk")
		a.know("fraud", "1", "2")
		for range 3 {
			time.Sleep(time.Second) //nolint:forbidigo // the bubble's clock: less in all than a newer version takes to settle
			next := unversioned("fraud")
			next.Models[0].Timeouts.Max, next.Models[0].Breaker.Probes = time.Minute, 3
			reload(t, c, next, a)
			if now := chosen(t, c, "risk"); now != before {
				t.Fatalf("calls went to version %s and go to %s", before.Version, now.Version)
			}
		}
		if m := c.Declared("risk"); m.Timeouts.Max != time.Minute || m.Breaker.Probes != 3 {
			t.Errorf("the new timeout and breaker are not in force: %v", m)
		}
		time.Sleep(settle) //nolint:forbidigo // the bubble's clock
		if now := chosen(t, c, "risk"); now.Version != "2" {
			t.Errorf("version 2 has settled, and calls go to %s", now.Version)
		}
	})
}

func TestVersionsAreForgottenWithTheirRouteTheirUpstreamOrTheirModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, change := range map[string]func(t *testing.T, c *Catalog, a *fake){
			"another upstream of the same name": func(t *testing.T, c *Catalog, _ *fake) {
				other := &fake{name: "a"}
				other.know("fraud", "1", "2")
				reload(t, c, unversioned("fraud"), other)
			},
			"another model": func(t *testing.T, c *Catalog, a *fake) {
				a.know("cnn", "1", "2")
				reload(t, c, unversioned("cnn"), a)
			},
			"the route was away": func(t *testing.T, c *Catalog, a *fake) {
				reload(t, c, &config.Config{}, a)
				if n := len(c.Snapshot().implicits); n != 0 {
					t.Errorf("versions of %d routes are kept", n)
				}
				reload(t, c, unversioned("fraud"), a)
			},
		} {
			a := &fake{name: "a"}
			a.know("fraud", "1")
			c := catalogOf(t, unversioned("fraud"), a)
			_ = chosen(t, c, "risk")
			a.know("fraud", "1", "2")
			change(t, c, a)
			if now := chosen(t, c, "risk"); now.Version != "2" {
				t.Errorf("%s: calls go to version %s", name, now.Version)
			}
		}
	})
}

func TestModelsThatPassThroughKeepTheirVersionWhenUpstreamsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &fake{name: "a"}, &fake{name: "b", models: map[string][]string{"cnn": {"1"}}}
		c := catalogOf(t, &config.Config{Passthrough: true}, a, b)
		before := chosen(t, c, "cnn")
		b.know("cnn", "1", "2")
		b.models["cnn"] = []string{"1", "2"}
		asked := b.asked.Load()
		for _, upstreams := range [][]*fake{{a, b, {name: "c"}}, {b}} { // one more behind it, and two less
			reload(t, c, &config.Config{Passthrough: true}, upstreams...)
			if now := chosen(t, c, "cnn"); now != before || b.asked.Load() != asked {
				t.Errorf("%d upstreams: version %s, asked %d times more", len(upstreams), now.Version, b.asked.Load()-asked)
			}
		}
		first := &fake{name: "c"}
		reload(t, c, &config.Config{Passthrough: true}, first, b)
		if now := chosen(t, c, "cnn"); now != before || first.asked.Load() != 1 {
			t.Errorf("a new one before it: version %s, and the new one was asked %d times", now.Version, first.asked.Load())
		}
		reload(t, c, &config.Config{Models: []config.Model{{Name: "cnn", Upstream: "b", UpstreamModel: "cnn"}}}, first, b)
		if now := chosen(t, c, "cnn"); now != before {
			t.Errorf("declared under its own name: version %s", now.Version)
		}
	})
}

func TestModelsThatPassThroughFollowTheDefaultsInForce(t *testing.T) {
	a := &fake{name: "a", models: map[string][]string{"cnn": {"1"}}}
	c := catalogOf(t, &config.Config{Passthrough: true}, a)
	_ = chosen(t, c, "cnn")
	reload(t, c, &config.Config{Passthrough: true, Defaults: inference.Timeouts{Max: time.Minute}, Breaker: inference.Breaker{Probes: 3}}, a)
	if m, err := c.Model(t.Context(), "cnn"); err != nil || m.Timeouts.Max != time.Minute || m.Breaker.Probes != 3 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestARouteTakesAModelFromThoseThatPassThrough(t *testing.T) {
	models := map[string][]string{"cnn": {"1"}}
	a, b := &fake{name: "a", models: models}, &fake{name: "b", models: models}
	c := catalogOf(t, &config.Config{Passthrough: true}, a, b)
	if up := chosen(t, c, "cnn").Upstream; up != "a" {
		t.Fatalf("found on %s", up)
	}
	next := unversioned("cnn")
	next.Passthrough = true
	reload(t, c, next, a, b)
	if known := c.Known(); len(known) != 0 {
		t.Errorf("%d models pass through", len(known))
	}
	if up := chosen(t, c, "cnn").Upstream; up != "b" {
		t.Errorf("under its own name it is still reached on %s", up)
	}
}

func TestModelsThatPassThroughAreListedWithTheirTargetsAndNobodyIsAsked(t *testing.T) {
	a := &fake{name: "a", models: map[string][]string{"cnn": {"3"}, "bert": {"1", "2"}}}
	c := New()
	if c.Known() != nil {
		t.Error("models are known before any configuration")
	}
	reload(t, c, &config.Config{Passthrough: true}, a)
	_, _ = chosen(t, c, "cnn"), chosen(t, c, "bert")
	asked := a.asked.Load()
	known := c.Known()
	if len(known) != 2 || known[0].Name != "bert" || known[0].Current().Version != "2" || known[1].Name != "cnn" || known[1].Current().Version != "3" {
		t.Errorf("known: %+v", known)
	}
	if n := a.asked.Load() - asked; n != 0 {
		t.Errorf("the upstream was asked %d times", n)
	}
	reload(t, c, &config.Config{}, a)
	if known := c.Known(); known != nil {
		t.Errorf("nothing passes through, and %d models are known", len(known))
	}
}
