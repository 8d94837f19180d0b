package redis

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

const (
	// tripAfter failures in a row, or half of at least tripOf calls in tripWindow, and Redis counts as down.
	tripAfter  = 5
	tripOf     = 20
	tripWindow = 5 * time.Second
	// probeEvery is how often it is then looked at, give or take a quarter.
	probeEvery = 500 * time.Millisecond
	// warmEvery is how often that is tried at the start.
	warmEvery = 100 * time.Millisecond
	// clusterParts is how many breakers the slots of a cluster are shared among, so that a master that is gone does not
	// cost the calls of the others.
	clusterParts = 64
)

// breaker knows whether one part of the slots can be served. While it is open no call asks; probes in the background do.
type breaker struct {
	client *Client
	batch  batcher
	cb     *gobreaker.CircuitBreaker[struct{}]
	down   atomic.Bool
	mu     sync.Mutex
	name   string // of the key of the last failure: probes go where that was
}

func newBreaker(c *Client) *breaker {
	b := &breaker{client: c}
	b.batch = batcher{breaker: b, budget: c.options.Timeout}
	b.cb = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: 1,
		Interval:    tripWindow, BucketPeriod: tripWindow / 5,
		Timeout: probeEvery / 2, // probes come less often, so each finds the breaker half open
		ReadyToTrip: func(n gobreaker.Counts) bool {
			return n.ConsecutiveFailures >= tripAfter ||
				n.TotalFailures+n.TotalSuccesses >= tripOf && n.TotalFailures >= n.TotalSuccesses
		},
		IsExcluded:    isCallers,
		OnStateChange: b.changed,
	})
	return b
}

// closed reports whether calls may ask. It costs nanoseconds.
func (b *breaker) closed() bool { return !b.down.Load() }

// changed runs inside the breaker's lock: it only notes.
func (b *breaker) changed(_ string, from, to gobreaker.State) {
	switch {
	case from == gobreaker.StateClosed:
		b.down.Store(true)
		b.client.open.Add(1)
		b.client.observer.RedisUp(false)
		b.client.background(b.lookOut)
	case to == gobreaker.StateClosed:
		b.down.Store(false)
		if b.client.open.Add(-1) == 0 {
			b.client.observer.RedisUp(true)
		}
	}
}

// try runs ask, for so many calls, within budget, and tells the breaker how it went. The context of ask ends with the budget.
func (b *breaker) try(ctx context.Context, name string, budget time.Duration, calls int, ask func(context.Context) error) error {
	return b.tryWithin(ctx, name, budget, calls, func(w within) error { //nolint:contextcheck // it has the time of ctx, and its values
		timed, cancel := w.timed()
		defer cancel()
		return ask(timed)
	})
}

// tryWithin is try for who may have a connection already, and then needs no timer.
func (b *breaker) tryWithin(ctx context.Context, name string, budget time.Duration, calls int, ask func(within) error) error {
	if err := ctx.Err(); err != nil {
		return callersError{err}
	}
	_, err := b.cb.Execute(func() (struct{}, error) {
		begun := time.Now()
		by := begun.Add(budget)
		if deadline, ok := ctx.Deadline(); ok && deadline.Before(by) {
			by = deadline
		}
		err := ask(within{ctx, by})
		if err == nil {
			return struct{}{}, nil
		}
		if ended := ended(ctx); ended != nil {
			if early(time.Since(begun), budget) {
				return struct{}{}, callersError{ended}
			}
			err = ended
		}
		return struct{}{}, err
	})
	switch {
	case err == nil || isCallers(err):
	case errors.Is(err, gobreaker.ErrOpenState), errors.Is(err, gobreaker.ErrTooManyRequests):
		return ErrDown // it opened just now
	default:
		b.note(name)
		b.failed(err, min(calls, tripAfter)-1)
	}
	return err
}

// within is a context that says by when to be done, and ends by itself never: connections go by the time, and to be told that
// the caller has left costs more than looking for it afterwards. It is for who has a connection: the library waits for
// one for as long as making it takes, unless it is told to stop.
type within struct {
	of context.Context // its values
	by time.Time
}

func (w within) Deadline() (time.Time, bool) { return w.by, true }
func (w within) Done() <-chan struct{}       { return nil }
func (w within) Value(key any) any           { return w.of.Value(key) }

// timed is a context that ends when the time is up.
func (w within) timed() (context.Context, context.CancelFunc) {
	return context.WithDeadline(context.WithoutCancel(w.of), w.by)
}

func (w within) Err() error {
	if time.Now().Before(w.by) {
		return nil
	}
	return context.DeadlineExceeded
}

// early reports whether who left after so long is nobody's failure. Who had as much time as the budget gives, set by
// whoever asks for this very reason, tells of a Redis that does not answer.
func early(after, budget time.Duration) bool { return after < budget*3/4 }

// left is the error for a question whose caller left while others asked Redis for it.
func (b *breaker) left(ctx context.Context, q *question) error {
	budget := b.batch.budget
	if early(budget-time.Until(q.due), budget) {
		return callersError{ctx.Err()}
	}
	b.late(q.draws[0].Key)
	return ctx.Err()
}

// late tells the breaker that a call has waited for its whole budget.
func (b *breaker) late(name string) {
	b.note(name)
	b.failed(context.DeadlineExceeded, 1)
}

// failed tells the breaker of more calls that ended in err. Once it is open it does not listen.
func (b *breaker) failed(err error, calls int) {
	for range calls {
		_, _ = b.cb.Execute(func() (struct{}, error) { return struct{}{}, err })
	}
}

// note remembers where a failure was, for probes.
func (b *breaker) note(name string) {
	b.mu.Lock()
	b.name = name
	b.mu.Unlock()
}

// ended is the error of a context that is over, or whose deadline has passed: a connection may notice that first.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// lookOut probes now and then until the breaker is closed.
func (b *breaker) lookOut(ctx context.Context) {
	for !b.closed() {
		if !wait(ctx, probeEvery*3/4+rand.N(probeEvery/2)) {
			return
		}
		b.mu.Lock()
		name := b.name
		b.mu.Unlock()
		_ = b.client.probe(ctx, b, name) // the breaker is told
	}
}

// outcome is what metrics call the end of a call.
func outcome(err error) string {
	if err == nil {
		return OutcomeOK
	}
	var network net.Error // made here, below what nearly every call is: looking for it takes memory
	switch {
	case isCallers(err):
		return OutcomeCancelled
	case errors.Is(err, ErrDown):
		return OutcomeSkipped
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, goredis.ErrPoolTimeout),
		errors.As(err, &network) && network.Timeout():
		return OutcomeTimeout
	}
	return OutcomeError
}
