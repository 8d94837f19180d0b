package triton

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/fault"
)

// Triton tells apart by text what it puts under one code: UNAVAILABLE has six meanings and NOT_FOUND two, and errors
// inside a stream have no code at all. This file is the one place that knows those texts.

// rule reads a text, after any "[request id: …] ", that starts with, or has in it, what the rule says.
type rule struct {
	start, has string
	kind       fault.Kind
}

func (r rule) matches(text string) bool {
	return strings.HasPrefix(text, r.start) && strings.Contains(text, r.has)
}

// states are what server and models say of themselves, whatever the code.
var states = []rule{
	{start: "Request for unknown model", has: "has no available versions", kind: fault.ModelNotReady},
	{start: "Request for unknown model", has: "is not at ready state", kind: fault.ModelNotReady},
	{start: "Request for unknown model", has: "is not found", kind: fault.ModelNotFound},
	{start: "Exceeds maximum queue size", kind: fault.UpstreamQueue},
	{start: "Request timeout expired", kind: fault.UpstreamQueue},
	{start: "Server is stopping", kind: fault.Draining},
	{start: "Server exiting", kind: fault.Draining},
	{start: "Server not ready", kind: fault.Draining},
	{start: "This protocol is restricted", kind: fault.UpstreamRefused},
	{start: "explicit model load / unload is not allowed", kind: fault.UpstreamRefused},
}

// mistakes are the caller's, told by text alone: in a stream, or under INTERNAL.
var mistakes = []rule{
	{start: "Unable to parse request", kind: fault.InvalidArgument},
	{start: "failed to get model version from specified version string", kind: fault.BadVersion},
	{start: "Failed to process the request(s) for model", kind: fault.UpstreamFailed}, // may quote anything below
	{has: "unexpected shape for input", kind: fault.InvalidArgument},
	{has: "data-type is '", kind: fault.InvalidArgument},
	{has: "batch-size must be <=", kind: fault.InvalidArgument},
	{has: "batch size does not match", kind: fault.InvalidArgument},
	{start: "expected ", has: " inputs but got ", kind: fault.InvalidArgument},
	{start: "unexpected inference ", kind: fault.InvalidArgument},
	{has: "byte size mismatch for input", kind: fault.InvalidArgument},
	{start: "unexpected total byte size", kind: fault.InvalidArgument},
	{start: "unexpected number of string elements", kind: fault.InvalidArgument},
	{start: "incomplete string", kind: fault.InvalidArgument},
	{start: "contents field must not be specified", kind: fault.InvalidArgument},
	{start: "expected number of ", kind: fault.InvalidArgument},
	{start: "parameter keys starting with 'triton_'", kind: fault.InvalidArgument},
	{start: "invalid value type for '", kind: fault.InvalidArgument},
	{start: "inference request for sequence ", kind: fault.InvalidArgument},
	{start: "inference request to model ", has: "correlation ID", kind: fault.InvalidArgument},
	{has: "must specify a non-zero or non-empty correlation ID", kind: fault.InvalidArgument},
	{start: "Unable to find shared memory region", kind: fault.InvalidArgument},
}

// lost are texts of the gRPC library on a connection that broke under the call.
var lost = []string{
	"error reading from server", "closing transport due to", "transport is closing", "the connection is draining",
	"oo many pings", "keepalive ping failed", "stream terminated by RST_STREAM", "without sending trailers",
	"the client connection is closing", "server is not reading",
}

// unreached are its texts on a connection that could not be made.
var unreached = []string{"error while dialing", "last connection error", "connection error", "handshake failed", "server preface"}

// unsendable are its texts on metadata that it refuses to send. The upstream has not been asked then, and must not be
// blamed, although the code is INTERNAL.
var unsendable = []rule{
	{start: "header key ", has: "contains value with non-printable ASCII characters"},
	{start: "header key ", has: "contains illegal characters not in"},
	{start: "there is an empty key in the header"},
	{start: "header list size to send violates the maximum size"},
}

func isUnsendable(text string) bool {
	return slices.ContainsFunc(unsendable, func(r rule) bool { return r.matches(text) })
}

// Classify turns an error of a unary RPC, or of a stream as a whole, into a fault. ctx is the call's: when it has
// ended, the fault says so and blames whom its cause blames. nil stays nil and faults stay as they are.
func Classify(ctx context.Context, err error) error {
	var f *fault.Fault
	if err == nil || errors.As(err, &f) {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fault.Of(causeOf(ctx, err))
	}
	st := status.Convert(err)
	if cause := ended(ctx, st.Code()); cause != nil {
		return fault.Of(cause)
	}
	return fromStatus(st, err)
}

// ended gives the cause of ctx's end if that is what code speaks of.
func ended(ctx context.Context, code codes.Code) error {
	switch code {
	case codes.DeadlineExceeded:
		// The upstream has the same deadline and may notice it a moment before we do.
		if at, ok := ctx.Deadline(); ok && time.Until(at) < 50*time.Millisecond {
			<-ctx.Done()
		}
		return context.Cause(ctx)
	case codes.Canceled, codes.Unavailable:
		return context.Cause(ctx)
	default:
		return nil
	}
}

func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func fromStatus(st *status.Status, err error) *fault.Fault {
	text := withoutID(st.Message())
	f := &fault.Fault{Kind: fault.UpstreamFailed, Msg: st.Message(), Upstream: true, Cause: err}
	switch code := st.Code(); code {
	case codes.InvalidArgument:
		f.Kind = kindOf(text, mistakes, fault.InvalidArgument)
		if f.Kind != fault.BadVersion {
			f.Kind = fault.InvalidArgument // the code says so, and knows better than a quotation in the text
		}
	case codes.NotFound:
		f.Kind = kindOf(text, states, fault.InvalidArgument)
		if f.Kind == fault.InvalidArgument {
			f.Verbatim = code // something else than a model: a region of shared memory, or what the model looks up
		}
	case codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange:
		f.Kind, f.Verbatim = fault.InvalidArgument, code
	case codes.Unimplemented:
		f.Kind = fault.NotServed
	case codes.PermissionDenied, codes.Unauthenticated:
		f.Kind = fault.UpstreamRefused // it is the gateway that was refused, not the caller
		f.Msg = "the model server refused the gateway; its credentials for this upstream need a look"
	case codes.Canceled:
		f.Kind = fault.Cancelled
		if isLost(text) {
			return connectionFault(text, err)
		}
	case codes.DeadlineExceeded:
		f.Kind = fault.UpstreamTimeout
	case codes.ResourceExhausted:
		f.Kind = fault.UpstreamQueue
		if strings.Contains(text, "larger than max") || strings.Contains(text, "exceeds hard limit") {
			f.Kind = fault.TooLarge
		}
	case codes.Unavailable:
		if f.Kind = kindOf(text, states, fault.UpstreamUnavailable); f.Kind == fault.UpstreamUnavailable {
			if isLost(text) || isUnreached(text) {
				return connectionFault(text, err)
			}
			f.Msg = presentable(f.Msg)
		}
	case codes.Internal:
		if isLost(text) {
			return connectionFault(text, err)
		}
		if isUnsendable(st.Message()) {
			return &fault.Fault{
				Kind: fault.InvalidArgument, Cause: err,
				Msg: "the metadata of the call cannot be sent to the model server: " + presentable(st.Message()) + "; leave it out, or put bytes under a key that ends in -bin",
			}
		}
		f.Kind = kindOf(text, mistakes, fault.UpstreamFailed)
		f.Msg = presentable(f.Msg)
	default:
		f.Verbatim = code
		f.Msg = presentable(f.Msg)
	}
	return refused(f)
}

// inBand reads the error text of an answer in a stream, where the upstream gives no code. What the server itself finds
// wrong with a request is known by its text. A model's own words are anybody's guess: what a Python model raises with
// the code INVALID_ARG is the caller's mistake in a unary call, where the code comes along, and in a stream it is a
// failure of the model, as every other error of a model is.
func inBand(text string) *fault.Fault {
	f := &fault.Fault{Msg: text, Upstream: true, Cause: errors.New(text)}
	bare := withoutID(text)
	f.Kind = kindOf(bare, states, fault.Internal)
	if f.Kind == fault.Internal {
		f.Kind = kindOf(bare, mistakes, fault.UpstreamFailed)
	}
	if f.Kind == fault.UpstreamFailed {
		f.Msg = presentable(text)
	}
	return refused(f)
}

// refused keeps the name of the header that would have helped out of what the client sees.
func refused(f *fault.Fault) *fault.Fault {
	if f.Kind == fault.UpstreamRefused && strings.Contains(f.Msg, "restricted") {
		f.Msg = "the model server restricts this protocol; the gateway needs the header that it expects in the configuration of the upstream"
	}
	return f
}

func kindOf(text string, rules []rule, otherwise fault.Kind) fault.Kind {
	for _, r := range rules {
		if r.matches(text) {
			return r.kind
		}
	}
	return otherwise
}

func isLost(text string) bool      { return hasAny(text, lost) }
func isUnreached(text string) bool { return hasAny(text, unreached) }

func hasAny(text string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(text, p) {
			return true
		}
	}
	return false
}

func connectionFault(text string, err error) *fault.Fault {
	f := &fault.Fault{
		Kind: fault.EndpointLost, Upstream: true, Cause: err,
		Msg: "the connection to the model server broke before it had answered; try again",
	}
	if isUnreached(text) && !strings.Contains(text, "error reading from server:") {
		f.Kind, f.Unsent = fault.UpstreamUnavailable, true
		f.Msg = "the model server cannot be reached; try again shortly"
	}
	return f
}

// withoutID cuts Triton's "[request id: …] " off the front.
func withoutID(text string) string {
	if strings.HasPrefix(text, "[request id: ") {
		if _, rest, ok := strings.Cut(text, "] "); ok {
			return rest
		}
	}
	return text
}

// maxText bounds an upstream's text shown to a client, in bytes.
const maxText = 1024

var filePath = regexp.MustCompile(`(^|[\s'"(\[=:,<])(?:/[^\s/'"(),:\[\]<>]+){2,}/?`)

// presentable is an upstream's text as outsiders may see it: the first line, without paths of the server's files.
// A traceback goes to the log through the fault's cause.
func presentable(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	text = strings.TrimSpace(filePath.ReplaceAllString(text, "${1}(file)"))
	if text == "" {
		return "the model failed without saying why"
	}
	return text
}
