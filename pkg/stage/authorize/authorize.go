// Package authorize lets a caller do only what the configuration's rules grant it. It asks by the name the caller sent,
// before anybody has looked for such a model: a refusal tells nothing of which models there are, not even by the time it
// takes, and a stranger's names never cost a question to an upstream.
package authorize

import (
	"context"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Access decides. Its faults are what the client is told: that a rule is missing, or that there is no such model.
type Access interface {
	// Check refuses a caller that may not do kind on a model. A nil caller is nobody.
	Check(caller *inference.Caller, model string, kind inference.Kind) error
	// CheckKind refuses a caller that may do kind on no model at all.
	CheckKind(caller *inference.Caller, kind inference.Kind) error
}

// Stage authorizes calls.
type Stage struct {
	Access Access
	// Declared finds a declared model without asking anybody, so that refusals are counted under its name; nil when
	// there is none. It may be nil itself.
	Declared func(name string) *inference.Model
}

// Wrap authorizes inferences: every unary request, and every message of a stream, each of which names its own model.
func (s Stage) Wrap(next inference.Handler) inference.Handler {
	return func(ctx context.Context, c *inference.Call) error {
		if c.Head.Model == "" {
			return fault.New(fault.InvalidArgument, "model_name is empty; name the model to call")
		}
		if err := s.Access.Check(c.Caller, c.Head.Model, inference.Infer); err != nil {
			if c.Model == nil && s.Declared != nil {
				c.Model = s.Declared(c.Head.Model)
			}
			return err
		}
		return next(ctx, c)
	}
}

// Question authorizes calls that are not inferences, by their kind. Questions about models pass: whoever answers them
// shows each caller only what it may see, and controls only what it may.
func (s Stage) Question(next inference.Handler) inference.Handler {
	return func(ctx context.Context, c *inference.Call) error {
		if c.Kind != inference.Metadata {
			if err := s.Access.CheckKind(c.Caller, c.Kind); err != nil {
				return err
			}
		}
		return next(ctx, c)
	}
}
