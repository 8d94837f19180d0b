// Package breaker keeps calls from a target that fails, so that they get their answer at once and the target gets a rest.
// Each target has a breaker of its own. It opens when too many of its latest calls failed or were slow, and at once while
// no endpoint can serve it; after a while, or as soon as an endpoint is back, a few calls probe it while the others are
// still refused, and only when these went well it closes. What is the caller's doing never counts. Calls share no lock but
// that of their target's breaker, which is held for some dozen nanoseconds, and never over a call.
//
// The counts within the window and the places of probes are those of gobreaker; whether endpoints are ready, and what
// operators force, stand outside it.
package breaker

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/readmap"
	"github.com/model-gateway/model-gateway/pkg/stats"
)

// MaxTargets bounds the breakers. Those of targets that nobody calls make room; while all are in use, further targets have
// none.
const MaxTargets = 20_000

// Recorder is told what breakers do.
type Recorder interface {
	// BreakerChanged is told of each change of a breaker: to Closed, HalfOpen or Open, and why.
	BreakerChanged(t *inference.Target, to State, why Reason)
	// BreakerRefused is told of each call that did not get to its target. t.Name is "" where it is not known.
	BreakerRefused(t *inference.Target, why Reason)
}

// Options of a Stage. Policy must be there.
type Options struct {
	// Policy gives the breaker that a model has, by the name that clients know it by; a zero one never opens. It is asked when
	// a target is called first, and by Reload; it must be quick, and must not call the stage.
	Policy func(model string) inference.Breaker
	// Recorder shows what breakers do; nil: nobody.
	Recorder Recorder
	// Log is told of changes; nil: nobody.
	Log *slog.Logger
	// Shared is where what operators force is shared with other replicas; nil: it holds for this replica.
	Shared Shared
	// Changed is told of what operators of other replicas have forced, for the record of changes. It must not call the stage.
	Changed func(Change)
}

// Stage guards targets.
type Stage struct {
	opts     Options
	breakers readmap.Map[stats.Key, *breaker]
	quick    readmap.Map[*inference.Target, *breaker] // those of breakers, sooner; it may be emptied at any time
	swept    atomic.Int64                             // when room was last looked for, unix ns
	off      *breaker                                 // of targets beyond MaxTargets
	forces   forces

	saying sync.Mutex
	mayLog *rate.Limiter
	unsaid int // changes that were not logged since the last one that was
}

// linesPerSecond and burstOfLines bound what is logged: an upstream with ten thousand models may go as a whole.
const linesPerSecond, burstOfLines = 20, 100

// New makes a stage. Watch keeps it up to date.
func New(o Options) *Stage {
	if o.Recorder == nil {
		o.Recorder = nobody{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Stage{opts: o, mayLog: rate.NewLimiter(linesPerSecond, burstOfLines)}
	s.off = newBreaker(s, stats.Key{}, inference.Breaker{})
	s.forces.init()
	return s
}

type nobody struct{}

func (nobody) BreakerChanged(*inference.Target, State, Reason) {}
func (nobody) BreakerRefused(*inference.Target, Reason)        {}

// Wrap runs next for calls whose target may be called. Others end with CircuitOpen, or with the fault that says why no
// endpoint can serve them, and nothing is sent.
func (s *Stage) Wrap(next inference.Handler) inference.Handler {
	return func(ctx context.Context, c *inference.Call) error {
		if c.Target.Absent != nil { // nothing is kept of names that nobody has confirmed
			s.opts.Recorder.BreakerRefused(c.Target, NoEndpoint)
			return c.Target.Absent
		}
		b := s.of(c.Target)
		p := b.phase.Load()
		if p.kind != closed || b.force.Load() != uint32(Auto) || readiness(c.Target.Pool) == inference.NotReady {
			return b.guard(ctx, c, next)
		}
		return b.count(ctx, c, p, next)
	}
}

// of gives the breaker of a target, and makes it.
func (s *Stage) of(t *inference.Target) *breaker {
	b, ok := s.quick.Get(t)
	if !ok {
		b = s.find(t)
	}
	if !b.used.Load() {
		b.used.Store(true)
	}
	return b
}

// find is of for a target that is another object than before.
func (s *Stage) find(t *inference.Target) *breaker {
	k := stats.KeyOf(t)
	b, ok := s.breakers.Get(k)
	if !ok {
		b = s.make(k, t)
	}
	b.target.Store(t)
	return s.quick.GetOrAdd(t, func(size int) (*breaker, bool) { return b, size < MaxTargets && b != s.off })
}

// forget empties quick: its targets may be of configurations long gone.
func (s *Stage) forget() { s.quick.Filter(func(*inference.Target, *breaker) bool { return false }) }

func (s *Stage) make(k stats.Key, t *inference.Target) *breaker {
	if s.breakers.Len() >= MaxTargets {
		if now, last := time.Now().UnixNano(), s.swept.Load(); now-last > int64(time.Second) && s.swept.CompareAndSwap(last, now) {
			s.sweep(0)
		}
	}
	policy := s.opts.Policy(t.Asked)
	return s.breakers.GetOrAdd(k, func(size int) (*breaker, bool) {
		if size >= MaxTargets {
			return s.off, false
		}
		b := newBreaker(s, k, policy)
		b.target.Store(t)
		b.force.Store(uint32(s.forces.of(k.Model, k.Target)))
		return b, true
	})
}

// Reload asks Options.Policy anew for each target: call it when the configuration has changed. What breakers know stays; a
// closed one whose policy is another now begins its window anew.
func (s *Stage) Reload() {
	s.forget()
	s.breakers.All(func(k stats.Key, b *breaker) bool {
		b.follow(s.opts.Policy(k.Model))
		return true
	})
}

// readiness is what a pool knows of its endpoints. A pool that only knows whether it is ready may find out by a call
// whether it is.
func readiness(p inference.Pool) inference.Readiness {
	if r, ok := p.(interface{ Readiness() inference.Readiness }); ok {
		return r.Readiness()
	}
	if p.Ready() {
		return inference.Ready
	}
	return inference.Unknown
}

// verdict is what a call says of its target.
type verdict uint8

const (
	excluded verdict = iota // nothing: it was the caller's doing, or ours
	good
	bad
)

// verdictOf judges a call that ended with err.
func verdictOf(c *inference.Call, err error) verdict {
	if err == nil {
		if err = c.InBand; err == nil { // answered, with the report of a failure
			return good
		}
	}
	if fault.Of(err).Kind.Row().Breaker {
		return bad
	}
	return excluded
}
