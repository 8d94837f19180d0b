package triton

import (
	"container/list"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// The steps of a sequence must all meet the state that the first one made, and that is on one endpoint: its home.
// Rendezvous hashing finds a home that other replicas find as well. It is remembered while the sequence goes on, so that
// an endpoint that joins moves no sequence, and one that leaves is told to the caller instead of starting half a
// sequence elsewhere. What all replicas know together (Call.Home) goes before what this one remembers.

const (
	maxSequences = 100_000          // remembered of a pool; homes of more go by the hash alone
	sequenceIdle = time.Minute      // without a step, until a home is forgotten
	newsTakes    = 10 * time.Second // at most, until all replicas know of an endpoint: DNS is asked again as often
)

// sequenceKey is a digest of who calls which sequence, so that long ids cost no memory and none can be made to collide.
type sequenceKey [16]byte

func sequenceOf(c *inference.Call) sequenceKey {
	var room [256]byte
	b := room[:0]
	for _, part := range [...]string{c.Head.Model, c.CallerName(), c.Head.Sequence.ID} {
		b = append(binary.AppendUvarint(b, uint64(len(part))), part...)
	}
	sum := sha256.Sum256(b)
	return sequenceKey(sum[:16])
}

// homes remembers where the sequences of a pool are. The zero value is empty.
type homes struct {
	mu    sync.Mutex
	byKey map[sequenceKey]*list.Element
	order list.List // of *home, the one that had a step last in front
}

type home struct {
	key      sequenceKey
	endpoint string    // address
	mark     string    // Home.Mark; "" when only this replica knows of it
	met      bool      // this replica has had a step there
	missed   time.Time // when one that it has not met was first found not to be there; zero when it was not
	lost     bool      // the caller has been told, or will be with the next step
	starts   int       // that have not had their end
	last     time.Time // when it last had a step
}

// pickSequence gives the endpoint of c's sequence, and sees to it that other replicas know it too.
func (p *pool) pickSequence(c *inference.Call, ch *choice, not []inference.Endpoint) (*seat, error) {
	s, err := p.pickHome(c, ch, not)
	switch {
	case c.Home == nil:
	case err != nil:
		lose(c, err)
	case c.Home.New:
		c.Home.Settle(s.ep.name)
		if c.Home.Endpoint == "" {
			break
		}
		p.homes.settled(sequenceOf(c), s.ep.name, c.Home)
		if c.Home.Endpoint != s.ep.name || c.Home.Lost { // another replica was quicker
			s, err = p.pickHome(c, ch, not)
		}
	}
	return s, err
}

// lose makes known to all replicas that the sequence of c is lost, where that is what err says.
func lose(c *inference.Call, err error) {
	if h := c.Home; h != nil && !h.Lost && fault.Of(err).Kind == fault.SequenceLost {
		h.Lose()
	}
}

// pickHome gives the endpoint of c's sequence, as this replica knows it and Call.Home says.
func (p *pool) pickHome(c *inference.Call, ch *choice, not []inference.Endpoint) (*seat, error) {
	key := sequenceOf(c)
	now := time.Now()
	h := &p.homes
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expire(now)
	known := h.touch(key, now)
	if c.Home != nil && c.Home.Endpoint != "" {
		known = h.adopt(key, known, c.Home, now)
	} else if c.Head.Sequence.Start {
		return p.startAt(c, ch, not, key, known, now)
	}
	if known == nil {
		s, err := p.rendezvous(ch, not, key)
		if err == nil && !c.Head.Sequence.End {
			h.add(&home{key: key, endpoint: s.ep.name, met: true, last: now})
		}
		return s, err
	}
	s := ch.seatOf(known.endpoint)
	if s == nil && !known.lost {
		p.up.health.Kick(p.model, p.version)
		if known.mayCome(now) {
			return nil, fault.New(fault.NoEndpoint, "endpoint %s, which holds the sequence, is not known to be ready here yet; send the same step again shortly", known.endpoint)
		}
		known.lost = true // for good: what comes back there may be a new process, and this step is missing anyway
	}
	switch {
	case known.lost:
		return nil, sequenceLost(nil)
	case isOneOf(s, not):
		return nil, noSecondTry()
	}
	known.met = true
	return s, nil
}

// mayCome reports whether an endpoint that is not there may only not be known here yet: another replica has found it, and
// what that one has heard of scaling, or of the model, is news of a few seconds.
func (k *home) mayCome(now time.Time) bool {
	if k.met {
		return false
	}
	if k.missed.IsZero() {
		k.missed = now
	}
	return now.Sub(k.missed) < newsTakes
}

// startAt gives a sequence that starts its home. One that starts again stays, so that it takes the place of its
// predecessor. p.homes.mu is held.
func (p *pool) startAt(c *inference.Call, ch *choice, not []inference.Endpoint, key sequenceKey, known *home, now time.Time) (*seat, error) {
	if known != nil && !known.lost {
		if s := seatIn(ch.ready, known.endpoint); s != nil && !isOneOf(s, not) {
			known.met = true
			known.starts++
			return s, nil
		}
	}
	s, err := p.rendezvous(ch, not, key)
	switch {
	case err != nil:
		return nil, err
	case known != nil:
		known.endpoint, known.lost, known.met, known.starts = s.ep.name, false, true, 1
	case !c.Head.Sequence.End: // one step alone needs no memory
		p.homes.add(&home{key: key, endpoint: s.ep.name, met: true, starts: 1, last: now})
	}
	return s, nil
}

// rendezvous draws the endpoint that all replicas would, as long as they know the same ones to be ready.
func (p *pool) rendezvous(ch *choice, not []inference.Endpoint, key sequenceKey) (*seat, error) {
	seats := ch.ready
	if len(seats) == 0 {
		seats = ch.maybe
	}
	if len(seats) == 0 {
		p.up.health.Kick(p.model, p.version)
		return nil, ch.absent
	}
	seed := binary.LittleEndian.Uint64(key[:])
	best, most := seats[0], uint64(0)
	for _, s := range seats {
		if n := mix(seed ^ s.ep.hash); n >= most {
			best, most = s, n
		}
	}
	if isOneOf(best, not) {
		return nil, noSecondTry()
	}
	return best, nil
}

func noSecondTry() *fault.Fault {
	return fault.New(fault.NoEndpoint, "the steps of a sequence are tried on one endpoint only, and that could not take this one; try again shortly")
}

// left notes how a step ended on s, and gives the error that its caller should see.
func (s *seat) left(c *inference.Call, err error) error {
	h := &s.pool.homes
	key := sequenceOf(c)
	failed := err
	if failed == nil {
		failed = c.InBand
	}
	gone := failed != nil && losesSequence(fault.Of(failed).Kind)
	h.mu.Lock()
	if known := h.touch(key, time.Now()); known != nil && known.endpoint == s.ep.name {
		switch {
		case gone && c.Head.Sequence.Start:
			h.drop(known) // it never began
		case gone:
			known.lost = true
		case failed == nil && c.Head.Sequence.End:
			if known.starts--; known.starts <= 0 {
				h.drop(known)
			}
		}
	}
	h.mu.Unlock()
	if gone && c.Home != nil {
		c.Home.Lose()
	}
	if err != nil && gone && !c.Head.Sequence.Start {
		return sequenceLost(err)
	}
	return err
}

// losesSequence reports whether a fault means that the state of a sequence is gone with the endpoint.
func losesSequence(k fault.Kind) bool {
	switch k {
	case fault.EndpointLost, fault.UpstreamUnavailable, fault.Draining, fault.ModelNotReady,
		fault.ShuttingDown: // ended by us while it was under way: nobody knows whether it has changed the state
		return true
	default:
		return false
	}
}

// sequenceLost is what the caller of a step is told when the home is gone; cause may be nil.
func sequenceLost(cause error) *fault.Fault {
	f := fault.New(fault.SequenceLost, "the model server that held the sequence is gone, and the state of the sequence with it; start the sequence anew")
	if cause != nil {
		of := fault.Of(cause)
		f.Upstream, f.Cause = of.Upstream, cause
	}
	return f
}

// forgetSequences drops those that have had no step for long.
func (u *Upstream) forgetSequences() {
	now := time.Now()
	u.pools.Range(func(_, value any) bool {
		h := &value.(*pool).homes
		h.mu.Lock()
		h.expire(now)
		h.mu.Unlock()
		return true
	})
}

// touch gives the home under key and notes that it has had a step; nil when there is none.
func (h *homes) touch(key sequenceKey, now time.Time) *home {
	e := h.byKey[key]
	if e == nil {
		return nil
	}
	h.order.MoveToFront(e)
	known := e.Value.(*home)
	known.last = now
	return known
}

// adopt gives the home that all replicas know in place of known, which is what this one remembers, or nil. Of the same
// sequence this one may know later that it is lost; of a predecessor what it knows is nothing worth.
func (h *homes) adopt(key sequenceKey, known *home, all *inference.Home, now time.Time) *home {
	if known == nil {
		known = &home{key: key, last: now}
		h.add(known)
	}
	if known.mark != all.Mark {
		*known = home{key: key, endpoint: all.Endpoint, mark: all.Mark, starts: 1, last: now}
	}
	known.lost = known.lost || all.Lost
	return known
}

// settled notes under which mark all replicas know the home at endpoint, if that is where they have it.
func (h *homes) settled(key sequenceKey, endpoint string, all *inference.Home) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.byKey[key]; e != nil && all.Endpoint == endpoint && e.Value.(*home).endpoint == endpoint {
		e.Value.(*home).mark = all.Mark
	}
}

// add remembers n, unless there are too many: those that are remembered already go on as they are.
func (h *homes) add(n *home) {
	if len(h.byKey) >= maxSequences {
		return
	}
	if h.byKey == nil {
		h.byKey = make(map[sequenceKey]*list.Element)
	}
	h.byKey[n.key] = h.order.PushFront(n)
}

func (h *homes) drop(n *home) {
	h.order.Remove(h.byKey[n.key])
	delete(h.byKey, n.key)
}

func (h *homes) expire(now time.Time) {
	for e := h.order.Back(); e != nil && now.Sub(e.Value.(*home).last) > sequenceIdle; e = h.order.Back() {
		h.drop(e.Value.(*home))
	}
}

// seatOf gives the seat of an address that may serve; nil when it may not.
func (ch *choice) seatOf(address string) *seat {
	if s := seatIn(ch.ready, address); s != nil {
		return s
	}
	return seatIn(ch.maybe, address)
}

// seatIn finds an address; seats are in order of address, as the upstream's endpoints are.
func seatIn(seats []*seat, address string) *seat {
	i, found := slices.BinarySearchFunc(seats, address, func(s *seat, a string) int { return strings.Compare(s.ep.name, a) })
	if !found {
		return nil
	}
	return seats[i]
}

func isOneOf(s *seat, not []inference.Endpoint) bool {
	return slices.ContainsFunc(not, func(e inference.Endpoint) bool { return e.Name() == s.ep.name })
}

// hashOf is the part of a rendezvous that an address has, the same in every process.
func hashOf(address string) uint64 { // FNV-1a
	h := uint64(14695981039346656037)
	for i := range len(address) {
		h = (h ^ uint64(address[i])) * 1099511628211
	}
	return h
}

// mix spreads every bit of x over all of them.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
