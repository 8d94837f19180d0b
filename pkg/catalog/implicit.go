package catalog

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Source is an upstream as the catalog sees it.
type Source interface {
	Name() string
	// Pool gives the endpoints that can serve a version of a model; version "" is for upstreams without versions.
	Pool(model, version string) inference.Pool
	// Describe asks the upstream for the versions of a model that it serves. version narrows the question to one; a model
	// or version that does not exist is a fault ModelNotFound, one that exists and is not loaded ModelNotReady.
	Describe(ctx context.Context, model, version string) ([]string, error)
	// Versions is what is known of a model without asking; empty when nothing is.
	Versions(model string) []inference.VersionState
	// Listed reports whether any endpoint lists the model in its repository.
	Listed(model string) bool
}

// refreshEvery bounds how old the choice of an unpinned call's version may be.
const refreshEvery = 500 * time.Millisecond

// maxPinned bounds the targets made for versions that callers pin.
const maxPinned = 64

// implicit is a model without declared targets: its versions are those the upstream has, model_v<N> is version N.
type implicit struct {
	name   string // as clients know it
	model  string // on the upstream
	source Source

	chosen    atomic.Pointer[inference.Target]
	refreshed atomic.Int64 // unix ns
	idleSince atomic.Int64 // since when nothing has been known of the model, unix ns; 0 while something is

	mu      sync.Mutex
	targets map[string]*inference.Target // by version
}

// newImplicit makes the model. versions are those that the upstream has just named, if it was asked.
func newImplicit(name, model string, source Source, versions []string) *implicit {
	m := &implicit{name: name, model: model, source: source, targets: make(map[string]*inference.Target)}
	if len(versions) > 0 {
		m.chosen.Store(m.target(latest(versions)))
	}
	return m
}

// latest gives the highest of versions.
func latest(versions []string) string {
	best := versions[0]
	for _, v := range versions[1:] {
		if newer(v, best) {
			best = v
		}
	}
	return best
}

// target gives the target of a version, made when first asked for.
func (m *implicit) target(version string) *inference.Target {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.targets[version]
	if t == nil {
		name := "model_v" + version
		if version == "" {
			name = "model"
		}
		t = &inference.Target{
			Name: name, Model: m.model, Version: version, Upstream: m.source.Name(), Asked: m.name,
			Pool: m.source.Pool(m.model, version),
		}
		m.targets[version] = t
	}
	return t
}

// choose gives the target of an unpinned call.
func (m *implicit) choose() (*inference.Target, error) {
	now := time.Now()
	if last := m.refreshed.Load(); now.UnixNano()-last > int64(refreshEvery) && m.refreshed.CompareAndSwap(last, now.UnixNano()) {
		m.refresh(now)
	}
	if t := m.chosen.Load(); t != nil {
		return t, nil
	}
	return nil, fault.New(fault.ModelNotReady, "model %q has no version that is ready on upstream %q; try again shortly, or look at its state in the repository index", m.name, m.source.Name())
}

// chooseAsking is choose for a model that nobody has asked the upstream about: until its readiness table knows of
// a version, the upstream is asked, by the calls that wait for it.
func (m *implicit) chooseAsking() (*inference.Target, error) {
	t, err := m.choose()
	if err == nil {
		return t, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	versions, askErr := m.source.Describe(ctx, m.model, "")
	if askErr != nil || len(versions) == 0 {
		return nil, err
	}
	t = m.target(latest(versions))
	m.chosen.CompareAndSwap(nil, t)
	return t, nil
}

func (m *implicit) refresh(now time.Time) {
	states := m.source.Versions(m.model)
	if len(states) == 0 {
		m.idleSince.CompareAndSwap(0, now.UnixNano())
		return
	}
	m.idleSince.Store(0)
	current := m.chosen.Load()
	if current == nil {
		if v := highest(states); v != "" {
			m.chosen.Store(m.target(v))
		}
		return
	}
	if current.Version == "" { // the upstream has no versions
		return
	}
	if v := choose(current.Version, states, now); v != "" && v != current.Version {
		m.chosen.Store(m.target(v))
	}
}

// pin gives the target of a version that a caller names. A version not heard of yet is asked for, by ask.
func (m *implicit) pin(ctx context.Context, version string, ask func(ctx context.Context, model, version string) error) (*inference.Target, error) {
	m.mu.Lock()
	t, n := m.targets[version], len(m.targets)
	m.mu.Unlock()
	if t != nil {
		return t, nil
	}
	known := slices.ContainsFunc(m.source.Versions(m.model), func(s inference.VersionState) bool { return s.Version == version })
	if !known {
		if err := ask(ctx, m.model, version); err != nil {
			return nil, err
		}
	}
	if n >= maxPinned {
		m.forget()
	}
	return m.target(version), nil
}

// forget drops the targets of all versions but the chosen one; calls under way keep theirs.
func (m *implicit) forget() {
	keep := m.chosen.Load()
	m.mu.Lock()
	defer m.mu.Unlock()
	for v, t := range m.targets {
		if t != keep {
			delete(m.targets, v)
		}
	}
}

func versionNotFound(model, version string) *fault.Fault {
	return fault.New(fault.ModelNotFound, "model %q has no version %s that may be called; leave model_version empty for its default", model, version)
}
