// Package admit bounds how many calls to a target are under way at once, since a model server that is given more than it
// can do answers everybody late. The bound is the model's own number, or is found from how long calls take upstream. Calls
// beyond it wait for a moment, the newest first, for the oldest has the least time left to make use of its answer; what is
// critical goes before the rest and takes places in the line from it, and what may be shed gets a part of the bound only and
// never waits. Refused calls end as OVERLOADED and are worth sending again.
//
// The stage is inside fallback: a refusal can be answered for, a place is given back before anything stands in for its target,
// and a target that stands in for another has a bound of its own, and its calls their priority.
//
// Models without a bound cost a comparison. A call that finds room costs a lock that is held for some nanoseconds.
package admit

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/readmap"
	"github.com/model-gateway/model-gateway/pkg/stats"
)

// MaxTargets bounds the targets that are counted. Those without calls make room; while all have calls, further ones are
// not bounded.
const MaxTargets = 20_000

// Reason says why a call was refused.
type Reason string

// The reasons.
const (
	Shed   Reason = "shed"    // sheddable calls had their part already
	Full   Reason = "full"    // nobody may wait, or all who may do
	Pushed Reason = "pushed"  // it waited, and its place was taken by a call that is newer or goes before it
	Late   Reason = "timeout" // it waited for as long as it may
)

// Recorder is told of refusals; telemetry.Metrics is one.
type Recorder interface {
	AdmitRefused(t *inference.Target, p inference.Priority, why string)
}

// Stage admits calls. Make it with New.
type Stage struct {
	recorder Recorder
	targets  readmap.Map[stats.Key, *limiter]
	swept    atomic.Int64 // when room was last looked for, unix ns
}

// New makes a stage; the recorder may be nil.
func New(r Recorder) *Stage {
	if r == nil {
		r = nobody{}
	}
	return &Stage{recorder: r}
}

type nobody struct{}

func (nobody) AdmitRefused(*inference.Target, inference.Priority, string) {}

// Wrap runs next for calls that there is room for. It sets the priority of calls where that matters.
func (s *Stage) Wrap(next inference.Handler) inference.Handler {
	return func(ctx context.Context, c *inference.Call) error {
		m := c.Model
		bounded := m.Concurrency.Adaptive || m.Concurrency.Max > 0
		if !bounded && !m.PassPriority {
			return next(ctx, c)
		}
		c.Priority = priorityOf(c)
		if !bounded || c.Target.Absent != nil {
			return next(ctx, c)
		}
		l := s.of(c.Target)
		if l == nil {
			return next(ctx, c)
		}
		// A message of a stream takes no place that one before it may wait for: it could not be sent before that one.
		if err := c.Turn.Wait(ctx); err != nil {
			return fault.Of(err)
		}
		if err := l.enter(ctx, m.Concurrency, c.Priority, c.Latest); err != nil {
			return s.refused(c, err)
		}
		return l.run(ctx, c, next)
	}
}

// of gives the limiter of a target, and makes it; nil where there are too many.
func (s *Stage) of(t *inference.Target) *limiter {
	k := stats.KeyOf(t)
	if l, ok := s.targets.Get(k); ok {
		return l
	}
	if s.targets.Len() >= MaxTargets {
		if now, last := time.Now().UnixNano(), s.swept.Load(); now-last > int64(time.Second) && s.swept.CompareAndSwap(last, now) {
			s.targets.Filter(func(_ stats.Key, l *limiter) bool { return l.busy() })
		}
	}
	return s.targets.GetOrAdd(k, func(size int) (*limiter, bool) {
		if size >= MaxTargets {
			return nil, false
		}
		return &limiter{}, true
	})
}

// refused tells of a call that was not admitted; err is a refusal, or why its context ended.
func (s *Stage) refused(c *inference.Call, err error) error {
	why, ok := err.(refusal) //nolint:errorlint // as enter returns it
	if !ok {
		return fault.Of(err)
	}
	s.recorder.AdmitRefused(c.Target, c.Priority, string(why))
	text := "as many calls to it are under way and wait as may"
	switch Reason(why) {
	case Shed:
		text = "it is busy, and sheddable calls wait for quieter times"
	case Late:
		text = "no other call ended while this one waited"
	case Pushed:
		text = "others went before this call while it waited"
	case Full:
	}
	return fault.New(fault.Overloaded, "target %q of model %q takes no more calls now: %s; try again in a moment", c.Target.Name, c.Target.Asked, text)
}

// refusal is the error of a call that is refused.
type refusal Reason

func (r refusal) Error() string { return string(r) }

// State is what is known of a target.
type State struct {
	Model, Version, Target string // as in its metrics
	InFlight               int
	Waiting                int
	Limit                  int
}

// States reports on all targets that had bounded calls.
func (s *Stage) States() []State {
	var list []State
	s.targets.All(func(k stats.Key, l *limiter) bool {
		state := l.state()
		state.Model, state.Version, state.Target = k.Model, k.Version, k.Target
		list = append(list, state)
		return true
	})
	return list
}
