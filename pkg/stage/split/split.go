// Package split decides which target answers a call: the version that the caller pins, else what the model's rules
// say, else its stable target. Every call leaves with a version pinned, so that a version that becomes ready on the
// upstream takes no traffic by itself.
package split

import (
	"context"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Stage chooses targets.
type Stage struct{}

// Wrap sets c.Target and c.Pinned.
func (Stage) Wrap(next inference.Handler) inference.Handler {
	return func(ctx context.Context, c *inference.Call) (err error) {
		version, ok := inference.ParseVersion(c.Head.Version)
		if !ok {
			return fault.NotAVersion(c.Head.Version)
		}
		switch {
		case version != "":
			c.Pinned = true
			c.Target, err = c.Model.Pin(ctx, version)
		case c.Model.Stable != nil:
			c.Target = c.Model.Stable
		default:
			c.Target, err = c.Model.Choose(ctx)
		}
		if err != nil {
			return err
		}
		return next(ctx, c)
	}
}
