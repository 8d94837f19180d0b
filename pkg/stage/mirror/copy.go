package mirror

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
)

// Header marks copies toward the upstream, so that they can be told apart in its logs. Clients cannot send it: it begins
// as all metadata does that inject leaves out.
const Header = "x-gateway-mirror"

// Mark sets Header. It stands behind inject.
func Mark(next inference.Handler) inference.Handler {
	return func(ctx context.Context, c *inference.Call) error {
		if c.Outgoing == nil {
			c.Outgoing = make(map[string][]string, 1)
		}
		c.Outgoing[Header] = []string{"1"}
		return next(ctx, c)
	}
}

// duplicate is a copy of a call, and the answer that it is to be compared with.
type duplicate struct {
	call       inference.Call
	answered   *inference.Target // by which the caller's answer was given
	answer     inference.Frame
	answerType string // datatype, see Call.AnswerType
	wrapped    bool   // answer is a ModelStreamInferResponse
	size       int64  // bytes held for it
}

// free gives back what the copy holds.
func (d *duplicate) free() {
	d.call.Free()
	d.answer.Free()
}

// offer makes a copy of c and puts it in the queue, or counts it as dropped. It never waits, and a panic in it is not c's.
func (s *Stage) offer(c *inference.Call, m *inference.Mirror, k *kept) {
	defer func() {
		if p := recover(); p != nil {
			s.panicked(c, p)
		}
	}()
	d := &duplicate{answered: c.Target, answerType: c.AnswerType, size: int64(k.request.Len() + 2*k.answer.Len())}
	d.call = inference.Call{
		Protocol: c.Protocol, Method: c.Method, Start: c.Start, Peer: c.Peer, Address: c.Address, Incoming: k.incoming, Head: c.Head,
		Identity: c.Identity, Model: c.Model, Target: m.To, Priority: c.Priority,
	}
	switch c.Protocol { // messages of streams are copied to unary calls, which need no stream of their own
	case inference.PredictStream:
		d.call.Protocol = inference.Predict
	case inference.KServeStream:
		d.call.Protocol, d.wrapped = inference.KServe, true
	default:
	}
	d.call.Request, d.answer = k.request, k.answer
	k.request, k.answer = inference.Frame{}, inference.Frame{}
	s.Recorder.MirrorHeld(1)
	if !s.queue.add(d) {
		s.drop(d)
	}
}

// drop ends a copy that was not sent.
func (s *Stage) drop(d *duplicate) {
	d.free()
	s.Recorder.MirrorHeld(-1)
	s.Recorder.Mirrored(d.call.Target, telemetry.MirrorDropped)
}

// run sends one copy and compares its answer.
func (s *Stage) run(d *duplicate) {
	defer s.Recorder.MirrorHeld(-1)
	defer func() {
		if p := recover(); p != nil { // who holds its frames is not known any more, so they are left to the collector
			s.panicked(&d.call, p)
			s.Recorder.Mirrored(d.call.Target, telemetry.MirrorFailed)
		}
	}()
	if d.call.Protocol.SpeaksPredict() || !s.Messages.SharedMemory(d.call.Request) {
		s.send(d)
	}
	d.free()
}

func (s *Stage) send(d *duplicate) {
	c := &d.call
	limit := s.Timeout
	if most := c.Model.Timeouts.Max; most > 0 {
		limit = min(limit, most)
	}
	c.Start = time.Now()
	c.Deadline = c.Start.Add(limit)
	ctx, cancel := context.WithDeadlineCause(s.ctx, c.Deadline, fault.New(fault.UpstreamTimeout, "the mirror target did not answer within %s", limit))
	defer cancel()
	err := s.Send(ctx, c)
	if err == nil {
		err = c.InBand
	}
	if err != nil && s.ctx.Err() != nil {
		s.Recorder.Mirrored(c.Target, telemetry.MirrorDropped) // the gateway stops
		return
	}
	var diff inference.Difference
	if err == nil {
		diff, err = s.compare(d)
	}
	if err != nil {
		s.Recorder.Mirrored(c.Target, telemetry.MirrorFailed)
		s.logFailure(d, err)
		return
	}
	s.Recorder.Mirrored(c.Target, diff.Kind.String())
	s.Recorder.MirrorDifference(c.Target, &diff)
	if diff.Kind != inference.Same {
		s.logDifference(d, &diff)
	}
}

// compare tells how the answer to the copy differs from the caller's. A malformed answer of either is an error.
func (s *Stage) compare(d *duplicate) (inference.Difference, error) {
	c := &d.call
	if c.Answers != 1 {
		return inference.Difference{}, fault.New(fault.UpstreamFailed, "the mirror target gave %d answers instead of one", c.Answers)
	}
	if c.Protocol.SpeaksPredict() {
		return s.Messages.ComparePredict(d.answer, c.Answer, d.answerType, c.AnswerType)
	}
	if d.wrapped {
		if err := s.Messages.Unwrap(&d.answer); err != nil {
			return inference.Difference{}, err
		}
	}
	var tensors inference.Tensors
	if c.Model.Tensors != nil {
		tensors = *c.Model.Tensors
	}
	return s.Messages.CompareInfer(d.answer, c.Answer, tensors)
}

func (s *Stage) panicked(c *inference.Call, p any) {
	s.Recorder.Panicked()
	s.Log.Error("mirroring a call panicked", telemetry.AttrRequestID, c.RequestID,
		telemetry.AttrPanic, fmt.Sprint(p), telemetry.AttrStack, string(debug.Stack()))
}
