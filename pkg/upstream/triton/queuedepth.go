package triton

import (
	"math/rand/v2"
	"time"
)

const (
	scrapeEvery   = 2 * time.Second
	pendingStale  = 3 * scrapeEvery // what is older counts for nothing
	scrapeTimeout = time.Second
	scrapesAtOnce = 16
	scrapeWarn    = time.Minute // between two warnings while scrapes fail
)

// pending is how many requests wait in a model server, by version of a model, as its metrics had it. It is never
// written again.
type pending struct {
	at    time.Time
	count map[poolKey]int64
}

// queued is how many requests for the pool's version wait at an endpoint, whoever sent them. Not ok: nobody knows.
func (s *seat) queued(now time.Time) (n int64, ok bool) {
	p := s.ep.pending.Load()
	if p == nil || now.Sub(p.at) > pendingStale {
		return 0, false
	}
	n, ok = p.count[poolKey{s.pool.model, s.pool.version}]
	return n, ok
}

// shorter draws two and gives the one first at which less has to be waited for: by the requests that wait there, of other
// gateways too, and by our own calls under way. While one of the two numbers is not known, our own calls decide.
func (p *pool) shorter(now time.Time, seats []*seat) (less, more *seat) {
	p.up.scrapes.wanted.Store(now.Unix())
	n := len(seats)
	i := rand.IntN(n)
	j := rand.IntN(n - 1)
	if j >= i {
		j++
	}
	a, b := seats[i], seats[j]
	x, y := a.ep.inflight.Load(), b.ep.inflight.Load()
	if qa, ok := a.queued(now); ok {
		if qb, ok := b.queued(now); ok {
			x, y = x+qa, y+qb
		}
	}
	if y < x {
		return b, a
	}
	return a, b
}
