package stats

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// clock is a clock that tests set.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Unix(1_700_000_040, 0)} } // an edge of all slots

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

var key = Key{Model: "fraud", Target: "model_v1", Upstream: "triton", Served: "fraud", Version: "1"}

// exact is the quantile by sorting, the definition that Quantile approximates.
func exact(list []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(list))
	rank := max(int(math.Ceil(q*float64(len(sorted)))), 1)
	return sorted[rank-1]
}

func durations() *rapid.Generator[time.Duration] {
	return rapid.Custom(func(t *rapid.T) time.Duration {
		// Even over magnitudes, from 8 µs to an hour.
		return time.Duration(math.Exp(rapid.Float64Range(math.Log(8e3), math.Log(3.6e12)).Draw(t, "ln")))
	})
}

var quantiles = []float64{0, .01, .5, .9, .99, .999, .9999, 1}

func TestQuantilesAreRightToTheStatedPrecision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(durations(), 1, 300).Draw(t, "durations")
		r := NewRegistry(newClock().now)
		for _, d := range list {
			r.Target(key).Record("a:1", Live, OK, d)
		}
		s := r.Target(key).Window(W1m)
		for _, q := range quantiles {
			got, want := s.Quantile(q, Timed), exact(list, q)
			// 64 ns is half a unit, which matters near 8 µs only.
			if diff := (got - want).Abs(); float64(diff) > Precision*float64(want)+64 {
				t.Fatalf("quantile %v of %d: %v, want %v", q, len(list), got, want)
			}
		}
	})
}

func TestWhatReplicasSawAddsUpExactly(t *testing.T) {
	type attempt struct {
		replica, endpoint int
		outcome           Outcome
		d                 time.Duration
	}
	attempts := rapid.Custom(func(t *rapid.T) attempt {
		return attempt{
			rapid.IntRange(0, 2).Draw(t, "replica"), rapid.IntRange(0, 3).Draw(t, "endpoint"),
			Outcome(rapid.IntRange(0, int(outcomes)-1).Draw(t, "outcome")), durations().Draw(t, "d"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		clock := newClock()
		var replicas [3]*Registry
		for i := range replicas {
			replicas[i] = NewRegistry(clock.now)
		}
		all := NewRegistry(clock.now)
		for _, a := range rapid.SliceOf(attempts).Draw(t, "attempts") {
			endpoint := fmt.Sprint("e:", a.endpoint)
			replicas[a.replica].Target(key).Record(endpoint, Live, a.outcome, a.d)
			all.Target(key).Record(endpoint, Live, a.outcome, a.d)
		}
		var sum Snapshot
		for _, r := range replicas {
			b, err := r.Target(key).Window(W5m).MarshalBinary()
			if err != nil {
				t.Fatal(err)
			}
			var part Snapshot
			if err := part.UnmarshalBinary(b); err != nil {
				t.Fatal(err)
			}
			sum = sum.Merge(part)
		}
		union := all.Target(key).Window(W5m)
		wantSame(t, sum, union)
		over := durations().Draw(t, "over")
		for _, want := range []Set{Any, Judged, Bad, Timed, Of(Cancelled, Overload)} {
			if sum.In(over, want)+sum.Over(over, want) != sum.Count(want) || sum.Over(over, want) != union.Over(over, want) {
				t.Fatalf("exceedances of %v do not add up", over)
			}
		}
	})
}

// wantSame fails unless both snapshots say the same.
func wantSame(t interface {
	Fatalf(string, ...any)
}, a, b Snapshot,
) {
	x, _ := a.MarshalBinary()
	y, _ := b.MarshalBinary()
	if !cmp.Equal(x, y) {
		t.Fatalf("snapshots differ:\n%x\n%x", x, y)
	}
	for _, q := range quantiles {
		if a.Quantile(q, Any) != b.Quantile(q, Any) {
			t.Fatalf("quantile %v differs", q)
		}
	}
}

func TestMergingIsInAnyOrder(t *testing.T) {
	clock := newClock()
	r := NewRegistry(clock.now)
	one := r.Target(Key{Model: "one"})
	one.Record("a:1", Live, OK, time.Millisecond)
	a := one.Window(W1m)
	clock.pass(time.Second)
	two := r.Target(Key{Model: "two"})
	two.Record("a:1", Live, Failure, time.Second)
	b := two.Window(W1m)
	wantSame(t, a.Merge(b), b.Merge(a))
	wantSame(t, a.Merge(Snapshot{}), a)
	wantSame(t, Merge(Snapshot{}, a), a)
	if sum := a.Merge(b); !sum.From.Equal(a.From) || !sum.To.Equal(b.To) || sum.Count(Any) != 2 || a.Count(Any) != 1 {
		t.Errorf("merged %v to %v with %d, parts have %d", sum.From, sum.To, sum.Count(Any), a.Count(Any))
	}
}

func TestAWindowSlides(t *testing.T) {
	for w := range windows {
		t.Run(w.String(), func(t *testing.T) {
			clock := newClock()
			target := NewRegistry(clock.now).Target(key)
			slot := shapes[w].slot
			target.Record("a:1", Live, OK, time.Millisecond)
			count := func() uint64 { return target.Window(w).Count(Any) }
			for passed := time.Duration(0); passed < w.Length()+slot; passed += slot / 2 {
				if got := count(); got != 1 {
					t.Fatalf("after %v the attempt is counted %d times", passed, got)
				}
				clock.pass(slot / 2)
			}
			if got := count(); got != 0 {
				t.Fatalf("after %v the attempt is still counted", w.Length()+slot)
			}
		})
	}
}

func TestAWindowHoldsAsManyAsCameWithinIt(t *testing.T) {
	clock := newClock()
	target := NewRegistry(clock.now).Target(key)
	for range 7300 { // one a second for two hours
		target.Record("a:1", Live, OK, time.Millisecond)
		clock.pass(time.Second)
	}
	for w := range windows {
		s := target.Window(w)
		least := uint64(w.Length() / time.Second)
		most := least + uint64(shapes[w].slot/time.Second)
		if got := s.Count(Any); got < least || got > most {
			t.Errorf("%v holds %d attempts, want %d to %d", w, got, least, most)
		}
		if rate := s.Rate(OK.only()); math.Abs(rate-1) > .01 {
			t.Errorf("%v: %.3f attempts a second, want 1", w, rate)
		}
	}
}

func (o Outcome) only() Set { return Of(o) }

func TestALongSilenceEmptiesTheWindows(t *testing.T) {
	for _, silence := range []time.Duration{65 * time.Second, 5*time.Minute + 30*time.Second, 63 * time.Minute, 400 * 24 * time.Hour} {
		clock := newClock()
		r := NewRegistry(clock.now)
		target := r.Target(key)
		for range 120 {
			target.Record("a:1", Live, OK, time.Millisecond)
			clock.pass(3 * time.Second)
		}
		clock.pass(silence)
		for w := range windows {
			if silence >= w.Length()+shapes[w].slot {
				if got := target.Window(w).Count(Any); got != 0 {
					t.Errorf("%v after %v of silence holds %d", w, silence, got)
				}
			}
		}
		r.Target(key).Record("a:1", Live, OK, time.Millisecond)
		if got := r.Target(key).Window(W1m).Count(Any); got != 1 {
			t.Errorf("after %v of silence a new attempt counts %d times", silence, got)
		}
	}
}

func TestAClockThatGoesBackLosesNothing(t *testing.T) {
	clock := newClock()
	target := NewRegistry(clock.now).Target(key)
	target.Record("a:1", Live, OK, time.Millisecond)
	clock.pass(-time.Hour)
	target.Record("a:1", Live, OK, time.Millisecond)
	if got := target.Window(W1m).Count(Any); got != 2 {
		t.Fatalf("counted %d, want 2", got)
	}
}

func TestArmsAndEndpointsAreKeptApart(t *testing.T) {
	target := NewRegistry(newClock().now).Target(key)
	target.Record("a:1", Live, OK, time.Millisecond)
	target.Record("b:1", Live, Failure, time.Millisecond)
	target.Record("a:1", Mirror, Timeout, time.Second)
	for _, c := range []struct {
		what string
		s    Snapshot
		want map[Outcome]uint64
	}{
		{"live", target.Window(W1m), map[Outcome]uint64{OK: 1, Failure: 1}},
		{"mirror", target.Of(W1m, Mirror), map[Outcome]uint64{Timeout: 1}},
		{"one endpoint", target.Endpoint("b:1", W1h, Live), map[Outcome]uint64{Failure: 1}},
		{"an endpoint that was never tried", target.Endpoint("c:1", W1h, Live), nil},
	} {
		for _, o := range Outcomes() {
			if got := c.s.Count(Of(o)); got != c.want[o] {
				t.Errorf("%s: %v counted %d times, want %d", c.what, o, got, c.want[o])
			}
		}
	}
	names := target.Endpoints()
	slices.Sort(names)
	if !slices.Equal(names, []string{"a:1", "b:1"}) {
		t.Errorf("endpoints %v", names)
	}
	if got := target.Window(W1m).FailureRatio(); got != .5 {
		t.Errorf("failure ratio %v, want 0.5", got)
	}
}

func TestASnapshotDoesNotChange(t *testing.T) {
	target := NewRegistry(newClock().now).Target(key)
	target.Record("a:1", Live, OK, time.Millisecond)
	s := target.Window(W1m)
	target.Record("a:1", Live, OK, time.Millisecond)
	if s.Count(Any) != 1 {
		t.Fatal("a later attempt shows up in an earlier snapshot")
	}
}

func TestAnEmptySnapshotAnswersZero(t *testing.T) {
	var s Snapshot
	if s.Quantile(.5, Any) != 0 || s.Mean(Any) != 0 || s.Count(Any) != 0 || s.Over(0, Any) != 0 || s.Rate(Any) != 0 || s.FailureRatio() != 0 {
		t.Fatal("an empty snapshot claims to have seen something")
	}
}

func TestExtremeDurationsAreCounted(t *testing.T) {
	target := NewRegistry(newClock().now).Target(key)
	for _, d := range []time.Duration{math.MinInt64, -1, 0, 1, time.Hour * 2, math.MaxInt64} {
		target.Record("a:1", Live, OK, d)
	}
	s := target.Window(W1m)
	if got := s.Count(Any); got != 6 {
		t.Fatalf("counted %d of 6", got)
	}
	if got := s.Quantile(1, Any); got < 70*time.Minute {
		t.Fatalf("the longest is %v", got)
	}
}

func TestBucketsAreInOrderAndNarrow(t *testing.T) {
	for b := range buckets {
		if got := bucketOf(lower(b)); got != b {
			t.Fatalf("the lower edge of bucket %d, %v, is counted by %d", b, lower(b), got)
		}
		if got := bucketOf(lower(b+1) - 1); got != b {
			t.Fatalf("the upper edge of bucket %d is counted by %d", b, got)
		}
		if lower(b) >= 8192 && float64(lower(b+1)-lower(b))/float64(lower(b)) > 1.0/64 {
			t.Fatalf("bucket %d, from %v to %v, is too wide", b, lower(b), lower(b+1))
		}
	}
}

func TestIdleTargetsAndEndpointsAreDropped(t *testing.T) {
	clock := newClock()
	r := NewRegistry(clock.now)
	r.Target(Key{Model: "idle"}).Record("a:1", Live, OK, time.Millisecond)
	for range 70 {
		r.Target(key).Record("stays:1", Live, OK, time.Millisecond)
		clock.pass(time.Minute)
	}
	r.Target(key).Record("stays:1", Live, OK, time.Millisecond)
	if _, ok := r.Peek(Key{Model: "idle"}); ok {
		t.Error("the idle target is still there")
	}
	if _, ok := r.Peek(key); !ok {
		t.Error("the busy target is gone")
	}

	r.Target(key).Record("leaves:1", Live, OK, time.Millisecond)
	for range 70 {
		r.Target(key).Record("stays:1", Live, OK, time.Millisecond)
		clock.pass(time.Minute)
	}
	if got := r.Target(key).Endpoints(); !slices.Equal(got, []string{"stays:1"}) {
		t.Errorf("endpoints %v", got)
	}
}

func TestTheNumberOfTargetsIsBounded(t *testing.T) {
	clock := newClock()
	r := NewRegistry(clock.now)
	r.max = 64
	for i := range 1000 {
		r.Target(Key{Model: fmt.Sprint(i)}).Record("a:1", Live, OK, time.Millisecond)
		clock.pass(time.Millisecond)
		if n := r.targets.Len(); n > 64 {
			t.Fatalf("%d targets", n)
		}
	}
	if _, ok := r.Peek(Key{Model: "999"}); !ok {
		t.Error("the newest was pushed out")
	}
	if _, ok := r.Peek(Key{Model: "1"}); ok {
		t.Error("the oldest was kept")
	}
}

func TestTheNumberOfEndpointsIsBounded(t *testing.T) {
	target := NewRegistry(newClock().now).Target(key)
	const n = MaxEndpoints*int(arms) + 50
	for i := range n {
		target.Record(fmt.Sprint(i), Live, OK, time.Millisecond)
	}
	if got := target.Window(W1m).Count(Any); got != uint64(n) {
		t.Errorf("counted %d attempts of %d", got, n)
	}
	if got := target.Endpoint(Other, W1m, Live).Count(Any); got != 50 {
		t.Errorf("%d attempts went under %q, want 50", got, Other)
	}
}

func TestATargetThatChangesItsMeaningStartsAnew(t *testing.T) {
	a := &inference.Target{Name: "model_v1", Asked: "fraud", Model: "fraud", Version: "1", Upstream: "triton"}
	b := *a
	b.Version = "2"
	if KeyOf(a) != key || KeyOf(&b) == key {
		t.Fatalf("keys %v and %v", KeyOf(a), KeyOf(&b))
	}
}

func TestConcurrentRecordsAreAllCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry(nil)
		var g sync.WaitGroup
		for i := range 8 {
			g.Go(func() {
				for n := range 1000 {
					r.Target(key).Record(fmt.Sprint("e:", i%3), Live, Outcome(n%int(outcomes)), time.Millisecond)
					if n%100 == 0 {
						r.Target(key).Window(W1m)
						<-time.After(time.Millisecond)
					}
				}
			})
		}
		g.Wait()
		if got := r.Target(key).Window(W1m).Count(Any); got != 8000 {
			t.Fatalf("counted %d of 8000", got)
		}
	})
}
