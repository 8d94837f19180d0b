// Package inject makes the metadata that goes upstream: the client's own, without what is between two hops or
// reserved, and the ids that all hops log.
package inject

import (
	"context"
	"maps"
	"net/url"
	"strings"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// TraceParent says when an upstream gets the caller's trace context. A Triton in OpenTelemetry mode traces every
// request that carries one, sampled or not.
type TraceParent uint8

// When traceparent is sent.
const (
	Sampled TraceParent = iota // only for calls whose trace is sampled
	Always
	Never
)

// Stage injects metadata.
type Stage struct {
	// TraceParent tells the policy of an upstream; nil means Sampled for all.
	TraceParent func(upstream string) TraceParent
}

// Wrap sets c.Outgoing. The metadata of a unary call is changed in place, since nothing reads c.Incoming
// after this stage; the messages of a stream share theirs and get copies.
func (s Stage) Wrap(next inference.Handler) inference.Handler {
	return func(ctx context.Context, c *inference.Call) error {
		out := c.Incoming
		if c.Stream != nil {
			out = maps.Clone(out)
		}
		if out == nil {
			out = make(map[string][]string, 6)
		}
		for name, values := range out {
			if Dropped(strings.TrimSuffix(name, "-bin")) || !sendable(name, values) {
				delete(out, name)
			}
		}
		s.add(c, out)
		c.Outgoing = out
		return next(ctx, c)
	}
}

func (s Stage) add(c *inference.Call, out map[string][]string) {
	values := []string{c.RequestID, c.TraceID, "", "", ""} // one allocation for all single values
	out["x-request-id"] = values[0:1:1]
	out["x-trace-id"] = values[1:2:2]
	if c.User != "" {
		values[2] = headerValue(c.User)
		out["x-user-id"] = values[2:3:3]
	}
	if c.TraceParent != "" && s.sends(c) {
		values[3] = c.TraceParent
		out["traceparent"] = values[3:4:4]
		if c.TraceState != "" && printable(c.TraceState) {
			values[4] = c.TraceState
			out["tracestate"] = values[4:5:5]
		}
	}
	set(c, out, c.Model.SetHeaders)
	set(c, out, c.Choice.SetHeaders)
}

// set sets headers of the configuration; those of the rule that chose the target come after the model's.
func set(c *inference.Call, out map[string][]string, headers map[string]string) {
	for name, value := range headers {
		out[name] = []string{strings.ReplaceAll(value, "{target}", c.Target.Name)}
	}
}

func (s Stage) sends(c *inference.Call) bool {
	policy := Sampled
	if s.TraceParent != nil {
		policy = s.TraceParent(c.Target.Upstream)
	}
	return policy == Always || (policy == Sampled && c.Sampled)
}

// Dropped reports whether metadata of this name never goes upstream: it is between two hops, belongs to gRPC or HTTP
// itself, is a credential for the gateway, is set by the gateway, or would open a protocol that Triton restricts.
func Dropped(name string) bool {
	switch name {
	case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "te", "trailer", "trailers",
		"host", "content-length", "content-type", "content-encoding", "accept-encoding", "accept", "user-agent", "expect",
		"authorization", "x-api-key", "proxy-authorization", "cookie",
		"x-request-id", "x-trace-id", "x-user-id", "traceparent", "tracestate", "x-request-timeout",
		"inference-header-content-length":
		return true
	}
	return strings.HasPrefix(name, ":") || strings.HasPrefix(name, "grpc-") ||
		strings.HasPrefix(name, "triton-grpc-protocol-") || strings.HasPrefix(name, "x-gateway-")
}

// sendable reports whether gRPC can carry metadata. What HTTP clients may send and gRPC may not (Latin-1, tabs) is left out:
// gRPC would refuse the whole call, and the model server would be blamed for it.
func sendable(name string, values []string) bool {
	for i := range len(name) {
		if b := name[i]; !(b >= 'a' && b <= 'z' || b >= '0' && b <= '9' || b == '-' || b == '_' || b == '.') {
			return false
		}
	}
	if strings.HasSuffix(name, "-bin") {
		return true
	}
	for _, v := range values {
		if !printable(v) {
			return false
		}
	}
	return true
}

func printable(v string) bool {
	for i := range len(v) {
		if v[i] < 0x20 || v[i] > 0x7e {
			return false
		}
	}
	return true
}

// headerValue gives v as a metadata value may carry it: printable ASCII as it is, all else percent-encoded.
func headerValue(v string) string {
	if printable(v) {
		return v
	}
	return url.PathEscape(v)
}
