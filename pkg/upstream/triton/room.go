package triton

import (
	"sync/atomic"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Each endpoint has room for so many calls at once, of this gateway and of all models. A call takes its place when it is
// sent, in one step with the look whether there is one, so that calls that come together never take more. Those that
// choose look first and pass over endpoints that are full; who comes too late for the last place is refused by Infer, with
// nothing done, and may choose again.

// underWay counts the calls that are under way at an address. It is handed on when other connections are made to the
// address, or it comes back, for calls that are still under way are there all the same.
type underWay struct {
	atomic.Int64
	_ [56]byte // those of other addresses are not in the same cache line
}

// enter takes a place for a call; false when there is none. Whoever entered must leave.
func (e *endpoint) enter() bool {
	limit := e.up.maxInFlight.Load()
	if limit <= 0 {
		e.inflight.Add(1)
		return true
	}
	for {
		n := e.inflight.Load()
		if n >= limit {
			return false
		}
		if e.inflight.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (e *endpoint) exit() { e.inflight.Add(-1) }

// full reports whether no call could enter now.
func (e *endpoint) full() bool {
	limit := e.up.maxInFlight.Load()
	return limit > 0 && e.inflight.Load() >= limit
}

// withRoom chooses one of seats that is not full.
func (p *pool) withRoom(c *inference.Call, seats []*seat, eased bool) (*seat, error) {
	var left []*seat
	for _, s := range seats {
		if !s.ep.full() {
			left = append(left, s)
		}
	}
	if len(left) == 0 {
		return nil, p.noRoom(len(seats))
	}
	return p.of(c, left, eased), nil
}

// noRoom is what a call is refused with while all of so many endpoints are full.
func (p *pool) noRoom(endpoints int) *fault.Fault {
	which := "the only endpoint that can serve model %q has"
	if endpoints > 1 {
		which = "each of the endpoints that can serve model %q has"
	}
	return fault.New(fault.Overloaded, which+" as many calls under way as it may (upstreams.%s.max_in_flight is %d); try again in a moment", p.model, p.up.name, p.up.maxInFlight.Load())
}

// noRoom is what a call is refused with that came too late for the last place.
func (s *seat) noRoom(c *inference.Call) *fault.Fault {
	if c.Head.Sequence.ID == "" {
		return s.pool.noRoom(1)
	}
	return fault.New(fault.Overloaded, "the model server of the sequence has as many calls under way as it may (upstreams.%s.max_in_flight is %d); this step of the sequence was not sent: send it again in a moment", s.pool.up.name, s.pool.up.maxInFlight.Load())
}

// Room says how many calls each endpoint takes at once, 0 for any number; how many endpoints can serve the version; and
// how many of them take no more now.
func (p *pool) Room() (limit, endpoints, full int) {
	ch := p.current()
	seats := ch.ready
	if len(seats) == 0 {
		seats = ch.maybe
	}
	for _, s := range seats {
		if s.ep.full() {
			full++
		}
	}
	return int(p.up.maxInFlight.Load()), len(seats), full
}
