package breaker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/stats"
)

func TestOnlyTheTargetsOwnFailuresOpenItsBreaker(t *testing.T) { // O-26
	synctest.Test(t, func(t *testing.T) {
		s, _ := stageOf(usual)
		v1, _ := target("model_v1")
		v2, _ := target("model_v2")
		for _, o := range []outcome{
			{err: context.Canceled},
			failing(fault.Cancelled), failing(fault.InvalidArgument), failing(fault.ModelNotFound), failing(fault.UpstreamQueue),
			failing(fault.RateLimited), failing(fault.Overloaded), failing(fault.Deadline), failing(fault.Expired), failing(fault.Internal),
			failing(fault.NoEndpoint), failing(fault.UpstreamRefused),
		} {
			times(t, s, v1, 100, o)
		}
		if r := s.Explain(v1); r.State != Closed || r.Calls != 0 || r.Failures != 0 {
			t.Fatalf("after what is nobody's failure: %+v", r)
		}
		times(t, s, v2, 100, fine)
		times(t, s, v1, 10, broken)
		times(t, s, v1, 9, failing(fault.UpstreamFailed))
		wantState(t, s, v1, Closed)
		times(t, s, v1, 1, failing(fault.UpstreamTimeout))
		if r := s.Explain(v1); r.State != Open || r.Why != Failures || r.Calls != 20 || r.Failures != 20 {
			t.Fatalf("%+v", r)
		}
		wantState(t, s, v2, Closed)
		if sent, err := do(s, v1, fine); sent || refusedBy(err) != fault.CircuitOpen {
			t.Errorf("sent %v, %v", sent, err)
		}
		if sent, err := do(s, v2, fine); !sent || err != nil {
			t.Errorf("of the other target: sent %v, %v", sent, err)
		}
	})
}

func TestEveryKindThatTheTableBlamesOnTheTargetCounts(t *testing.T) {
	for _, k := range fault.Kinds() {
		s, _ := stageOf(usual)
		to, _ := target("model_v1")
		for range usual.MinCalls {
			_, _ = do(s, to, failing(k))
		}
		if open := state(s, to) == Open; open != k.Row().Breaker {
			t.Errorf("%s: open %v, the table says %v", k.Reason(), open, k.Row().Breaker)
		}
	}
}

func TestTheReportOfAFailureInAStreamCounts(t *testing.T) {
	s, _ := stageOf(usual)
	to, _ := target("model_v1")
	times(t, s, to, usual.MinCalls, outcome{after: func(c *inference.Call) { c.InBand = fault.New(fault.UpstreamFailed, "x") }})
	wantState(t, s, to, Open)
}

func TestHalfOfTwentyCallsOpensWhicheverCameLast(t *testing.T) {
	for name, order := range map[string][]outcome{"failures first": {broken, fine}, "failures last": {fine, broken}} {
		t.Run(name, func(t *testing.T) {
			s, _ := stageOf(usual)
			to, _ := target("model_v1")
			times(t, s, to, 10, order[0])
			times(t, s, to, 9, order[1])
			wantState(t, s, to, Closed)
			times(t, s, to, 1, order[1])
			wantState(t, s, to, Open)
		})
	}
	s, _ := stageOf(usual)
	to, _ := target("model_v1")
	times(t, s, to, 11, fine)
	times(t, s, to, 10, broken)
	wantState(t, s, to, Closed) // 10 of 21
}

func TestCallsAreForgottenWithTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := stageOf(usual)
		to, _ := target("model_v1")
		for range 10 { // 19 at most within any 10 s
			times(t, s, to, 9, broken)
			pass(5 * time.Second)
		}
		wantState(t, s, to, Closed)
		pass(usual.Window + time.Second)
		if r := s.Explain(to); r.Calls != 0 {
			t.Errorf("%d calls are still in the window", r.Calls)
		}
	})
}

func TestACallThatHangsForLongerThanTheWindowCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := stageOf(usual)
		to, _ := target("model_v1")
		hang := s.Wrap(func(context.Context, *inference.Call) error {
			pass(time.Minute)
			return fault.New(fault.UpstreamTimeout, "x")
		})
		for range usual.MinCalls {
			go func() { _ = hang(t.Context(), &inference.Call{Target: to}) }()
		}
		pass(time.Minute)
		synctest.Wait()
		wantState(t, s, to, Open)
	})
}

func TestSlowCallsOpenWhereItIsSaidWhatIsSlow(t *testing.T) {
	policy := usual
	policy.SlowAfter = time.Second
	slow := outcome{took: time.Second + 1}
	s, _ := stageOf(policy)
	to, _ := target("model_v1")
	times(t, s, to, 8, outcome{took: time.Second})
	times(t, s, to, 11, slow)
	wantState(t, s, to, Closed)
	times(t, s, to, 1, slow) // 12 of 20
	if r := s.Explain(to); r.State != Open || r.Why != Slow || r.Calls != 20 || r.Slow != 12 || r.Failures != 0 {
		t.Errorf("%+v", r)
	}
	_, err := do(s, to, fine)
	if !strings.Contains(err.Error(), "took too long") {
		t.Error(err)
	}

	for name, o := range map[string]outcome{
		"nobody's failure": {took: time.Minute, err: fault.New(fault.Cancelled, "x")},
		"decoupled":        {took: time.Minute, after: func(c *inference.Call) { c.Decoupled = true }},
	} {
		s, _ = stageOf(policy)
		times(t, s, to, 100, o)
		if state(s, to) != Closed {
			t.Errorf("%s: it is open", name)
		}
	}
	s, _ = stageOf(usual)
	times(t, s, to, 100, outcome{took: time.Minute})
	wantState(t, s, to, Closed)
}

func TestTimeWithAnotherTargetIsNotThisOnes(t *testing.T) {
	policy := usual
	policy.SlowAfter = time.Second
	s, _ := stageOf(policy)
	to, _ := target("model_v2")
	h := s.Wrap(func(context.Context, *inference.Call) error { return nil })
	for range 100 {
		_ = h(t.Context(), &inference.Call{Target: to, UpstreamIn: time.Minute})
	}
	if r := s.Explain(to); r.Slow != 0 {
		t.Errorf("%d are slow", r.Slow)
	}
}

func TestRecoveryIsProbedByFiveCallsAndNoHerd(t *testing.T) { // O-27
	synctest.Test(t, func(t *testing.T) {
		s, r := stageOf(usual)
		to, _ := target("model_v1")
		toHalfOpen(t, s, to)
		var reached, ok, refused atomic.Int64
		h := s.Wrap(func(context.Context, *inference.Call) error {
			reached.Add(1)
			pass(time.Second) // back, but slow
			return nil
		})
		begin := time.Now()
		for range 200 {
			go func() {
				err := h(t.Context(), &inference.Call{Target: to})
				switch {
				case err == nil:
					ok.Add(1)
				case refusedBy(err) == fault.CircuitOpen && time.Since(begin) == 0:
					refused.Add(1)
				default:
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		if reached.Load() != 5 || refused.Load() != 195 {
			t.Errorf("%d reached the target, %d were refused at once", reached.Load(), refused.Load())
		}
		pass(time.Second)
		synctest.Wait()
		if ok.Load() != 5 {
			t.Errorf("%d probes went well", ok.Load())
		}
		wantState(t, s, to, Closed)
		want := []string{"model_v1 open failures", "model_v1 half-open waited", "model_v1 closed probed"}
		if diff := cmp.Diff(want, r.said()); diff != "" {
			t.Error(diff)
		}
		if r.refused[Probing] != 195 {
			t.Errorf("refused: %v", r.refused)
		}
	})
}

func TestItStaysOpenForTwiceAsLongEachTimeUpToTheMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := stageOf(usual)
		to, _ := target("model_v1")
		times(t, s, to, usual.MinCalls, broken)
		for n, want := range []time.Duration{5, 10, 20, 40, 80, 160, 300, 300} {
			want *= time.Second
			r := s.Explain(to)
			if left := time.Until(*r.Until); left > want || left < want*4/5 || r.Opened != n+1 {
				t.Fatalf("opening %d: %s left, want %s less a fifth at most; counted as %d", n, left, want, r.Opened)
			}
			_, err := do(s, to, fine)
			if f := fault.Of(err); f.Retry() > want || f.Retry() < want*4/5 {
				t.Fatalf("opening %d: try again in %s", n, f.Retry())
			}
			pass(time.Until(*r.Until) + 1)
			times(t, s, to, 1, broken) // one probe that fails is enough
			wantState(t, s, to, Open)
		}
		pass(301 * time.Second)
		times(t, s, to, usual.Probes, fine)
		wantState(t, s, to, Closed)
		times(t, s, to, usual.MinCalls, broken)
		if r := s.Explain(to); time.Until(*r.Until) > usual.Open {
			t.Errorf("after it was closed it opens for %s", time.Until(*r.Until))
		}
	})
}

func TestReplicasDoNotProbeAtOnce(t *testing.T) {
	seen := make(map[time.Duration]bool)
	for range 100 {
		seen[openFor(usual, 9)] = true
	}
	if len(seen) < 90 {
		t.Errorf("%d different times of 100", len(seen))
	}
}

func TestAProbeThatSaysNothingGivesItsPlaceBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := stageOf(usual)
		to, _ := target("model_v1")
		toHalfOpen(t, s, to)
		times(t, s, to, 20, failing(fault.Cancelled))
		for range 20 {
			func() {
				defer func() { _ = recover() }()
				_, _ = do(s, to, outcome{after: func(*inference.Call) { panic("x") }})
				t.Error("no panic")
			}()
		}
		wantState(t, s, to, HalfOpen)
		times(t, s, to, usual.Probes, fine)
		wantState(t, s, to, Closed)
	})
}

func TestSlowProbesOpenItAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := usual
		policy.SlowAfter = time.Second
		s, _ := stageOf(policy)
		to, _ := target("model_v1")
		toHalfOpen(t, s, to)
		times(t, s, to, 2, outcome{took: 2 * time.Second})
		wantState(t, s, to, HalfOpen)
		times(t, s, to, 1, outcome{took: 2 * time.Second}) // 3 of 5
		if r := s.Explain(to); r.State != Open || r.Why != Slow || r.Opened != 2 {
			t.Errorf("%+v", r)
		}
	})
}

func TestTheFirstAnswerOfAStreamIsAProbeThatWentWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := stageOf(usual)
		to, _ := target("model_v1")
		toHalfOpen(t, s, to)
		end := make(chan struct{})
		h := s.Wrap(func(_ context.Context, c *inference.Call) error {
			_ = c.Send(inference.Frame{})
			<-end
			return fault.New(fault.EndpointLost, "x") // much later: of that the window tells
		})
		for range usual.Probes {
			go func() {
				_ = h(t.Context(), &inference.Call{Target: to, Sink: func(inference.Frame) error { return nil }})
			}()
		}
		synctest.Wait()
		wantState(t, s, to, Closed)
		close(end)
		synctest.Wait()
		wantState(t, s, to, Closed)

		toHalfOpen(t, s, to)
		report := s.Wrap(func(_ context.Context, c *inference.Call) error {
			c.InBand = fault.New(fault.UpstreamFailed, "x")
			return c.Send(inference.Frame{})
		})
		_ = report(t.Context(), &inference.Call{Target: to, Sink: func(inference.Frame) error { return nil }})
		wantState(t, s, to, Open)
	})
}

func TestWithoutAnEndpointNothingIsTriedAndThePoolSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := stageOf(usual)
		to, p := target("model_v1")
		times(t, s, to, 1, fine)
		p.set(inference.NotReady)
		for range 3 {
			if sent, err := do(s, to, fine); sent || refusedBy(err) != fault.ModelNotReady {
				t.Fatalf("sent %v, %v", sent, err)
			}
		}
		if r := s.Explain(to); r.State != Open || r.Why != NoEndpoint || r.Until != nil {
			t.Errorf("%+v", r)
		}
		if p.picks.Load() != 3 {
			t.Error("the pool does not know that it is wanted")
		}
		p.set(inference.Ready)
		if sent, _ := do(s, to, fine); sent {
			t.Error("in the same instant: gobreaker's clock has not moved") // a nanosecond later it is let through
		}
		pass(2)
		times(t, s, to, usual.Probes-1, fine)
		wantState(t, s, to, HalfOpen)
		times(t, s, to, 1, fine)
		wantState(t, s, to, Closed)
		want := []string{"model_v1 open no_endpoint", "model_v1 half-open back", "model_v1 closed probed"}
		if diff := cmp.Diff(want, r.said()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestWhatNobodyHasAskedYetIsTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := stageOf(usual)
		to, p := target("model_v1")
		p.set(inference.Unknown)
		times(t, s, to, 10, fine)
		p.set(inference.NotReady)
		_, _ = do(s, to, fine)
		p.set(inference.Unknown) // another endpoint, say
		_, _ = do(s, to, fine)
		pass(2)
		times(t, s, to, usual.Probes, fine)
		wantState(t, s, to, Closed)
		if readiness(onlyReady(false)) != inference.Unknown || readiness(onlyReady(true)) != inference.Ready {
			t.Error("a pool that cannot tell the one from the other is not tried")
		}
	})
}

type onlyReady bool

func (r onlyReady) Ready() bool { return bool(r) }
func (onlyReady) Pick(*inference.Call, []inference.Endpoint) (inference.Endpoint, error) {
	return nil, nil
}

func TestAnEndpointThatIsBackEndsEvenTheLongestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := stageOf(usual)
		to, p := target("model_v1")
		ctx, stop := context.WithCancel(t.Context())
		go s.Watch(ctx)
		times(t, s, to, usual.MinCalls, broken)
		for range 8 {
			pass(time.Until(*s.Explain(to).Until) + 1)
			times(t, s, to, 1, broken)
		}
		if left := time.Until(*s.Explain(to).Until); left < 4*time.Minute {
			t.Fatalf("%s left", left)
		}
		// Without any call it goes and comes back.
		p.set(inference.NotReady)
		pass(500 * time.Millisecond)
		if r := s.Explain(to); r.State != Open || r.Why != NoEndpoint {
			t.Fatalf("%+v", r)
		}
		p.set(inference.Ready)
		pass(500 * time.Millisecond)
		wantState(t, s, to, HalfOpen)
		times(t, s, to, 1, broken)
		if left := time.Until(*s.Explain(to).Until); left > usual.Open {
			t.Errorf("doubling went on while there was no endpoint: %s", left)
		}
		pass(usual.Open)
		times(t, s, to, usual.Probes, fine)
		wantState(t, s, to, Closed)
		stop()
		synctest.Wait()
	})
}

func TestAnOutageThatNobodySawIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := stageOf(usual)
		to, p := target("model_v1")
		ctx, stop := context.WithCancel(t.Context())
		go s.Watch(ctx)
		times(t, s, to, 1, fine)
		p.set(inference.NotReady)
		pass(lookEvery + 1)
		p.set(inference.Ready)
		pass(lookEvery + 1)
		want := []string{"model_v1 open no_endpoint", "model_v1 half-open back"}
		if diff := cmp.Diff(want, r.said()); diff != "" {
			t.Error(diff)
		}
		// An open one turns half-open without a call, too.
		times(t, s, to, 1, broken)
		pass(usual.Open + lookEvery)
		if said := r.said(); said[len(said)-1] != "model_v1 half-open waited" {
			t.Error(said)
		}
		stop()
		synctest.Wait()
	})
}

func TestNothingIsKeptOfTargetsThatNobodyCanName(t *testing.T) {
	s, r := stageOf(usual)
	why := fault.New(fault.NoEndpoint, "none answers")
	for i := range 100 {
		if sent, err := do(s, inference.Nowhere(fmt.Sprint("unknown", i), why), fine); sent || !errors.Is(err, why) {
			t.Fatalf("sent %v, %v", sent, err)
		}
	}
	if len(s.List()) != 0 || r.refused[NoEndpoint] != 100 {
		t.Errorf("%d breakers, refused %v", len(s.List()), r.refused)
	}
	if e := s.Explain(inference.Nowhere("x", why)); e.State != Open || e.Why != NoEndpoint {
		t.Errorf("%+v", e)
	}
}

func TestStateOutlivesAReloadAndTheNewPolicyHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := usual
		s := New(Options{Policy: func(string) inference.Breaker { return policy }})
		before, _ := target("model_v1")
		times(t, s, before, 19, broken)
		s.Reload()
		again, _ := target("model_v1") // another object for the same target
		times(t, s, again, 1, broken)
		wantState(t, s, before, Open)
		policy.Probes, policy.MinCalls = 1, 40
		s.Reload()
		wantState(t, s, again, Open)
		pass(usual.Open)
		times(t, s, again, usual.Probes, fine) // what was open is probed as it was to be
		wantState(t, s, again, Closed)
		times(t, s, again, 39, broken)
		wantState(t, s, again, Closed)
		times(t, s, again, 1, broken)
		wantState(t, s, again, Open)
		policy = inference.Breaker{}
		s.Reload()
		times(t, s, again, 100, broken)
		wantState(t, s, again, Closed)
	})
}

func TestAZeroBreakerNeverOpens(t *testing.T) {
	s, r := stageOf(inference.Breaker{})
	to, p := target("model_v1")
	times(t, s, to, 1000, broken)
	p.set(inference.NotReady)
	times(t, s, to, 10, broken)
	if len(r.said()) != 0 {
		t.Error(r.said())
	}
}

func TestAStepOfASequenceIsToldThatItWasNotSent(t *testing.T) {
	s, _ := stageOf(usual)
	to, _ := target("model_v1")
	times(t, s, to, usual.MinCalls, broken)
	h := s.Wrap(func(context.Context, *inference.Call) error { t.Error("sent"); return nil })
	for start, want := range map[bool]string{true: "try again in", false: "send it again in"} {
		err := h(t.Context(), &inference.Call{Target: to, Head: inference.Head{Sequence: inference.Sequence{ID: "77", Start: start}}})
		if f := fault.Of(err); f.Kind != fault.CircuitOpen || !strings.Contains(f.Msg, want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestAnOldCallChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := stageOf(usual)
		to, _ := target("model_v1")
		end := make(chan struct{})
		h := s.Wrap(func(context.Context, *inference.Call) error {
			<-end
			return fault.New(fault.UpstreamFailed, "x")
		})
		for range 50 {
			go func() { _ = h(t.Context(), &inference.Call{Target: to}) }()
		}
		synctest.Wait()
		toHalfOpen(t, s, to)
		close(end)
		synctest.Wait()
		wantState(t, s, to, HalfOpen)
		times(t, s, to, usual.Probes, fine)
		wantState(t, s, to, Closed)
	})
}

func TestBreakersThatNobodyUsesAreForgottenAndOpenOnesAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := usual
		policy.Open, policy.OpenMax = time.Hour, time.Hour
		s, _ := stageOf(policy)
		idle, _ := target("idle")
		busy, _ := target("busy")
		open, _ := target("open")
		times(t, s, idle, 1, fine)
		times(t, s, open, usual.MinCalls, broken)
		ctx, stop := context.WithCancel(t.Context())
		go s.Watch(ctx)
		for range 13 {
			times(t, s, busy, 1, fine)
			pass(sweepEvery)
		}
		var left []string
		for _, r := range s.List() {
			left = append(left, r.Target)
		}
		if !slices.Equal(left, []string{"busy", "open"}) {
			t.Errorf("left: %v", left)
		}
		stop()
		synctest.Wait()
	})
}

func TestTargetsBeyondTheBoundGoThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := stageOf(usual)
		fill := func(from int) {
			for i := range MaxTargets {
				s.of(&inference.Target{Name: fmt.Sprint(from + i), Pool: onlyReady(true)})
			}
		}
		fill(0)
		for _, name := range []string{"0", "1"} { // these have something to remember
			b, _ := s.breakers.Get(stats.Key{Target: name})
			b.ended(b.phase.Load(), bad, false)
		}
		pass(2 * time.Second)
		to, _ := target("one more")
		s.of(to)
		if n := s.breakers.Len(); n != 3 {
			t.Errorf("%d breakers; those that knew nothing make room", n)
		}
	})
}

func TestCallsAtOnceAgreeOnOneChange(t *testing.T) {
	s, r := stageOf(usual)
	to, p := target("model_v1")
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 200 {
				_, _ = do(s, to, broken)
			}
		})
	}
	wg.Wait()
	p.set(inference.NotReady)
	for range 16 {
		wg.Go(func() { _, _ = do(s, to, broken) })
	}
	wg.Wait()
	if want := []string{"model_v1 open failures", "model_v1 open no_endpoint"}; !slices.Equal(r.said(), want) {
		t.Error(r.said())
	}
}
