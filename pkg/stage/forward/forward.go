// Package forward sends a call: it asks the target's pool for an endpoint and writes down how the attempt went.
// It is the last stage; what an attempt was like upstream is recorded here, what the client saw by observe.
package forward

import (
	"context"
	"errors"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/stats"
)

// Recorder is told of every attempt on an endpoint.
type Recorder interface {
	Attempt(c *inference.Call, target *inference.Target, endpoint string, outcome stats.Outcome, took time.Duration)
}

// Stage forwards calls. It must not be copied once it is used.
type Stage struct {
	Attempts Recorder
	Retries  Retries                 // nil: nobody is told
	Full     func(*inference.Target) // told of each call that no endpoint had room for; nil: nobody is
	Once     bool                    // calls are never tried again

	budgets budgets
}

// Retries is told of further attempts; telemetry.Metrics is one.
type Retries interface {
	// Retried counts a further attempt of a call, after a fault of kind.
	Retried(target *inference.Target, kind fault.Kind)
	// RetryRefused counts one that the budget did not allow.
	RetryRefused(target *inference.Target, kind fault.Kind)
}

// Handle sends c and returns when it has been answered or has failed. What fails on one endpoint and may do better
// elsewhere is tried on another, as the model's policy says.
func (s *Stage) Handle(ctx context.Context, c *inference.Call) error {
	err := s.handle(ctx, c)
	if err != nil && s.Full != nil && noRoom(err) {
		s.Full(c.Target)
	}
	return err
}

func (s *Stage) handle(ctx context.Context, c *inference.Call) error {
	endpoint, err := c.Target.Pool.Pick(c, nil)
	if noRoom(err) && c.Stream != nil && c.Turn.Wait(ctx) == nil {
		endpoint, err = c.Target.Pool.Pick(c, nil) // it may have been the message before this one that took the last place
	}
	if err != nil {
		return err
	}
	begun := c.Attempts
	again := !s.Once && c.Model.Retry.Attempts > 1
	if again {
		s.budgets.of(c.Target.Pool).put(c.Model.Retry.Budget)
	}
	endpoint, err = s.attempt(ctx, c, endpoint, nil)
	if err == nil || !again {
		return err
	}
	return s.elsewhere(ctx, c, endpoint, err, begun)
}

// elsewhere tries c on other endpoints than the first one, which failed with err. When there is no other, or no attempt
// is left, the last failure is the call's.
func (s *Stage) elsewhere(ctx context.Context, c *inference.Call, first inference.Endpoint, err error, begun int) error {
	tried := []inference.Endpoint{first}
	for c.Attempts-begun < c.Model.Retry.Attempts && mayRetry(c, err) {
		if _, none := c.Target.Pool.Pick(c, tried); none != nil {
			return err
		}
		free := len(tried) == 1 && outsideBudget(fault.Of(err))
		if !free && !s.afford(c, err) {
			return err
		}
		var next inference.Endpoint
		none := errGone
		if wait(ctx) {
			next, none = c.Target.Pool.Pick(c, tried)
		}
		if none != nil {
			if !free {
				s.budgets.of(c.Target.Pool).put(1)
			}
			return err
		}
		if s.Retries != nil {
			s.Retries.Retried(c.Target, fault.Of(err).Kind)
		}
		next, now := s.attempt(ctx, c, next, tried)
		switch {
		case now == nil:
			return nil
		case noRoom(now): // it was no attempt after all; what failed before says more
			if !free {
				s.budgets.of(c.Target.Pool).put(1)
			}
			return err
		}
		tried, err = append(tried, next), now
	}
	return err
}

// places is how many endpoints may turn out to be full just when a call comes, before it is refused.
const places = 8

// noRoom reports whether an endpoint, or a pool of them, refused a call for want of room, and has done nothing with it.
func noRoom(err error) bool { return err != nil && fault.Of(err).Kind == fault.Overloaded }

// attempt sends c to endpoint. When that has no room any more by the time the call comes, it goes to another one that has,
// other than those in not; a step of a sequence, which has but one place to go to, does not. It says where c went.
func (s *Stage) attempt(ctx context.Context, c *inference.Call, endpoint inference.Endpoint, not []inference.Endpoint) (inference.Endpoint, error) {
	for n := 1; ; n++ {
		err := s.send(ctx, c, endpoint)
		if !noRoom(err) || n == places || c.Head.Sequence.ID != "" {
			return endpoint, err
		}
		next, none := c.Target.Pool.Pick(c, not)
		if none != nil {
			return endpoint, err // there was no room; that the others have gone since says less
		}
		endpoint = next
	}
}

// send sends c to one endpoint and writes down how that went.
func (s *Stage) send(ctx context.Context, c *inference.Call, endpoint inference.Endpoint) error {
	before := c.Endpoint
	c.Endpoint = endpoint.Name()
	c.Attempts++
	begin, sending := time.Now(), c.SendIn
	err := endpoint.Infer(ctx, c)
	if noRoom(err) { // it was no attempt
		c.Endpoint, c.Attempts = before, c.Attempts-1
		return err
	}
	took := time.Since(begin) - (c.SendIn - sending) // a client that takes its time, or an answer that must wait its turn, tells nothing of the target
	c.UpstreamIn += took
	err = blame(ctx, err)
	failed := err
	if failed == nil {
		failed = c.InBand // answered, with the report of a failure
	}
	s.Attempts.Attempt(c, c.Target, c.Endpoint, stats.OutcomeOf(failed), took)
	return err
}

// blame gives a timeout or cancellation to whom it belongs: the deadline stage leaves a fault as the
// cause of the context's end, and a client that went away leaves Canceled.
func blame(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	cause := context.Cause(ctx)
	if f := fault.Of(err); f.Kind != fault.Deadline && f.Kind != fault.Cancelled && f.Kind != fault.UpstreamTimeout {
		return err // it failed by itself before the time was up
	}
	if errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
		return fault.Of(cause)
	}
	return cause
}
