// Package deadline bounds the time a call may take upstream: the caller's own deadline or the model's timeout,
// whichever is sooner. What is sent upstream leaves a margin, so that an answer made here still reaches the caller.
//
// Messages of a stream and calls without a timeout keep the caller's deadline only: how long an answer of a stream
// may take is watched message by message where it is sent.
package deadline

import (
	"context"
	"sync"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

const (
	minMargin   = 5 * time.Millisecond
	marginShare = 20 // the margin is at least 1/marginShare of what remains
)

// Stage sets deadlines.
type Stage struct{}

// Wrap runs next under the deadline, whose context ends with a fault as its cause: Deadline when the caller's own
// deadline set it, UpstreamTimeout when the model's timeout did. Blame follows from that.
func (Stage) Wrap(next inference.Handler) inference.Handler {
	return func(ctx context.Context, c *inference.Call) error {
		now := time.Now()
		callers, has := ctx.Deadline()
		if has && !callers.After(now) {
			return fault.New(fault.Expired, "the deadline had passed when the call arrived; nothing was sent to the model")
		}
		limit := c.Model.Timeouts.Max
		if c.Stream != nil {
			limit = 0 // watched answer by answer
		}
		if limit <= 0 && !has {
			return next(ctx, c)
		}
		start := c.Start
		if c.Degraded != nil {
			start = now // another target's turn, within what the first one has left
		}
		var cause *fault.Fault
		c.Deadline, cause = sooner(now, start, callers, has, limit)
		if left := c.Deadline.Sub(now); c.Reserve > 0 && left > 0 {
			c.Deadline = c.Deadline.Add(-time.Duration(c.Reserve * float64(left)))
		}
		ctx, cancel := context.WithDeadlineCause(ctx, c.Deadline, cause)
		defer cancel()
		return next(ctx, c)
	}
}

var byCaller = fault.New(fault.Deadline, "the model did not answer within the caller's deadline")

// sooner gives the instant at which the upstream must have answered, and the fault if it has not.
func sooner(now, start, callers time.Time, has bool, limit time.Duration) (time.Time, *fault.Fault) {
	if has {
		left := callers.Sub(now)
		mine := callers.Add(-min(max(minMargin, left/marginShare), left/2))
		if limit <= 0 || mine.Before(start.Add(limit)) {
			return mine, byCaller
		}
	}
	return start.Add(limit), byModel(limit)
}

var byModels sync.Map // time.Duration → *fault.Fault; as many as there are timeouts in configurations

// byModel is the fault of a model that took longer than limit. It is made once for each limit, not for each call.
func byModel(limit time.Duration) *fault.Fault {
	if f, ok := byModels.Load(limit); ok {
		return f.(*fault.Fault)
	}
	f, _ := byModels.LoadOrStore(limit, fault.New(fault.UpstreamTimeout,
		"the model did not answer within its timeout of %s; try again, or ask the operator to raise timeout.max", limit))
	return f.(*fault.Fault)
}
