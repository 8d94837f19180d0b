package grpcfront

import (
	"context"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

const domain = "model-gateway"

// toStatus renders a fault: its code and text, ErrorInfo with the reason, RetryInfo where trying again may help, and
// QuotaFailure where a limit refused.
func toStatus(err error) error {
	f := fault.Of(err)
	s := status.New(f.Code(), f.Msg)
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: f.Kind.Reason(), Domain: domain}}
	if wait := f.Retry(); wait > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	}
	if f.Quota != nil {
		details = append(details, quotaFailure(f.Quota, f.Msg))
	}
	if detailed, err := s.WithDetails(details...); err == nil {
		s = detailed
	}
	return s.Err()
}

// quotaFailure names the bucket that could not pay.
func quotaFailure(q *fault.Quota, text string) *errdetails.QuotaFailure {
	return &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{
		Subject: q.Subject, Description: text, QuotaId: q.Limit, QuotaValue: int64(q.Burst),
	}}}
}

// sendHeader sets what every answer carries, and what the upstream sent beside its own. It is the last to need c.Header, and
// uses it up.
func sendHeader(ctx context.Context, c *inference.Call) {
	md := metadata.MD(c.Header)
	if md == nil {
		md = make(metadata.MD, 4)
	}
	for name := range md {
		if hopByHop(name) {
			delete(md, name)
		}
	}
	values := []string{c.RequestID, "", "", ""} // one allocation for all
	md["x-request-id"] = values[0:1:1]
	if c.Target != nil && c.Target.Absent == nil {
		values[1], values[2], values[3] = c.Target.Name, c.Target.Version, c.Target.Upstream
		md["x-gateway-target"] = values[1:2:2]
		md["x-gateway-model-version"] = values[2:3:3]
		md["x-gateway-upstream"] = values[3:4:4]
	}
	if c.Degraded != nil {
		md["x-gateway-degraded"] = []string{fault.Of(c.Degraded.Cause).Kind.Reason()}
	}
	_ = grpc.SetHeader(ctx, md) // fails only when the client is gone
	if len(c.Trailer) > 0 {
		trailer := make(metadata.MD, len(c.Trailer))
		for name, v := range c.Trailer {
			if !hopByHop(name) {
				trailer[name] = v
			}
		}
		_ = grpc.SetTrailer(ctx, trailer)
	}
}

// targetsMD names targets, the first value of each name for the first target and so on.
func targetsMD(targets []*inference.Target) metadata.MD {
	md := make(metadata.MD, 3)
	for _, t := range targets {
		md["x-gateway-target"] = append(md["x-gateway-target"], t.Name)
		md["x-gateway-model-version"] = append(md["x-gateway-model-version"], t.Version)
		md["x-gateway-upstream"] = append(md["x-gateway-upstream"], t.Upstream)
	}
	return md
}

// hopByHop names what gRPC itself sets on each hop.
func hopByHop(name string) bool {
	return name == "content-type" || name == "user-agent" || name == "date" || name == "server" || strings.HasPrefix(name, ":") || strings.HasPrefix(name, "grpc-")
}
