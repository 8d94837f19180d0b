package limit

import (
	"context"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
)

// round is one call's turn at all its buckets: first what this replica can pay by itself, then one question to the
// store for the rest. Whatever refuses, the others get back what they paid. Rounds are used again.
type round struct {
	stage   *Stage
	now     moment
	peers   float64
	entries []entry
	draws   []Draw
}

// entry is one bucket of the call.
type entry struct {
	account *account
	limit   *inference.Limit
	model   string
	cost    float64
	draw    int // index in draws of one that asks the store
	outcome
}

func (r *round) begin(s *Stage) {
	r.stage, r.now, r.peers = s, s.now(), s.share()
}

// end lets go of what the round refers to.
func (r *round) end() {
	clear(r.entries)
	clear(r.draws)
	r.entries, r.draws, r.stage = r.entries[:0], r.draws[:0], nil
}

func (r *round) add(l *inference.Limit, a *account, c *inference.Call) {
	e := entry{account: a, limit: l, cost: costOf(l.Cost, c), draw: -1}
	if !l.Per.Spans() {
		e.model = c.Model.Name
	}
	r.entries = append(r.entries, e)
}

// run gives nil, a fault, or the error of ctx.
func (r *round) run(ctx context.Context) error {
	for i := range r.entries {
		e := &r.entries[i]
		e.outcome = e.account.take(e.limit, e.cost, r.now, r.stage.alone, r.peers)
		if e.fetch {
			r.stage.fetch(e.account) //nolint:contextcheck // a lease is for the calls to come, and outlives this one
		}
		if e.verdict == ask {
			r.prepare(e)
		} else if e.refuses() {
			return r.refuse(i)
		}
	}
	if len(r.draws) > 0 {
		if err := r.ask(ctx); err != nil {
			return err
		}
	}
	for i := range r.entries {
		r.entries[i].count()
	}
	return nil
}

// prepare makes the draw of an entry.
func (r *round) prepare(e *entry) {
	e.draw = len(r.draws)
	rate := e.account.rateNow()
	if r.stage.alone && r.peers > 1 {
		rate = divide(rate, r.peers)
		rate.Burst = max(rate.Burst, e.cost)
	}
	r.draws = append(r.draws, Draw{Key: e.account.key, Rate: rate, Cost: e.cost, Shadow: e.limit.Mode == inference.Shadow})
}

// ask makes the draws that are prepared and settles their entries.
func (r *round) ask(ctx context.Context) error {
	v, err := r.stage.draw(ctx, r.draws)
	if err != nil && ctx.Err() != nil { // the caller left; the store did nothing wrong
		r.giveBack()
		return context.Cause(ctx)
	}
	first := -1
	for i := range r.entries {
		e := &r.entries[i]
		switch {
		case e.draw < 0:
			continue
		case err != nil:
			e.outcome = e.account.fallback(e.cost, r.now, r.peers)
		default:
			r.settle(e, v)
		}
		if first < 0 && e.refuses() {
			first = i
		}
	}
	if first >= 0 {
		return r.refuse(first)
	}
	return nil
}

// settle takes over what the store said to an entry.
func (r *round) settle(e *entry, v Verdict) {
	d := &r.draws[e.draw]
	e.outcome = outcome{source: telemetry.SourceExact, left: d.Left}
	if d.Able {
		return
	}
	e.verdict, e.wait = short, Wait(d.Rate, d.Left, d.Cost)
	if !r.stage.alone {
		e.account.empty(e.cost, e.wait, r.stage.now())
	}
	if !v.OK && v.RetryAfter > e.wait {
		e.wait = v.RetryAfter // all buckets that are short have to be able to pay
	}
}

// refuse ends the round: entry i has refused the call.
func (r *round) refuse(i int) error {
	r.giveBack()
	e := &r.entries[i]
	e.count()
	return e.fault()
}

func (r *round) giveBack() {
	for i := range r.entries {
		e := &r.entries[i]
		e.account.giveBack(e.outcome, e.cost)
	}
}

// refuses reports whether the call ends here.
func (e *entry) refuses() bool { return e.verdict >= short && e.limit.Mode == inference.Enforce }

// count records what was decided.
func (e *entry) count() {
	d := telemetry.Allowed
	switch refused := e.verdict >= short; {
	case refused && e.limit.Mode == inference.Shadow:
		d = telemetry.ShadowRefused
	case refused && e.down:
		d = telemetry.FallbackRefused
	case refused:
		d = telemetry.Refused
	case e.down:
		d = telemetry.FallbackAllowed
	}
	e.account.kind.counts.Decided(d, e.source)
}

// draw asks the store, for as long as a call may wait. Only so many ask at once; others wait for their place.
func (s *Stage) draw(ctx context.Context, draws []Draw) (Verdict, error) {
	if s.alone {
		return s.store.Draw(ctx, draws)
	}
	v, err := s.drawInTime(ctx, draws)
	if err != nil && ctx.Err() == nil {
		s.metrics.LimitStoreFailed()
	}
	return v, err
}

func (s *Stage) drawInTime(ctx context.Context, draws []Draw) (Verdict, error) {
	if s.bounded {
		select {
		case s.asking <- struct{}{}:
			defer s.asked()
			return s.store.Draw(ctx, draws)
		default: // the wait for a place counts too
		}
	}
	limited, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	select {
	case s.asking <- struct{}{}:
		defer s.asked()
		return s.store.Draw(limited, draws)
	case <-limited.Done():
		return Verdict{}, ErrDown
	}
}

func (s *Stage) asked() { <-s.asking }
