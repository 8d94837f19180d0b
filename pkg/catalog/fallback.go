package catalog

import (
	"context"

	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// fallback compiles a chain but for the models in it, which link adds.
func fallback(declared *config.Fallback, target func(name string) *inference.Target) *inference.Fallback {
	if declared == nil {
		return nil
	}
	f := &inference.Fallback{
		Else: fallback(declared.Else, target), Score: declared.Score,
		Predict: declared.Predict, V2: declared.V2, Outage: declared.Outage, Overload: declared.Overload,
	}
	if declared.To != "" {
		f.To = target(declared.To)
	}
	return f
}

// link puts other models into the chain of one.
func (s *Snapshot) link(declared *config.Model) {
	f := s.models[declared.Name].Fallback
	for d := declared.Fallback; d != nil; d, f = d.Else, f.Else {
		if d.Model != "" {
			f.Model = s.models[d.Model]
		}
	}
}

// Unanswered gives what stands for a model of which nobody could say whether there is one, because of why: it has no
// target, and the fallback of models that pass through. nil when why is no outage, or there is no such fallback.
func (c *Catalog) Unanswered(why error) *inference.Model {
	cfg := c.snapshot.Load().Config
	if cfg.Fallback == nil || !fault.Of(why).Kind.Row().Outage {
		return nil
	}
	nowhere := inference.Nowhere("", why)
	return &inference.Model{
		Timeouts: cfg.Defaults, Fallback: cfg.Fallback, Stable: nowhere,
		Named: func(string) *inference.Target { return nil },
		Pin:   func(context.Context, string) (*inference.Target, error) { return nowhere, nil },
	}
}
