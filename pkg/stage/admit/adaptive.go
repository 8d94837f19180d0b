package admit

import (
	"math"
	"time"
)

const (
	// startLimit holds until it is known how long calls take.
	startLimit = 20
	// leastLimit calls are always let through, so what calls take while so many are under way is what they take when nothing
	// is wrong, whatever that is: a model that batches is slower the more it is asked at once, by design.
	leastLimit = 8
	// enough calls under way on average are so many that what they take is about the same.
	enough = leastLimit / 2
	// tolerance is how many times that a call may take before it is too many at once.
	tolerance = 2
	// A window ends when it is so long and has so many calls.
	leastWindow  = 250 * time.Millisecond
	leastSamples = 20
	// mostDown is what may be left of a limit after one window, at least.
	mostDown = .6
	// What upstreams refuse because their queue is full lowers it at once.
	onDrop = .85
)

// kind says what a call tells.
type kind uint8

const (
	nothing kind = iota
	timed        // how long it took
	dropped      // that the upstream had no room for it
)

// sample is what a call has told.
type sample struct {
	kind kind
	at   time.Duration // when it ended; see now
	took time.Duration
}

var start = time.Now()

// now is the time since some instant. The monotonic clock alone is half the price of time.Now.
func now() time.Duration { return time.Since(start) }

// adaptive finds how many calls a target can do at once, by the gradient of latency: as long as calls take no more than
// tolerance times what they take when it is not busy, the limit grows in each window in which it was reached, at first
// twofold and later by its square root; beyond that it shrinks in proportion. It settles where the two meet, at some 2.3 to
// 2.7 times that latency.
//
// What calls take when it is not busy (base) is learned only where it can be seen: while the limit is not reached, or
// at leastLimit, where it goes for one window when it is needed and nothing is known yet. Under overload it never drifts up,
// which would end in no limit at all; and a model that has become slower for good sinks to leastLimit, where that is
// learned, and comes back from there.
type adaptive struct {
	limit   float64
	ceiling float64
	base    float64 // ns; 0: nothing is known
	doubles bool    // it has not been too much yet since it was at leastLimit

	open    bool          // a window has begun
	begun   time.Duration // of the window
	count   int
	sum     time.Duration
	peak    int  // most calls under way in it
	crowded bool // a call found no room in it
	drops   bool // the upstream refused one
}

// bound sets the most that it may find. anew forgets what it has found.
func (a *adaptive) bound(ceiling int, anew bool) {
	a.ceiling = float64(ceiling)
	if anew {
		*a = adaptive{limit: startLimit, ceiling: a.ceiling, doubles: true}
	}
	a.limit = min(a.limit, a.ceiling)
}

// value is the limit as a number of calls.
func (a *adaptive) value() int { return max(1, int(a.limit)) }

// floor is where it never goes below.
func (a *adaptive) floor() float64 { return min(leastLimit, a.ceiling) }

// add takes in a call that ended while so many were under way, itself included. It reports whether the limit may have changed.
func (a *adaptive) add(s sample, inFlight int) bool {
	if !a.open {
		a.open, a.begun = true, s.at
	}
	a.peak = max(a.peak, inFlight)
	if s.kind == dropped {
		if a.drops {
			return false // once a window
		}
		a.drops = true
		a.limit = max(a.floor(), a.limit*onDrop)
		return true
	}
	a.count++
	a.sum += s.took
	if a.count < leastSamples || s.at-a.begun < leastWindow {
		return false
	}
	a.update(float64(a.sum)/float64(a.count), float64(a.sum)/float64(s.at-a.begun))
	a.begun, a.count, a.sum, a.peak, a.crowded, a.drops = s.at, 0, 0, 0, false, false
	return true
}

// update ends a window in which calls took so long on average, in ns, and so many were under way.
func (a *adaptive) update(took, underWay float64) {
	crowded := a.crowded || float64(a.peak) >= .8*a.limit
	least := a.limit <= a.floor()
	switch {
	case a.base == 0 && crowded && !least:
		a.limit = a.floor() // to learn
		return
	case crowded && !least:
		a.base = min(a.base, took)
	case underWay < enough && !crowded: // a batch of one is no measure
	case a.base == 0:
		a.base = took
	case took < a.base, least:
		a.base += (took - a.base) / 2
	default:
		a.base += (took - a.base) / 10
	}
	a.doubles = a.doubles || least
	if !crowded || a.drops {
		return // nobody needs more, or it is known to be too much
	}
	gradient := min(1, tolerance*a.base/max(took, 1))
	next := a.limit*gradient + math.Sqrt(a.limit)
	if a.doubles = a.doubles && gradient == 1; a.doubles {
		next = 2 * a.limit
	}
	a.limit = min(max(next, a.limit*mostDown, a.floor()), a.ceiling)
}
