package fallback

import (
	"context"
	"maps"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// kept is what another target must get as the first one got it: stages further in change the request, and its metadata
// where it is not a stream's, in place.
type kept struct {
	request  inference.Frame // references of its own
	incoming map[string][]string
	choice   inference.Choice
}

func keep(c *inference.Call) *kept {
	k := &kept{request: c.Request.Ref(), incoming: c.Incoming, choice: c.Choice}
	if c.Stream == nil {
		k.incoming = maps.Clone(c.Incoming)
	}
	return k
}

// following reports whether a target is asked in the chain from step on.
func (g *guard) following(c *inference.Call, step *inference.Fallback) bool {
	for ; step != nil; step = step.Else {
		if model, t := g.pick(c, step); t != nil && g.fits(c, model, t) {
			return true
		}
	}
	return false
}

// pick gives the target of a step and its model, by what is known; nil for one that c must not go to: it names its version
// itself, is a step of a sequence whose state is elsewhere, or comes from there.
func (g *guard) pick(c *inference.Call, step *inference.Fallback) (*inference.Model, *inference.Target) {
	if step.To == nil && step.Model == nil || c.Pinned || c.Head.Sequence != (inference.Sequence{}) {
		return nil, nil
	}
	model, target := g.model, step.To
	if step.Model != nil {
		if model, target = step.Model, step.Model.Stable; target == nil && model.Current != nil {
			target = model.Current()
		}
	}
	if target == nil || same(target, g.from) {
		return nil, nil
	}
	return model, target
}

// same reports whether two targets are one version of a model.
func same(a, b *inference.Target) bool {
	return a == b || a.Upstream == b.Upstream && a.Model == b.Model && a.Version == b.Version
}

// ask takes c, as it came, to another target, within the time that the first one has left. When it is answered it is
// degraded: the answer is a model's, but not the one that the call was for.
func (g *guard) ask(ctx context.Context, c *inference.Call, model *inference.Model, target *inference.Target, cause error) error {
	if limit := g.model.Timeouts.Max; limit > 0 && c.Stream == nil {
		c.Latest = c.Start.Add(limit) // not a deadline of ctx, which would pass for the caller's
	}
	c.Request.Free()
	c.Request, c.Rewritten = g.kept.request.Ref(), nil
	c.Incoming, c.Outgoing = g.kept.incoming, nil
	if c.Stream == nil {
		c.Incoming = maps.Clone(g.kept.incoming)
	}
	c.Header, c.Trailer, c.AnswerType, c.InBand, c.Decoupled = nil, nil, "", nil, false
	c.Model, c.Target, c.Choice = model, target, inference.Choice{By: inference.ByFallback}
	c.Degraded = &inference.Degraded{Cause: cause, From: g.from, Target: target}
	err := g.attempt(ctx, c)
	c.Model, c.Latest = g.model, time.Time{} // for stages further out
	if err == nil && c.Sink == nil {
		g.stage.Messages.Mark(&c.Answer, c.Protocol)
	}
	return err
}

// restore makes c what it was before others were asked, but for what its request has become.
func (g *guard) restore(c *inference.Call) {
	c.Model, c.Target = g.model, g.from
	if g.kept != nil {
		c.Choice = g.kept.choice
	}
}
