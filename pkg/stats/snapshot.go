package stats

import (
	"math"
	"time"
)

// Snapshot is what a target did between two instants. The zero Snapshot has seen nothing; a Snapshot never changes.
type Snapshot struct {
	From, To time.Time
	counts   *grid[uint64] // nil when nothing was seen
}

func (s *Snapshot) writable() *grid[uint64] {
	if s.counts == nil {
		s.counts = new(grid[uint64])
	}
	return s.counts
}

// Merge gives what all the parts saw together, from the first instant to the last.
func Merge(parts ...Snapshot) Snapshot {
	var sum Snapshot
	for _, p := range parts {
		sum.From, sum.To = span(sum, p)
		if p.counts == nil {
			continue
		}
		g := sum.writable()
		p.counts.each(func(o Outcome, b int, n uint64) bool {
			g.add(o, b, n)
			return true
		})
	}
	return sum
}

// Merge gives what s and o saw together.
func (s Snapshot) Merge(o Snapshot) Snapshot { return Merge(s, o) }

func span(a, b Snapshot) (from, to time.Time) {
	from, to = a.From, a.To
	if from.IsZero() || !b.From.IsZero() && b.From.Before(from) {
		from = b.From
	}
	if b.To.After(to) {
		to = b.To
	}
	return from, to
}

// Span is the time between the two instants.
func (s Snapshot) Span() time.Duration { return s.To.Sub(s.From) }

// Count is the number of attempts that ended with an outcome of want.
func (s Snapshot) Count(want Set) uint64 { return s.within(want, 0, buckets) }

// Rate is Count for each second.
func (s Snapshot) Rate(want Set) float64 {
	if sec := s.Span().Seconds(); sec > 0 {
		return float64(s.Count(want)) / sec
	}
	return 0
}

// FailureRatio is the part of failures among answers and failures, 0 when there were neither.
func (s Snapshot) FailureRatio() float64 {
	if n := s.Count(Judged); n > 0 {
		return float64(s.Count(Bad)) / float64(n)
	}
	return 0
}

// In is the number of attempts of want that took less than d, and Over of those that took d or longer. d is taken
// at the next lower edge of a bucket (at most 1.6 % below), the same one in every Snapshot, so that counts of two
// arms or many replicas compare exactly.
func (s Snapshot) In(d time.Duration, want Set) uint64 { return s.within(want, 0, bucketOf(d)) }

// Over counts exceedances; see In.
func (s Snapshot) Over(d time.Duration, want Set) uint64 { return s.within(want, bucketOf(d), buckets) }

func (s Snapshot) within(want Set, from, to int) (sum uint64) {
	if s.counts == nil {
		return 0
	}
	s.counts.each(func(o Outcome, b int, n uint64) bool {
		if want.Has(o) && b >= from && b < to {
			sum += n
		}
		return true
	})
	return sum
}

// Quantile is the duration that the part q of the attempts of want did not exceed, 0.9999 for P99.99. Its relative error
// is below Precision. It is 0 when there were no such attempts, and the longest one when there were
// fewer than 1/(1-q).
func (s Snapshot) Quantile(q float64, want Set) time.Duration {
	n := s.Count(want)
	if n == 0 {
		return 0
	}
	rank := uint64(math.Ceil(min(max(q, 0), 1) * float64(n)))
	return s.ranked(max(rank, 1), want)
}

func (s Snapshot) ranked(rank uint64, want Set) time.Duration {
	for p := range pages {
		var used [outcomes]*[steps]uint64
		n := 0
		for o, dist := range s.counts {
			if dist != nil && dist[p] != nil && want.Has(Outcome(o)) {
				used[n] = dist[p]
				n++
			}
		}
		if n == 0 {
			continue
		}
		for i := range steps {
			var here uint64
			for _, page := range used[:n] {
				here += page[i]
			}
			if here >= rank {
				return middle(p*steps + i)
			}
			rank -= here
		}
	}
	return middle(buckets - 1)
}

// Mean is the mean duration of the attempts of want, with the relative error of Quantile.
func (s Snapshot) Mean(want Set) time.Duration {
	if s.counts == nil {
		return 0
	}
	var sum, n float64
	s.counts.each(func(o Outcome, b int, c uint64) bool {
		if want.Has(o) {
			sum += float64(c) * float64(middle(b))
			n += float64(c)
		}
		return true
	})
	if n == 0 {
		return 0
	}
	return time.Duration(sum / n)
}
