package limit

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
)

// load makes calls at a steady rate for so long and gives how many came through.
func load(t testing.TB, r *rig, c *inference.Call, rate int, d time.Duration) int {
	t.Helper()
	n := 0
	for range int(d.Seconds() * float64(rate)) {
		n += r.admitted(t, 1, c)
		pass(time.Second / time.Duration(rate))
	}
	return n
}

func near(t testing.TB, what string, got, want, within int) {
	t.Helper()
	if got < want-within || got > want+within {
		t.Errorf("%s: %d, want %d ± %d", what, got, want, within)
	}
}

func TestAHotModelCostsTheStoreAlmostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newRemote()
		store.latency = time.Millisecond
		r := newRig(t, Options{Store: store})
		c := callTo(&inference.Limit{Per: inference.PerModel, Rate: perSecond(2000, 4000)})
		near(t, "calls within the rate", load(t, r, c, 1000, 10*time.Second), 10_000, 0)
		if asked := store.draws.Load() + store.leases.Load(); asked > 250 {
			t.Errorf("10,000 calls asked the store %d times (%d draws, %d leases)", asked, store.draws.Load(), store.leases.Load())
		}
		if n := r.metric(t, "gateway_limit_leases"); n != 1 {
			t.Errorf("%v leases are held", n)
		}
		pass(time.Minute)
		if n := r.metric(t, "gateway_limit_leases"); n != 0 {
			t.Errorf("%v leases are held of a bucket nobody uses", n)
		}
	})
}

func TestAHotModelAboveItsRateGetsItsRateAndSparesTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newRemote()
		store.latency = time.Millisecond
		r := newRig(t, Options{Store: store})
		c := callTo(&inference.Limit{Per: inference.PerModel, Rate: perSecond(2000, 2000)})
		near(t, "calls at two and a half times the rate", load(t, r, c, 5000, 5*time.Second), 12_000, 400)
		if asked := store.draws.Load() + store.leases.Load(); asked > 600 {
			t.Errorf("25,000 calls asked the store %d times (%d draws, %d leases)", asked, store.draws.Load(), store.leases.Load())
		}
	})
}

func TestAnAbusiveUserCostsTheStoreAlmostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newRemote()
		store.latency = time.Millisecond
		r := newRig(t, Options{Store: store})
		c := callTo(&inference.Limit{Per: inference.PerUser, Rate: perSecond(1, 5)})
		near(t, "calls of a user at a thousand times the rate", load(t, r, c, 1000, 20*time.Second), 25, 2)
		if asked := store.draws.Load() + store.leases.Load(); asked > 60 {
			t.Errorf("20,000 calls asked the store %d times (%d draws, %d leases)", asked, store.draws.Load(), store.leases.Load())
		}
		if n := r.source(t, telemetry.SourceOverMemory); n < 19_000 {
			t.Errorf("%v of 20,000 decisions were made from memory", n)
		}
	})
}

func TestAColdBucketIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newRemote()
		r := newRig(t, Options{Store: store})
		c := callTo(&inference.Limit{Per: inference.PerUser, Rate: perSecond(20, 40)})
		load(t, r, c, 10, 5*time.Second)
		if store.draws.Load() != 50 || store.leases.Load() != 0 {
			t.Errorf("50 calls made %d draws and %d leases", store.draws.Load(), store.leases.Load())
		}
	})
}

func TestABucketThatCoolsIsExactAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newRemote()
		store.latency = time.Millisecond
		r := newRig(t, Options{Store: store})
		c := callTo(&inference.Limit{Per: inference.PerModel, Rate: perSecond(100, 1000)})
		load(t, r, c, 100, 3*time.Second)
		if store.leases.Load() == 0 {
			t.Fatal("it never became hot")
		}
		pass(5 * time.Second)
		leases, draws := store.leases.Load(), store.draws.Load()
		load(t, r, c, 5, 4*time.Second)
		if store.leases.Load() != leases || store.draws.Load() != draws+20 {
			t.Errorf("20 calls made %d leases and %d draws", store.leases.Load()-leases, store.draws.Load()-draws)
		}
	})
}

func TestAnExactRuleIsNeverLeased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newRemote()
		r := newRig(t, Options{Store: store})
		c := callTo(&inference.Limit{Per: inference.PerModel, Rate: perSecond(1e-9, 500), Draw: inference.DrawExact})
		if n := r.admitted(t, 600, c); n != 500 || store.leases.Load() != 0 || store.draws.Load() != 501 {
			t.Errorf("%d came through by %d draws and %d leases", n, store.draws.Load(), store.leases.Load())
		}
	})
}

func TestAHammeringCallerGetsItsRateFromTwoGatewaysWhoseClocksDiffer(t *testing.T) { // O-21
	for _, draw := range []inference.Draw{inference.DrawAuto, inference.DrawExact, inference.DrawLease} {
		t.Run(draw.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newRemote()
				store.latency = time.Millisecond
				peers := func() int { return 2 }
				a := newRig(t, Options{Store: store, Peers: peers})
				pass(30 * time.Second)
				b := newRig(t, Options{Store: store, Peers: peers})
				c := callTo(&inference.Limit{Per: inference.PerUser, Rate: perSecond(1, 5), Draw: draw})
				n := 0
				for range 100 { // 10 calls a second for 20 s
					n += a.admitted(t, 1, c)
					pass(100 * time.Millisecond)
					n += b.admitted(t, 1, c)
					pass(100 * time.Millisecond)
				}
				if n < 23 || n > 27 {
					t.Errorf("%d came through, want 23 to 27", n)
				}
			})
		})
	}
}

// Three replicas, one store, a bucket that never fills: exact draws admit exactly what is in it, leases never more;
// where calls never wait, what was let through before a lease came is paid back.
func TestThreeReplicasTogetherAdmitNoMoreThanTheBucketHolds(t *testing.T) {
	for _, c := range []struct {
		draw  inference.Draw
		least int
		most  int
	}{{inference.DrawExact, 1000, 1000}, {inference.DrawAuto, 700, 1000}, {inference.DrawLease, 700, 1667}} {
		t.Run(c.draw.String(), func(t *testing.T) {
			store := newRemote()
			var rigs []*rig
			for range 3 {
				rigs = append(rigs, newRig(t, Options{Store: store, Peers: func() int { return 3 }, Timeout: 10 * time.Second}))
			}
			call := callTo(&inference.Limit{Per: inference.PerModel, Rate: perSecond(0, 1000), Draw: c.draw})
			var g sync.WaitGroup
			for i := range 60 {
				g.Go(func() {
					for range 170 { // some 10,000 in all
						if err := rigs[i%3].call(context.Background(), call); err != nil && fault.Of(err).Kind != fault.RateLimited {
							t.Error(err)
						}
					}
				})
			}
			g.Wait()
			n := 0
			for _, r := range rigs {
				n += int(r.next.Load())
			}
			if n < c.least || n > c.most {
				t.Errorf("%d calls came through, want %d to %d", n, c.least, c.most)
			}
		})
	}
}

// Beside what it has leased a replica lets through no more than the bucket is known to have.
func TestOneReplicaNeverOverdrawsWhatItNeedNotShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{Store: newRemote()})
		r.SetSpanning([]*inference.Limit{{Name: "all", Per: inference.PerGlobal, Rate: perSecond(0, 11), Cost: inference.CostRows}})
		for i, c := range []struct {
			rows int64
			in   bool
		}{{2, true}, {4, true}, {2, true}, {4, false}, {3, true}, {1, false}} {
			call := callTo()
			call.Protocol, call.Head.Rows = inference.KServe, c.rows
			if err := r.call(t.Context(), call); (err == nil) != c.in {
				t.Errorf("call %d of %d rows: %v", i, c.rows, err)
			}
			synctest.Wait() // for the lease
		}
	})
}

func TestOnlySoManyBucketsAreRemembered(t *testing.T) {
	r := newRig(t, Options{Store: newRemote(), Buckets: 1000})
	c := callTo(&inference.Limit{Per: inference.PerUser, Rate: perSecond(1, 5)})
	for i := range 20_000 {
		if err := r.call(t.Context(), by(c, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.accounts.size(); n > 1000 {
		t.Errorf("%d buckets are remembered, at most 1000 should be", n)
	}
}

func TestIdleBucketsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{Store: newRemote()})
		c := callTo(&inference.Limit{Per: inference.PerUser, Rate: perSecond(1, 5)})
		for i := range 1000 {
			_ = r.call(t.Context(), by(c, fmt.Sprint(i)))
		}
		pass(forgetful + time.Minute)
		if n := r.accounts.size(); n != 0 {
			t.Errorf("%d are left", n)
		}
	})
}

// Whatever the limits are and whoever asks, without refill: no bucket that enforces pays more than it holds, a call
// that nothing refuses is refused by nothing, and a refused call costs nobody a token.
func TestBucketsPayTogetherOrNotAtAll(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		alone := rapid.Bool().Draw(rt, "alone")
		var limits, spanning []*inference.Limit
		for i := range rapid.IntRange(1, 4).Draw(rt, "limits") {
			l := &inference.Limit{
				Name: fmt.Sprint("l", i),
				Per:  rapid.SampledFrom([]inference.Per{inference.PerModel, inference.PerUser, inference.PerModelCaller, inference.PerGlobal}).Draw(rt, "per"),
				Rate: perSecond(0, float64(rapid.IntRange(1, 60).Draw(rt, "burst"))),
				Mode: rapid.SampledFrom([]inference.Mode{inference.Enforce, inference.Enforce, inference.Shadow}).Draw(rt, "mode"),
				Cost: rapid.SampledFrom([]inference.Cost{inference.CostOne, inference.CostRows}).Draw(rt, "cost"),
				Draw: rapid.SampledFrom([]inference.Draw{inference.DrawAuto, inference.DrawExact}).Draw(rt, "draw"),
			}
			if l.Per == inference.PerGlobal {
				spanning = append(spanning, l)
			} else {
				limits = append(limits, l)
			}
		}
		type asked struct {
			user string
			rows int
		}
		calls := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) asked {
			return asked{rapid.SampledFrom([]string{"ann", "bob"}).Draw(rt, "user"), rapid.IntRange(1, 4).Draw(rt, "rows")}
		}), 1, 80).Draw(rt, "calls")
		var wrong string // rapid must neither draw nor fail inside the bubble
		synctest.Test(t, func(t *testing.T) {
			store := newRemote()
			o := Options{Store: store}
			if alone {
				o = Options{Store: NewMemory(MemoryOptions{}), Alone: true}
			}
			r := New(o)
			defer r.Close()
			r.SetSpanning(spanning)
			left := make(map[string]float64) // a plain reading of the same rules
			c := callTo(limits...)
			for _, a := range calls {
				call := by(c, a.user)
				call.Protocol, call.Head.Rows = inference.KServe, int64(a.rows)
				want := true
				var keys []string
				for _, l := range append(append([]*inference.Limit{}, limits...), spanning...) {
					key := l.Name + subjectOf(l.Per, call)
					if _, ok := left[key]; !ok {
						left[key] = l.Rate.Burst
					}
					keys = append(keys, key)
					want = want && (l.Mode == inference.Shadow || left[key] >= costOf(l.Cost, call))
				}
				err := r.Wrap(func(context.Context, *inference.Call) error { return nil })(t.Context(), call)
				synctest.Wait() // for leases
				if err == nil && !want {
					wrong = fmt.Sprintf("a call came through that a bucket cannot pay: %v", left)
					return
				}
				if err != nil && want && len(spanning) == 0 && store.leases.Load() == 0 {
					wrong = fmt.Sprintf("a call was refused that every bucket can pay: %v, %v", err, left)
					return
				}
				if err == nil {
					for i, l := range append(append([]*inference.Limit{}, limits...), spanning...) {
						if cost := costOf(l.Cost, call); left[keys[i]] >= cost {
							left[keys[i]] -= cost
						}
					}
				}
			}
		})
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}
