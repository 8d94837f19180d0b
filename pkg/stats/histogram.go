package stats

import (
	"math/bits"
	"time"
)

// Durations are counted in buckets of 64 steps for each doubling, which makes a bucket at most 1/64 of its lower
// bound wide and its middle wrong by at most 1/128.
const (
	stepBits = 6
	steps    = 1 << stepBits
	unitBits = 7  // the unit is 128 ns, so that the promise holds from 8 µs on
	maxBits  = 35 // of units: 73 minutes; longer durations count as that
	pages    = maxBits - stepBits + 1
	buckets  = pages * steps
)

// Precision is the relative error of durations read from a Snapshot, for those of at least 8 µs.
const Precision = 1.0 / (2 * steps)

// bucketOf gives the bucket that counts d.
func bucketOf(d time.Duration) int {
	if d < 0 {
		d = 0
	}
	v := min(uint64(d)>>unitBits, 1<<maxBits-1)
	shift := max(bits.Len64(v)-stepBits-1, 0)
	return int(uint64(shift)<<stepBits + v>>shift)
}

// lower is the least duration that bucket b counts.
func lower(b int) time.Duration {
	if b < 2*steps {
		return time.Duration(b) << unitBits
	}
	shift := b>>stepBits - 1
	return time.Duration(b&(steps-1)|steps) << (shift + unitBits)
}

// middle stands for the durations that bucket b counts.
func middle(b int) time.Duration {
	return (lower(b) + lower(b+1)) / 2
}

// grid counts by outcome and bucket. Memory comes page by page as durations show up, and stays.
type grid[N uint32 | uint64] [outcomes]*[pages]*[steps]N

func (g *grid[N]) add(o Outcome, b int, n N) {
	dist := g[o]
	if dist == nil {
		dist = new([pages]*[steps]N)
		g[o] = dist
	}
	page := dist[b>>stepBits]
	if page == nil {
		page = new([steps]N)
		dist[b>>stepBits] = page
	}
	page[b&(steps-1)] += n
}

// each yields the counts that are not zero, in order of outcome and bucket.
func (g *grid[N]) each(yield func(o Outcome, b int, n N) bool) {
	for o, dist := range g {
		if dist == nil {
			continue
		}
		for p, page := range dist {
			if page == nil {
				continue
			}
			for i, n := range page {
				if n > 0 && !yield(Outcome(o), p*steps+i, n) {
					return
				}
			}
		}
	}
}

func (g *grid[N]) clear() {
	for _, dist := range g {
		if dist == nil {
			continue
		}
		for _, page := range dist {
			if page != nil {
				clear(page[:])
			}
		}
	}
}

// cell is one count of a finished slot, which is kept as a list of them.
type cell struct {
	outcome Outcome
	bucket  uint16
	n       uint32
}

// flush gives the counts as a list and starts again from zero.
func flush(g *grid[uint32]) []cell {
	n := 0
	g.each(func(Outcome, int, uint32) bool { n++; return true })
	if n == 0 {
		return nil
	}
	list := make([]cell, 0, n)
	g.each(func(o Outcome, b int, n uint32) bool {
		list = append(list, cell{o, uint16(b), n})
		return true
	})
	g.clear()
	return list
}
