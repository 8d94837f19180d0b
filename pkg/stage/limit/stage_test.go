package limit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
)

// both runs a test with buckets in this process and with buckets far away.
func both(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Run("alone", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, newRig(t, Options{Store: NewMemory(MemoryOptions{}), Alone: true})) })
	})
	t.Run("shared", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, newRig(t, Options{Store: newRemote()})) })
	})
}

func TestABucketLetsItsBurstThroughAndThenItsRate(t *testing.T) {
	for _, per := range []inference.Per{inference.PerModel, inference.PerUser, inference.PerModelCaller} {
		t.Run(per.String(), func(t *testing.T) {
			both(t, func(t *testing.T, r *rig) {
				c := callTo(&inference.Limit{Per: per, Rate: perSecond(1, 5)})
				if n := r.admitted(t, 8, c); n != 5 {
					t.Errorf("%d of 8 calls came through, want 5", n)
				}
				pass(3 * time.Second)
				if n := r.admitted(t, 8, c); n != 3 {
					t.Errorf("%d came through after 3 s, want 3", n)
				}
			})
		})
	}
}

func TestSpanningLimitsHoldWithoutEverWaiting(t *testing.T) {
	for _, per := range []inference.Per{inference.PerCaller, inference.PerGlobal} {
		t.Run(per.String(), func(t *testing.T) {
			both(t, func(t *testing.T, r *rig) {
				r.SetSpanning([]*inference.Limit{{Name: "all", Per: per, Rate: perSecond(10, 20)}})
				start := time.Now()
				if n := r.admitted(t, 50, callTo()); n != 20 {
					t.Errorf("%d of 50 came through, want 20", n)
				}
				if waited := time.Since(start); waited != 0 {
					t.Errorf("calls waited %v", waited)
				}
				n := 0
				for range 500 { // 50 a second for 10 s
					n += r.admitted(t, 1, callTo())
					pass(20 * time.Millisecond)
				}
				if n < 90 || n > 110 {
					t.Errorf("%d came through in 10 s at 10 a second", n)
				}
			})
		})
	}
}

func TestEachUserHasABucketAndThoseWithoutANameShareOne(t *testing.T) { // O-19: the effective user, whatever was sent
	both(t, func(t *testing.T, r *rig) {
		c := callTo(&inference.Limit{Per: inference.PerUser, Rate: perSecond(1, 2)})
		c.Incoming = map[string][]string{"x-user-id": {"alice"}}
		for user, want := range map[string]int{"ann": 2, "bob": 2, "": 2, inference.Anonymous: 0} {
			if user == inference.Anonymous {
				continue
			}
			if n := r.admitted(t, 5, by(c, user)); n != want {
				t.Errorf("user %q: %d came through, want %d", user, n, want)
			}
		}
		if n := r.admitted(t, 5, by(c, inference.Anonymous)); n != 0 {
			t.Errorf("anonymous has a second bucket of %d", n)
		}
		if s, ok := r.store.(*remote); ok && (s.has("limit:{fraud}:per-user:alice") || !s.has("limit:{fraud}:per-user:ann") || !s.has("limit:{fraud}:per-user:anonymous")) {
			t.Errorf("keys %v", s.keys)
		}
	})
}

func TestARefusalTellsWhoseBucketItWasAndWhenToComeBack(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		c := callTo(&inference.Limit{Per: inference.PerModel, Rate: perSecond(1000, 1000)}, &inference.Limit{Per: inference.PerUser, Rate: perSecond(2, 4)})
		r.admitted(t, 4, c)
		for range 2 { // asked, and remembered
			f := wantFault(t, r.call(t.Context(), c), fault.RateLimited)
			if f.RetryAfter != 500*time.Millisecond {
				t.Errorf("retry after %v", f.RetryAfter)
			}
			if q := f.Quota; q == nil || q.Limit != "per-user" || q.Subject != "user:ann" || q.Burst != 4 || q.Remaining != 0 || q.Reset != 2*time.Second {
				t.Errorf("quota %+v", f.Quota)
			}
			if want := `limit "per-user" allows 2 a second with bursts of 4 for user:ann, which is used up; try again in 500ms`; f.Msg != want {
				t.Errorf("%s\nwant\n%s", f.Msg, want)
			}
		}
	})
}

func TestARefusedCallPaysNowhere(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		r.SetSpanning([]*inference.Limit{{Name: "caller", Per: inference.PerCaller, Rate: perSecond(1e-9, 100)}})
		c := callTo(
			&inference.Limit{Per: inference.PerModel, Rate: perSecond(1e-9, 100), Draw: inference.DrawLease},
			&inference.Limit{Per: inference.PerUser, Rate: perSecond(1e-9, 3)},
		)
		if n := r.admitted(t, 60, c); n != 3 {
			t.Fatalf("%d of ann's came through, want 3", n)
		}
		n := 0
		for i := range 200 {
			n += r.admitted(t, 1, by(c, fmt.Sprint(i)))
			pass(time.Millisecond)
		}
		if n != 97 {
			t.Errorf("97 tokens are left in the model's and the caller's bucket, %d calls came through", n)
		}
	})
}

func TestAShadowCountsAndRefusesNothing(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		c := callTo(
			&inference.Limit{Per: inference.PerUser, Rate: perSecond(1, 2), Mode: inference.Shadow},
			&inference.Limit{Per: inference.PerModel, Rate: perSecond(1, 1), Mode: inference.Off},
		)
		if n := r.admitted(t, 10, c); n != 10 {
			t.Errorf("%d of 10 came through", n)
		}
		allowed := r.metric(t, `gateway_limit_decisions_total{decision="allowed",limit="per-user",model="fraud"}`)
		shadow := r.metric(t, `gateway_limit_decisions_total{decision="shadow_refused",limit="per-user",model="fraud"}`)
		if allowed != 2 || shadow != 8 {
			t.Errorf("%v allowed, %v refused in the shadow; want 2 and 8", allowed, shadow)
		}
		if n := r.metric(t, `gateway_limit_decisions_total{decision="allowed",limit="per-model",model="fraud"}`); n != 0 {
			t.Errorf("a limit that is off counted %v", n)
		}
	})
}

func TestNamedUsersHaveTheirOwnRate(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		c := callTo(&inference.Limit{Per: inference.PerUser, Rate: perSecond(1, 2), Overrides: map[string]inference.Rate{"vip": perSecond(1, 7)}})
		if a, b := r.admitted(t, 20, c), r.admitted(t, 20, by(c, "vip")); a != 2 || b != 7 {
			t.Errorf("ann %d, vip %d; want 2 and 7", a, b)
		}
	})
}

func TestAChangedRateHoldsFromTheNextCallAndBucketsAreKept(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		old := callTo(&inference.Limit{Per: inference.PerUser, Rate: perSecond(1e-9, 5)})
		r.admitted(t, 9, old)
		if n := r.admitted(t, 9, callTo(&inference.Limit{Per: inference.PerUser, Rate: perSecond(1e-9, 5)})); n != 0 {
			t.Errorf("%d came through because the configuration was read again", n)
		}
		faster := callTo(&inference.Limit{Per: inference.PerUser, Rate: perSecond(100, 5)})
		pass(30 * time.Millisecond)
		if n := r.admitted(t, 9, faster); n != 3 {
			t.Errorf("%d came through 30 ms after the rate became 100 a second, want 3", n)
		}
	})
}

func TestWhatACallCosts(t *testing.T) {
	tensors := &inference.Tensors{Inputs: []inference.Tensor{{Name: "A", Datatype: "FP32", Shape: []int64{-1, 16}}, {Name: "B", Datatype: "INT8", Shape: []int64{-1}}}}
	kserve, predict := inference.KServe, inference.Predict
	for name, c := range map[string]struct {
		cost inference.Cost
		call inference.Call
		want float64
	}{
		"one":                        {inference.CostOne, inference.Call{Protocol: kserve, Head: inference.Head{Rows: 9}}, 1},
		"rows":                       {inference.CostRows, inference.Call{Protocol: kserve, Head: inference.Head{Rows: 9}}, 9},
		"no rows":                    {inference.CostRows, inference.Call{Protocol: kserve}, 1},
		"rows of Predict":            {inference.CostRows, inference.Call{Protocol: predict, Model: &inference.Model{Tensors: tensors}, Head: inference.Head{TensorLen: 65 * 3}}, 3},
		"begun rows count":           {inference.CostRows, inference.Call{Protocol: predict, Model: &inference.Model{Tensors: tensors}, Head: inference.Head{TensorLen: 65*3 + 1}}, 4},
		"rows of nobody knows":       {inference.CostRows, inference.Call{Protocol: predict, Model: &inference.Model{}, Head: inference.Head{TensorLen: 1000}}, 1},
		"KiB":                        {inference.CostKiB, inference.Call{Request: inference.NewFrame(make([]byte, 4096))}, 4},
		"a begun KiB":                {inference.CostKiB, inference.Call{Request: inference.NewFrame(make([]byte, 4097))}, 5},
		"an empty message":           {inference.CostKiB, inference.Call{}, 1},
		"rows before it has a model": {inference.CostRows, inference.Call{Protocol: predict}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := costOf(c.cost, &c.call); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

func TestACallThatCanNeverBePaidIsToldSo(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		c := callTo(&inference.Limit{Per: inference.PerUser, Cost: inference.CostRows, Rate: perSecond(10, 40)})
		c.Protocol, c.Head.Rows = inference.KServe, 41
		f := wantFault(t, r.call(t.Context(), c), fault.CostAboveBurst)
		for _, want := range []string{`"per-user"`, "41", "40", "row"} {
			if !strings.Contains(f.Msg, want) {
				t.Errorf("%q does not say %s", f.Msg, want)
			}
		}
		c.Head.Rows = 40
		if err := r.call(t.Context(), c); err != nil {
			t.Errorf("a call of the whole burst: %v", err)
		}
	})
}

func TestAMessageOfManyRowsIsRefusedAndASmallOneIsNot(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		c := callTo(&inference.Limit{Per: inference.PerUser, Cost: inference.CostRows, Rate: perSecond(1e-9, 40)})
		rows := func(n int64) *inference.Call { d := *c; d.Head.Rows, d.Protocol = n, inference.KServe; return &d }
		r.admitted(t, 1, rows(30))
		if n := r.admitted(t, 2, rows(20)); n != 0 {
			t.Error("20 rows were paid with 10 tokens")
		}
		if n := r.admitted(t, 2, rows(5)); n != 2 {
			t.Errorf("%d of two calls of 5 rows came through, the bucket has 10 tokens", n)
		}
	})
}

func TestDoorLimitsAddressesAndIPv6ByTheNetwork(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		r.SetSpanning([]*inference.Limit{{Name: "edge", Per: inference.PerIP, Rate: perSecond(1, 3)}})
		from := func(a string) error {
			c := &inference.Call{}
			if a != "" {
				c.Address = netip.MustParseAddr(a)
			}
			return r.Door(t.Context(), c)
		}
		for _, group := range [][]string{{"192.0.2.1", "::ffff:192.0.2.1"}, {"2001:db8::1", "2001:db8::ffff:1"}, {"2001:db8:0:1::1"}, {""}} {
			in := 0
			for i := range 6 {
				err := from(group[i%len(group)])
				if err == nil {
					in++
					continue
				}
				if f := wantFault(t, err, fault.RateLimited); !strings.HasPrefix(f.Quota.Subject, "ip:") {
					t.Errorf("subject %q", f.Quota.Subject)
				}
			}
			if in != 3 {
				t.Errorf("%v: %d of 6 came through, want 3", group, in)
			}
		}
		if err := r.call(t.Context(), callTo()); err != nil {
			t.Errorf("a limit per IP refused behind the door: %v", err)
		}
	})
}

func TestAModelWithoutLimitsLeavesNothingBehind(t *testing.T) { // O-17: an unknown model has none
	store := NewMemory(MemoryOptions{})
	r := newRig(t, Options{Store: store, Alone: true})
	for i := range 1000 {
		c := callTo()
		c.Model.Name = fmt.Sprint("random-", i)
		if err := r.call(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if n := store.Len() + r.accounts.size(); n != 0 {
		t.Errorf("%d buckets", n)
	}
}

func TestAUserSharesNothingWithACallerOfItsName(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		for _, draw := range []inference.Draw{inference.DrawExact, inference.DrawLease} {
			l := &inference.Limit{
				Name: "per-user-" + draw.String(), Per: inference.PerUser, Rate: perSecond(1e-9, 5), Draw: draw,
				Overrides: map[string]inference.Rate{"svc": perSecond(1e-9, 3)},
			}
			person := by(callTo(l), "svc")
			itself := by(callTo(l), "svc")
			itself.OwnUser = true
			for _, c := range []*inference.Call{person, itself} {
				if n := r.admitted(t, 5, c); n != 3 {
					t.Errorf("%s: %d calls of a bucket of three passed, own %v", draw, n, c.OwnUser)
				}
				if left := r.Explain(t.Context(), c)[0].Remaining; left >= 1 {
					t.Errorf("%s: %v left, own %v", draw, left, c.OwnUser)
				}
			}
		}
	})
}

func TestExplainShowsEveryBucketAndTakesNothing(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		r.SetSpanning([]*inference.Limit{{Name: "caller", Per: inference.PerCaller, Rate: perSecond(1, 30)}, {Name: "edge", Per: inference.PerIP, Rate: perSecond(1, 1)}})
		c := callTo(&inference.Limit{Per: inference.PerModel, Rate: perSecond(1e-9, 20)}, &inference.Limit{Per: inference.PerUser, Rate: perSecond(1e-9, 5), Overrides: map[string]inference.Rate{"ann": perSecond(1, 7)}})
		r.admitted(t, 3, c)
		synctest.Wait()
		var got []string
		for range 3 {
			got = nil
			for _, b := range r.Explain(t.Context(), c) {
				got = append(got, fmt.Sprintf("%s %s %v/%v", b.Name, b.Subject, b.Remaining, b.Rate.Burst))
			}
		}
		if want := "[per-model model:fraud 17/20 per-user user:ann 4/7 caller caller:svc 27/30]"; fmt.Sprint(got) != want {
			t.Errorf("%v\nwant\n%s", got, want)
		}
		before := r.accounts.size()
		r.Explain(t.Context(), &inference.Call{Model: c.Model, Address: netip.MustParseAddr("192.0.2.1"), Identity: inference.Identity{User: "nobody", Caller: &inference.Caller{Name: "nobody"}}})
		if r.accounts.size() != before {
			t.Error("asking made buckets")
		}
	})
}

func TestTheCallersCancelIsNobodysFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newRemote()
		store.silent.Store(true)
		r := newRig(t, Options{Store: store})
		r.SetSpanning([]*inference.Limit{{Name: "all", Per: inference.PerGlobal, Rate: perSecond(1e-9, 5)}})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Millisecond, cancel)
		start := time.Now()
		err := r.call(ctx, callTo(&inference.Limit{Per: inference.PerUser, Rate: perSecond(1, 5), WhenDown: inference.DownClosed}))
		if !errors.Is(err, context.Canceled) || time.Since(start) != 5*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if n := r.metric(t, "gateway_limit_store_errors_total"); n != 0 {
			t.Errorf("%v errors were held against the store", n)
		}
		store.silent.Store(false)
		pass(time.Second)
		if n := r.admitted(t, 10, callTo()); n != 5 {
			t.Errorf("%d tokens are left of everybody's, want all 5", n)
		}
	})
}

func TestASilentStoreLeavesTheDecisionToTheRuleAfterExactlyTheTimeout(t *testing.T) { // O-23
	for _, c := range []struct {
		when inference.WhenDown
		in   int // of 10
		kind fault.Kind
	}{{inference.DownLocal, 4, fault.RateLimited}, {inference.DownOpen, 10, 0}, {inference.DownClosed, 0, fault.LimiterDown}} {
		t.Run(c.when.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newRemote()
				store.silent.Store(true)
				r := newRig(t, Options{Store: store, Timeout: 20 * time.Millisecond, Peers: func() int { return 3 }})
				call := callTo(&inference.Limit{Per: inference.PerUser, Rate: perSecond(1e-9, 12), WhenDown: c.when, Draw: inference.DrawExact})
				in := 0
				for range 10 {
					start := time.Now()
					err := r.call(t.Context(), call)
					if waited := time.Since(start); waited != 20*time.Millisecond {
						t.Errorf("waited %v", waited)
					}
					if err == nil {
						in++
					} else {
						wantFault(t, err, c.kind)
					}
				}
				if in != c.in {
					t.Errorf("%d of 10 came through, want %d", in, c.in)
				}
				allowed := r.metric(t, `gateway_limit_decisions_total{decision="fallback_allowed",limit="per-user",model="fraud"}`)
				refused := r.metric(t, `gateway_limit_decisions_total{decision="fallback_refused",limit="per-user",model="fraud"}`)
				if allowed != float64(in) || refused != float64(10-in) || r.source(t, telemetry.SourceLocal) != 10 || r.metric(t, "gateway_limit_store_errors_total") != 10 {
					t.Errorf("counted %v allowed, %v refused, %v local, %v errors", allowed, refused, r.source(t, telemetry.SourceLocal), r.metric(t, "gateway_limit_store_errors_total"))
				}
				store.silent.Store(false)
				if err := r.call(t.Context(), call); err != nil || r.source(t, telemetry.SourceExact) != 1 {
					t.Errorf("the store is back and was not asked: %v", err)
				}
			})
		})
	}
}

func TestSpanningLimitsObeyTheirRuleWhileTheStoreIsDown(t *testing.T) {
	for when, want := range map[inference.WhenDown]int{inference.DownLocal: 30, inference.DownOpen: 100, inference.DownClosed: 1} {
		t.Run(when.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newRemote()
				store.broken.Store(true)
				r := newRig(t, Options{Store: store, Peers: func() int { return 2 }})
				r.SetSpanning([]*inference.Limit{{Name: "all", Per: inference.PerGlobal, Rate: perSecond(1e-9, 60), WhenDown: when}})
				in := 0
				for range 100 {
					if r.call(t.Context(), callTo()) == nil {
						in++
					}
					synctest.Wait() // until the failure is known
				}
				if in != want { // closed: the first call came before anybody knew
					t.Errorf("%d of 100 came through, want %d", in, want)
				}
				store.broken.Store(false)
				pass(restFailed)
				_ = r.call(t.Context(), callTo())
				synctest.Wait()
				if err := r.call(t.Context(), callTo()); err != nil {
					t.Errorf("the store is back, its bucket nearly full, and a call is refused: %v", err)
				}
			})
		})
	}
}

func TestABlackHoledStoreIsAskedByOnlySoManyAndHoldsNobodyForLongerThanTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newRemote()
		store.silent.Store(true)
		r := newRig(t, Options{Store: store})
		done := make(chan error, 5000)
		for i := range cap(done) {
			go func() {
				done <- r.call(t.Context(), by(callTo(&inference.Limit{Per: inference.PerUser, Rate: perSecond(1, 5)}), fmt.Sprint(i)))
			}()
		}
		synctest.Wait()
		if waiting := store.waiting.Load(); waiting != maxAsking {
			t.Errorf("the store is asked by %d calls at once, at most %d should", waiting, maxAsking)
		}
		pass(defaultTimeout)
		synctest.Wait()
		if len(done) != cap(done) {
			t.Errorf("%d of %d are done after the timeout", len(done), cap(done))
		}
		for range cap(done) {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
	})
}

// bounded is a store that says how long it takes, and notes whether it was given a deadline.
type bounded struct {
	*remote
	within   time.Duration
	deadline atomic.Bool
}

func (b *bounded) Within() time.Duration { return b.within }

func (b *bounded) Draw(ctx context.Context, draws []Draw) (Verdict, error) {
	_, ok := ctx.Deadline()
	b.deadline.Store(ok)
	return b.remote.Draw(ctx, draws)
}

func TestOnlyAStoreThatBoundsItsAnswersItselfIsAskedWithoutATimer(t *testing.T) {
	for within, timer := range map[time.Duration]bool{20 * time.Millisecond: false, 21 * time.Millisecond: true} {
		store := &bounded{remote: newRemote(), within: within}
		r := newRig(t, Options{Store: store, Timeout: 20 * time.Millisecond})
		if err := r.call(context.Background(), limits(inference.DrawExact, 10)); err != nil {
			t.Fatal(err)
		}
		if store.deadline.Load() != timer {
			t.Errorf("a store that answers within %v was given a timer: %v", within, !timer)
		}
	}
}
