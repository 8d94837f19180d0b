// Package resolve turns a model_name into the model it means, once per call: everything after it works on that
// one immutable value, even when the configuration changes meanwhile.
package resolve

import (
	"context"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Catalog finds a model by the name clients use. Unknown names are a fault ModelNotFound.
type Catalog interface {
	Model(ctx context.Context, name string) (*inference.Model, error)
	// Unanswered gives what stands for a model of which Model could not find out, for why, whether there is one: with it
	// the call goes on, and may get a fallback. nil when the call ends with why.
	Unanswered(why error) *inference.Model
}

// Stage resolves calls.
type Stage struct {
	Catalog Catalog
}

// Wrap resolves c.Head.Model into c.Model.
func (s Stage) Wrap(next inference.Handler) inference.Handler {
	return func(ctx context.Context, c *inference.Call) error {
		if c.Head.Model == "" {
			return fault.New(fault.InvalidArgument, "model_name is empty; name the model to call")
		}
		m, err := s.Catalog.Model(ctx, c.Head.Model)
		if err != nil {
			if m = s.Catalog.Unanswered(err); m == nil {
				return err
			}
		}
		c.Model = m
		return next(ctx, c)
	}
}
