package gateway

import (
	"context"
	"errors"
	"sync"

	"github.com/model-gateway/model-gateway/pkg/admin"
	"github.com/model-gateway/model-gateway/pkg/explain"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/redis"
	"github.com/model-gateway/model-gateway/pkg/stage/breaker"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
)

// breakers is the stage that keeps calls from targets that fail, and what runs for it.
type breakers struct {
	*breaker.Stage
	end     context.CancelFunc
	running sync.WaitGroup
}

// openBreakers makes the stage. What operators force is shared where Redis is.
func (g *Gateway) openBreakers() {
	b := &g.breaker
	metrics := telemetry.NewBreakers(g.metrics, b.states, g.promises)
	o := breaker.Options{Policy: g.breakerOf, Recorder: breakerRecorder{metrics}, Log: g.log, Changed: g.breakerForced}
	if g.protection.redis != nil {
		o.Shared = redis.NewOverrides(g.protection.redis, "breakers")
	}
	b.Stage = breaker.New(o)
	ctx, end := context.WithCancel(context.Background())
	b.end = end
	b.running.Go(func() { b.Watch(ctx) })
}

// close ends what runs.
func (b *breakers) close() {
	if b.end != nil {
		b.end()
	}
	b.running.Wait()
}

// breakerOf gives the breaker that a model has.
func (g *Gateway) breakerOf(model string) inference.Breaker {
	s := g.catalog.Snapshot()
	if s == nil {
		return inference.Breaker{}
	}
	if m := g.catalog.Declared(model); m != nil {
		return m.Breaker
	}
	return s.Config.Breaker
}

// breakerForced keeps the record of what operators of other replicas force.
func (g *Gateway) breakerForced(c breaker.Change) {
	g.opts.Audit.Append(admin.Entry{
		Who: c.Who, What: "force breaker " + c.Model + "/" + c.Target + " " + c.To.String(), Scope: admin.ThisReplica,
		OldHash: c.From.String(), NewHash: c.To.String(), Result: admin.Done,
	})
}

type breakerRecorder struct{ metrics *telemetry.Breakers }

func (r breakerRecorder) BreakerChanged(t *inference.Target, to breaker.State, why breaker.Reason) {
	r.metrics.Changed(t, to.String(), string(why))
}

func (r breakerRecorder) BreakerRefused(t *inference.Target, why breaker.Reason) {
	r.metrics.Rejected(t, string(why))
}

// states is what metrics show of breakers.
func (b *breakers) states() []telemetry.BreakerState {
	list := b.List()
	states := make([]telemetry.BreakerState, 0, len(list))
	for i := range list {
		r := &list[i]
		s := telemetry.BreakerState{Model: r.Model, Version: r.Version, Target: r.Target, State: telemetry.BreakerClosed}
		switch r.State {
		case breaker.Open:
			s.State = telemetry.BreakerOpen
		case breaker.HalfOpen:
			s.State = telemetry.BreakerHalfOpen
		case breaker.Closed, breaker.Auto:
		}
		if r.Force != nil {
			s.Forced = r.Force.State.String()
		}
		states = append(states, s)
	}
	return states
}

// promises is what metrics show of what models promise.
func (g *Gateway) promises() []telemetry.Promise {
	var all []telemetry.Promise
	s := g.catalog.Snapshot()
	if s == nil {
		return nil
	}
	for i := range s.Config.Models {
		m := &s.Config.Models[i]
		if m.SLO.P99 > 0 {
			all = append(all, telemetry.Promise{Model: m.Name, Share: "0.99", Seconds: m.SLO.P99.Seconds()})
		}
		if m.SLO.P999 > 0 {
			all = append(all, telemetry.Promise{Model: m.Name, Share: "0.999", Seconds: m.SLO.P999.Seconds()})
		}
	}
	return all
}

// explainBreaker shows the breaker of a target to explain.
func (g *Gateway) explainBreaker(t *inference.Target) *explain.Breaker {
	r := g.breaker.Explain(t)
	e := &explain.Breaker{State: r.State.String(), Why: string(r.Why), Until: r.Until, Calls: r.Calls, Failures: r.Failures, Slow: r.Slow}
	if r.Force != nil {
		e.Forced = r.Force.Who
	}
	return e
}

// breakerPort shows the breakers to operators.
type breakerPort struct{ g *Gateway }

func (p breakerPort) List() any { return p.g.breaker.List() }

func (p breakerPort) Forced(model, target string) string {
	return p.g.breaker.Forced(model, target).String()
}

func (p breakerPort) Has(model, target string) bool {
	if p.g.breaker.Known(model, target) {
		return true
	}
	m := p.g.catalog.Declared(model)
	if m == nil {
		for _, known := range p.g.catalog.Known() {
			if known.Name == model {
				m = known
			}
		}
	}
	if m == nil {
		return false
	}
	return m.Targets[target] != nil || m.Named != nil && m.Named(target) != nil
}

func (p breakerPort) Force(ctx context.Context, model, target, state, who string) (any, string, error) {
	to, err := breaker.ParseState(state)
	if err != nil {
		return map[string]string{"error": err.Error()}, admin.ThisReplica, err
	}
	if len(model) > breaker.MaxName || len(target) > breaker.MaxName {
		err := errors.New("the name is too long")
		return map[string]string{"error": err.Error()}, admin.ThisReplica, err
	}
	a, err := p.g.breaker.Force(ctx, model, target, to, who)
	if err != nil {
		a.Error = err.Error()
	}
	return a, a.Scope, err
}
