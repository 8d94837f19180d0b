package catalog

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

const (
	maxName      = 256             // bytes of a model name
	maxKnown     = 100_000         // models that pass through
	maxRefused   = 1024            // names whose refusal is remembered
	refusedFor   = time.Second     // how long it is
	askTimeout   = 2 * time.Second // for one look-up on an upstream
	asksPerSec   = 5               // with a burst of as many, at most 10 in any second
	forgottenFor = time.Minute     // how long nothing must be known of a model before it is dropped
)

// passthrough finds models that no route names, under their own name on an upstream. State is made for a name only
// once an upstream has confirmed it, and look-ups of unknown names are few whatever clients send.
type passthrough struct {
	known   sync.Map // name → *entry
	count   int      // of known, guarded by mu
	flights singleflight.Group
	limiter *rate.Limiter

	mu      sync.Mutex
	refused map[string]refusal
}

type entry struct {
	model    *inference.Model
	implicit *implicit
}

type refusal struct {
	err   error
	until time.Time
}

func newPassthrough() *passthrough {
	return &passthrough{limiter: rate.NewLimiter(asksPerSec, asksPerSec), refused: make(map[string]refusal)}
}

// model finds name on the first of sources that has it.
func (p *passthrough) model(ctx context.Context, name string, sources []Source, timeouts inference.Timeouts) (*inference.Model, error) {
	if e, ok := p.known.Load(name); ok {
		known := e.(*entry)
		since := known.implicit.idleSince.Load()
		if since == 0 || time.Now().UnixNano()-since < int64(forgottenFor) {
			return known.model, nil
		}
		p.drop(name)
	}
	if len(name) > maxName {
		return nil, fault.UnknownModel(name)
	}
	source, versions, err := p.find(ctx, name, "", sources)
	if err != nil {
		return nil, err
	}
	return p.keep(name, source, versions, timeouts), nil
}

// find asks the upstreams for a model, at most once at a time for each name, and remembers refusals for a while.
func (p *passthrough) find(ctx context.Context, name, version string, sources []Source) (Source, []string, error) {
	key := name + "\x00" + version
	if err := p.recall(key); err != nil {
		return nil, nil, err
	}
	listed := false
	for _, s := range sources {
		listed = listed || s.Listed(name)
	}
	type found struct {
		source   Source
		versions []string
	}
	flight := p.flights.DoChan(key, func() (any, error) {
		if !listed && !p.limiter.Allow() {
			return nil, fault.UnknownModel(name)
		}
		// Not under ctx: the answer is for everybody who waits, whoever of them leaves.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		source, versions, err := ask(ctx, name, version, sources)
		if err != nil {
			p.refuse(key, err)
			return nil, err
		}
		return found{source, versions}, nil
	})
	select {
	case r := <-flight:
		if r.Err != nil {
			return nil, nil, r.Err
		}
		f := r.Val.(found)
		return f.source, f.versions, nil
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
}

// ask gives the first source that has the model. When none has and some could not answer, their fault
// stands, since the model may well be there.
func ask(ctx context.Context, name, version string, sources []Source) (Source, []string, error) {
	var silent error
	for _, s := range sources {
		versions, err := s.Describe(ctx, name, version)
		if err == nil {
			return s, versions, nil
		}
		if f := fault.Of(err); f.Kind != fault.ModelNotFound && silent == nil {
			silent = err
		}
	}
	switch {
	case silent == nil && version != "":
		return nil, nil, versionNotFound(name, version)
	case silent == nil:
		return nil, nil, fault.UnknownModel(name)
	case errors.Is(silent, context.DeadlineExceeded):
		return nil, nil, fault.Wrap(fault.NoEndpoint, silent, "no upstream answered within %s whether it has model %q; try again shortly", askTimeout, name)
	}
	return nil, nil, silent
}

func (p *passthrough) recall(key string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r, ok := p.refused[key]; ok {
		if time.Now().Before(r.until) {
			return r.err
		}
		delete(p.refused, key)
	}
	return nil
}

func (p *passthrough) refuse(key string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.refused) >= maxRefused {
		clear(p.refused) // costs a few look-ups more, which the limiter bounds
	}
	p.refused[key] = refusal{err: err, until: time.Now().Add(refusedFor)}
}

func (p *passthrough) keep(name string, source Source, versions []string, timeouts inference.Timeouts) *inference.Model {
	m := newImplicit(name, name, source, versions)
	e := &entry{implicit: m, model: implicitModel(m, timeouts, func(ctx context.Context, model, version string) error {
		_, _, err := p.find(ctx, model, version, []Source{source})
		return err
	})}
	got, loaded := p.known.LoadOrStore(name, e)
	if loaded {
		return got.(*entry).model
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
	return e.model
}

func (p *passthrough) drop(name string) {
	if _, ok := p.known.LoadAndDelete(name); ok {
		p.mu.Lock()
		p.count--
		p.mu.Unlock()
	}
}

// reset forgets everything, for when the upstreams are no longer the same.
func (p *passthrough) reset() {
	p.known.Range(func(key, _ any) bool { p.drop(key.(string)); return true })
	p.mu.Lock()
	clear(p.refused)
	p.mu.Unlock()
}

// implicitModel is the model whose versions m knows.
func implicitModel(m *implicit, timeouts inference.Timeouts, ask func(ctx context.Context, model, version string) error) *inference.Model {
	return &inference.Model{
		Name: m.name, Timeouts: timeouts, Choose: m.choose,
		Pin: func(ctx context.Context, version string) (*inference.Target, error) { return m.pin(ctx, version, ask) },
	}
}
