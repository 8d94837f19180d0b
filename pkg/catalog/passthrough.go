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

const (
	maxName      = 256         // bytes of a model name
	maxKnown     = 100_000     // models that pass through
	forgottenFor = time.Minute // how long nothing must be known of a model before it is dropped
)

// passthrough finds models that no route names, under their own name on an upstream. State is made for a name only
// once an upstream has confirmed it, and look-ups of unknown names are few whatever clients send.
type passthrough struct {
	asker *asker
	split func(model string) func() bool // whether a script splits a model's calls
	known sync.Map                       // name → *entry
	held  map[string]*implicit           // known over other upstreams before, and to be confirmed again; never changed

	mu    sync.Mutex
	count int // of known
}

type entry struct {
	implicit *implicit
	split    func() bool // whether a script splits the model's calls; nil: none can
	model    atomic.Pointer[inference.Model]
}

// defaults are what models that pass through have from the configuration. They are comparable.
type defaults struct {
	timeouts inference.Timeouts
	breaker  inference.Breaker
	fallback *inference.Fallback
	retry    inference.Retry
	pick     inference.Pick
}

func defaultsOf(cfg *config.Config) defaults {
	return defaults{timeouts: cfg.Defaults, breaker: cfg.Breaker, fallback: cfg.Fallback, retry: cfg.Retry, pick: cfg.Pick}
}

func newEntry(m *implicit, with defaults, split func() bool) *entry {
	e := &entry{implicit: m, split: split}
	e.model.Store(e.make(with))
	return e
}

func (e *entry) make(with defaults) *inference.Model {
	m := implicitModel(e.implicit, with.timeouts, e.split)
	m.Breaker, m.Retry, m.Pick = with.breaker, with.retry, with.pick
	m.Fallback = with.fallback
	m.Scripted = e.split != nil
	return m
}

// fresh reports whether something has been known of the model lately, or nobody could say otherwise.
func (e *entry) fresh() bool {
	since := e.implicit.idleSince.Load()
	return since == 0 || time.Now().UnixNano()-since < int64(forgottenFor) || !e.implicit.source.Answers()
}

// under gives the model with the defaults in force, which a reload may have changed since it was found.
func (e *entry) under(with defaults) *inference.Model {
	m := e.model.Load()
	if (defaults{m.Timeouts, m.Breaker, m.Fallback, m.Retry, m.Pick}) != with {
		m = e.make(with)
		e.model.Store(m)
	}
	return m
}

// passthroughOver lets names through to sources. That of old goes on where the sources are the same objects; else the
// models that no upstream new before their own could claim stay known, and those of other upstreams that are still
// there keep their versions once they are found again.
func (c *Catalog) passthroughOver(sources []Source, old *Snapshot) *passthrough {
	if old != nil && slices.Equal(old.sources, sources) {
		return old.passthrough
	}
	p := &passthrough{asker: newAsker(c.limits), split: c.splitByScript, held: make(map[string]*implicit)}
	if old == nil {
		return p
	}
	stays := make(map[Source]bool, len(sources))
	for i, s := range sources {
		at := slices.Index(old.sources, s)
		stays[s] = at >= 0 && !slices.ContainsFunc(sources[:i], func(before Source) bool { return !slices.Contains(old.sources[:at], before) })
	}
	old.passthrough.each(func(name string, e *entry) {
		switch stay, there := stays[e.implicit.source]; {
		case stay:
			p.known.Store(name, e)
			p.count++
		case there:
			p.held[name] = e.implicit
		}
	})
	return p
}

// model finds name on the first of sources that has it.
func (p *passthrough) model(ctx context.Context, name string, sources []Source, with defaults) (*inference.Model, error) {
	if e, ok := p.known.Load(name); ok {
		known := e.(*entry)
		if known.fresh() && slices.Contains(sources, known.implicit.source) {
			return known.under(with), nil
		}
		p.drop(name)
	}
	if len(name) > maxName {
		return nil, fault.UnknownModel(name)
	}
	found, err := p.asker.find(ctx, question{
		sources: sources, model: name,
		allow: func() error {
			switch {
			case slices.ContainsFunc(sources, func(s Source) bool { return s.Listed(name) }) || p.asker.invented.Allow():
				return nil
			case !answering(sources):
				return fault.New(fault.NoEndpoint, "no upstream has answered yet, so nobody knows whether there is a model %q; try again shortly", name)
			}
			return fault.UnknownModel(name)
		},
		word: func(err error) error {
			if fault.Of(err).Kind == fault.ModelNotFound {
				return fault.UnknownModel(name)
			}
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return p.keep(name, found, with), nil
}

func (p *passthrough) keep(name string, found answer, with defaults) *inference.Model {
	m := p.held[name]
	if m == nil || m.source != found.source || m.chosen.Load() == nil {
		m = newImplicit(implicitKey{name, found.source, name}, p.asker, &found)
	}
	got, loaded := p.known.LoadOrStore(name, newEntry(m, with, p.split(name)))
	if loaded {
		return got.(*entry).under(with)
	}
	p.mu.Lock()
	p.count++
	full := p.count > maxKnown
	p.mu.Unlock()
	if full {
		p.known.Range(func(key, _ any) bool { // any other will do: it is confirmed again when called
			if key != name {
				p.drop(key.(string))
				return false
			}
			return true
		})
	}
	return got.(*entry).under(with)
}

func (p *passthrough) drop(name string) {
	if _, ok := p.known.LoadAndDelete(name); ok {
		p.mu.Lock()
		p.count--
		p.mu.Unlock()
	}
}

// each calls f with every model that is known, in no order.
func (p *passthrough) each(f func(name string, e *entry)) {
	p.known.Range(func(name, e any) bool { f(name.(string), e.(*entry)); return true })
}

// implicit gives the versions of key if it has passed through; else nil.
func (p *passthrough) implicit(key implicitKey) *implicit {
	if e, ok := p.known.Load(key.asked); ok && e.(*entry).implicit.implicitKey == key {
		return e.(*entry).implicit
	}
	return nil
}
