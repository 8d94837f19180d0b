package limit

import (
	"context"
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Memory is the Store of a replica that shares with nobody. A bucket takes about 130 bytes however long its name is;
// buckets that are full again are forgotten as new ones come, and beyond the bound on their number the one that is
// full soonest makes room: whoever it belonged to has a full bucket early, and nobody has less than is due.
type Memory struct {
	now    func() time.Time
	start  time.Time
	seeds  [2]maphash.Seed
	shards [shards]shard
}

// MemoryOptions are for NewMemory. The zero value is good.
type MemoryOptions struct {
	// MaxBuckets bounds how many buckets that are not full are remembered; 0 stands for
	// DefaultMaxBuckets, which take about 65 MB when there are so many.
	MaxBuckets int
	// Now is the clock; nil stands for time.Now.
	Now func() time.Time
}

// shards is how many locks there are: one for each bit of the mask that orders them.
const shards = 64

// DefaultMaxBuckets is what a Memory remembers unless told otherwise.
const DefaultMaxBuckets = 500_000

// NewMemory makes a store without buckets.
func NewMemory(o MemoryOptions) *Memory {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxBuckets <= 0 {
		o.MaxBuckets = DefaultMaxBuckets
	}
	m := &Memory{now: o.Now, start: o.Now(), seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	for i := range m.shards {
		m.shards[i].index = make(map[bucketID]uint32)
		m.shards[i].limit = (o.MaxBuckets + shards - 1) / shards
	}
	return m
}

// Draw implements Store. Its only errors are those of wrong draws.
func (m *Memory) Draw(_ context.Context, draws []Draw) (Verdict, error) { return m.ask(draws, true) }

// Peek implements Store.
func (m *Memory) Peek(_ context.Context, draws []Draw) (Verdict, error) { return m.ask(draws, false) }

func (m *Memory) ask(draws []Draw, take bool) (Verdict, error) {
	if err := Check(draws); err != nil {
		return Verdict{}, err
	}
	var few [4]bucketID // the usual number stays on the stack
	ids := few[:0]
	var mask uint64
	for i := range draws {
		id := m.id(draws[i].Key)
		ids = append(ids, id)
		mask |= 1 << id.shard()
	}
	m.lock(mask)
	defer m.unlock(mask)

	now := m.now().Sub(m.start) // under the locks, or the time of two draws could be out of order
	for i := range draws {
		draws[i].Left = m.shards[ids[i].shard()].left(ids[i], draws[i].Rate, now)
	}
	v := Judge(draws, take)
	if v.OK && take {
		for i := range draws {
			if d := &draws[i]; d.Able && d.Cost > 0 {
				m.shards[ids[i].shard()].set(ids[i], d.Rate, d.Left, now)
			}
		}
	}
	return v, nil
}

// Lease implements Store.
func (m *Memory) Lease(_ context.Context, key string, rate inference.Rate, want float64) (Leased, error) {
	if err := CheckLease(key, rate, want); err != nil {
		return Leased{}, err
	}
	id := m.id(key)
	s := &m.shards[id.shard()]
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.now().Sub(m.start)
	l := Lend(rate, s.left(id, rate, now), want)
	if l.Got > 0 {
		s.set(id, rate, l.Left, now)
	}
	return l, nil
}

// Len is how many buckets are remembered.
func (m *Memory) Len() int {
	n := 0
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		n += len(s.buckets)
		s.mu.Unlock()
	}
	return n
}

// lock takes the locks of mask from the lowest up, the order that keeps two sets of draws from waiting for each other.
func (m *Memory) lock(mask uint64) {
	for ; mask != 0; mask &= mask - 1 {
		m.shards[bits.TrailingZeros64(mask)].mu.Lock()
	}
}

func (m *Memory) unlock(mask uint64) {
	for ; mask != 0; mask &= mask - 1 {
		m.shards[bits.TrailingZeros64(mask)].mu.Unlock()
	}
}

// bucketID stands for a key: 128 bits of hash, so that two keys never meet, and nothing for the garbage collector to follow.
type bucketID [2]uint64

func (m *Memory) id(key string) bucketID {
	return bucketID{maphash.String(m.seeds[0], key), maphash.String(m.seeds[1], key)}
}

func (id bucketID) shard() uint64 { return id[0] % shards }

// shard is the part of the buckets that one lock guards.
type shard struct {
	mu      sync.Mutex
	index   map[bucketID]uint32 // where in buckets
	buckets []bucket
	hand    int // where tidying goes on
	limit   int // of buckets
	_       [64]byte
}

type bucket struct {
	id   bucketID
	left float64
	at   time.Duration // when left was so, since the store's start
	full time.Duration // when it is full
}

// left is what a bucket holds now.
func (s *shard) left(id bucketID, rate inference.Rate, now time.Duration) float64 {
	i, ok := s.index[id]
	if !ok {
		return rate.Burst
	}
	b := &s.buckets[i]
	return Refill(rate, b.left, now-b.at)
}

// set remembers what a bucket holds now.
func (s *shard) set(id bucketID, rate inference.Rate, left float64, now time.Duration) {
	b := bucket{id: id, left: left, at: now, full: math.MaxInt64}
	if wait := Wait(rate, left, rate.Burst); wait < math.MaxInt64-now {
		b.full = now + wait
	}
	if i, ok := s.index[id]; ok {
		s.buckets[i] = b
		return
	}
	s.tidy(now)
	s.index[id] = uint32(len(s.buckets))
	s.buckets = append(s.buckets, b)
}

// Of looks at buckets that a new one pays for: two, so that the full ones go faster than new ones come; and when there
// is no room, some more to choose from.
const (
	looks       = 2
	looksNoRoom = 8
)

// tidy forgets full buckets near the hand, and makes room if there is none.
func (s *shard) tidy(now time.Duration) {
	for range looks {
		if len(s.buckets) == 0 {
			return
		}
		s.hand %= len(s.buckets)
		if s.buckets[s.hand].full <= now {
			s.forget(s.hand) // another has its place now
		} else {
			s.hand++
		}
	}
	if len(s.buckets) < s.limit {
		return
	}
	soonest := s.hand % len(s.buckets)
	for range looksNoRoom {
		s.hand = (s.hand + 1) % len(s.buckets)
		if s.buckets[s.hand].full < s.buckets[soonest].full {
			soonest = s.hand
		}
	}
	s.forget(soonest)
}

func (s *shard) forget(i int) {
	last := len(s.buckets) - 1
	delete(s.index, s.buckets[i].id)
	if i != last {
		s.buckets[i] = s.buckets[last]
		s.index[s.buckets[i].id] = uint32(i)
	}
	s.buckets = s.buckets[:last]
}
