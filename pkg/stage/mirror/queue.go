package mirror

import (
	"sync"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// queue holds copies until they can be sent. Each target has a lane of its own with so many goroutines as there are copies
// under way; there are none while there is nothing to do.
type queue struct {
	run func(*duplicate)

	// The bounds; see Options.
	calls    int
	bytes    int64
	inFlight int

	running sync.WaitGroup
	mu      sync.Mutex
	closed  bool
	held    load
	lanes   map[*inference.Target]*lane // those that hold copies
}

// load is how much is held.
type load struct {
	calls int
	bytes int64
}

// lane is the copies for one target.
type lane struct {
	held    load
	running int
	waiting []*duplicate // the oldest first
}

// add takes d in: it is sent now, or waits its turn. It is false when there is no room, and d stays with who has it.
func (q *queue) add(d *duplicate) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.held.calls >= q.calls || q.held.bytes+d.size > q.bytes {
		return false
	}
	l := q.lanes[d.call.Target]
	switch {
	case l == nil: // the first of a target may be large
		l = &lane{}
		if q.lanes == nil {
			q.lanes = make(map[*inference.Target]*lane)
		}
		q.lanes[d.call.Target] = l
	case l.held.calls >= (q.calls+1)/2 || l.held.bytes+d.size > q.bytes/2:
		return false
	}
	q.count(l, 1, d.size)
	if l.running >= q.inFlight {
		l.waiting = append(l.waiting, d)
		return true
	}
	l.running++
	q.running.Go(func() {
		for d != nil {
			q.run(d)
			d = q.next(l, d)
		}
	})
	return true
}

// next gives back the room of d, which is done, and takes what waits behind it; nil ends the goroutine.
func (q *queue) next(l *lane, d *duplicate) *duplicate {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count(l, -1, -d.size)
	if len(l.waiting) > 0 {
		first := l.waiting[0]
		l.waiting[0] = nil
		l.waiting = l.waiting[1:]
		return first
	}
	l.running--
	if l.held.calls == 0 {
		delete(q.lanes, d.call.Target)
	}
	return nil
}

func (q *queue) count(l *lane, calls int, bytes int64) {
	for _, held := range []*load{&q.held, &l.held} {
		held.calls += calls
		held.bytes += bytes
	}
}

// close takes in nothing more, and gives what waits.
func (q *queue) close() []*duplicate {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	var all []*duplicate
	for _, l := range q.lanes {
		all = append(all, l.waiting...)
		l.waiting = nil
	}
	return all
}
