package breaker

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/stats"
)

const (
	lookEvery  = 250 * time.Millisecond // an endpoint that is back has been away for longer
	sweepEvery = time.Minute
	forgotten  = 10 // sweeps without a call, until a breaker is forgotten
)

// Watch keeps breakers up to date while they have no calls, and what operators of other replicas force, until ctx ends. Once
// for each stage.
func (s *Stage) Watch(ctx context.Context) {
	var both sync.WaitGroup
	defer both.Wait()
	if s.opts.Shared != nil {
		both.Go(func() { s.watchShared(ctx) })
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-sweep.C:
			s.sweep(forgotten)
		case <-tick.C:
			s.breakers.All(func(_ stats.Key, b *breaker) bool { b.look(); return true })
		}
	}
}

// sweep forgets breakers that have had no call for more than so many sweeps and that know nothing which will be needed.
func (s *Stage) sweep(most int) {
	defer s.forget() // what was dropped is found there no longer
	now := time.Now()
	s.breakers.Filter(func(_ stats.Key, b *breaker) bool {
		p := b.phase.Load()
		if p.kind == opened && now.Before(p.until) {
			return true
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.used.Swap(false) {
			b.idle = 0
			return most > 0 || !p.empty()
		}
		b.idle++
		return b.idle <= most
	})
}

// empty reports whether a new breaker would know as much.
func (p *phase) empty() bool {
	if p.kind == closed {
		p.counts.State() // forgets what is older than the window
		return p.counts.Counts().Requests == 0
	}
	return p.kind == unguarded
}

// List reports on all breakers, by model and target, and on what is forced for targets that have not been called.
func (s *Stage) List() []Report {
	now := time.Now()
	list := []Report{}
	there := make(map[names]bool)
	s.breakers.All(func(k stats.Key, b *breaker) bool {
		list = append(list, b.report(now))
		there[names{k.Model, k.Target}] = true
		return true
	})
	for n, o := range *s.forces.all.Load() {
		if !there[n] {
			list = append(list, Report{
				Model: n.model, Target: n.target, State: o.state(), Why: Forced, Since: o.When,
				Force: s.forces.show(n.model, n.target, s.opts.Shared != nil),
			})
		}
	}
	slices.SortFunc(list, func(a, b Report) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Target, b.Target), cmp.Compare(a.Upstream, b.Upstream), cmp.Compare(a.Version, b.Version))
	})
	return list
}

// Explain reports on the breaker of a target, which need not have been called. It changes nothing.
func (s *Stage) Explain(t *inference.Target) Report {
	k := stats.KeyOf(t)
	b, ok := s.breakers.Get(k)
	if !ok {
		b = newBreaker(s, k, s.opts.Policy(t.Asked))
		b.force.Store(uint32(s.forces.of(k.Model, k.Target)))
	}
	r := b.report(time.Now())
	if t.Absent != nil || r.Force == nil && b.phase.Load().kind != unguarded && readiness(t.Pool) == inference.NotReady {
		r.State, r.Why, r.Until = Open, NoEndpoint, nil // as the next call will find
	}
	return r
}

func (b *breaker) report(now time.Time) Report {
	b.mu.Lock()
	p, before := b.phase.Load(), b.before
	b.mu.Unlock()
	r := Report{
		Model: b.key.Model, Target: b.key.Target, Version: b.key.Version, Upstream: b.key.Upstream,
		State: p.shown(now), Why: p.why, Since: p.since, Opened: before,
		Force: b.stage.forces.show(b.key.Model, b.key.Target, b.stage.opts.Shared != nil),
	}
	switch p.kind {
	case opened:
		r.Calls, r.Failures, r.Slow = p.opening.calls, p.opening.failed, p.opening.slow
		if r.State == Open {
			r.Until = &p.until
		}
	case closed:
		n := p.counted()
		r.Calls, r.Failures, r.Slow = n.calls, n.failed, n.slow
	default:
	}
	if force := State(b.force.Load()); force != Auto {
		r.State, r.Why, r.Until = force, Forced, nil
	}
	return r
}

// changed tells of a change of b, which lasts for a while where that is known.
func (s *Stage) changed(b *breaker, to State, why Reason, last time.Duration) {
	if t := b.target.Load(); t != nil {
		s.opts.Recorder.BreakerChanged(t, to, why)
	}
	s.saying.Lock()
	defer s.saying.Unlock()
	if !s.mayLog.Allow() {
		s.unsaid++
		return
	}
	attrs := []any{"model", b.key.Model, "target", b.key.Target, "state", to.String(), "reason", string(why)}
	if last > 0 {
		attrs = append(attrs, "open_for", last.Round(time.Millisecond).String())
	}
	if s.unsaid > 0 {
		attrs = append(attrs, "suppressed", s.unsaid)
		s.unsaid = 0
	}
	if to == Open {
		s.opts.Log.Warn("breaker", attrs...)
		return
	}
	s.opts.Log.Info("breaker", attrs...)
}
