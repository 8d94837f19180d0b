package catalog

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// fake is an upstream with models and their versions.
type fake struct {
	name   string
	models map[string][]string
	asked  atomic.Int64
	out    atomic.Bool // no endpoint is up
	broken error
	listed bool
	gate   chan struct{} // when set, answers wait until it is closed

	mu     sync.Mutex
	states map[string][]inference.VersionState
}

type fakePool struct{ model, version string }

func (fakePool) Pick(*inference.Call, []inference.Endpoint) (inference.Endpoint, error) {
	return nil, nil
}
func (fakePool) Ready() bool { return true }

func (f *fake) Name() string                              { return f.name }
func (f *fake) Pool(model, version string) inference.Pool { return fakePool{model, version} }
func (f *fake) Listed(string) bool                        { return f.listed }
func (f *fake) Answers() bool                             { return !f.out.Load() }
func (f *fake) Versions(model string) []inference.VersionState {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.states[model]
}

func (f *fake) Describe(ctx context.Context, model, version string) ([]string, error) {
	f.asked.Add(1)
	if f.gate != nil {
		select {
		case <-f.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if f.broken != nil {
		return nil, f.broken
	}
	versions, ok := f.models[model]
	if !ok || (version != "" && !slices.Contains(versions, version)) {
		return nil, fault.New(fault.ModelNotFound, "not here")
	}
	return versions, nil
}

// catalogOf serves cfg over upstreams.
func catalogOf(t *testing.T, cfg *config.Config, upstreams ...*fake) *Catalog {
	t.Helper()
	c := New()
	reload(t, c, cfg, upstreams...)
	return c
}

// reload makes c serve cfg over upstreams.
func reload(t *testing.T, c *Catalog, cfg *config.Config, upstreams ...*fake) {
	t.Helper()
	sources := map[string]Source{}
	cfg.Upstreams = nil
	for _, u := range upstreams {
		cfg.Upstreams = append(cfg.Upstreams, config.Upstream{Name: u.name})
		sources[u.name] = u
	}
	s, err := c.Build(cfg, sources)
	if err != nil {
		t.Fatal(err)
	}
	c.Use(s)
}

func kindOf(err error) fault.Kind {
	if err == nil {
		return 255
	}
	return fault.Of(err).Kind
}

func TestAPassingModelIsFoundOnceAndPinnedToItsHighestVersion(t *testing.T) {
	up := &fake{name: "triton", models: map[string][]string{"fraud": {"1", "10", "9"}}}
	c := catalogOf(t, &config.Config{Passthrough: true}, up)
	for range 3 {
		m, err := c.Model(t.Context(), "fraud")
		if err != nil {
			t.Fatal(err)
		}
		target, err := m.Choose(t.Context())
		if err != nil || target.Version != "10" || target.Name != "model_v10" || target.Asked != "fraud" {
			t.Fatalf("target %+v, error %v", target, err)
		}
	}
	if n := up.asked.Load(); n != 1 {
		t.Errorf("the upstream was asked %d times", n)
	}
}

func TestAThousandUnknownNamesReachTheUpstreamTenTimesAndLeaveNothing(t *testing.T) { // O-17
	up := &fake{name: "triton"}
	c := catalogOf(t, &config.Config{Passthrough: true}, up)
	for i := range 1000 {
		if _, err := c.Model(t.Context(), fmt.Sprint("made-up-", i)); kindOf(err) != fault.ModelNotFound {
			t.Fatalf("name %d: %v", i, err)
		}
	}
	if n := up.asked.Load(); n > 10 {
		t.Errorf("the upstream was asked %d times", n)
	}
	known := 0
	c.Snapshot().passthrough.known.Range(func(any, any) bool { known++; return true })
	if known != 0 {
		t.Errorf("%d models were made", known)
	}
}

func TestManyCallsForOneNewModelAskOnce(t *testing.T) {
	up := &fake{name: "triton", models: map[string][]string{"fraud": {"1"}}}
	c := catalogOf(t, &config.Config{Passthrough: true}, up)
	var wg sync.WaitGroup
	var first atomic.Pointer[inference.Model]
	for range 50 {
		wg.Go(func() {
			m, err := c.Model(t.Context(), "fraud")
			if err != nil {
				t.Error(err)
				return
			}
			if !first.CompareAndSwap(nil, m) && first.Load() != m {
				t.Error("two models of one name")
			}
		})
	}
	wg.Wait()
	if n := up.asked.Load(); n > 5 {
		t.Errorf("the upstream was asked %d times", n)
	}
}

func TestAnOutageIsNotAnUnknownModel(t *testing.T) {
	up := &fake{name: "triton", broken: fault.New(fault.NoEndpoint, "down")}
	c := catalogOf(t, &config.Config{Passthrough: true}, up)
	if _, err := c.Model(t.Context(), "fraud"); kindOf(err) != fault.NoEndpoint {
		t.Errorf("got %v", err)
	}
}

func TestTheSecondUpstreamIsAskedWhenTheFirstDoesNotKnow(t *testing.T) {
	a, b := &fake{name: "a"}, &fake{name: "b", models: map[string][]string{"fraud": {"1"}}}
	c := catalogOf(t, &config.Config{Passthrough: true}, a, b)
	m, err := c.Model(t.Context(), "fraud")
	if err != nil {
		t.Fatal(err)
	}
	if target, _ := m.Choose(t.Context()); target.Upstream != "b" {
		t.Errorf("found on %s", target.Upstream)
	}
}

func routed() *config.Config {
	return &config.Config{Passthrough: true, Models: []config.Model{{
		Name: "risk", Stable: "model_v1", Pins: config.PinsDeclared, Targets: []config.Target{
			{Name: "model_v1", Upstream: "triton", Model: "fraud", Version: "1"},
			{Name: "model_v2", Upstream: "triton", Model: "fraud", Version: "2"},
		},
	}}}
}

func TestAModelOfARouteIsReachedOnlyThroughTheRoute(t *testing.T) {
	up := &fake{name: "triton", models: map[string][]string{"fraud": {"1", "2"}, "cnn": {"1"}}}
	c := catalogOf(t, routed(), up)
	if _, err := c.Model(t.Context(), "fraud"); kindOf(err) != fault.ModelNotFound {
		t.Errorf("fraud under its own name: %v", err)
	}
	m, err := c.Model(t.Context(), "risk")
	if err != nil || m.Stable.Model != "fraud" || m.Stable.Asked != "risk" {
		t.Errorf("risk: %+v, %v", m, err)
	}
	if names := c.Snapshot().NamesOf("triton", "fraud"); !slices.Equal(names, []string{"risk"}) {
		t.Errorf("clients know fraud as %v", names)
	}
	if names := c.Snapshot().NamesOf("triton", "cnn"); !slices.Equal(names, []string{"cnn"}) {
		t.Errorf("clients know cnn as %v", names)
	}
}

func TestOnlyDeclaredVersionsOfARouteMayBePinned(t *testing.T) {
	up := &fake{name: "triton", models: map[string][]string{"fraud": {"1", "2", "3"}}}
	cfg := routed()
	c := catalogOf(t, cfg, up)
	m, _ := c.Model(t.Context(), "risk")
	if target, err := m.Pin(t.Context(), "2"); err != nil || target != m.Targets["model_v2"] {
		t.Errorf("version 2: %+v, %v", target, err)
	}
	if _, err := m.Pin(t.Context(), "3"); kindOf(err) != fault.ModelNotFound {
		t.Errorf("version 3: %v", err)
	}
	cfg.Models[0].Pins = config.PinsAny
	m, _ = catalogOf(t, cfg, up).Model(t.Context(), "risk")
	if target, err := m.Pin(t.Context(), "3"); err != nil || target.Version != "3" {
		t.Errorf("with pins: any, version 3: %+v, %v", target, err)
	}
	if _, err := m.Pin(t.Context(), "4"); kindOf(err) != fault.ModelNotFound {
		t.Errorf("with pins: any, version 4: %v", err)
	}
}

func TestWithoutPassthroughOnlyRoutesAreKnown(t *testing.T) {
	up := &fake{name: "triton", models: map[string][]string{"cnn": {"1"}}}
	cfg := routed()
	cfg.Passthrough = false
	if _, err := catalogOf(t, cfg, up).Model(t.Context(), "cnn"); kindOf(err) != fault.ModelNotFound || up.asked.Load() != 0 {
		t.Errorf("cnn: %v, asked %d times", err, up.asked.Load())
	}
}

func TestACallKeepsTheModelItWasResolvedToOverAReload(t *testing.T) {
	up := &fake{name: "triton"}
	c := catalogOf(t, routed(), up)
	before, _ := c.Model(t.Context(), "risk")
	next := routed()
	next.Models[0].Stable = "model_v2"
	reload(t, c, next, up)
	after, _ := c.Model(t.Context(), "risk")
	if before.Stable.Name != "model_v1" || after.Stable.Name != "model_v2" {
		t.Errorf("before %s, after %s", before.Stable.Name, after.Stable.Name)
	}
}

func BenchmarkModelCostsTheSameWithManyModels(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			cfg := &config.Config{Upstreams: []config.Upstream{{Name: "triton"}}}
			for i := range n {
				cfg.Models = append(cfg.Models, config.Model{Name: fmt.Sprint("m", i), Stable: "v1", Targets: []config.Target{{Name: "v1", Upstream: "triton", Model: fmt.Sprint("m", i), Version: "1"}}})
			}
			c := New()
			s, err := c.Build(cfg, map[string]Source{"triton": &fake{name: "triton"}})
			if err != nil {
				b.Fatal(err)
			}
			c.Use(s)
			name := fmt.Sprint("m", n/2)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Model(b.Context(), name); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
