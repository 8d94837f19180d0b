package breaker

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// phase is what a breaker is from one change to the next. A later one never hears of calls that began in an earlier one.
type phase struct {
	kind   kind
	policy inference.Breaker
	why    Reason
	since  time.Time
	until  time.Time // of an opened one: when probes are let through

	counts *gobreaker.TwoStepCircuitBreaker[struct{}] // of a closed or opened one
	slow   *slowWindow                                // of a closed one; nil when no call is slow

	failed atomic.Bool      // closed: a call has
	over   atomic.Bool      // closed: too many have
	atOver gobreaker.Counts // closed: what was counted then; gobreaker itself begins anew

	opening tally // opened: what was counted when it opened

	probing    atomic.Bool // opened: gobreaker lets probes through
	told       atomic.Bool // and that has been told
	slowProbes atomic.Int64
	result     atomic.Uint32 // opened: what the probes have shown, a verdict; excluded while it is open
}

// kind is the kind of a phase.
type kind uint8

const (
	closed    kind = iota
	opened         // open and, after its time, half-open
	down           // open, for want of an endpoint
	unguarded      // closed for good
	halfOpen       // opened, and that for no time; only asked for
)

// state is what people call a phase of that kind when it begins.
func (k kind) state() State {
	switch k {
	case opened, down:
		return Open
	case halfOpen:
		return HalfOpen
	default:
		return Closed
	}
}

const (
	parts = 10 // buckets that a window is counted in
	never = 100 * 365 * 24 * time.Hour
)

// What gobreaker is told of calls, beside nil.
var (
	errBad      = errors.New("failed")
	errExcluded = errors.New("excluded")
)

func (v verdict) error() error {
	switch v {
	case good:
		return nil
	case bad:
		return errBad
	default:
		return errExcluded
	}
}

func isExcluded(err error) bool { return err == errExcluded } //nolint:errorlint // it is the very value that gobreaker was given

// closedPhase counts calls. Its gobreaker opens once and for all: opened ones are made anew, with another time.
func closedPhase(policy inference.Breaker, why Reason, now time.Time) *phase {
	p := &phase{kind: closed, policy: policy, why: why, since: now}
	if policy.MinCalls <= 0 || policy.Window <= 0 {
		p.kind = unguarded
		return p
	}
	p.counts = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Interval: policy.Window, BucketPeriod: max(policy.Window/parts, 1),
		Timeout:     never,
		ReadyToTrip: p.trips,
		IsExcluded:  isExcluded,
		// It is called within gobreaker's lock, and so only notes.
		OnStateChange: func(string, gobreaker.State, gobreaker.State) { p.over.Store(true) },
	})
	if policy.SlowAfter > 0 {
		p.slow = newSlowWindow(policy.Window, now)
	}
	return p
}

// tooMany reports whether enough of the calls within the window failed.
func (p *phase) tooMany(n gobreaker.Counts) bool {
	return over(n.TotalFailures, n.TotalFailures+n.TotalSuccesses, p.policy.MinCalls, p.policy.Failures)
}

// trips is tooMany for gobreaker, which asks within its lock, and no more once the answer was yes.
func (p *phase) trips(n gobreaker.Counts) bool {
	if !p.tooMany(n) {
		return false
	}
	p.atOver = n // before over says that it is there
	return true
}

// counted gives what a closed phase has within the window.
func (p *phase) counted() tally {
	p.counts.State() // forgets what is older
	n := p.counts.Counts()
	if p.over.Load() {
		n = p.atOver
	}
	t := tally{calls: n.TotalFailures + n.TotalSuccesses, failed: n.TotalFailures}
	if p.slow != nil {
		t.slow = p.slow.now().slow
	}
	return t
}

// over reports whether n of all, which must be enough, are at least that share.
func over(n, all uint32, enough int, share float64) bool {
	return int64(all) >= int64(enough) && float64(n) >= share*float64(all)
}

// openedPhase is open for some time, and then half-open.
func openedPhase(policy inference.Breaker, why Reason, now time.Time, last time.Duration) *phase {
	p := &phase{kind: opened, policy: policy, why: why, since: now, until: now.Add(last)}
	p.counts = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: uint32(max(policy.Probes, 1)),
		Timeout:     max(last, 1), // 0 would be its default
		ReadyToTrip: func(gobreaker.Counts) bool { return true },
		IsExcluded:  isExcluded,
		// It is called within gobreaker's lock, and so only notes.
		OnStateChange: func(_ string, from, to gobreaker.State) {
			switch {
			case to == gobreaker.StateHalfOpen:
				p.probing.Store(true)
			case to == gobreaker.StateClosed:
				p.result.Store(uint32(good))
			case from == gobreaker.StateHalfOpen:
				p.result.Store(uint32(bad))
			}
		},
	})
	if done, err := p.counts.Allow(); err == nil {
		done(errBad) // a new one is closed, and opens with its first failure
	}
	return p
}

// openFor is how long a breaker stays open that has opened so many times in a row before: twice as long each time, up to
// the most there is, and up to a fifth less, so that replicas do not probe all at once.
func openFor(policy inference.Breaker, before int) time.Duration {
	d := policy.Open
	for range before {
		if d *= 2; d >= policy.OpenMax {
			break
		}
	}
	d = min(d, policy.OpenMax)
	return d - time.Duration(rand.Float64()*float64(d)/5)
}

// shown is the state that p is in, as people see it.
func (p *phase) shown(now time.Time) State {
	if p.kind == opened && now.After(p.until) {
		return HalfOpen
	}
	return p.kind.state()
}
