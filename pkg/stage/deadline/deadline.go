// Package deadline bounds the time a call may take upstream: the caller's own deadline, the model's timeout, or the
// target's dynamic one, whichever is soonest. What is sent upstream leaves a margin, so that an answer made here still
// reaches the caller; what cannot be answered in the time that is left is not sent.
//
// A dynamic timeout follows from how long a target lately took: by one question to Prometheus for all targets, else by
// what this gateway has seen (Table). When neither tells, the model's timeout holds; no call waits for either.
//
// Messages of a stream and calls without a timeout keep the caller's deadline only: how long an answer of a stream
// may take is watched message by message where it is sent. A step of a sequence is given the time for a first answer.
// A target that is asked in another's place has what is left of that one's time (Call.Latest), and is late when that is
// over as it is when its own timeout is.
package deadline

import (
	"context"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

const (
	minMargin   = 5 * time.Millisecond
	marginShare = 20 // the margin is at least 1/marginShare of what remains
)

// Stage sets deadlines.
type Stage struct {
	Table *Table  // dynamic timeouts; nil: there are none
	Calls Refused // nil: nobody is told
}

// Refused is told of calls that were not sent; telemetry.Metrics is one.
type Refused interface {
	// Doomed counts a call that target could not have answered in time.
	Doomed(target *inference.Target)
}

// Wrap runs next under the deadline, whose context ends with a fault as its cause: Deadline when the caller's own
// deadline set it, UpstreamTimeout when the model's or the target's timeout did. Blame follows from that.
func (s Stage) Wrap(next inference.Handler) inference.Handler {
	return func(ctx context.Context, c *inference.Call) error {
		now := time.Now()
		callers, has := ctx.Deadline()
		if has && !callers.After(now) {
			return fault.New(fault.Expired, "the deadline had passed when the call arrived; nothing was sent to the model")
		}
		limit := s.bound(c)
		ours := !c.Latest.IsZero() // set by a stage of ours
		if has {
			if err := s.doomed(c, callers.Sub(now), limit.least, ofCaller); err != nil {
				return err
			}
		}
		if ours {
			if err := s.doomed(c, c.Latest.Sub(now), limit.least, ofFirst); err != nil {
				return err
			}
		}
		if !has && !ours && limit.after <= 0 {
			return next(ctx, c)
		}
		start := c.Start
		if c.Degraded != nil {
			start = now // another target's turn, within what the first one has left
		}
		var cause *fault.Fault
		c.Deadline, cause = sooner(now, callers, has, limit.from(start, c.Latest))
		if left := c.Deadline.Sub(now); c.Reserve > 0 && left > 0 {
			c.Deadline = c.Deadline.Add(-time.Duration(c.Reserve * float64(left)))
		}
		ctx, cancel := context.WithDeadlineCause(ctx, c.Deadline, cause)
		defer cancel()
		return next(ctx, c)
	}
}

// bound is how long a call may take upstream, whatever its caller says.
type bound struct {
	after time.Duration // 0: any time
	cause *fault.Fault  // of a call that took longer
	least time.Duration // no call is answered within; 0: not known
}

// bound gives that of c. It costs an atomic load and a look-up.
func (s Stage) bound(c *inference.Call) bound {
	t := &c.Model.Timeouts
	if c.Stream != nil {
		return bound{} // watched answer by answer
	}
	if c.Head.Sequence.ID != "" {
		if t.FirstAnswer > 0 && (t.Max <= 0 || t.FirstAnswer < t.Max) {
			return bound{after: t.FirstAnswer, cause: byFirst.of(t.FirstAnswer)}
		}
		return bound{after: t.Max, cause: byModel.of(t.Max)}
	}
	b := bound{after: t.Max}
	if e := s.Table.of(c.Target); e != nil {
		b.least = e.least
		if e.after > 0 && e.after < t.Max && t.Dynamic.Factor > 0 && !t.Dynamic.Shadow {
			b.after, b.cause = e.after, e.cause
			return b
		}
	}
	b.cause = byModel.of(t.Max)
	return b
}

// instant is when a call must have been answered, whatever its caller says, and the fault if it has not.
type instant struct {
	at    time.Time // zero: nothing says so
	cause *fault.Fault
}

// from gives the instant of a call that began at start, and is to be over by latest where that is not zero.
func (b *bound) from(start, latest time.Time) instant {
	var i instant
	if b.after > 0 {
		i = instant{start.Add(b.after), b.cause}
	}
	if !latest.IsZero() && (b.after <= 0 || latest.Before(i.at)) {
		i = instant{latest, byRest}
	}
	return i
}

// sooner gives the instant at which the upstream must have answered, and the fault if it has not.
func sooner(now, callers time.Time, has bool, ours instant) (time.Time, *fault.Fault) {
	if has {
		left := callers.Sub(now)
		mine := callers.Add(-min(max(minMargin, left/marginShare), left/2))
		if ours.at.IsZero() || mine.Before(ours.at) {
			return mine, byCaller
		}
	}
	return ours.at, ours.cause
}

// tooShort is what no model is asked for: on the way there and back it is gone.
const tooShort = time.Millisecond

// Whose time a doomed call has too little of, and what helps.
type whose struct{ time, remedy string }

var (
	ofCaller = whose{"the caller's deadline", "Give calls more time"}
	ofFirst  = whose{"the timeout of the model in whose place this one is asked", "Raise its timeout.max"}
)

// doomed refuses a call that has so little time left that its target could not answer: sending it would cost the model as
// much as a call that somebody waits for. It is no failure of the target, which has not been asked.
func (s Stage) doomed(c *inference.Call, left, least time.Duration, of whose) error {
	if c.Stream != nil || left > tooShort && left >= least {
		return nil
	}
	if s.Calls != nil && c.Target != nil {
		s.Calls.Doomed(c.Target)
	}
	if left > tooShort {
		return fault.New(fault.Deadline, "%s were left of %s, and the model's quickest answers lately took %s; nothing was sent to it. %s",
			left.Round(100*time.Microsecond), of.time, (least * leastShare).Round(100*time.Microsecond), of.remedy)
	}
	return fault.New(fault.Deadline, "%s were left of %s, too little to ask the model; nothing was sent to it. %s", max(left, 0).Round(10*time.Microsecond), of.time, of.remedy)
}
