package limit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Store holds token buckets. A bucket that was never drawn from is full, fills at Rate.PerSecond by the store's own
// clock, and never holds more than Rate.Burst: whoever asks brings the rate, so that a changed configuration needs no
// change in the store. All methods may be called at once; none keeps draws after it has returned.
//
// An error means that nothing is known: the store did not answer (ErrDown without having asked it), the draws were
// wrong, or ctx ended, and then the error is that of ctx and nobody's fault. A set of draws that ended in an error may
// or may not have been paid.
type Store interface {
	// Draw pays every draw, or none of them, in one step that no other draw can come between. Only the draws that are
	// not Shadow decide; a Shadow one is paid if it can be and if the others are. It fills in the answers of each draw.
	// Being refused changes nothing in the store: it does not put off when a bucket can pay again.
	//
	// The keys must be of one model (see Base): they live in one slot of a cluster.
	Draw(ctx context.Context, draws []Draw) (Verdict, error)
	// Peek says what Draw would say, and takes nothing.
	Peek(ctx context.Context, draws []Draw) (Verdict, error)
	// Lease takes as many whole tokens of one bucket as there are, want at most.
	Lease(ctx context.Context, key string, rate inference.Rate, want float64) (Leased, error)
}

// Bounded is a Store that answers or gives up by itself within a time. A call that may wait as long sets no timer of its
// own, which would cost as much as the rest of a draw.
type Bounded interface {
	Store
	// Within is the longest that any answer takes.
	Within() time.Duration
}

// Draw is what one bucket shall pay, and after Store.Draw whether it did.
type Draw struct {
	Key    string // names the bucket; see Base
	Rate   inference.Rate
	Cost   float64 // tokens; 0 is always paid, and one above Rate.Burst never
	Shadow bool    // what it cannot pay is told, and refuses nothing

	// Answers of the store.
	Able bool    // the bucket held the cost. It was taken if the verdict is OK.
	Left float64 // tokens in the bucket now, between 0 and Rate.Burst
}

// Verdict is the answer to a set of draws.
type Verdict struct {
	OK    bool
	Short int // index of the first draw that refused; -1 if OK
	// RetryAfter is how long it takes until all draws that refused could be paid, if nobody else draws: at least a
	// microsecond, Never for a cost above the burst or a rate that is too slow for a Duration. 0 if OK.
	RetryAfter time.Duration
}

// Leased is the answer to Store.Lease.
type Leased struct {
	Got        float64       // whole tokens, which now belong to whoever asked
	Left       float64       // tokens that the bucket has beside them
	RetryAfter time.Duration // until there is one token; 0 if Got > 0
}

// Never is the RetryAfter of what waiting does not help.
const Never = time.Duration(math.MaxInt64)

// MaxDraws is how many draws a set may have.
const MaxDraws = 64

// ErrDown says that the store is known not to answer and was not asked.
var ErrDown = errors.New("the store of limits does not answer; this replica decides alone until it does")

// Check refuses sets that no store takes: too many draws, keys of several slots, a key twice, numbers that are none.
// The errors say what the caller did wrong. Stores call it.
func Check(draws []Draw) error {
	if len(draws) > MaxDraws {
		return fmt.Errorf("%d draws at once; at most %d", len(draws), MaxDraws)
	}
	for i := range draws {
		d := &draws[i]
		if !(d.Cost >= 0) || math.IsInf(d.Cost, 0) { // NaN too
			return fmt.Errorf("draw on %q costs %v; a cost is 0 or more", d.Key, d.Cost)
		}
		if err := checkRate(d.Key, d.Rate); err != nil {
			return err
		}
		if i > 0 && Tag(d.Key) != Tag(draws[0].Key) {
			return fmt.Errorf("draws on %q and %q at once, which live in different slots", draws[0].Key, d.Key)
		}
		for j := range i {
			if draws[j].Key == d.Key {
				return fmt.Errorf("two draws on %q at once; let one pay for both", d.Key)
			}
		}
	}
	return nil
}

// Judge is the decision that every store must come to: given draws whose Left says what their buckets hold, it fills
// in Able and, if take, counts Left down where a bucket pays. Stores call it.
func Judge(draws []Draw, take bool) Verdict {
	v := Verdict{OK: true, Short: -1}
	for i := range draws {
		d := &draws[i]
		d.Able = d.Left >= d.Cost
		if d.Able || d.Shadow {
			continue
		}
		if v.OK {
			v.OK, v.Short = false, i
		}
		v.RetryAfter = max(v.RetryAfter, Wait(d.Rate, d.Left, d.Cost))
	}
	if v.OK && take {
		for i := range draws {
			if d := &draws[i]; d.Able {
				d.Left -= d.Cost
			}
		}
	}
	return v
}

// CheckLease refuses leases that no store gives. Stores call it.
func CheckLease(key string, rate inference.Rate, want float64) error {
	if !(want >= 1) || math.IsInf(want, 0) {
		return fmt.Errorf("a lease of %v tokens of %q; a lease is of 1 or more", want, key)
	}
	return checkRate(key, rate)
}

// Lend is the answer to a lease of a bucket that holds left tokens. Stores call it.
func Lend(rate inference.Rate, left, want float64) Leased {
	got := math.Floor(min(left, want))
	l := Leased{Got: got, Left: left - got}
	if got == 0 {
		l.RetryAfter = Wait(rate, left, 1)
	}
	return l
}

// Refill is what a bucket holds that held left, elapsed ago. Time that runs backwards refills nothing and takes nothing.
func Refill(rate inference.Rate, left float64, elapsed time.Duration) float64 {
	if elapsed > 0 {
		left += elapsed.Seconds() * rate.PerSecond
	}
	return min(max(left, 0), rate.Burst)
}

func checkRate(key string, r inference.Rate) error {
	// A rate of 0 is a bucket that never fills: the configuration refuses it, tests of exactness want it.
	if !(r.PerSecond >= 0) || math.IsInf(r.PerSecond, 0) || !(r.Burst > 0) || math.IsInf(r.Burst, 0) {
		return fmt.Errorf("bucket %q fills at %v/s up to %v; the rate is 0 or more and the burst more than 0", key, r.PerSecond, r.Burst)
	}
	return nil
}

// Wait is how long a bucket that has left tokens needs until it can pay cost, rounded up to microseconds.
func Wait(rate inference.Rate, left, cost float64) time.Duration {
	switch {
	case cost <= left:
		return 0
	case cost > rate.Burst:
		return Never
	}
	us := math.Ceil((cost - left) / rate.PerSecond * 1e6)
	if !(us < float64(Never/time.Microsecond)) { // too long, or a rate of 0
		return Never
	}
	return max(time.Duration(us), 1) * time.Microsecond
}
