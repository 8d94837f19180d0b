package breaker

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/stats"
)

// breaker is that of one target.
//
//	         too many failed, or were slow               its time is over, or endpoints are back
//	closed ────────────────────────────────▶ open ──────────────────────────────────────────────▶ half-open
//	  ▲ └── no endpoint is ready ──▶ down ─────────────── endpoints are back ────────────────────▶ │   │
//	  └───────────────────────────────────── the probes went well ───────────────────────────────┘   │
//	                                 open, for twice as long ◀──────── one failed, or many were slow ┘
type breaker struct {
	stage  *Stage
	key    stats.Key
	named  string                           // the beginning of what refused calls are told
	target atomic.Pointer[inference.Target] // the last one that a call was for
	phase  atomic.Pointer[phase]
	force  atomic.Uint32 // a State: Auto, Open or Closed
	used   atomic.Bool   // since the last sweep

	mu     sync.Mutex // held while the phase changes; never over a call
	policy inference.Breaker
	before int // how many times in a row it has opened
	idle   int // sweeps without a call
}

func newBreaker(s *Stage, k stats.Key, policy inference.Breaker) *breaker {
	b := &breaker{stage: s, key: k, policy: policy, named: fmt.Sprintf("target %q of model %q gets no calls now: ", k.Target, k.Model)}
	b.phase.Store(closedPhase(policy, "", time.Now()))
	return b
}

// count runs a call of a closed breaker, and counts how it ended once it has: a call that hangs for longer than the window
// must count all the same.
func (b *breaker) count(ctx context.Context, c *inference.Call, p *phase, next inference.Handler) error {
	before := c.UpstreamIn
	err := next(ctx, c)
	if v := verdictOf(c, err); v != excluded {
		b.ended(p, v, p.isSlow(c, before))
	}
	return err
}

// isSlow reports whether the target took too long over c. What a decoupled model sends may take as long as it likes.
func (p *phase) isSlow(c *inference.Call, before time.Duration) bool {
	after := p.policy.SlowAfter
	return after > 0 && c.UpstreamIn-before > after && !c.Decoupled
}

// ended counts a call.
func (b *breaker) ended(p *phase, v verdict, slow bool) {
	done, err := p.counts.Allow()
	if err != nil {
		return // it has opened meanwhile
	}
	done(v.error())
	if v == bad {
		p.failed.Store(true)
	}
	// gobreaker looks at its counts when a call has failed; enough of them may have when one more went well.
	if p.over.Load() || v == good && p.failed.Load() && p.tooMany(p.counts.Counts()) {
		b.open(p, Failures)
		return
	}
	if p.slow != nil {
		if n := p.slow.add(slow); slow && over(n.slow, n.calls, p.policy.MinCalls, p.policy.Slow) {
			b.open(p, Slow)
		}
	}
}

// guard decides on a call of a breaker that is not just closed.
func (b *breaker) guard(ctx context.Context, c *inference.Call, next inference.Handler) error {
	switch State(b.force.Load()) {
	case Open:
		return b.refuse(c, Forced, 0)
	case Closed:
		return next(ctx, c)
	default:
	}
	ready := readiness(c.Target.Pool)
	for {
		p := b.phase.Load()
		switch {
		case p.kind == unguarded:
			return next(ctx, c)
		case ready == inference.NotReady:
			// The pool knows why, and is reminded that somebody waits for it.
			if _, err := c.Target.Pool.Pick(c, nil); err != nil && fault.Of(err).Kind != fault.Overloaded {
				b.shut(p)
				b.stage.opts.Recorder.BreakerRefused(c.Target, NoEndpoint)
				return err
			}
			ready = inference.Ready // just now
		case p.kind == down:
			b.revive(p)
		case p.kind == closed:
			return b.count(ctx, c, p, next)
		default:
			return b.try(ctx, c, p, next)
		}
	}
}

// try takes a place among the probes for c, where there is one, or refuses it.
func (b *breaker) try(ctx context.Context, c *inference.Call, p *phase, next inference.Handler) error {
	done, err := p.counts.Allow()
	if p.probing.Load() {
		b.tellProbing(p)
	}
	if err != nil {
		if p.probing.Load() || p.why == Back || p.why == Forced {
			return b.refuse(c, Probing, 0)
		}
		return b.refuse(c, p.why, time.Until(p.until))
	}
	return b.probe(ctx, c, p, done, next)
}

// probe runs a call that shows how the target does. Its place is given back however it ends: a panic, too, says nothing of
// the target.
func (b *breaker) probe(ctx context.Context, c *inference.Call, p *phase, done func(error), next inference.Handler) (err error) {
	v, settled := excluded, false
	settle := func(slow bool) {
		if settled {
			return
		}
		settled = true
		why := Failures
		if v == good && slow && float64(p.slowProbes.Add(1)) >= p.policy.Slow*float64(p.policy.Probes) {
			v, why = bad, Slow
		}
		done(v.error())
		b.probed(p, why)
	}
	defer func() { settle(false) }()
	before := c.UpstreamIn
	if sink := c.Sink; sink != nil {
		// A message of a stream may have answers for hours: the first one shows enough.
		begin := time.Now()
		c.Sink = func(answer inference.Frame) error {
			if v = verdictOf(c, nil); v == good {
				settle(p.policy.SlowAfter > 0 && time.Since(begin) > p.policy.SlowAfter)
			}
			return sink(answer)
		}
		defer func() { c.Sink = sink }()
	}
	err = next(ctx, c)
	v = verdictOf(c, err)
	settle(p.isSlow(c, before))
	return err
}

// probed looks at what a probe has changed.
func (b *breaker) probed(p *phase, why Reason) {
	switch verdict(p.result.Load()) {
	case good:
		b.to(p, closed, Probed)
	case bad:
		b.open(p, why)
	case excluded:
	}
}

// open opens b for its time. It does nothing when p is over already, as the others below.
func (b *breaker) open(p *phase, why Reason) { b.to(p, opened, why) }

// shut notes that no endpoint can serve the target.
func (b *breaker) shut(p *phase) { b.to(p, down, NoEndpoint) }

// revive lets probes through at once: an endpoint can serve the target again, however long it was to stay open.
func (b *breaker) revive(p *phase) { b.to(p, halfOpen, Back) }

// to puts the next phase in place of p.
func (b *breaker) to(p *phase, next kind, why Reason) {
	b.mu.Lock()
	if b.phase.Load() != p || p.kind == down && next == down {
		b.mu.Unlock()
		return
	}
	b.move(next, why)
	b.mu.Unlock()
}

// move makes the next phase. The lock is held.
func (b *breaker) move(next kind, why Reason) {
	now := time.Now()
	var n *phase
	var last time.Duration
	switch next {
	case opened:
		last = openFor(b.policy, b.before)
		n = openedPhase(b.policy, why, now, last)
		if p := b.phase.Load(); p.kind == closed {
			n.opening = p.counted()
		}
		b.before++
	case halfOpen:
		n = openedPhase(b.policy, why, now, 1)
		n.told.Store(true) // below
	case down:
		n = &phase{kind: down, policy: b.policy, why: why, since: now}
		b.before = 0 // longer and longer is for endpoints that are ready, and whose calls fail
	default:
		n = closedPhase(b.policy, why, now)
		b.before = 0
	}
	b.phase.Store(n)
	b.stage.changed(b, next.state(), why, last)
}

// tellProbing tells, once, that an open breaker lets probes through.
func (b *breaker) tellProbing(p *phase) {
	if !p.told.Swap(true) {
		b.stage.changed(b, HalfOpen, Waited, 0)
	}
}

// follow takes over another policy.
func (b *breaker) follow(policy inference.Breaker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.policy == policy {
		return
	}
	b.policy = policy
	if p := b.phase.Load(); p.kind == closed || p.kind == unguarded || policy.MinCalls <= 0 {
		b.phase.Store(closedPhase(policy, p.why, p.since))
	}
}

// setForce forces a state. Once nothing is forced any more, a breaker that was open begins with probes, and one that was
// closed with an empty window.
func (b *breaker) setForce(to State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	from := State(b.force.Swap(uint32(to)))
	if from == to {
		return
	}
	switch p := b.phase.Load(); {
	case to != Auto:
		b.stage.changed(b, to, Forced, 0)
	case p.kind == unguarded, from == Closed:
		b.move(closed, Forced)
	default:
		b.move(halfOpen, Forced)
	}
}

// look does what is due without a call: endpoints may go and come while there is none.
func (b *breaker) look() {
	t, p := b.target.Load(), b.phase.Load()
	if t == nil || p.kind == unguarded {
		return
	}
	switch ready := readiness(t.Pool); {
	case ready == inference.NotReady:
		b.shut(p)
	case p.kind == down:
		b.revive(p)
	case p.kind == opened && time.Now().After(p.until):
		p.counts.State() // gobreaker notices when it is asked
		if p.probing.Load() {
			b.tellProbing(p)
		}
	}
}

// refuse ends a call that does not get to the target, after which it will take so long until others may; 0 when that is
// not known.
func (b *breaker) refuse(c *inference.Call, why Reason, wait time.Duration) error {
	b.stage.opts.Recorder.BreakerRefused(c.Target, why)
	f := &fault.Fault{Kind: fault.CircuitOpen, RetryAfter: max(wait, 0)}
	text := "calls to it failed too often"
	switch why {
	case Forced:
		text = "an operator keeps calls from it"
	case Slow:
		text = "calls to it took too long too often"
	case Probing:
		text = "it failed, and a few other calls find out whether it is back"
	default:
	}
	more := "; try again"
	switch {
	case c.Head.Sequence.ID != "" && !c.Head.Sequence.Start:
		more = "; this step of the sequence was not sent: send it again"
	case why == Forced:
		more = "; ask the operator"
	}
	if wait > 0 {
		more += " in " + strconv.Itoa(int(math.Ceil(wait.Seconds()))) + "s"
	}
	f.Msg = b.named + text + more
	return f
}
