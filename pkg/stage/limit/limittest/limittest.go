// Package limittest is what every limit.Store must do, as tests: the same for one in memory and for each kind of Redis.
package limittest

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/stage/limit"
)

// Subject is a store to be tested.
type Subject struct {
	// Stores are several views of the same buckets, as replicas have them; at least one.
	Stores []limit.Store
	// Pass lets time go by in the store.
	Pass func(time.Duration)
	// Exact says that time only goes by in Pass: then refilled tokens are exact, else they are at least what is due.
	Exact bool
	// Calls is how many draws the test of exactness makes at once; 0 stands for 10,000.
	Calls int
}

// Contract tests subject. Buckets of different tests have different names.
func Contract(t *testing.T, subject Subject) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Subject)
	}{
		{"a new bucket is full", newBucketIsFull},
		{"exactly as many draws are paid as there are tokens", exactness},
		{"every bucket pays or none does", allOrNothing},
		{"a shadow pays when it can and refuses nothing", shadow},
		{"buckets fill at their rate and not above their burst", refill},
		{"being refused does not put off the refill", deniedDoesNotPostpone},
		{"retry after is when it can be paid", retryAfter},
		{"a cost above the burst is never paid and stores nothing", aboveBurst},
		{"a cost of nothing is always paid", freeOfCharge},
		{"peeking takes nothing", peek},
		{"a lease takes whole tokens and no more than there are", lease},
		{"leases and draws never give more than there is", leaseExactness},
		{"a changed rate holds from the next draw", changedRate},
		{"wrong draws are refused", wrongDraws},
		{"any bytes make a key of their own", anyBytes},
		{"whatever happens tokens stay within the bucket", property},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, subject) })
	}
}

var names atomic.Int64

// key makes the keys of buckets nobody has used, all of one model.
func model(t *testing.T) string {
	return t.Name() + time.Now().String() + string(rune('a'+names.Add(1)%26))
}

// never is a bucket that does not fill, for tests that count.
func never(burst float64) inference.Rate { return inference.Rate{Burst: burst} }

func draw(t testing.TB, s limit.Store, draws ...limit.Draw) (limit.Verdict, []limit.Draw) {
	t.Helper()
	v, err := s.Draw(context.Background(), draws)
	if err != nil {
		t.Fatalf("Draw: %v", err)
	}
	if v.OK != (v.Short < 0) || v.OK != (v.RetryAfter == 0) {
		t.Fatalf("a verdict that contradicts itself: %+v", v)
	}
	return v, draws
}

func newBucketIsFull(t *testing.T, s Subject) {
	key := limit.ModelBase(model(t), "l").Key()
	v, draws := draw(t, s.Stores[0], limit.Draw{Key: key, Rate: never(7), Cost: 1})
	if !v.OK || !draws[0].Able || draws[0].Left != 6 {
		t.Errorf("first draw of 7: %+v %+v", v, draws[0])
	}
}

func exactness(t *testing.T, s Subject) {
	const tokens = 1000
	calls := s.Calls
	if calls == 0 {
		calls = 10_000
	}
	key := limit.ModelBase(model(t), "l").Key()
	var paid, next atomic.Int64
	var all sync.WaitGroup
	for worker := range 96 {
		store := s.Stores[worker%len(s.Stores)]
		all.Go(func() {
			for next.Add(1) <= int64(calls) {
				draws := []limit.Draw{{Key: key, Rate: never(tokens), Cost: 1}}
				v, err := store.Draw(context.Background(), draws)
				if err != nil {
					t.Errorf("Draw: %v", err)
					return
				}
				if v.OK {
					paid.Add(1)
				}
				if draws[0].Left < 0 || draws[0].Left > tokens {
					t.Errorf("%v tokens left of %d", draws[0].Left, tokens)
				}
			}
		})
	}
	all.Wait()
	if got := paid.Load(); got != tokens {
		t.Errorf("%d of %d draws were paid from %d tokens", got, calls, tokens)
	}
}

func allOrNothing(t *testing.T, s Subject) {
	name := model(t)
	rich, poor := limit.ModelBase(name, "rich").Key(), limit.ModelBase(name, "poor").For("ann")
	set := func() []limit.Draw {
		return []limit.Draw{{Key: rich, Rate: never(100), Cost: 1}, {Key: poor, Rate: never(2), Cost: 1}}
	}
	for range 2 {
		if v, _ := draw(t, s.Stores[0], set()...); !v.OK {
			t.Fatalf("refused by %d", v.Short)
		}
	}
	for range 3 {
		v, draws := draw(t, s.Stores[0], set()...)
		if v.OK || v.Short != 1 || v.RetryAfter != limit.Never {
			t.Errorf("an empty second bucket: %+v", v)
		}
		if !draws[0].Able || draws[1].Able || draws[0].Left != 98 || draws[1].Left != 0 {
			t.Errorf("after a refusal: %+v", draws)
		}
	}
}

func shadow(t *testing.T, s Subject) {
	name := model(t)
	a, b := limit.ModelBase(name, "a").Key(), limit.ModelBase(name, "b").Key()
	set := func() []limit.Draw {
		return []limit.Draw{{Key: a, Rate: never(1), Cost: 1, Shadow: true}, {Key: b, Rate: never(2), Cost: 1}}
	}
	v, draws := draw(t, s.Stores[0], set()...)
	if !v.OK || !draws[0].Able || draws[0].Left != 0 || draws[1].Left != 1 {
		t.Errorf("first: %+v %+v", v, draws)
	}
	v, draws = draw(t, s.Stores[0], set()...)
	if !v.OK || draws[0].Able || draws[0].Left != 0 || draws[1].Left != 0 {
		t.Errorf("an empty shadow refuses: %+v %+v", v, draws)
	}
	if v, _ = draw(t, s.Stores[0], set()...); v.OK || v.Short != 1 {
		t.Errorf("the other bucket is empty: %+v", v)
	}
}

func refill(t *testing.T, s Subject) {
	key := limit.ModelBase(model(t), "l").Key()
	rate := inference.Rate{PerSecond: 20, Burst: 10}
	if v, _ := draw(t, s.Stores[0], limit.Draw{Key: key, Rate: rate, Cost: 10}); !v.OK {
		t.Fatal("a full bucket did not pay")
	}
	s.Pass(250 * time.Millisecond)
	held := s.held(t, key, rate)
	if s.Exact && math.Abs(held-5) > 1e-9 || held < 5-1e-9 {
		t.Errorf("%v tokens after 250 ms at 20/s, want 5", held)
	}
	s.Pass(time.Second)
	if held := s.held(t, key, rate); held != 10 {
		t.Errorf("%v tokens in a full bucket of 10", held)
	}
}

func (s Subject) held(t testing.TB, key string, rate inference.Rate) float64 {
	t.Helper()
	draws := []limit.Draw{{Key: key, Rate: rate}}
	if _, err := s.Stores[0].Peek(context.Background(), draws); err != nil {
		t.Fatalf("Peek: %v", err)
	}
	return draws[0].Left
}

func deniedDoesNotPostpone(t *testing.T, s Subject) {
	key := limit.ModelBase(model(t), "l").Key()
	rate := inference.Rate{PerSecond: 5, Burst: 1}
	draw(t, s.Stores[0], limit.Draw{Key: key, Rate: rate, Cost: 1})
	paid := 0
	for i := range 40 { // every 25 ms for a second, by turns
		s.Pass(25 * time.Millisecond)
		if v, _ := draw(t, s.Stores[i%len(s.Stores)], limit.Draw{Key: key, Rate: rate, Cost: 1}); v.OK {
			paid++
		}
	}
	// A real clock goes on by itself; then there may be more, but not fewer than all but the last.
	if paid < 4 || s.Exact && paid != 5 {
		t.Errorf("%d draws were paid in a second at 5/s", paid)
	}
}

func retryAfter(t *testing.T, s Subject) {
	key := limit.ModelBase(model(t), "l").Key()
	rate := inference.Rate{PerSecond: 4, Burst: 4}
	draw(t, s.Stores[0], limit.Draw{Key: key, Rate: rate, Cost: 4})
	v, _ := draw(t, s.Stores[0], limit.Draw{Key: key, Rate: rate, Cost: 2})
	for v.OK && !s.Exact { // a machine that stalled for as long as two tokens take
		draw(t, s.Stores[0], limit.Draw{Key: key, Rate: rate, Cost: math.Floor(s.held(t, key, rate))})
		v, _ = draw(t, s.Stores[0], limit.Draw{Key: key, Rate: rate, Cost: 2})
	}
	if v.OK || v.RetryAfter > 500*time.Millisecond || s.Exact && v.RetryAfter != 500*time.Millisecond {
		t.Fatalf("two tokens at 4/s: %+v", v)
	}
	s.Pass(v.RetryAfter)
	if v, _ := draw(t, s.Stores[0], limit.Draw{Key: key, Rate: rate, Cost: 2}); !v.OK {
		t.Errorf("still refused after the time it was told to wait: %+v", v)
	}
}

func aboveBurst(t *testing.T, s Subject) {
	key := limit.ModelBase(model(t), "l").Key()
	rate := inference.Rate{PerSecond: 1, Burst: 5}
	v, draws := draw(t, s.Stores[0], limit.Draw{Key: key, Rate: rate, Cost: 6})
	if v.OK || v.RetryAfter != limit.Never || draws[0].Left != 5 {
		t.Errorf("6 of a bucket of 5: %+v %+v", v, draws)
	}
	v, draws = draw(t, s.Stores[0], limit.Draw{Key: key, Rate: rate, Cost: 6, Shadow: true})
	if !v.OK || draws[0].Able || draws[0].Left != 5 {
		t.Errorf("in the shadow: %+v %+v", v, draws)
	}
}

func freeOfCharge(t *testing.T, s Subject) {
	key := limit.ModelBase(model(t), "l").Key()
	draw(t, s.Stores[0], limit.Draw{Key: key, Rate: never(1), Cost: 1})
	if v, _ := draw(t, s.Stores[0], limit.Draw{Key: key, Rate: never(1)}); !v.OK {
		t.Errorf("nothing from an empty bucket: %+v", v)
	}
	if v, err := s.Stores[0].Draw(context.Background(), nil); err != nil || !v.OK {
		t.Errorf("no draw at all: %+v, %v", v, err)
	}
}

func peek(t *testing.T, s Subject) {
	key := limit.ModelBase(model(t), "l").Key()
	for range 3 {
		draws := []limit.Draw{{Key: key, Rate: never(3), Cost: 2}}
		if v, err := s.Stores[0].Peek(context.Background(), draws); err != nil || !v.OK || !draws[0].Able || draws[0].Left != 3 {
			t.Errorf("Peek: %+v %+v, %v", v, draws, err)
		}
	}
	draw(t, s.Stores[0], limit.Draw{Key: key, Rate: never(3), Cost: 2})
	draws := []limit.Draw{{Key: key, Rate: never(3), Cost: 2}}
	if v, err := s.Stores[0].Peek(context.Background(), draws); err != nil || v.OK || v.Short != 0 || draws[0].Left != 1 {
		t.Errorf("Peek of 2 where 1 is left: %+v %+v, %v", v, draws, err)
	}
}

func lease(t *testing.T, s Subject) {
	key := limit.SpanningBase("l").For(model(t))
	ctx := context.Background()
	rate := inference.Rate{PerSecond: 0.001, Burst: 10.5}
	for _, want := range []limit.Leased{{Got: 4, Left: 6.5}, {Got: 4, Left: 2.5}, {Got: 2, Left: 0.5}, {Got: 0, Left: 0.5}} {
		got, err := s.Stores[0].Lease(ctx, key, rate, 4)
		if err != nil {
			t.Fatal(err)
		}
		if got.Got != want.Got || math.Abs(got.Left-want.Left) > 0.1 {
			t.Errorf("a lease of 4: %+v, want %+v", got, want)
		}
		if (got.Got > 0) != (got.RetryAfter == 0) {
			t.Errorf("%+v: retry after goes with nothing got", got)
		}
	}
	if _, err := s.Stores[0].Lease(ctx, key, rate, 0); err == nil {
		t.Error("a lease of nothing was given")
	}
}

func leaseExactness(t *testing.T, s Subject) {
	const tokens = 500
	key := limit.ModelBase(model(t), "l").Key()
	var taken atomic.Int64
	var all sync.WaitGroup
	for worker := range 16 {
		store := s.Stores[worker%len(s.Stores)]
		all.Go(func() {
			for range 40 {
				l, err := store.Lease(context.Background(), key, never(tokens), float64(1+worker%7))
				if err != nil {
					t.Error(err)
					return
				}
				taken.Add(int64(l.Got))
				v, err := store.Draw(context.Background(), []limit.Draw{{Key: key, Rate: never(tokens), Cost: 1}})
				if err != nil {
					t.Error(err)
					return
				}
				if v.OK {
					taken.Add(1)
				}
			}
		})
	}
	all.Wait()
	if taken.Load() != tokens {
		t.Errorf("%d of %d tokens were given", taken.Load(), tokens)
	}
}

func changedRate(t *testing.T, s Subject) {
	key := limit.ModelBase(model(t), "l").Key()
	draw(t, s.Stores[0], limit.Draw{Key: key, Rate: never(100), Cost: 10})
	if _, draws := draw(t, s.Stores[0], limit.Draw{Key: key, Rate: never(20), Cost: 1}); draws[0].Left != 19 {
		t.Errorf("a bucket of 100 made one of 20 has %v left", draws[0].Left)
	}
	if _, draws := draw(t, s.Stores[0], limit.Draw{Key: key, Rate: never(50), Cost: 1}); draws[0].Left != 18 {
		t.Errorf("a bucket of 20 made one of 50 has %v left", draws[0].Left)
	}
}

func wrongDraws(t *testing.T, s Subject) {
	base := limit.ModelBase(model(t), "l")
	ok := limit.Draw{Key: base.Key(), Rate: never(5), Cost: 1}
	with := func(change func(*limit.Draw)) limit.Draw {
		d := ok
		change(&d)
		return d
	}
	for name, draws := range map[string][]limit.Draw{
		"a negative cost":    {with(func(d *limit.Draw) { d.Cost = -1 })},
		"no number":          {with(func(d *limit.Draw) { d.Cost = math.NaN() })},
		"an endless cost":    {with(func(d *limit.Draw) { d.Cost = math.Inf(1) })},
		"a negative rate":    {with(func(d *limit.Draw) { d.Rate.PerSecond = -1 })},
		"no burst":           {with(func(d *limit.Draw) { d.Rate.Burst = 0 })},
		"an endless burst":   {with(func(d *limit.Draw) { d.Rate.Burst = math.Inf(1) })},
		"the same key twice": {ok, ok},
		"two models":         {ok, with(func(d *limit.Draw) { d.Key = limit.ModelBase(model(t)+"2", "l").Key() })},
		"too many":           make([]limit.Draw, limit.MaxDraws+1),
	} {
		if _, err := s.Stores[0].Draw(context.Background(), draws); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if held := s.held(t, ok.Key, ok.Rate); held != 5 {
		t.Errorf("wrong draws took %v tokens", 5-held)
	}
}

func anyBytes(t *testing.T, s Subject) {
	base := limit.ModelBase(model(t)+"} {\r\n\x00", "l")
	long := string(make([]byte, 5000))
	for _, user := range []string{"", "ann", "Ann", "a}nn", "{ann}", "ann\r\nFLUSHALL", "%61nn", "a\x00", "a", "\xff", "ann:", long, long + "x"} {
		v, draws := draw(t, s.Stores[0], limit.Draw{Key: base.For(user), Rate: never(3), Cost: 1}, limit.Draw{Key: base.Key(), Rate: never(100), Cost: 1})
		if !v.OK || draws[0].Left != 2 {
			t.Errorf("user %.20q shares a bucket: %+v", user, draws[0])
		}
	}
}

// property lets several users draw, lease and wait, in any order, and keeps the books beside them.
func property(t *testing.T, s Subject) {
	rapid.Check(t, func(r *rapid.T) {
		name := model(t) + rapid.StringMatching(`[a-z]{8}`).Draw(r, "name")
		burst := float64(rapid.IntRange(1, 20).Draw(r, "burst"))
		rate := inference.Rate{PerSecond: rapid.SampledFrom([]float64{0, 0.1, 1, 500.0 / 60}).Draw(r, "rate"), Burst: burst}
		users := []string{limit.ModelBase(name, "u").For("a"), limit.ModelBase(name, "u").For("b")}
		taken := map[string]float64{}
		begun, passed := time.Now(), time.Duration(0)
		for range rapid.IntRange(1, 25).Draw(r, "steps") {
			store := s.Stores[rapid.IntRange(0, len(s.Stores)-1).Draw(r, "store")]
			key := users[rapid.IntRange(0, 1).Draw(r, "user")]
			cost := float64(rapid.IntRange(0, int(burst)+1).Draw(r, "cost"))
			switch rapid.IntRange(0, 3).Draw(r, "what") {
			case 0:
				l, err := store.Lease(context.Background(), key, rate, cost+1)
				if err != nil {
					r.Fatal(err)
				}
				within(r, l.Left, burst)
				taken[key] += l.Got
			case 1:
				if s.Exact { // time is free
					d := time.Duration(rapid.IntRange(0, 3000).Draw(r, "ms")) * time.Millisecond
					s.Pass(d)
					passed += d
				}
			default:
				draws := []limit.Draw{{Key: users[0], Rate: rate, Cost: cost}, {Key: users[1], Rate: rate, Cost: 1, Shadow: cost > burst/2}}
				v, err := store.Draw(context.Background(), draws)
				if err != nil {
					r.Fatal(err)
				}
				for _, d := range draws {
					within(r, d.Left, burst)
					if v.OK && d.Able {
						taken[d.Key] += d.Cost
					}
				}
			}
			if !s.Exact {
				passed = time.Since(begun) + 50*time.Millisecond // clocks of two processes
			}
			for key, n := range taken {
				if most := burst + passed.Seconds()*rate.PerSecond + 1e-6; n > most {
					r.Fatalf("%s gave %v of at most %v", key, n, most)
				}
			}
		}
	})
}

func within(r *rapid.T, left, burst float64) {
	if !(left >= 0 && left <= burst) {
		r.Fatalf("%v tokens in a bucket of %v", left, burst)
	}
}
