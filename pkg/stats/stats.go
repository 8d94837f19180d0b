// Package stats knows what targets and their endpoints did lately: attempts at the upstream by outcome and duration,
// over the last minute, five minutes and hour. Everything in it is a count, so that what replicas saw adds up exactly,
// and quantiles of the sum are quantiles of all attempts together, right to 0.8 % up to P99.99.
//
// The buckets are our own (64 steps for each doubling, as in HDR histograms): fixed integer buckets cost a shift to
// find where DDSketch needs a logarithm, merge by addition without a common configuration to agree on, and let a
// threshold be counted, which a canary is judged by. Probes and degraded answers are never recorded here.
package stats

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/readmap"
)

// Arm is the part of traffic that an attempt belongs to.
type Arm uint8

// The arms. Whoever does not name one gets Live.
const (
	Live   Arm = iota // calls that clients wait for
	Mirror            // copies of calls, whose answers nobody gets
	arms
)

var armNames = [arms]string{"live", "mirror"}

func (a Arm) String() string { return armNames[a] }

// Key names a target. A target that changes what it stands for is another one, with statistics of its own.
type Key struct {
	Model    string // as clients know it
	Target   string
	Upstream string
	Served   string // the model's name on the upstream
	Version  string
}

// KeyOf gives the key of t.
func KeyOf(t *inference.Target) Key {
	return Key{Model: t.Asked, Target: t.Name, Upstream: t.Upstream, Served: t.Model, Version: t.Version}
}

// Limits of a Registry.
const (
	MaxTargets   = 20_000 // further ones push out those used longest ago
	MaxEndpoints = 1_000  // of a target; attempts at further ones are counted under Other
	IdleTime     = 65 * time.Minute
	sweepEvery   = time.Minute
)

// Other is the endpoint that stands for all those beyond MaxEndpoints.
const Other = "other"

// Registry holds the targets. It is safe for concurrent use.
type Registry struct {
	now     func() int64 // nanoseconds since 1970
	max     int
	targets readmap.Map[Key, *Target]
	swept   atomic.Int64 // when idle targets were looked for last, in nanoseconds since 1970
}

// NewRegistry makes an empty Registry that tells time by now; nil is time.Now.
func NewRegistry(now func() time.Time) *Registry {
	r := &Registry{max: MaxTargets}
	if now != nil {
		r.now = func() int64 { return now().UnixNano() }
	} else {
		// The monotonic clock alone is half the price of time.Now, and nobody sets it back.
		begin := time.Now()
		at := begin.UnixNano()
		r.now = func() int64 { return at + int64(time.Since(begin)) }
	}
	r.swept.Store(r.now())
	return r
}

// Target gives the target named k, making it where it is new. It is meant to be asked for at each use and not kept:
// a target without attempts for over an hour is dropped, and what is recorded on a dropped one is lost.
func (r *Registry) Target(k Key) *Target {
	if t, ok := r.targets.Get(k); ok {
		return t
	}
	now := r.now()
	if r.targets.Len() >= r.max {
		r.evict()
	}
	return r.targets.GetOrAdd(k, func(int) (*Target, bool) {
		t := &Target{Key: k, registry: r, born: now}
		t.used.Store(now)
		return t, true
	})
}

// Peek gives the target named k where there is one; it makes none.
func (r *Registry) Peek(k Key) (*Target, bool) { return r.targets.Get(k) }

// All calls yield for every target, in no order.
func (r *Registry) All(yield func(*Target) bool) {
	r.targets.All(func(_ Key, t *Target) bool { return yield(t) })
}

// sweep drops targets and endpoints without attempts for longer than any window. It runs inside a Record every
// minute at most: some 10 ns a target, and no goroutine to stop.
func (r *Registry) sweep(now int64) {
	last := r.swept.Load()
	if now-last < int64(sweepEvery) || !r.swept.CompareAndSwap(last, now) {
		return
	}
	old := now - int64(IdleTime)
	r.targets.Filter(func(_ Key, t *Target) bool { return t.used.Load() > old })
	r.All(func(t *Target) bool {
		t.dropIdle(old)
		return true
	})
}

// evict makes room by dropping the sixteenth of the targets that was used longest ago.
func (r *Registry) evict() {
	var used []int64
	r.All(func(t *Target) bool {
		used = append(used, t.used.Load())
		return true
	})
	if len(used) == 0 {
		return
	}
	limit := nth(used, len(used)/16)
	room := len(used)/16 + 1
	r.targets.Filter(func(_ Key, t *Target) bool {
		if room > 0 && t.used.Load() <= limit {
			room--
			return false
		}
		return true
	})
}

// Target counts the attempts at one target. It is safe for concurrent use.
type Target struct {
	Key
	registry *Registry
	born     int64
	used     atomic.Int64 // when something was recorded last, to about a second
	series   readmap.Map[seriesKey, *series]
}

type seriesKey struct {
	endpoint string
	arm      Arm
}

// series counts the attempts at one endpoint in one arm.
type series struct {
	used  atomic.Int64
	mu    sync.Mutex
	rings [windows]ring
}

// Record counts one attempt at endpoint that ended after d.
func (t *Target) Record(endpoint string, arm Arm, outcome Outcome, d time.Duration) {
	now := t.registry.now()
	if now-t.used.Load() > int64(time.Second) {
		t.used.Store(now)
		t.registry.sweep(now)
	}
	s, ok := t.series.Get(seriesKey{endpoint, arm})
	if !ok {
		s = t.newSeries(seriesKey{endpoint, arm}, now)
	}
	if now-s.used.Load() > int64(time.Second) {
		s.used.Store(now)
	}
	b := bucketOf(d)
	s.mu.Lock()
	for i := range s.rings {
		r := &s.rings[i]
		r.advance(now)
		r.running.add(outcome, b, 1)
	}
	s.mu.Unlock()
}

func (t *Target) newSeries(k seriesKey, now int64) *series {
	create := func(size int) (*series, bool) {
		if size >= MaxEndpoints*int(arms) && k.endpoint != Other {
			return nil, false
		}
		s := &series{}
		s.used.Store(now)
		for i := range s.rings {
			s.rings[i].shape = &shapes[i]
			s.rings[i].advance(now)
		}
		return s, true
	}
	if s := t.series.GetOrAdd(k, create); s != nil {
		return s
	}
	k.endpoint = Other
	return t.series.GetOrAdd(k, create)
}

func (t *Target) dropIdle(old int64) {
	idle := false
	t.series.All(func(_ seriesKey, s *series) bool {
		idle = s.used.Load() <= old
		return !idle
	})
	if idle {
		t.series.Filter(func(_ seriesKey, s *series) bool { return s.used.Load() > old })
	}
}

// Window gives what the target did within w for clients that waited: the live arm, all endpoints together.
// It costs microseconds to tens of microseconds for each endpoint and is meant to be asked some times a second,
// not once a call.
func (t *Target) Window(w Window) Snapshot { return t.Of(w, Live) }

// Of is Window for any arm.
func (t *Target) Of(w Window, arm Arm) Snapshot {
	return t.collect(w, func(k seriesKey) bool { return k.arm == arm })
}

// Endpoint is Of for one endpoint alone.
func (t *Target) Endpoint(endpoint string, w Window, arm Arm) Snapshot {
	return t.collect(w, func(k seriesKey) bool { return k == seriesKey{endpoint, arm} })
}

// Endpoints lists the endpoints that were tried within the last hour, in no order.
func (t *Target) Endpoints() []string {
	seen := make(map[string]struct{})
	var names []string
	t.series.All(func(k seriesKey, _ *series) bool {
		if _, ok := seen[k.endpoint]; !ok {
			seen[k.endpoint] = struct{}{}
			names = append(names, k.endpoint)
		}
		return true
	})
	return names
}

func (t *Target) collect(w Window, want func(seriesKey) bool) Snapshot {
	now := t.registry.now()
	begin := ring{shape: &shapes[w]}
	begin.slot = now / int64(begin.shape.slot)
	s := Snapshot{From: time.Unix(0, max(t.born, begin.from())), To: time.Unix(0, now)}
	t.series.All(func(k seriesKey, one *series) bool {
		if want(k) {
			one.mu.Lock()
			one.rings[w].advance(now)
			one.rings[w].into(s.writable())
			one.mu.Unlock()
		}
		return true
	})
	return s
}
