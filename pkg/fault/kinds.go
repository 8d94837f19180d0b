package fault

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
)

// Kind is a kind of failure, a row of the table below.
type Kind uint8

// The kinds. Their order means nothing; rows has the facts.
const (
	Internal Kind = iota
	// the request
	InvalidArgument
	BadTensor
	BadVersion
	TooLarge
	ModelNotFound
	UseStream
	ControlOff
	NotServed
	// the caller
	AuthMissing
	AuthInvalid
	AuthUnavailable
	Forbidden
	RateLimited
	CostAboveBurst
	LimiterDown
	// the caller's time
	Cancelled
	Deadline
	Expired
	// the upstream
	ModelNotReady
	NoEndpoint
	EndpointLost
	SequenceLost
	Draining
	UpstreamQueue
	UpstreamFailed
	UpstreamUnavailable
	UpstreamRefused
	UpstreamTimeout
	CircuitOpen // not asked: it fails, and its breaker is open
	// the gateway
	Overloaded
	Memory // no room to read the message
	ShuttingDown
	kinds
)

// Row is what the table says of a kind.
type Row struct {
	Reason string     // ErrorInfo.reason: stable, for programs
	GRPC   codes.Code // what gRPC clients get
	HTTP   int        // what HTTP clients get
	Retry  time.Duration
	// Breaker and Canary: counts as a failure of the target in breakers, and in the judgement of a canary.
	Breaker bool
	Canary  bool
	// Elsewhere: another endpoint may well serve the same call.
	Elsewhere bool
	// Outage and Overload: what a fallback that is declared for these stands in for. A refusal is neither.
	Outage, Overload bool
}

const soon = time.Second

var rows = [kinds]Row{
	Internal:        {Reason: "INTERNAL", GRPC: codes.Internal, HTTP: 500},
	InvalidArgument: {Reason: "INVALID_ARGUMENT", GRPC: codes.InvalidArgument, HTTP: 400},
	BadTensor:       {Reason: "CONTRACT_VIOLATION", GRPC: codes.InvalidArgument, HTTP: 400},
	BadVersion:      {Reason: "INVALID_VERSION", GRPC: codes.InvalidArgument, HTTP: 400},
	TooLarge:        {Reason: "TOO_LARGE", GRPC: codes.ResourceExhausted, HTTP: 413},
	ModelNotFound:   {Reason: "MODEL_NOT_FOUND", GRPC: codes.NotFound, HTTP: 404},
	UseStream:       {Reason: "USE_STREAM", GRPC: codes.FailedPrecondition, HTTP: 400},
	ControlOff:      {Reason: "CONTROL_OFF", GRPC: codes.PermissionDenied, HTTP: 403},
	NotServed:       {Reason: "NOT_SERVED", GRPC: codes.Unimplemented, HTTP: 501},

	AuthMissing:     {Reason: "AUTH_MISSING", GRPC: codes.Unauthenticated, HTTP: 401},
	AuthInvalid:     {Reason: "AUTH_INVALID", GRPC: codes.Unauthenticated, HTTP: 401},
	AuthUnavailable: {Reason: "AUTH_UNAVAILABLE", GRPC: codes.Unavailable, HTTP: 503, Retry: soon},
	Forbidden:       {Reason: "MODEL_FORBIDDEN", GRPC: codes.PermissionDenied, HTTP: 403},
	RateLimited:     {Reason: "RATE_LIMITED", GRPC: codes.ResourceExhausted, HTTP: 429, Retry: soon},
	CostAboveBurst:  {Reason: "COST_ABOVE_BURST", GRPC: codes.InvalidArgument, HTTP: 400},
	LimiterDown:     {Reason: "LIMITER_DOWN", GRPC: codes.Unavailable, HTTP: 503, Retry: soon},

	Cancelled: {Reason: "CANCELLED", GRPC: codes.Canceled, HTTP: 499},
	Deadline:  {Reason: "DEADLINE", GRPC: codes.DeadlineExceeded, HTTP: 504, Outage: true},
	Expired:   {Reason: "DEADLINE_EXPIRED", GRPC: codes.DeadlineExceeded, HTTP: 504},

	ModelNotReady:       {Reason: "MODEL_NOT_READY", GRPC: codes.Unavailable, HTTP: 503, Retry: soon, Breaker: true, Canary: true, Elsewhere: true, Outage: true},
	NoEndpoint:          {Reason: "NO_ENDPOINT", GRPC: codes.Unavailable, HTTP: 503, Retry: soon, Outage: true},
	EndpointLost:        {Reason: "ENDPOINT_LOST", GRPC: codes.Unavailable, HTTP: 503, Retry: soon, Breaker: true, Canary: true, Elsewhere: true, Outage: true},
	SequenceLost:        {Reason: "SEQUENCE_LOST", GRPC: codes.Unavailable, HTTP: 503, Breaker: true, Canary: true},
	Draining:            {Reason: "UPSTREAM_DRAINING", GRPC: codes.Unavailable, HTTP: 503, Retry: soon, Breaker: true, Canary: true, Elsewhere: true, Outage: true},
	UpstreamQueue:       {Reason: "OVERLOADED", GRPC: codes.ResourceExhausted, HTTP: 429, Retry: soon, Elsewhere: true, Overload: true},
	UpstreamFailed:      {Reason: "UPSTREAM_FAILED", GRPC: codes.Internal, HTTP: 500, Breaker: true, Canary: true},
	UpstreamUnavailable: {Reason: "UPSTREAM_UNAVAILABLE", GRPC: codes.Unavailable, HTTP: 503, Retry: soon, Breaker: true, Canary: true, Elsewhere: true, Outage: true},
	UpstreamRefused:     {Reason: "UPSTREAM_REFUSED", GRPC: codes.Unavailable, HTTP: 503},
	UpstreamTimeout:     {Reason: "UPSTREAM_TIMEOUT", GRPC: codes.DeadlineExceeded, HTTP: 504, Breaker: true, Canary: true, Outage: true},
	CircuitOpen:         {Reason: "BREAKER_OPEN", GRPC: codes.Unavailable, HTTP: 503, Retry: soon, Outage: true},

	Overloaded:   {Reason: "OVERLOADED", GRPC: codes.ResourceExhausted, HTTP: 429, Retry: soon, Overload: true},
	Memory:       {Reason: "MEMORY", GRPC: codes.ResourceExhausted, HTTP: 429, Retry: soon},
	ShuttingDown: {Reason: "DRAINING", GRPC: codes.Unavailable, HTTP: 503, Retry: soon},
}

// Row gives what the table says of k.
func (k Kind) Row() Row { return rows[k] }

// Reason is the stable name of k that programs may test for.
func (k Kind) Reason() string { return rows[k].Reason }

// Kinds lists every kind, for tests and documentation.
func Kinds() []Kind {
	all := make([]Kind, kinds)
	for i := range all {
		all[i] = Kind(i)
	}
	return all
}

func fromContext(err error) *Fault {
	switch {
	case errors.Is(err, context.Canceled):
		return Wrap(Cancelled, err, "the caller cancelled the call")
	case errors.Is(err, context.DeadlineExceeded):
		return Wrap(Deadline, err, "the caller's deadline passed before the model answered")
	}
	return Wrap(Internal, err, "internal error of the gateway; its log has the details under this request id")
}
