package forward

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

const (
	minWait = 25 * time.Millisecond // before a further attempt, drawn at random so that those of many calls spread
	maxWait = 250 * time.Millisecond

	perSecond = 3         // further attempts that are always there, however few calls there are
	maxSaved  = 100 * one // further attempts that calls may save up
	one       = 1000      // one attempt, in the unit of a budget
)

// mayRetry reports whether another endpoint may answer what failed with err. Nothing is sent twice that a client has had
// an answer to, nor a step of a sequence.
func mayRetry(c *inference.Call, err error) bool {
	return c.Answers == 0 && c.Head.Sequence.ID == "" && fault.Of(err).Kind.Row().Elsewhere
}

// errGone is why no further attempt is made for a call that nobody waits for any more.
var errGone = errors.New("nobody waits for the call")

// outsideBudget reports whether the first further attempt after f costs no budget: what never reached a server, or was
// lost with its connection, is not asked for on top of the first attempt but in its place. What a server answered is.
func outsideBudget(f *fault.Fault) bool { return f.Unsent || f.Kind == fault.EndpointLost }

// afford takes a further attempt from the target's budget.
func (s *Stage) afford(c *inference.Call, err error) bool {
	if s.budgets.of(c.Target.Pool).take() {
		return true
	}
	if s.Retries != nil {
		s.Retries.RetryRefused(c.Target, fault.Of(err).Kind)
	}
	return false
}

// Forget drops what calls have saved up, and with it what is kept of upstreams that are no longer there. It is meant for
// reloads: targets then begin with the few attempts that are always there.
func (s *Stage) Forget() { s.budgets.byPool.Clear() }

// wait lets the moment before a further attempt pass. It reports false when ctx ends first, and leaves most of the time
// that there is to the attempt.
func wait(ctx context.Context) bool {
	d := minWait + rand.N(maxWait-minWait) //nolint:gosec // spreads attempts, nothing more
	if at, ok := ctx.Deadline(); ok {
		d = min(d, time.Until(at)/4)
	}
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// budgets bound further attempts by target, so that an upstream that fails is not asked twice as much for it. They are
// kept by pool, which outlives reloads.
type budgets struct{ byPool sync.Map } // inference.Pool → *budget

func (b *budgets) of(p inference.Pool) *budget {
	if v, ok := b.byPool.Load(p); ok {
		return v.(*budget)
	}
	v, _ := b.byPool.LoadOrStore(p, new(budget))
	return v.(*budget)
}

// budget of one target: every call puts its share in, every further attempt takes one out.
type budget struct {
	saved atomic.Int64

	mu     sync.Mutex
	second int64 // of which floor counts
	floor  int
}

// put adds the share of one call.
func (b *budget) put(share float64) {
	if b.saved.Load() < maxSaved {
		b.saved.Add(int64(share * one))
	}
}

// take reports whether one more attempt may be made.
func (b *budget) take() bool {
	for {
		saved := b.saved.Load()
		if saved < one {
			break
		}
		if b.saved.CompareAndSwap(saved, saved-one) {
			return true
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now().Unix(); now != b.second {
		b.second, b.floor = now, 0
	}
	b.floor++
	return b.floor <= perSecond
}
