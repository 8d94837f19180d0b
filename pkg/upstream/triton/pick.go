package triton

import (
	"math"
	"math/rand/v2"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// spare is how much busier than the average an endpoint may be before a user's calls go to the next one of the user's.
const spare = 1.25

// of chooses one of seats, of which there is at least one. eased says that some are in their slow start.
func (p *pool) of(c *inference.Call, seats []*seat, eased bool) *seat {
	if len(seats) == 1 {
		return seats[0]
	}
	if c.Model != nil {
		switch {
		case c.Model.Pick == inference.RoundRobin:
			return p.inTurn(c, seats, eased)
		case c.Model.Pick == inference.HashUser && c.User != "":
			return ofUser(c.User, seats)
		case c.Model.Pick == inference.QueueDepth:
			a, b := p.shorter(c.Start, seats)
			if eased {
				return ease(c, a, b)
			}
			return a
		}
	}
	a, b := lessBusy(seats)
	if eased {
		return ease(c, a, b)
	}
	return a
}

// lessBusy draws two and gives the less busy one first.
func lessBusy(seats []*seat) (less, more *seat) {
	n := len(seats)
	i := rand.IntN(n)
	j := rand.IntN(n - 1)
	if j >= i {
		j++
	}
	if seats[j].ep.inflight.Load() < seats[i].ep.inflight.Load() {
		return seats[j], seats[i]
	}
	return seats[i], seats[j]
}

// ease gives a, or, in proportion to how much less of its share it takes as yet, b in its place.
func ease(c *inference.Call, a, b *seat) *seat {
	now := c.Start.UnixNano()
	w, v := a.ep.weight(now), b.ep.weight(now)
	if w < v && rand.Float64()*v >= w {
		return b
	}
	return a
}

// inTurn gives one after the other.
func (p *pool) inTurn(c *inference.Call, seats []*seat, eased bool) *seat {
	n := uint64(len(seats))
	i := p.turns.Add(1)
	s := seats[i%n]
	if eased {
		return ease(c, s, seats[(i+1)%n])
	}
	return s
}

// ofUser gives the endpoint that a rendezvous of user and endpoints finds, as all replicas would, or the next best one
// while that is much busier than the average. It looks at every endpoint.
func ofUser(user string, seats []*seat) *seat {
	var busy int64
	for _, s := range seats {
		busy += s.ep.inflight.Load()
	}
	bound := int64(math.Ceil(spare * float64(busy+1) / float64(len(seats))))
	key := hashOf(user)
	var best, first *seat
	var most, top uint64
	for _, s := range seats {
		n := mix(key ^ s.ep.hash)
		if n >= top {
			first, top = s, n
		}
		if n >= most && s.ep.inflight.Load() < bound {
			best, most = s, n
		}
	}
	if best == nil { // calls came and went while we looked
		return first
	}
	return best
}
