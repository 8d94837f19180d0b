package admit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

const (
	critical  = inference.PriorityCritical
	normal    = inference.PriorityDefault
	sheddable = inference.PrioritySheddable
	queue     = 100 * time.Millisecond
)

func TestCallsBeyondTheBoundWaitForAMomentAndAreThenRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(inference.Concurrency{Max: 2, Queue: queue})
		a, b := r.send(t.Context(), normal, "a"), r.send(t.Context(), normal, "b")
		synctest.Wait()
		start := time.Now()
		err := <-r.send(t.Context(), normal, "late")
		if kindOf(err) != fault.Overloaded || time.Since(start) != queue || fault.Of(err).Retry() <= 0 {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		c := r.send(t.Context(), normal, "c")
		synctest.Wait()
		if s := r.state(); s != (State{Model: "fraud", Version: "1", Target: "model_v1", InFlight: 2, Waiting: 1, Limit: 2}) {
			t.Errorf("%+v", s)
		}
		for range 3 {
			r.answer <- struct{}{}
		}
		if err := errors.Join(<-a, <-b, <-c); err != nil {
			t.Error(err)
		}
		if s := r.state(); s.InFlight != 0 || s.Waiting != 0 || r.refused["default timeout"] != 1 {
			t.Errorf("%+v, refused %v", s, r.refused)
		}
	})
}

func TestWithoutAQueueCallsBeyondTheBoundAreRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(inference.Concurrency{Max: 1})
		a := r.send(t.Context(), normal, "a")
		synctest.Wait()
		start := time.Now()
		if err := <-r.send(t.Context(), critical, "b"); kindOf(err) != fault.Overloaded || time.Since(start) != 0 || r.refused["critical full"] != 1 {
			t.Errorf("%v after %s, %v", err, time.Since(start), r.refused)
		}
		r.answer <- struct{}{}
		if err := <-a; err != nil {
			t.Error(err)
		}
	})
}

func TestTheNewestIsServedFirstAndWhatIsCriticalBeforeAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(inference.Concurrency{Max: 1, Queue: queue})
		var all []chan error
		all = append(all, r.send(t.Context(), normal, "first"))
		synctest.Wait()
		for _, c := range []struct {
			p  inference.Priority
			id string
		}{{normal, "d1"}, {critical, "c1"}, {normal, "d2"}, {critical, "c2"}} {
			all = append(all, r.send(t.Context(), c.p, c.id))
			synctest.Wait()
		}
		var order []string
		for range all {
			c := <-r.entered
			order = append(order, c.Head.ID)
			r.answer <- struct{}{}
		}
		for _, done := range all {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if got := fmt.Sprint(order); got != "[first c2 c1 d2 d1]" {
			t.Error(got)
		}
	})
}

func TestSheddableCallsGetAPartOfTheBoundAndNeverWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(inference.Concurrency{Max: 10, Queue: queue})
		var served []chan error
		for i := range 8 {
			done := r.send(t.Context(), sheddable, "s")
			synctest.Wait()
			if i < 7 {
				served = append(served, done)
				continue
			}
			start := time.Now()
			if err := <-done; kindOf(err) != fault.Overloaded || time.Since(start) != 0 {
				t.Errorf("the eighth: %v", err)
			}
		}
		for range 3 {
			served = append(served, r.send(t.Context(), normal, "d"))
		}
		synctest.Wait()
		if s := r.state(); s.InFlight != 10 || r.refused["sheddable shed"] != 1 {
			t.Errorf("%+v, %v", s, r.refused)
		}
		for range served {
			r.answer <- struct{}{}
		}
		for _, done := range served {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestACriticalCallTakesThePlaceOfALowerOneThatWaitsAndNeverTheOtherWayRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(inference.Concurrency{Max: 1, Queue: queue})
		first := r.send(t.Context(), normal, "first")
		synctest.Wait()
		var lower, upper []chan error
		for range leastWaiting {
			lower = append(lower, r.send(t.Context(), normal, "d"))
			synctest.Wait()
		}
		for i := range leastWaiting {
			upper = append(upper, r.send(t.Context(), critical, "c"))
			synctest.Wait()
			select {
			case err := <-lower[i]: // the oldest first
				if kindOf(err) != fault.Overloaded {
					t.Error(err)
				}
			default:
				t.Errorf("default call %d still waits", i)
			}
		}
		if err := <-r.send(t.Context(), normal, "too late"); kindOf(err) != fault.Overloaded || r.refused["default full"] != 1 {
			t.Errorf("%v, %v", err, r.refused)
		}
		// A newer one of the same rank takes the place of the oldest.
		newest := r.send(t.Context(), critical, "newest")
		synctest.Wait()
		if err := <-upper[0]; kindOf(err) != fault.Overloaded || r.refused["critical pushed"] != 1 || r.refused["default pushed"] != leastWaiting {
			t.Errorf("%v, %v", err, r.refused)
		}
		for range 1 + leastWaiting {
			r.answer <- struct{}{}
		}
		if err := errors.Join(<-first, <-newest); err != nil {
			t.Error(err)
		}
		for _, done := range upper[1:] {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestACallerThatLeavesWhileItWaitsLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(inference.Concurrency{Max: 1, Queue: queue})
		first := r.send(t.Context(), normal, "first")
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		gone := r.send(ctx, normal, "gone")
		stays := r.send(t.Context(), normal, "stays")
		synctest.Wait()
		cancel()
		if err := <-gone; kindOf(err) != fault.Cancelled {
			t.Error(err)
		}
		brief, end := context.WithTimeout(t.Context(), time.Millisecond)
		defer end()
		if err := <-r.send(brief, normal, "brief"); kindOf(err) != fault.Deadline {
			t.Error(err)
		}
		r.answer <- struct{}{}
		r.answer <- struct{}{}
		if err := errors.Join(<-first, <-stays); err != nil || len(r.refused) != 0 || r.state().InFlight != 0 {
			t.Errorf("%v, %v, %+v", err, r.refused, r.state())
		}
	})
}

func TestAPanicGivesItsPlaceBack(t *testing.T) {
	s := New(nil)
	r := newRig(inference.Concurrency{Max: 1})
	h := s.Wrap(func(context.Context, *inference.Call) error { panic("a bug") })
	for range 3 {
		func() {
			defer func() { _ = recover() }()
			_ = h(t.Context(), r.call(normal, ""))
			t.Error("it did not panic")
		}()
	}
	if state := s.States()[0]; state.InFlight != 0 {
		t.Errorf("%+v", state)
	}
}

func TestAMessageOfAStreamTakesNoPlaceBeforeItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(inference.Concurrency{Max: 1, Queue: queue})
		var turn inference.Turn
		first, second := r.call(normal, "1"), r.call(normal, "2")
		first.Turn = turn.Next()
		second.Turn = first.Turn.Next()
		done := make(chan error, 2)
		go func() { done <- r.handle(t.Context(), second) }()
		synctest.Wait()
		go func() { done <- r.handle(t.Context(), first) }()
		if c := <-r.entered; c != first {
			t.Fatal("the second message has the only place")
		}
		first.Turn.Done()
		r.answer <- struct{}{}
		if c := <-r.entered; c != second {
			t.Fatal("not the second")
		}
		r.answer <- struct{}{}
		if err := errors.Join(<-done, <-done); err != nil {
			t.Error(err)
		}
	})
}

func TestAnAnswerThatWaitsForItsClientTakesNoPlaceUnlessMoreMayFollow(t *testing.T) {
	for decoupled, under := range map[bool]int{false: 0, true: 1} {
		for _, adaptive := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(inference.Concurrency{Max: 1, Adaptive: adaptive})
				taken := make(chan struct{})
				c := r.call(normal, "a")
				c.Stream, c.Decoupled = &inference.Stream{}, decoupled
				c.Sink = func(inference.Frame) error {
					<-taken
					return nil
				}
				handle := r.stage.Wrap(func(_ context.Context, c *inference.Call) error {
					c.Attempts++
					return c.Send(inference.Frame{})
				})
				done := make(chan error, 1)
				go func() { done <- handle(t.Context(), c) }()
				synctest.Wait()
				if s := r.state(); s.InFlight != under {
					t.Errorf("decoupled %v, adaptive %v: %d calls under way while the client does not read", decoupled, adaptive, s.InFlight)
				}
				close(taken)
				if err := <-done; err != nil || r.state().InFlight != 0 {
					t.Errorf("decoupled %v, adaptive %v: %v, %+v", decoupled, adaptive, err, r.state())
				}
			})
		}
	}
}

func TestModelsWithoutABoundAndTargetsThatNobodyKnowsAreLetThrough(t *testing.T) {
	s := New(nil)
	calls := 0
	h := s.Wrap(func(context.Context, *inference.Call) error { calls++; return nil })
	c := &inference.Call{Model: &inference.Model{}}
	absent := &inference.Call{Model: &inference.Model{Concurrency: inference.Concurrency{Max: 1}}, Target: inference.Nowhere("", errors.New("nobody"))}
	if err := errors.Join(h(t.Context(), c), h(t.Context(), absent)); err != nil || calls != 2 || len(s.States()) != 0 {
		t.Errorf("%v, %d calls, %v", err, calls, s.States())
	}
}

func TestAnotherBoundHoldsFromTheNextCallOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(inference.Concurrency{Max: 1, Queue: queue})
		a, b := r.send(t.Context(), normal, "a"), r.send(t.Context(), normal, "b")
		synctest.Wait()
		more := *r.model
		more.Concurrency.Max = 3
		r.model = &more
		c := r.send(t.Context(), normal, "c")
		synctest.Wait()
		if s := r.state(); s.InFlight != 3 || s.Limit != 3 {
			t.Errorf("%+v", s)
		}
		less := more
		less.Concurrency = inference.Concurrency{Adaptive: true, Max: 5}
		r.model = &less
		d := r.send(t.Context(), normal, "d")
		synctest.Wait()
		if s := r.state(); s.InFlight != 4 || s.Limit != 5 {
			t.Errorf("%+v", s)
		}
		for range 4 {
			r.answer <- struct{}{}
		}
		if err := errors.Join(<-a, <-b, <-c, <-d); err != nil {
			t.Error(err)
		}
	})
}

func TestThePriorityThatAClientSendsNeverGoesAboveItsCallers(t *testing.T) {
	caller := func(p inference.Priority) *inference.Caller { return &inference.Caller{Priority: p} }
	for _, w := range []struct {
		caller       *inference.Caller
		header, word string
		want         inference.Priority
	}{
		{caller(critical), "", "", critical},
		{caller(critical), "sheddable", "", sheddable},
		{caller(critical), "sheddable", "default", normal},
		{caller(critical), "nonsense", "", critical},
		{caller(critical), "sheddable", "Critical", sheddable},
		{caller(normal), "critical", "", normal},
		{caller(normal), "", "sheddable", sheddable},
		{caller(sheddable), "critical", "critical", sheddable},
		{caller(sheddable), "", "", sheddable},
		{nil, "critical", "", normal},
		{nil, "sheddable", "", sheddable},
		{nil, "", "", normal},
	} {
		c := &inference.Call{Model: &inference.Model{PassPriority: true}, Identity: inference.Identity{Caller: w.caller}}
		if w.header != "" {
			c.Incoming = map[string][]string{"x-priority": {w.header}}
		}
		if w.word != "" {
			c.Head.Metadata = map[string]string{"priority": w.word}
		}
		h := New(nil).Wrap(func(context.Context, *inference.Call) error { return nil })
		if err := h(t.Context(), c); err != nil || c.Priority != w.want {
			t.Errorf("%+v: %s, %v", w, c.Priority, err)
		}
	}
}

// Whatever callers do: never more under way than the bound, every place given back, nobody forgotten in the line.
func TestWhateverHappensTheBoundHoldsAndEveryPlaceIsGivenBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		bound := rapid.IntRange(1, 12).Draw(rt, "bound")
		callers := rapid.IntRange(1, 60).Draw(rt, "callers")
		synctest.Test(t, func(t *testing.T) {
			r := newRig(inference.Concurrency{Max: bound, Queue: queue})
			s := New(nil)
			var inFlight, worst, ended atomic.Int64
			h := s.Wrap(func(ctx context.Context, c *inference.Call) error {
				if n := inFlight.Add(1); n > worst.Load() {
					worst.Store(n)
				}
				defer inFlight.Add(-1)
				select {
				case <-time.After(c.UpstreamIn):
				case <-ctx.Done():
					return context.Cause(ctx)
				}
				if c.Head.ID == "panic" {
					panic("a bug")
				}
				return nil
			})
			var wg sync.WaitGroup
			for i := range callers {
				wg.Go(func() {
					rnd := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // a test
					for range 8 {
						c := r.call(inference.Priority(rnd.IntN(3)), "") //nolint:gosec // a small number
						c.UpstreamIn = time.Duration(rnd.IntN(60)) * time.Millisecond
						if rnd.IntN(10) == 0 {
							c.Head.ID = "panic"
						}
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rnd.IntN(200))*time.Millisecond)
						start := time.Now()
						func() {
							defer func() { _ = recover() }()
							_ = h(ctx, c)
						}()
						if took := time.Since(start); took > queue+60*time.Millisecond {
							t.Errorf("a call took %s", took)
						}
						ended.Add(1)
						cancel()
					}
				})
			}
			wg.Wait()
			if state := s.States()[0]; state.InFlight != 0 || state.Waiting != 0 || worst.Load() > int64(bound) || ended.Load() != int64(8*callers) {
				t.Errorf("%+v, at worst %d of %d", state, worst.Load(), bound)
			}
		})
	})
}

func BenchmarkACallThatFindsRoom(b *testing.B) {
	for name, k := range map[string]inference.Concurrency{"fixed": {Max: 1000, Queue: queue}, "adaptive": {Adaptive: true, Queue: queue}, "none": {}} {
		b.Run(name, func(b *testing.B) {
			h := New(nil).Wrap(func(_ context.Context, c *inference.Call) error { c.Attempts++; return nil })
			c := newRig(k).call(normal, "")
			c.Incoming = map[string][]string{"user-agent": {"x"}}
			b.ReportAllocs()
			for b.Loop() {
				_ = h(b.Context(), c)
			}
		})
	}
}

func TestATargetInAnothersPlaceIsMeasuredByWhatItTakesAndWaitsNoLongerThanThatOnesTime(t *testing.T) {
	r := newRig(inference.Concurrency{Adaptive: true})
	c := r.call(normal, "")
	c.Degraded = &inference.Degraded{Cause: fault.New(fault.NoEndpoint, "nobody there"), Target: c.Target}
	c.UpstreamIn, c.Attempts = 4*time.Second, 3
	if s := sampleOf(c, nil, 3*time.Second, 2); s.kind != timed || s.took != time.Second {
		t.Errorf("%+v", s)
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(inference.Concurrency{Max: 1, Queue: queue})
		first := r.send(t.Context(), normal, "first")
		synctest.Wait()
		for _, left := range []time.Duration{queue / 4, -queue} {
			c, start := r.call(normal, "next"), time.Now()
			c.Latest = start.Add(left)
			if err := r.handle(t.Context(), c); kindOf(err) != fault.Overloaded || time.Since(start) != max(left, 0) {
				t.Errorf("%s are left: %v after %s", left, err, time.Since(start))
			}
		}
		r.answer <- struct{}{}
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}
