// Package split decides which target answers a call: the version that the caller pins, else what the model's rules
// say, else its stable target. Every call leaves with a version pinned, so that a version that becomes ready on the
// upstream takes no traffic by itself.
package split

import (
	"context"
	"strconv"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Stage chooses targets.
type Stage struct{}

// Wrap sets c.Target and c.Pinned.
func (Stage) Wrap(next inference.Handler) inference.Handler {
	return func(ctx context.Context, c *inference.Call) (err error) {
		version, err := ParseVersion(c.Head.Version)
		if err != nil {
			return err
		}
		switch {
		case version != "":
			c.Pinned = true
			c.Target, err = c.Model.Pin(ctx, version)
		case c.Model.Stable != nil:
			c.Target = c.Model.Stable
		default:
			c.Target, err = c.Model.Choose()
		}
		if err != nil {
			return err
		}
		return next(ctx, c)
	}
}

// ParseVersion reads a version as clients send it: "" and "0" leave the choice to the gateway and give "",
// a positive number gives its plain decimal form, anything else is a fault BadVersion.
func ParseVersion(v string) (string, error) {
	if v == "" || v == "0" {
		return "", nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 || v[0] == '+' {
		return "", fault.New(fault.BadVersion, "model_version %s is not a version; use a number above 0, or leave it empty for the model's default", strconv.QuoteToASCII(clip(v)))
	}
	if n == 0 {
		return "", nil
	}
	if v[0] == '0' {
		return strconv.FormatInt(n, 10), nil
	}
	return v, nil
}

func clip(s string) string { return s[:min(len(s), 64)] }
