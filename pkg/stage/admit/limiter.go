package admit

import (
	"context"
	"sync"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

const (
	// Sheddable calls get this part of a bound, in tenths, and one call at least.
	shedTenths = 7
	// As many calls may wait as may be under way, and at least so many.
	leastWaiting = 8
	// most is the bound that adaptive stays within where the model has none.
	most = 1000
)

// limiter is the bound of one target. Whoever enters must leave.
type limiter struct {
	mu       sync.Mutex // never held over a call
	policy   inference.Concurrency
	inFlight int
	limit    int
	adaptive adaptive
	waiting  [ranks]line
	waits    int // calls in all lines
}

// enter takes a place among the calls under way, and waits for one where the policy says so. The error is a refusal, or why
// ctx ended. It waits until latest at most, where that is not zero.
func (l *limiter) enter(ctx context.Context, policy inference.Concurrency, p inference.Priority, latest time.Time) error {
	l.mu.Lock()
	if l.policy != policy {
		l.follow(policy)
	}
	may := l.limit
	if p == inference.PrioritySheddable {
		may = max(1, l.limit*shedTenths/10)
	}
	if l.inFlight < may { // then nobody waits who could be under way
		l.inFlight++
		l.mu.Unlock()
		return nil
	}
	l.adaptive.crowded = true
	w, err := l.join(p)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	queue := policy.Queue
	if !latest.IsZero() {
		queue = min(queue, time.Until(latest))
	}
	return l.wait(ctx, w, queue)
}

// join puts a call into the line. The lock is held.
func (l *limiter) join(p inference.Priority) (*waiter, error) {
	switch {
	case p == inference.PrioritySheddable:
		return nil, refusal(Shed)
	case l.policy.Queue <= 0:
		return nil, refusal(Full)
	}
	mine := int(rank[p])
	if l.waits >= max(l.limit, leastWaiting) {
		// The oldest of those that go last gives way. It has waited for nothing, and would time out first.
		last := ranks - 1
		for last > mine && l.waiting[last].oldest == nil {
			last--
		}
		if l.waiting[last].oldest == nil {
			return nil, refusal(Full)
		}
		l.settle(l.waiting[last].oldest, refusal(Pushed))
	}
	w := &waiter{rank: mine, settled: make(chan struct{})}
	l.waiting[mine].push(w)
	l.waits++
	return w, nil
}

// wait waits until w is settled, for queue at most.
func (l *limiter) wait(ctx context.Context, w *waiter, queue time.Duration) error {
	timer := time.NewTimer(queue)
	defer timer.Stop()
	var err error
	select {
	case <-w.settled:
		return w.err
	case <-timer.C:
		err = refusal(Late)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.in {
		l.settle(w, err)
		return err
	}
	// It was settled just now.
	if w.err == nil && ctx.Err() != nil {
		l.inFlight-- // nobody is left to make use of it
		l.grant()
		return err
	}
	return w.err
}

// settle ends the wait of w: with a place, or with an error. The lock is held.
func (l *limiter) settle(w *waiter, err error) {
	l.waiting[w.rank].remove(w)
	l.waits--
	w.err = err
	close(w.settled)
}

// grant gives places to those that wait. The lock is held.
func (l *limiter) grant() {
	for r := 0; l.waits > 0 && l.inFlight < l.limit && r < ranks; {
		w := l.waiting[r].newest
		if w == nil {
			r++
			continue
		}
		l.inFlight++
		l.settle(w, nil)
	}
}

// follow takes over another policy. The lock is held.
func (l *limiter) follow(policy inference.Concurrency) {
	was := l.policy
	l.policy = policy
	switch ceiling := policy.Max; {
	case !policy.Adaptive:
		l.limit = ceiling
	default:
		if ceiling <= 0 {
			ceiling = most
		}
		l.adaptive.bound(ceiling, !was.Adaptive)
		l.limit = l.adaptive.value()
	}
	l.grant()
}

// run runs a call that has entered, and leaves however it ends. A message of a stream leaves with its answer, unless more
// may follow: that may wait for those before it, or for a client that takes its time, and its target is done with it.
func (l *limiter) run(ctx context.Context, c *inference.Call, next inference.Handler) (err error) {
	var s sample // of a call that panics there is none
	left := false
	defer func() {
		if left {
			l.learn(s)
		} else {
			l.leave(s)
		}
	}()
	if sink := c.Sink; c.Stream != nil && sink != nil {
		c.Sink = func(answer inference.Frame) error {
			if !left && !c.Decoupled {
				left = true
				l.leave(sample{})
			}
			return sink(answer)
		}
		defer func() { c.Sink = sink }()
	}
	upstreamIn, attempts := c.UpstreamIn, c.Attempts
	err = next(ctx, c)
	if c.Model.Concurrency.Adaptive {
		s = sampleOf(c, err, upstreamIn, attempts)
	}
	return err
}

// learn takes what a call says that has left already.
func (l *limiter) learn(s sample) {
	if s.kind == nothing {
		return
	}
	l.mu.Lock()
	l.adapt(s, l.inFlight+1)
	if l.waits > 0 {
		l.grant()
	}
	l.mu.Unlock()
}

// adapt moves the limit by what a call says, which was one of so many. The lock is held.
func (l *limiter) adapt(s sample, inFlight int) {
	if s.kind != nothing && l.policy.Adaptive && l.adaptive.add(s, inFlight) {
		l.limit = l.adaptive.value()
	}
}

// leave gives a place back.
func (l *limiter) leave(s sample) {
	l.mu.Lock()
	l.adapt(s, l.inFlight)
	l.inFlight--
	if l.waits > 0 {
		l.grant()
	}
	l.mu.Unlock()
}

func (l *limiter) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inFlight > 0 || l.waits > 0
}

func (l *limiter) state() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return State{InFlight: l.inFlight, Waiting: l.waits, Limit: l.limit}
}

// sampleOf is what a call says of how busy its target is. Failures are quick and say nothing; what was tried twice is not
// about one endpoint; and a decoupled model may take as long as it likes.
func sampleOf(c *inference.Call, err error, upstreamIn time.Duration, attempts int) sample {
	if err == nil {
		err = c.InBand
	}
	if c.Decoupled || c.Attempts-attempts != 1 {
		if err == nil || fault.Of(err).Kind != fault.UpstreamQueue {
			return sample{}
		}
	}
	s := sample{kind: timed, at: now(), took: c.UpstreamIn - upstreamIn}
	if err == nil {
		return s
	}
	switch fault.Of(err).Kind {
	case fault.UpstreamTimeout: // it took at least so long
		return s
	case fault.UpstreamQueue:
		s.kind = dropped
		return s
	default:
		return sample{}
	}
}
