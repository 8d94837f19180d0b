package deadline

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// run takes a call that never ends through the stage and returns how it ended and after how long.
func run(t *testing.T, ctx context.Context, c *inference.Call) (reached bool, kind fault.Kind, took time.Duration) {
	t.Helper()
	begin := time.Now()
	err := Stage{}.Wrap(func(ctx context.Context, _ *inference.Call) error {
		reached = true
		<-ctx.Done()
		return context.Cause(ctx)
	})(ctx, c)
	return reached, fault.Of(err).Kind, time.Since(begin)
}

func call(limit time.Duration) *inference.Call {
	return &inference.Call{Start: time.Now(), Model: &inference.Model{Timeouts: inference.Timeouts{Max: limit}}}
}

func TestTheCallersShorterDeadlineWinsAndIsTheCallersFault(t *testing.T) { // O-28
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		reached, kind, took := run(t, ctx, call(2*time.Second))
		if !reached || kind != fault.Deadline || took != 285*time.Millisecond {
			t.Errorf("reached %v, %s after %s; want DEADLINE after 300 ms less the margin of 15", reached, kind.Reason(), took)
		}
	})
}

func TestTheModelsShorterTimeoutWinsAndIsTheUpstreamsFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, kind, took := run(t, ctx, call(2*time.Second)); kind != fault.UpstreamTimeout || took != 2*time.Second {
			t.Errorf("%s after %s; want UPSTREAM_TIMEOUT after 2 s", kind.Reason(), took)
		}
	})
}

func TestACallThatArrivesExpiredIsNotSent(t *testing.T) { // O-28
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	if reached, kind, _ := run(t, ctx, call(time.Minute)); reached || kind != fault.Expired {
		t.Errorf("reached the upstream: %v, %s", reached, kind.Reason())
	}
}

func TestAVeryShortDeadlineStillLeavesTheUpstreamHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Millisecond)
		defer cancel()
		if reached, _, took := run(t, ctx, call(time.Minute)); !reached || took != 3*time.Millisecond {
			t.Errorf("reached %v, after %s", reached, took)
		}
	})
}

func TestAMessageOfAStreamIsNotBoundByTheModelsTimeout(t *testing.T) {
	c := call(time.Nanosecond)
	c.Stream = &inference.Stream{}
	err := Stage{}.Wrap(func(ctx context.Context, _ *inference.Call) error {
		if _, has := ctx.Deadline(); has {
			t.Error("it has a deadline")
		}
		return nil
	})(t.Context(), c)
	if err != nil {
		t.Error(err)
	}
}

func TestWhatIsReservedForAnotherTargetIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c := call(time.Minute)
		c.Reserve = 0.3
		if _, kind, took := run(t, ctx, c); kind != fault.Deadline || took != 665*time.Millisecond {
			t.Errorf("%s after %s; want DEADLINE after 70 %% of 950 ms", kind.Reason(), took)
		}
		c = call(2 * time.Second)
		c.Reserve = 0.3
		if _, kind, took := run(t, t.Context(), c); kind != fault.UpstreamTimeout || took != 1400*time.Millisecond {
			t.Errorf("%s after %s; want UPSTREAM_TIMEOUT after 70 %% of 2 s", kind.Reason(), took)
		}
	})
}

func TestAnotherTargetsTimeoutBeginsWithItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := call(time.Second)
		c.Start = time.Now().Add(-time.Minute)
		c.Degraded = &inference.Degraded{}
		if reached, kind, took := run(t, t.Context(), c); !reached || kind != fault.UpstreamTimeout || took != time.Second {
			t.Errorf("reached %v, %s after %s", reached, kind.Reason(), took)
		}
	})
}

func TestATargetInAnothersPlaceIsLateWhenWhatIsLeftOfThatOnesTimeIsOver(t *testing.T) {
	for name, w := range map[string]struct {
		max, latest, callers time.Duration // 0: none
		kind                 fault.Kind
		took                 time.Duration
	}{
		"what is left":                {time.Second, 300 * time.Millisecond, 0, fault.UpstreamTimeout, 300 * time.Millisecond},
		"what is left, and no other":  {0, 300 * time.Millisecond, 0, fault.UpstreamTimeout, 300 * time.Millisecond},
		"a caller that has more time": {time.Second, 300 * time.Millisecond, 310 * time.Millisecond * 2, fault.UpstreamTimeout, 300 * time.Millisecond},
		"a caller that has less":      {time.Second, 300 * time.Millisecond, 200 * time.Millisecond, fault.Deadline, 190 * time.Millisecond},
		"its own timeout":             {100 * time.Millisecond, 300 * time.Millisecond, time.Minute, fault.UpstreamTimeout, 100 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			if w.callers > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, w.callers)
				defer cancel()
			}
			c := call(w.max)
			c.Start, c.Degraded, c.Latest = time.Now().Add(-time.Minute), &inference.Degraded{}, time.Now().Add(w.latest)
			if reached, kind, took := run(t, ctx, c); !reached || kind != w.kind || took != w.took {
				t.Errorf("%s: reached %v, %s after %s", name, reached, kind.Reason(), took)
			}
		})
	}
}

func TestATargetInAnothersPlaceThatHasNoTimeIsNotAskedAndItIsNotTheCallersDoing(t *testing.T) {
	for _, left := range []time.Duration{-time.Millisecond, tooShort} {
		synctest.Test(t, func(t *testing.T) {
			c := call(time.Second)
			c.Degraded, c.Latest = &inference.Degraded{}, time.Now().Add(left)
			err := Stage{}.Wrap(func(context.Context, *inference.Call) error { t.Error("it is asked"); return nil })(t.Context(), c)
			if f := fault.Of(err); f == nil || f.Kind != fault.Deadline || strings.Contains(f.Msg, "caller") || strings.Contains(f.Msg, "-") || !strings.Contains(f.Msg, "in whose place") {
				t.Errorf("%s: %v", left, err)
			}
		})
	}
}
