package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/fault"
)

func TestARouteThatLeadsNowhereSaysWhy(t *testing.T) {
	for name, tt := range map[string]struct {
		up   *fake
		kind fault.Kind
		says string
	}{
		"no such model": {
			&fake{}, fault.ModelNotReady, `upstream "a" has no model "fruad" (route "risk"); correct models[].model or load it`,
		},
		"not loaded": {
			&fake{broken: fault.New(fault.ModelNotReady, "unloaded")}, fault.ModelNotReady, `upstream "a" has model "fruad" (route "risk") and cannot serve it now`,
		},
		"down": {&fake{broken: fault.New(fault.NoEndpoint, "none of the 2 endpoints answers")}, fault.NoEndpoint, "none of the 2 endpoints answers"},
	} {
		tt.up.name = "a"
		m := catalogOf(t, unversioned("fruad"), tt.up).Declared("risk")
		for range 3 {
			if _, err := m.Choose(t.Context()); kindOf(err) != tt.kind || !strings.Contains(fault.Of(err).Msg, tt.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := tt.up.asked.Load(); n != 1 {
			t.Errorf("%s: the upstream was asked %d times in a moment", name, n)
		}
	}
}

func TestAnUpstreamThatIsSilentIsGivenUpOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := catalogOf(t, unversioned("fraud"), &fake{name: "a", gate: make(chan struct{})}).Declared("risk")
		start := time.Now()
		if _, err := m.Choose(t.Context()); kindOf(err) != fault.NoEndpoint || time.Since(start) != askTimeout {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}

func TestManyCallsOfANewRouteAskOnceAndEachLeavesWhenItsCallerDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fake{name: "a", models: map[string][]string{"fraud": {"7"}}, gate: make(chan struct{})}
		m := catalogOf(t, unversioned("fraud"), a).Declared("risk")
		leaving, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := m.Choose(leaving)
			left <- err
		}()
		synctest.Wait() // its question is the one that all wait for
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if target, err := m.Choose(t.Context()); err != nil || target.Version != "7" {
					t.Errorf("target %+v, error %v", target, err)
				}
			})
		}
		synctest.Wait()
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("the caller that left got %v", err)
		}
		close(a.gate)
		wg.Wait()
		if n := a.asked.Load(); n != 1 {
			t.Errorf("the upstream was asked %d times", n)
		}
	})
}

func TestReadinessGoesByWhatIsKnownAndAsksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fake{name: "a", models: map[string][]string{"fraud": {"1"}}, gate: make(chan struct{})}
		c := catalogOf(t, unversioned("fraud"), a)
		serves := func(string) bool { return true }
		if c.Snapshot().Ready(serves) {
			t.Error("ready while nothing is known")
		}
		a.know("fraud", "1")
		time.Sleep(2 * refreshEvery) //nolint:forbidigo // the bubble's clock
		if !c.Snapshot().Ready(serves) {
			t.Error("not ready with a version that is")
		}
		if n := a.asked.Load(); n != 0 {
			t.Errorf("the upstream was asked %d times", n)
		}
	})
}

func TestAnUpstreamWithoutVersionsServesUnpinnedCalls(t *testing.T) {
	a := &fake{name: "a", models: map[string][]string{"fraud": nil}}
	if target := chosen(t, catalogOf(t, unversioned("fraud"), a), "risk"); target.Version != "" || target.Name != "model" {
		t.Errorf("target %+v", target)
	}
}

// pinAnything has a route with targets of which any version may be pinned.
func pinAnything() *config.Config {
	return &config.Config{Models: []config.Model{{
		Name: "risk", Stable: "v1", Pins: config.PinsAny, Targets: []config.Target{{Name: "v1", Upstream: "a", Model: "fraud", Version: "1"}},
	}}}
}

func TestAThousandUnknownVersionsReachTheUpstreamAtMostTenTimesASecond(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg   *config.Config
		model string
		known []string
		most  int64
	}{
		"a model that passes through":               {&config.Config{Passthrough: true}, "fraud", nil, 10},
		"one whose versions are known":              {&config.Config{Passthrough: true}, "fraud", []string{"1"}, 2},
		"a route without targets":                   {unversioned("fraud"), "risk", nil, 10},
		"one whose versions are known too":          {unversioned("fraud"), "risk", []string{"1"}, 2},
		"a route with pins: any":                    {pinAnything(), "risk", nil, 10},
		"one with pins: any and versions are known": {pinAnything(), "risk", []string{"1"}, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &fake{name: "a", models: map[string][]string{"fraud": {"1"}}, listed: true}
			if tt.known != nil {
				a.know("fraud", tt.known...)
			}
			c := catalogOf(t, tt.cfg, a)
			m, err := c.Model(t.Context(), tt.model)
			if err != nil {
				t.Fatal(err)
			}
			before := a.asked.Load()
			for i := range 1000 { // in one second
				time.Sleep(time.Millisecond) //nolint:forbidigo // the bubble's clock
				_, err := m.Pin(t.Context(), fmt.Sprint(1000+i))
				if kind := kindOf(err); kind != fault.ModelNotFound && (tt.known != nil || kind != fault.ModelNotReady) {
					t.Fatalf("%s: %v", name, err)
				}
			}
			if n := a.asked.Load() - before; n > tt.most || n == 0 {
				t.Errorf("%s: the upstream was asked %d times", name, n)
			}
			if s := c.Snapshot(); len(s.implicits) > 0 {
				for key, m := range s.implicits {
					if len(m.targets) > 1 {
						t.Errorf("%s: %d targets were made of %s", name, len(m.targets), key.model)
					}
				}
			}
		})
	}
}

func TestABrandNewVersionIsFoundBeforeTheReadinessTableHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fake{name: "a", models: map[string][]string{"fraud": {"1", "2"}}, gate: make(chan struct{})}
		a.know("fraud", "1")
		m := catalogOf(t, unversioned("fraud"), a).Declared("risk")
		var wg sync.WaitGroup
		for range 10 { // of which one asks, and none is told that there is no such version
			wg.Go(func() {
				if target, err := m.Pin(t.Context(), "2"); err != nil || target.Version != "2" {
					t.Errorf("target %+v, error %v", target, err)
				}
			})
		}
		synctest.Wait()
		if _, err := m.Pin(t.Context(), "3"); kindOf(err) != fault.ModelNotFound {
			t.Errorf("version 3: %v", err)
		}
		close(a.gate)
		wg.Wait()
		if n := a.asked.Load(); n != 1 {
			t.Errorf("the upstream was asked %d times", n)
		}
	})
}
