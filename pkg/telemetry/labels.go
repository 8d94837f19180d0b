package telemetry

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// Bounds on distinct labels over the life of the process. A histogram with its buckets is some 25 lines of a scrape,
// so what lies beyond goes under LabelOther.
const (
	MaxModels  = 10_000
	MaxTargets = 20_000 // of all models together: model, version and target
)

// guard decides which names may be labels.
type guard struct {
	maxModels, maxTargets int
	refused               prometheus.Counter

	mu      sync.Mutex
	models  map[string]struct{}
	targets map[[3]string]struct{}
}

// of gives the labels for a model, version and target. own is false when a bound was met, so that the caller
// does not remember names that are not labels.
func (g *guard) of(model, version, target string) (m, v, t string, own bool) {
	if model == "" {
		return LabelUnknown, LabelUnknown, LabelUnknown, true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.models == nil {
		g.models, g.targets = make(map[string]struct{}), make(map[[3]string]struct{})
	}
	if _, ok := g.models[model]; !ok {
		if len(g.models) >= g.maxModels {
			g.refused.Inc()
			return LabelOther, LabelOther, LabelOther, false
		}
		g.models[model] = struct{}{}
	}
	if target == "" {
		return model, LabelUnknown, LabelUnknown, true
	}
	k := [3]string{model, version, target}
	if _, ok := g.targets[k]; !ok {
		if len(g.targets) >= g.maxTargets {
			g.refused.Inc()
			return model, LabelOther, LabelOther, false
		}
		g.targets[k] = struct{}{}
	}
	return model, version, target, true
}

func boolName(b bool) string { return strconv.FormatBool(b) }

// httpCode is the label of a status; anything that is none counts as 500.
func httpCode(status int) string {
	if status < 100 || status > 599 {
		status = 500
	}
	return strconv.Itoa(status)
}

var grpcCodes = [...]string{
	codes.OK: "OK", codes.Canceled: "CANCELLED", codes.Unknown: "UNKNOWN", codes.InvalidArgument: "INVALID_ARGUMENT",
	codes.DeadlineExceeded: "DEADLINE_EXCEEDED", codes.NotFound: "NOT_FOUND", codes.AlreadyExists: "ALREADY_EXISTS",
	codes.PermissionDenied: "PERMISSION_DENIED", codes.ResourceExhausted: "RESOURCE_EXHAUSTED",
	codes.FailedPrecondition: "FAILED_PRECONDITION", codes.Aborted: "ABORTED", codes.OutOfRange: "OUT_OF_RANGE",
	codes.Unimplemented: "UNIMPLEMENTED", codes.Internal: "INTERNAL", codes.Unavailable: "UNAVAILABLE",
	codes.DataLoss: "DATA_LOSS", codes.Unauthenticated: "UNAUTHENTICATED",
}

// grpcCode is the label of a code, spelt as in the gRPC specification; anything that is none counts as UNKNOWN.
func grpcCode(c codes.Code) string {
	if int(c) >= len(grpcCodes) {
		return grpcCodes[codes.Unknown]
	}
	return grpcCodes[c]
}
