package catalog

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Source is an upstream as the catalog sees it. Sources are comparable: a reload keeps what it knows of a source that
// is the same object.
type Source interface {
	Name() string
	// Pool gives the endpoints that can serve a version of a model; version "" is for upstreams without versions.
	Pool(model, version string) inference.Pool
	// Describe asks the upstream for the versions of a model that it serves; none is for upstreams without versions.
	// version narrows the question to one; a model or version that does not exist is a fault ModelNotFound, one that
	// exists and is not loaded ModelNotReady.
	Describe(ctx context.Context, model, version string) ([]string, error)
	// Versions is what is known of a model without asking; empty when nothing is.
	Versions(model string) []inference.VersionState
	// Listed reports whether any endpoint lists the model in its repository.
	Listed(model string) bool
	// Answers reports whether any endpoint is known to be up.
	Answers() bool
}

const (
	refreshEvery = 500 * time.Millisecond // how old the choice of an unpinned call's version may be
	strangeEvery = time.Second            // how often a model's upstream is asked for versions it does not list
	maxPinned    = 64                     // targets made for versions that callers pin
)

// implicitKey says whose versions they are: two snapshots that mean the same model share them.
type implicitKey struct {
	asked  string // the model as clients know it
	source Source
	model  string // on the upstream
}

// implicit is a model without declared targets: its versions are those the upstream has, model_v<N> is version N.
type implicit struct {
	implicitKey
	asker *asker

	chosen    atomic.Pointer[inference.Target] // of unpinned calls, where nothing splits them: the highest version
	stable    atomic.Pointer[inference.Target] // where rules or a script do: the lowest
	refreshed atomic.Int64                     // unix ns
	idleSince atomic.Int64                     // since when nothing has been known of the model, unix ns; 0 while something is
	strange   atomic.Int64                     // when a version that the upstream does not list was last asked for, unix ns

	known  atomic.Pointer[map[string]*inference.Target] // by name: those that rules may send calls to; never changed
	listed atomic.Int64                                 // when known was last looked at, unix ns
	naming sync.Mutex                                   // held while known is made

	mu      sync.Mutex
	targets map[string]*inference.Target // by version
}

// newImplicit makes the model. found is what its source has just answered, if it was asked.
func newImplicit(key implicitKey, a *asker, found *answer) *implicit {
	m := &implicit{implicitKey: key, asker: a, targets: make(map[string]*inference.Target)}
	if found != nil {
		m.found(found.versions)
	}
	return m
}

// found takes over what the upstream has answered of the versions it serves, until its readiness table knows more.
func (m *implicit) found(versions []string) {
	m.chosen.CompareAndSwap(nil, m.target(latest(versions)))
	m.stable.CompareAndSwap(nil, m.target(earliest(versions)))
	known := make(map[string]*inference.Target, len(versions))
	for _, v := range versions {
		t := m.target(v)
		known[t.Name] = t
	}
	m.known.CompareAndSwap(nil, &known)
}

// implicitModel is the model whose versions m knows. split tells whether rules or a script split its calls; nil: never.
func implicitModel(m *implicit, timeouts inference.Timeouts, split func() bool) *inference.Model {
	which := func() *atomic.Pointer[inference.Target] { return &m.chosen }
	if split != nil {
		which = func() *atomic.Pointer[inference.Target] {
			if split() {
				return &m.stable
			}
			return &m.chosen
		}
	}
	return &inference.Model{
		Name: m.asked, Timeouts: timeouts, Pin: m.pin, Named: m.named,
		Choose:  func(ctx context.Context) (*inference.Target, error) { return m.choose(ctx, which()) },
		Current: func() *inference.Target { return m.current(which()) },
	}
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
			Name: name, Model: m.model, Version: version, Upstream: m.source.Name(), Asked: m.asked,
			Pool: m.source.Pool(m.model, version),
		}
		m.targets[version] = t
	}
	return t
}

// current gives the target of unpinned calls by what is known, chosen or stable; nil when nothing is.
func (m *implicit) current(which *atomic.Pointer[inference.Target]) *inference.Target {
	now := time.Now()
	if last := m.refreshed.Load(); now.UnixNano()-last > int64(refreshEvery) && m.refreshed.CompareAndSwap(last, now.UnixNano()) {
		m.refresh(now)
	}
	return which.Load()
}

// choose gives the target of an unpinned call. Until the upstream's readiness table knows of a version, the upstream is
// asked, by the calls that wait for it.
func (m *implicit) choose(ctx context.Context, which *atomic.Pointer[inference.Target]) (*inference.Target, error) {
	if t := m.current(which); t != nil {
		return t, nil
	}
	found, err := m.asker.find(ctx, question{
		sources: []Source{m.source}, model: m.model, word: m.unserved,
		allow: func() error {
			if m.asker.named.Allow() {
				return nil
			}
			return fault.New(fault.ModelNotReady, "upstream %q is being asked about many models at once, and not yet about %q (route %q); try again shortly", m.source.Name(), m.model, m.asked)
		},
	})
	if err != nil {
		return nil, err
	}
	m.found(found.versions)
	return which.Load(), nil
}

// unserved says why a route leads nowhere, to those who can mend it.
func (m *implicit) unserved(err error) error {
	switch fault.Of(err).Kind {
	case fault.ModelNotFound:
		return fault.Wrap(fault.ModelNotReady, err, "upstream %q has no model %q (route %q); correct models[].model or load it", m.source.Name(), m.model, m.asked)
	case fault.ModelNotReady:
		return fault.Wrap(fault.ModelNotReady, err, "upstream %q has model %q (route %q) and cannot serve it now; load it, or look at its state in the repository index", m.source.Name(), m.model, m.asked)
	default:
		return err
	}
}

func (m *implicit) refresh(now time.Time) {
	states := m.source.Versions(m.model)
	if len(states) == 0 {
		m.idleSince.CompareAndSwap(0, now.UnixNano())
		return
	}
	m.idleSince.Store(0)
	m.move(&m.chosen, states, now, choose)
	m.move(&m.stable, states, now, lowest)
}

// move puts what decide says in the place of a target.
func (m *implicit) move(which *atomic.Pointer[inference.Target], states []inference.VersionState, now time.Time, decide func(string, []inference.VersionState, time.Time) string) {
	current := which.Load()
	if current == nil {
		if v := decide("", states, now); v != "" {
			which.CompareAndSwap(nil, m.target(v))
		}
		return
	}
	if v := decide(current.Version, states, now); v != "" && v != current.Version {
		which.Store(m.target(v))
	}
}

// named gives the target of that name, model_v<N>, while some endpoint that is up has version N and has it not unloaded.
// It goes by what is known, lately, and asks nobody.
func (m *implicit) named(name string) *inference.Target {
	now, known := time.Now().UnixNano(), m.known.Load()
	if last := m.listed.Load(); known == nil || now-last > int64(refreshEvery) && m.listed.CompareAndSwap(last, now) {
		known = m.list()
	}
	if known == nil {
		return nil
	}
	return (*known)[name]
}

// list makes known anew, and leaves it as it is while nothing is known of the model.
func (m *implicit) list() *map[string]*inference.Target {
	m.naming.Lock()
	defer m.naming.Unlock()
	states := m.source.Versions(m.model)
	if len(states) == 0 {
		return m.known.Load()
	}
	known := make(map[string]*inference.Target, len(states))
	for _, s := range states {
		if !s.Unloaded {
			t := m.target(s.Version)
			known[t.Name] = t
		}
	}
	m.known.Store(&known)
	return &known
}

// promised gives the target that the configuration names, model_v<N>, whether or not the upstream has that version now; nil
// for a name that is none.
func (m *implicit) promised(name string) *inference.Target {
	version, ok := config.ImplicitVersion(name)
	if !ok {
		return nil
	}
	return m.target(version)
}

// pin gives the target of a version that a caller names.
func (m *implicit) pin(ctx context.Context, version string) (*inference.Target, error) {
	m.mu.Lock()
	t, n := m.targets[version], len(m.targets)
	m.mu.Unlock()
	if t != nil {
		return t, nil
	}
	states := m.source.Versions(m.model)
	if !slices.ContainsFunc(states, func(s inference.VersionState) bool { return s.Version == version }) {
		if err := m.confirm(ctx, version, len(states) > 0); err != nil {
			return nil, err
		}
	}
	if n >= maxPinned {
		m.forget()
	}
	return m.target(version), nil
}

// confirm asks the upstream whether it has a version that its readiness table does not know. Where the table
// knows others of the model, it is right but for versions that are brand new, and the upstream is seldom asked.
func (m *implicit) confirm(ctx context.Context, version string, others bool) error {
	_, err := m.asker.find(ctx, question{
		sources: []Source{m.source}, model: m.model, version: version,
		allow: func() error {
			switch {
			case others && !m.mayAskStrange():
				return versionNotFound(m.asked, version)
			case !others && !m.asker.invented.Allow():
				return fault.New(fault.ModelNotReady, "whether model %q has version %s is not known yet; try again shortly", m.asked, version)
			}
			return nil
		},
		word: func(err error) error {
			if fault.Of(err).Kind == fault.ModelNotFound {
				return versionNotFound(m.asked, version)
			}
			return err
		},
	})
	return err
}

// mayAskStrange takes the model's turn to ask for a version that is not listed, if it has one.
func (m *implicit) mayAskStrange() bool {
	now, last := time.Now().UnixNano(), m.strange.Load()
	return now-last >= int64(strangeEvery) && m.asker.named.Allow() && m.strange.CompareAndSwap(last, now)
}

// forget drops the targets of all versions but those of unpinned calls; calls under way keep theirs.
func (m *implicit) forget() {
	chosen, stable := m.chosen.Load(), m.stable.Load()
	m.mu.Lock()
	defer m.mu.Unlock()
	for v, t := range m.targets {
		if t != chosen && t != stable {
			delete(m.targets, v)
		}
	}
}

func versionNotFound(model, version string) *fault.Fault {
	return fault.New(fault.ModelNotFound, "model %q has no version %s that may be called; leave model_version empty for its default", model, version)
}
