package gateway

import (
	"context"
	"fmt"
	"slices"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/stage/identify"
)

// stages lists what happens to a call, outermost first; forward, which sends it, comes last of all. What is not
// built yet has its place here, so that it is clear what each stage may rely on.
func (g *Gateway) stages() []inference.Stage {
	return []inference.Stage{
		{Name: "observe", Wrap: g.observe.Wrap, Open: g.observe.Open},                // a panic becomes a fault; sees every refusal below
		{Name: "ids", Wrap: identify.IDs{}.Wrap, Open: identify.IDs{}.Open},          // request id and trace, so that every refusal has them
		{Name: "door", Wrap: g.door.Wrap, Open: g.door.Open},                         // the client's address and its limit, before any credential is looked at
		{Name: "identify", Wrap: g.identify.Wrap, Open: g.identify.Open},             // who asks: caller and user
		{Name: "read", Wrap: identify.Message{}.Wrap, After: []string{"identify"}},   // the message, now that its sender is known
		{Name: "authorize", Wrap: g.authorize.Wrap, After: []string{"read"}},         // may this caller use this name; before anybody looks for it
		{Name: "resolve", Wrap: g.resolve.Wrap, After: []string{"authorize"}},        // model_name → model, once for the whole call
		{Name: "limit", Wrap: g.limit.Wrap, After: []string{"authorize", "resolve"}}, // a stranger must not drain a bucket
		{Name: "split", Wrap: g.split.Wrap, After: []string{"resolve"}},              // which target: pinned version, rules, stable
		{Name: "mirror", Wrap: g.mirror.Wrap, After: []string{"limit", "split"}},     // a copy elsewhere once the call is over: neither limited nor waited for
		// What is below runs once for each target that is asked.
		{Name: "fallback", Wrap: newFallback(g.log, g.metrics).Wrap, After: []string{"limit", "split"}}, // a declared answer in place of an outage, and of want of room where that is declared
		{Name: "admit", Wrap: g.admit.Wrap, After: []string{"split", "fallback"}},                       // as many calls as the target can do; others wait a moment, or are refused
		// enrich: features joined in (after admit; another model may want others)
		{Name: "breaker", Wrap: g.breaker.Wrap, After: []string{"split", "fallback"}},  // one per target; what it refuses is an outage for fallback
		{Name: "deadline", Wrap: g.deadline.Wrap, After: []string{"resolve", "split"}}, // bounds the time upstream, and says whose time it was
		{Name: "inject", Wrap: g.inject.Wrap, After: []string{"identify", "split"}},    // metadata for the upstream
	}
}

// questionStages lists what happens to a call that is not an inference (metadata, repository, ...).
func (g *Gateway) questionStages() []inference.Stage {
	return []inference.Stage{
		{Name: "observe", Wrap: g.observe.Wrap},
		{Name: "ids", Wrap: identify.IDs{}.Wrap},
		{Name: "door", Wrap: g.door.Wrap},
		{Name: "identify", Wrap: g.identify.Wrap},
		{Name: "authorize", Wrap: g.authorize.Question}, // is this caller granted this kind of call
		{Name: "limit", Wrap: g.limit.Question},         // the limits that span models; a question costs one
		{Name: "read", Wrap: identify.Message{}.Wrap},
	}
}

// healthStages lists what happens to a question whether the gateway is live or ready: no limit refuses it.
func (g *Gateway) healthStages() []inference.Stage {
	return slices.DeleteFunc(g.questionStages(), func(s inference.Stage) bool { return s.Name == "door" || s.Name == "limit" })
}

// pipeline is the list compiled: one handler for each way through it.
type pipeline struct {
	do       inference.Handler // a call: all stages
	opens    []inference.Stage // what a stream goes through once
	refusals []inference.Stage // what a call goes through that could not be read
}

// compile checks the order of stages and folds them around forward.
func compile(stages []inference.Stage, forward inference.Handler) (*pipeline, error) {
	seen := make(map[string]bool, len(stages))
	p := &pipeline{}
	for _, s := range stages {
		for _, before := range s.After {
			if !seen[before] {
				return nil, fmt.Errorf("pipeline: stage %q needs %q further out", s.Name, before)
			}
		}
		if seen[s.Name] {
			return nil, fmt.Errorf("pipeline: stage %q is there twice", s.Name)
		}
		seen[s.Name] = true
		if s.Open != nil {
			p.opens = append(p.opens, inference.Stage{Name: s.Name, Wrap: s.Open})
			if !seen["door"] { // those before the first that may refuse itself
				p.refusals = append(p.refusals, s)
			}
		}
	}
	p.do = fold(stages, forward)
	return p, nil
}

// fold wraps stages around last, the first of them outermost.
func fold(stages []inference.Stage, last inference.Handler) inference.Handler {
	h := last
	for i := len(stages) - 1; i >= 0; i-- {
		h = stages[i].Wrap(h)
	}
	return h
}

// Do takes a unary call through all stages.
func (p *pipeline) Do(ctx context.Context, c *inference.Call) error { return p.do(ctx, c) }

// Message takes a message of a stream through all stages.
func (p *pipeline) Message(ctx context.Context, c *inference.Call) error { return p.do(ctx, c) }

// Open runs body inside the stages that see a stream once.
func (p *pipeline) Open(ctx context.Context, c *inference.Call, body inference.Handler) error {
	return fold(p.opens, body)(ctx, c)
}

// Refuse takes a call that could not be read through the stages that count it and give it its ids.
func (p *pipeline) Refuse(ctx context.Context, c *inference.Call, err error) error {
	return fold(p.refusals, func(context.Context, *inference.Call) error { return err })(ctx, c)
}
