package deadline

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/stats"
)

// knowing is a stage that knows e of the target fraud.
func knowing(e entry) Stage {
	t := NewTable(Options{Stats: stats.NewRegistry(nil)})
	e.Key, e.Timeout = stats.KeyOf(fraud), e.after
	e.cause = byTarget(&e.State, users.Dynamic)
	t.current.Store(&entries{byName: map[name]*entry{{"fraud", "model_v1"}: &e}})
	return Stage{Table: t}
}

// dynamic is a call to fraud, whose model has a dynamic timeout under limit.
func dynamic(limit time.Duration) *inference.Call {
	c := call(limit)
	c.Target, c.Model.Timeouts.Dynamic, c.Model.Timeouts.FirstAnswer = fraud, users.Dynamic, 30*time.Second
	return c
}

// goes takes a call that never ends through s.
func goes(ctx context.Context, s Stage, c *inference.Call) (reached bool, ended *fault.Fault, took time.Duration) {
	begin := time.Now()
	err := s.Wrap(func(ctx context.Context, _ *inference.Call) error {
		reached = true
		<-ctx.Done()
		return context.Cause(ctx)
	})(ctx, c)
	return reached, fault.Of(err), time.Since(begin)
}

func TestTheSmallestOfTheThreeTimeoutsWins(t *testing.T) { // O-28
	for name, tt := range map[string]struct {
		caller, model, dynamic time.Duration
		takes                  time.Duration
		kind                   fault.Kind
		says                   string
	}{
		"the caller's": {300 * time.Millisecond, 2 * time.Second, 2500 * time.Millisecond, 285 * time.Millisecond, fault.Deadline, "the caller's deadline"},
		"the model's":  {10 * time.Second, 2 * time.Second, 2500 * time.Millisecond, 2 * time.Second, fault.UpstreamTimeout, "its timeout of 2s"},
		"the dynamic":  {10 * time.Second, time.Minute, 2500 * time.Millisecond, 2500 * time.Millisecond, fault.UpstreamTimeout, "dynamic timeout, which is 2.5s now: it moves to 1.5 times the 1.7s that 999 in 1000"},
		"no dynamic":   {0, time.Minute, 0, time.Minute, fault.UpstreamTimeout, "its timeout of 1m0s"},
		"no caller's":  {0, time.Minute, 3 * time.Second, 3 * time.Second, fault.UpstreamTimeout, "dynamic timeout"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			if tt.caller > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tt.caller)
				defer cancel()
			}
			s := knowing(entry{after: tt.dynamic, State: State{P999: 1700 * time.Millisecond}})
			reached, f, took := goes(ctx, s, dynamic(tt.model))
			if !reached || f.Kind != tt.kind || took != tt.takes || !strings.Contains(f.Msg, tt.says) {
				t.Errorf("%s: after %s %s: %s", name, took, f.Kind.Reason(), f.Msg)
			}
		})
	}
}

func TestTheDynamicTimeoutIsNotForEveryCall(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*inference.Call)
		takes  time.Duration
		says   string
	}{
		"a step of a sequence":       {func(c *inference.Call) { c.Head.Sequence.ID = "7" }, 30 * time.Second, "timeout.first_answer"},
		"one whose model allows 9 s": {func(c *inference.Call) { c.Head.Sequence.ID, c.Model.Timeouts.Max = "7", 9*time.Second }, 9 * time.Second, "timeout.max"},
		"a model that only looks":    {func(c *inference.Call) { c.Model.Timeouts.Dynamic.Shadow = true }, time.Minute, "timeout.max"},
		"a model that has it off":    {func(c *inference.Call) { c.Model.Timeouts.Dynamic = inference.Dynamic{} }, time.Minute, "timeout.max"},
		"a target of the name that is another one": {func(c *inference.Call) {
			c.Target = &inference.Target{Name: "model_v1", Model: "fraud", Version: "2", Upstream: "triton", Asked: "fraud"}
		}, time.Minute, "timeout.max"},
		"another target": {func(c *inference.Call) {
			c.Target = &inference.Target{Name: "model_v2", Model: "fraud", Version: "2", Upstream: "triton", Asked: "fraud"}
		}, time.Minute, "timeout.max"},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := dynamic(time.Minute)
			tt.change(c)
			_, f, took := goes(t.Context(), knowing(entry{after: 2 * time.Second}), c)
			if took != tt.takes || f.Kind != fault.UpstreamTimeout || !strings.Contains(f.Msg, tt.says) {
				t.Errorf("%s: after %s: %s", name, took, f.Msg)
			}
		})
	}
	c := dynamic(time.Minute)
	c.Stream = &inference.Stream{}
	_ = knowing(entry{after: 2 * time.Second, least: time.Hour}).Wrap(func(ctx context.Context, _ *inference.Call) error {
		if _, has := ctx.Deadline(); has {
			t.Error("a message of a stream has a deadline")
		}
		return nil
	})(t.Context(), c)
}

type doomed int

func (d *doomed) Doomed(*inference.Target) { *d++ }

func TestACallThatCannotBeAnsweredInTimeIsNotSent(t *testing.T) {
	for name, tt := range map[string]struct {
		left, least time.Duration
		reaches     bool
		says        string
	}{
		"less than half of the quickest": {99 * time.Millisecond, 100 * time.Millisecond, false, "quickest answers lately took 200ms"},
		"half of it":                     {100 * time.Millisecond, 100 * time.Millisecond, true, ""},
		"nothing is known":               {2 * time.Millisecond, 0, true, ""},
		"a millisecond":                  {time.Millisecond, 0, false, "1ms were left of the caller's deadline, too little"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), tt.left)
			defer cancel()
			var refused doomed
			s := knowing(entry{least: tt.least})
			s.Calls = &refused
			reached, f, took := goes(ctx, s, dynamic(time.Minute))
			if reached != tt.reaches || f.Kind != fault.Deadline {
				t.Errorf("%s: sent: %v, %s", name, reached, f.Msg)
			}
			if !tt.reaches && (took != 0 || refused != 1 || !strings.Contains(f.Msg, tt.says)) {
				t.Errorf("%s: after %s, %d counted: %s", name, took, refused, f.Msg)
			}
		})
	}
}

func TestTheQuickestAnswerIsKnownFromAThousandOfTheLastMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t, nil)
		target := r.stats.Target(stats.KeyOf(fraud))
		least := func() time.Duration {
			<-time.After(Every)
			synctest.Wait()
			return r.of(fraud).least
		}
		for range leastSamples {
			target.Record("a:1", stats.Live, stats.Failure, time.Millisecond)
			target.Record("a:1", stats.Live, stats.Deadline, time.Millisecond)
		}
		r.saw(leastSamples-1, stats.OK, 300*time.Millisecond)
		if got := least(); got != 0 {
			t.Errorf("from 999 answers and many failures: %s", got)
		}
		r.saw(1, stats.OK, 200*time.Millisecond)
		if got := least(); got < 98*time.Millisecond || got > 102*time.Millisecond {
			t.Errorf("half of 200 ms is %s", got)
		}
		// Nobody is answered any more, since everybody is refused: that must not last.
		for range 5 {
			_ = least()
		}
		if got := r.of(fraud).least; got != 0 {
			t.Errorf("a minute later it is still %s", got)
		}
	})
}

// BenchmarkWrap is what a call pays: with a dynamic timeout, among few targets and many, and without.
func BenchmarkWrap(b *testing.B) {
	next := func(context.Context, *inference.Call) error { return nil }
	for name, s := range map[string]Stage{"without": {}, "dynamic": knowing(entry{after: 2 * time.Second})} {
		b.Run(name, func(b *testing.B) {
			h, c := s.Wrap(next), dynamic(time.Minute)
			b.ReportAllocs()
			for b.Loop() {
				_ = h(context.Background(), c)
			}
		})
	}
}

func TestTheDynamicTimeoutCostsACallNoAllocation(t *testing.T) {
	next := func(context.Context, *inference.Call) error { return nil }
	c := dynamic(time.Minute)
	run := func(s Stage) float64 {
		h := s.Wrap(next)
		return testing.AllocsPerRun(1000, func() { _ = h(context.Background(), c) })
	}
	if without, with := run(Stage{}), run(knowing(entry{after: 2 * time.Second})); with > without {
		t.Errorf("%v allocations with it, %v without", with, without)
	}
}
