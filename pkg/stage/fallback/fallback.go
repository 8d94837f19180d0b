// Package fallback answers in place of an outage, where the model declares how: with another target's answer, else with a
// score in the tensors of the model, marked as degraded. It stands in for failures of the way to the model, and, where that
// is declared, for want of room; never for other refusals, bad input or what the caller ended itself, and never once an
// answer has been given. Nothing of the failed target is held while another one is asked.
package fallback

import (
	"context"
	"log/slog"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Messages is what the stage must know of messages: functions of package wire.
type Messages struct {
	// Answer makes the answer of a score. A fault of kind BadTensor or InvalidArgument says that the model would have
	// refused the request; any other, that no score can be the answer. See wire.DegradedAnswer.
	Answer func(c *inference.Call, t inference.Tensors, score float64) (answer inference.Frame, datatype string, err error)
	// Mark marks the answer of another target.
	Mark func(answer *inference.Frame, p inference.Protocol)
}

// Stage answers in place of outages. It must not be copied once it wraps.
type Stage struct {
	Messages Messages
	Log      *slog.Logger // told once of each target that cannot stand in for another; nil is none
	// PassedOver is told of each call to from that to could not answer in its place because its tensors are others; nil:
	// nobody is.
	PassedOver func(from, to *inference.Target)

	told told
}

// reserve is the share of the time for an answer that is kept for the target to be asked next.
const reserve = 0.3

// Wrap runs next, and answers where that fails by what the model's fallback is for. For models without one it costs a
// comparison.
func (s *Stage) Wrap(next inference.Handler) inference.Handler {
	next = present(next)
	return func(ctx context.Context, c *inference.Call) error {
		f := c.Model.Fallback
		if f == nil || (c.Protocol.SpeaksPredict() && !f.Predict) || (!c.Protocol.SpeaksPredict() && !f.V2) {
			return next(ctx, c)
		}
		if !c.Protocol.SpeaksPredict() {
			_ = inference.TensorsOf(c.Model, c.Target) // so that they are known by the time they are needed
		}
		if f.Score == nil || c.Protocol == inference.KServeStream {
			g := s.guard(c, next)
			defer g.free(c)
			g.prepare(c)
			return g.answered(ctx, c, g.attempt(ctx, c))
		}
		err := next(ctx, c) // nothing has to be kept for a score
		if err == nil {
			return nil
		}
		return s.guard(c, next).answered(ctx, c, err)
	}
}

func (s *Stage) guard(c *inference.Call, next inference.Handler) *guard {
	return &guard{stage: s, next: next, chain: c.Model.Fallback, model: c.Model, from: c.Target}
}

// present ends calls to a target that nobody can name now; nothing further in has to know of those.
func present(next inference.Handler) inference.Handler {
	return func(ctx context.Context, c *inference.Call) error {
		if c.Target.Absent != nil {
			return c.Target.Absent
		}
		return next(ctx, c)
	}
}

// guard is one call that has a fallback.
type guard struct {
	stage   *Stage
	next    inference.Handler
	chain   *inference.Fallback
	model   *inference.Model  // the call's own
	from    *inference.Target // likewise
	kept    *kept             // nil where no other target is to be asked
	sink    func(inference.Frame) error
	held    error             // reported in place of the first answer, and not sent
	tensors inference.Tensors // of from, once learnt
	learnt  bool
}

// covers reports whether the fallback is for what err says.
func (g *guard) covers(err error) bool {
	row := fault.Of(err).Kind.Row()
	return g.chain.Outage && row.Outage || g.chain.Overload && row.Overload
}

// prepare gets ready for what may follow the first attempt.
func (g *guard) prepare(c *inference.Call) {
	if g.following(c, g.chain) {
		g.kept = keep(c)
		c.Reserve = reserve
	}
	if c.Sink != nil && (g.kept != nil || c.Protocol == inference.KServeStream) {
		g.sink = c.Sink
		c.Sink = func(answer inference.Frame) error { return g.send(c, answer) }
	}
}

// send passes an answer on. The report of an outage in place of the first answer, as model servers make it in a stream, is
// kept back, and all behind it.
func (g *guard) send(c *inference.Call, answer inference.Frame) error {
	switch {
	case g.held != nil, c.Answers == 1 && c.InBand != nil && g.covers(c.InBand):
		if g.held == nil {
			g.held = c.InBand
		}
		answer.Free()
		return nil
	case c.Degraded != nil && c.Degraded.Target != nil:
		g.stage.Messages.Mark(&answer, c.Protocol)
	}
	return g.sink(answer)
}

// attempt takes c to its target.
func (g *guard) attempt(ctx context.Context, c *inference.Call) error {
	err := g.next(ctx, c)
	if g.held != nil {
		err, g.held = g.held, nil
		c.InBand, c.Answers = nil, 0
	}
	return err
}

// free gives back what the guard holds, and to the call what it changed of it.
func (g *guard) free(c *inference.Call) {
	c.Reserve = 0
	if g.sink != nil {
		c.Sink = g.sink
	}
	if g.kept != nil {
		g.kept.request.Free()
	}
}

// answered ends a call whose first attempt has ended with err.
func (g *guard) answered(ctx context.Context, c *inference.Call, err error) error {
	if err == nil || c.Answers > 0 || ctx.Err() != nil || !g.covers(err) {
		return err
	}
	return g.answer(ctx, c, err)
}

// answer goes through the chain until one answers. cause is the fault that it stands in for, and stays the call's where
// none does.
func (g *guard) answer(ctx context.Context, c *inference.Call, cause error) error {
	for step := g.chain; step != nil; step = step.Else {
		if step.Score != nil {
			return g.score(c, *step.Score, cause)
		}
		model, target := g.pick(c, step)
		if target == nil {
			continue
		}
		if !g.fits(c, model, target) {
			if g.stage.PassedOver != nil {
				g.stage.PassedOver(g.from, target)
			}
			continue
		}
		c.Reserve = 0
		if g.following(c, step.Else) {
			c.Reserve = reserve
		}
		err := g.ask(ctx, c, model, target, cause)
		if err == nil {
			return nil
		}
		c.Degraded = nil
		if c.Answers > 0 || ctx.Err() != nil || (model == g.model && mistaken(err)) {
			g.restore(c) // whoever was asked last: the failure is that of the call's own target
			return err
		}
	}
	g.restore(c)
	return cause
}

// score answers with a score.
func (g *guard) score(c *inference.Call, score float64, cause error) error {
	g.restore(c)
	answer, datatype, err := g.stage.Messages.Answer(c, inference.TensorsOf(c.Model, c.Target), score)
	switch {
	case err != nil && mistaken(err):
		return err
	case err != nil:
		return cause
	}
	c.Header, c.Trailer, c.AnswerType = nil, nil, datatype
	c.Degraded = &inference.Degraded{Cause: cause, From: g.from, Score: score}
	return c.Send(answer)
}

// mistaken reports whether err says that the request is wrong.
func mistaken(err error) bool {
	k := fault.Of(err).Kind
	return k == fault.BadTensor || k == fault.InvalidArgument
}
