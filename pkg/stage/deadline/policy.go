package deadline

import (
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// What a dynamic timeout goes by.
const (
	// MinSamples is how many answers within an hour must tell. With fewer, a slow model that was just loaded would never get
	// to show how long it really takes.
	MinSamples = 10_000
	// Every is how often timeouts move.
	Every = 15 * time.Second
	// Stale is how long the last good word of Prometheus counts.
	Stale = time.Minute

	mostUp   = 1.25 // of a step
	mostDown = 0.9

	leastShare   = 2    // a call is doomed when less than 1/leastShare of the quickest answer's time is left
	leastSamples = 1000 // answers within the last minute that tell what the quickest one takes
)

// latency is how long 999 in 1000 attempts took at most, of so many.
type latency struct {
	p999    time.Duration
	beyond  bool // longer than can be told; p999 is the most that can
	samples uint64
}

// enough reports whether a timeout may follow from l.
func (l latency) enough() bool { return l.samples >= MinSamples && (l.p999 > 0 || l.beyond) }

// nextTimeout moves a timeout, 0 where there was none, toward what l says it should be: by one step, and within what the
// model's floor and max say.
func nextTimeout(now time.Duration, l latency, t inference.Timeouts) time.Duration {
	if now <= 0 {
		now = t.Max // where a target that has just got one comes from
	}
	want := t.Max
	if w := t.Dynamic.Factor * float64(l.p999); !l.beyond && w < float64(t.Max) {
		want = max(time.Duration(w), t.Dynamic.Floor)
	}
	return within(min(max(want, fraction(now, mostDown)), fraction(now, mostUp)), t)
}

// within keeps a timeout between floor and max, of which max wins.
func within(d time.Duration, t inference.Timeouts) time.Duration {
	return min(max(d, t.Dynamic.Floor), t.Max)
}

func fraction(d time.Duration, of float64) time.Duration { return time.Duration(float64(d) * of) }
