package stats

import (
	"time"
)

// Window is how far back a Snapshot looks.
type Window uint8

// The windows. A window moves on in slots; it has its full length in finished slots and the running slot on top.
const (
	W1m Window = iota // slots of 5 s
	W5m               // slots of 30 s
	W1h               // slots of 2 min
	windows
)

// shape is how a window is cut.
type shape struct {
	name string
	slot time.Duration
	n    int
}

var shapes = [windows]shape{
	W1m: {"1m", 5 * time.Second, 12},
	W5m: {"5m", 30 * time.Second, 10},
	W1h: {"1h", 2 * time.Minute, 30},
}

func (w Window) String() string { return shapes[w].name }

// Length is the nominal length of w.
func (w Window) Length() time.Duration { return shapes[w].slot * time.Duration(shapes[w].n) }

// ring holds the finished slots of one window, and the running one.
type ring struct {
	shape   *shape
	slot    int64 // number of the running slot since 1970
	ends    int64 // when the running slot does, in nanoseconds since 1970
	running grid[uint32]
	done    [][]cell // by slot number modulo their count; nil until a slot with counts is finished
}

// advance finishes slots that have passed by now (in nanoseconds since 1970). A clock that goes back changes nothing.
func (r *ring) advance(now int64) {
	if now >= r.ends {
		r.turn(now)
	}
}

func (r *ring) turn(now int64) {
	was, slot := r.slot, now/int64(r.shape.slot)
	r.slot, r.ends = slot, (slot+1)*int64(r.shape.slot)
	cells := flush(&r.running)
	if r.done == nil {
		if cells == nil {
			return
		}
		r.done = make([][]cell, r.shape.n)
	}
	n := int64(r.shape.n)
	r.done[was%n] = cells
	for s := was + 1; s < slot && s <= was+n; s++ {
		r.done[s%n] = nil
	}
}

// from is the instant at which the window begins, in nanoseconds since 1970.
func (r *ring) from() int64 { return (r.slot - int64(r.shape.n)) * int64(r.shape.slot) }

// into adds all that the window holds to g.
func (r *ring) into(g *grid[uint64]) {
	for _, cells := range r.done {
		for _, c := range cells {
			g.add(c.outcome, int(c.bucket), uint64(c.n))
		}
	}
	r.running.each(func(o Outcome, b int, n uint32) bool {
		g.add(o, b, uint64(n))
		return true
	})
}
