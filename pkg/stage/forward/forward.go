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

// Stage forwards calls.
type Stage struct {
	Attempts Recorder
}

// Handle sends c and returns when it has been answered or has failed.
func (s Stage) Handle(ctx context.Context, c *inference.Call) error {
	endpoint, err := c.Target.Pool.Pick(c, nil)
	if err != nil {
		return err
	}
	c.Endpoint = endpoint.Name()
	c.Attempts++
	begin := time.Now()
	err = endpoint.Infer(ctx, c)
	took := time.Since(begin)
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
