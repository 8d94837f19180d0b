package triton

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

const traceback = "Failed to process the request(s) for model 'boom_0_0', message: ValueError: bad row in /opt/models/boom/1/model.py at 7\n\nAt:\n  /opt/models/boom/1/model.py(12): execute\n"

// statusCases are what a real server answers to a unary call, word for word.
var statusCases = []struct {
	code codes.Code
	text string
	kind fault.Kind
	tell codes.Code // what the client gets
	msg  string     // "" is text itself
}{
	{codes.NotFound, "Request for unknown model: 'nope' is not found", fault.ModelNotFound, codes.NotFound, ""},
	{codes.NotFound, "Request for unknown model: 'fraud' version 9 is not found", fault.ModelNotFound, codes.NotFound, ""},
	{codes.InvalidArgument, "failed to get model version from specified version string 'abc' (details: stol), version should be an integral value > 0", fault.BadVersion, codes.InvalidArgument, ""},
	{codes.NotFound, "Request for unknown model: 'cnn' has no available versions", fault.ModelNotReady, codes.Unavailable, ""},
	{codes.Unavailable, "Request for unknown model: 'fraud' version 1 is not at ready state", fault.ModelNotReady, codes.Unavailable, ""},
	{codes.InvalidArgument, "[request id: <id_unknown>] unexpected shape for input 'INPUT' for model 'fraud'. Expected [-1,16], got [1,15]. NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each input shape.", fault.InvalidArgument, codes.InvalidArgument, ""},
	{codes.InvalidArgument, "[request id: <id_unknown>] inference input 'INPUT' data-type is 'INT32', but model 'fraud' expects 'FP32'", fault.InvalidArgument, codes.InvalidArgument, ""},
	{codes.InvalidArgument, "[request id: <id_unknown>] inference request batch-size must be <= 64 for 'fraud'", fault.InvalidArgument, codes.InvalidArgument, ""},
	{codes.InvalidArgument, "[request id: 7] expected 1 inputs but got 0 inputs for model 'fraud'. Got input(s) [], but missing required input(s) ['INPUT']. Please provide all required input(s).", fault.InvalidArgument, codes.InvalidArgument, ""},
	{codes.InvalidArgument, "unexpected inference input 'X' for model 'fraud'", fault.InvalidArgument, codes.InvalidArgument, ""},
	{codes.InvalidArgument, "unexpected inference output 'NOPE' for model 'fraud'", fault.InvalidArgument, codes.InvalidArgument, ""},
	{codes.InvalidArgument, "[request id: 7] input byte size mismatch for input 'INPUT' for model 'fraud'. Expected 64, got 4", fault.InvalidArgument, codes.InvalidArgument, ""},
	{codes.InvalidArgument, "contents field must not be specified when using raw_input_contents for 'INPUT' for model 'fraud'", fault.InvalidArgument, codes.InvalidArgument, ""},
	{codes.Unavailable, "[request id: 3] Exceeds maximum queue size", fault.UpstreamQueue, codes.ResourceExhausted, ""},
	{codes.Unavailable, "Request timeout expired", fault.UpstreamQueue, codes.ResourceExhausted, ""},
	{codes.Unavailable, "[request id: 3] Server is stopping, scheduler for model has stopped accepting new inference request", fault.Draining, codes.Unavailable, ""},
	{codes.Unavailable, "Server exiting", fault.Draining, codes.Unavailable, ""},
	{codes.Unavailable, "Server not ready", fault.Draining, codes.Unavailable, ""},
	{codes.Unavailable, "This protocol is restricted, expecting header 'triton-grpc-protocol-k'", fault.UpstreamRefused, codes.Unavailable, "the model server restricts this protocol; the gateway needs the header that it expects in the configuration of the upstream"},
	{codes.Unavailable, "explicit model load / unload is not allowed if polling is enabled", fault.UpstreamRefused, codes.Unavailable, ""},
	{codes.Internal, traceback, fault.UpstreamFailed, codes.Internal, "Failed to process the request(s) for model 'boom_0_0', message: ValueError: bad row in (file) at 7"},
	{codes.Internal, "Stub process 'boom_0_0' is not healthy.", fault.UpstreamFailed, codes.Internal, ""},
	{codes.Unimplemented, "ModelInfer RPC doesn't support models with decoupled transaction policy", fault.NotServed, codes.Unimplemented, ""},
	{codes.InvalidArgument, "parameter keys starting with 'triton_' are reserved for Triton usage", fault.InvalidArgument, codes.InvalidArgument, ""},
	{codes.InvalidArgument, "invalid value type for 'timeout' parameter, expected int64_param.", fault.InvalidArgument, codes.InvalidArgument, ""},
	{codes.InvalidArgument, "invalid value type for 'u' parameter, expected int64_param, bool_param, or string_param.", fault.InvalidArgument, codes.InvalidArgument, ""},
	{codes.ResourceExhausted, "received metadata size exceeds hard limit (40526 vs. 16384)", fault.TooLarge, codes.ResourceExhausted, ""},
	{codes.Internal, "Unable to parse request", fault.InvalidArgument, codes.InvalidArgument, ""},
	{codes.InvalidArgument, "inference request for sequence 99 to model 'seqsum' must specify the START flag on the first request of the sequence", fault.InvalidArgument, codes.InvalidArgument, ""},
	{codes.NotFound, "Unable to find shared memory region: 'nope'", fault.InvalidArgument, codes.NotFound, ""},
	{codes.AlreadyExists, "shared memory region 'x' already in manager", fault.InvalidArgument, codes.AlreadyExists, ""},
	// a model's own errors keep their code
	{codes.Unknown, "who knows", fault.UpstreamFailed, codes.Unknown, ""},
	{codes.DataLoss, "gone", fault.UpstreamFailed, codes.DataLoss, ""},
	{codes.Canceled, "the model gave up", fault.Cancelled, codes.Canceled, ""},
	{codes.Unavailable, "try the other model", fault.UpstreamUnavailable, codes.Unavailable, ""},
	{codes.DeadlineExceeded, "too slow", fault.UpstreamTimeout, codes.DeadlineExceeded, ""},
	{codes.PermissionDenied, "go away", fault.UpstreamRefused, codes.Unavailable, "the model server refused the gateway; its credentials for this upstream need a look"},
	// the connection
	{codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`, fault.UpstreamUnavailable, codes.Unavailable, "the model server cannot be reached; try again shortly"},
	{codes.Unavailable, "error reading from server: EOF", fault.EndpointLost, codes.Unavailable, "the connection to the model server broke before it had answered; try again"},
	{codes.Unavailable, `connection error: desc = "error reading from server: EOF"`, fault.EndpointLost, codes.Unavailable, "the connection to the model server broke before it had answered; try again"},
	{codes.Unavailable, "closing transport due to: connection error: desc = \"error reading from server: EOF\", received prior goaway: code: NO_ERROR", fault.EndpointLost, codes.Unavailable, "the connection to the model server broke before it had answered; try again"},
	{codes.Unavailable, "Too many pings", fault.EndpointLost, codes.Unavailable, "the connection to the model server broke before it had answered; try again"},
	{codes.Unavailable, "the connection is draining", fault.EndpointLost, codes.Unavailable, "the connection to the model server broke before it had answered; try again"},
	{codes.Internal, "server closed the stream without sending trailers", fault.EndpointLost, codes.Unavailable, "the connection to the model server broke before it had answered; try again"},
	{codes.Canceled, "grpc: the client connection is closing", fault.EndpointLost, codes.Unavailable, "the connection to the model server broke before it had answered; try again"},
}

func TestEveryAnswerOfARealServerIsReadRightly(t *testing.T) {
	for _, test := range statusCases {
		f := fault.Of(Classify(t.Context(), status.Error(test.code, test.text)))
		if test.msg == "" {
			test.msg = test.text
		}
		if f.Kind != test.kind || f.Code() != test.tell || f.Msg != test.msg || !f.Upstream {
			t.Errorf("%s %q:\n got %s, %s, %q, upstream %t\nwant %s, %s, %q", test.code, test.text,
				f.Kind.Reason(), f.Code(), f.Msg, f.Upstream, test.kind.Reason(), test.tell, test.msg)
		}
		if f.Cause == nil || !strings.Contains(f.Cause.Error(), test.text) {
			t.Errorf("%s: the log does not get the whole text but %v", test.text, f.Cause)
		}
	}
}

func TestAnErrorInAStreamIsReadByItsTextAlone(t *testing.T) {
	for _, test := range statusCases {
		switch test.code {
		case codes.InvalidArgument, codes.NotFound, codes.Internal:
		case codes.Unavailable:
			if test.kind == fault.UpstreamUnavailable || test.kind == fault.EndpointLost {
				continue // never inside a stream
			}
		default:
			continue
		}
		if test.kind == fault.EndpointLost {
			continue
		}
		if f := inBand(test.text); f.Kind != test.kind || !f.Upstream {
			t.Errorf("%q is %s, want %s", test.text, f.Kind.Reason(), test.kind.Reason())
		}
	}
	for text, kind := range map[string]fault.Kind{
		"token 1 failed": fault.UpstreamFailed,
		"Failed to process the request(s) for model 'a', message: unexpected shape for input 'b'": fault.UpstreamFailed,
		"N must be 0 to 100000, not -3": fault.UpstreamFailed,
		"":                              fault.UpstreamFailed,
	} {
		if f := inBand(text); f.Kind != kind {
			t.Errorf("%q is %s, want %s", text, f.Kind.Reason(), kind.Reason())
		}
	}
}

func TestPathsOfTheServersFilesAreNotShown(t *testing.T) {
	for in, want := range map[string]string{
		"in /a/b/c.py":                      "in (file)",
		"'/models/x/1/model.py': no file":   "'(file)': no file",
		"/opt/x/y":                          "(file)",
		"ratio 3/4 of team/bert/v1 is fine": "ratio 3/4 of team/bert/v1 is fine",
		"a / b":                             "a / b",
		"  \n/x/y":                          "(file)",
		"":                                  "the model failed without saying why",
		strings.Repeat("x", 3000):           strings.Repeat("x", maxText) + "…",
	} {
		if got := presentable(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestTheUpstreamsDeadlineIsTheCallersWhenBothPassTogether(t *testing.T) {
	ours := fault.New(fault.UpstreamTimeout, "ours")
	ctx, cancel := context.WithDeadlineCause(t.Context(), time.Now().Add(10*time.Millisecond), ours)
	defer cancel()
	if err := Classify(ctx, status.Error(codes.DeadlineExceeded, "Deadline Exceeded")); !errors.Is(err, ours) {
		t.Errorf("got %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if f := fault.Of(Classify(ctx, status.Error(codes.DeadlineExceeded, "model says"))); f.Kind != fault.UpstreamTimeout {
		t.Errorf("got %v", f)
	}
}

func TestAnUpstreamsOwnAnswerStandsWhenTheCallEndsToo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if f := fault.Of(Classify(ctx, status.Error(codes.InvalidArgument, "bad"))); f.Kind != fault.InvalidArgument {
		t.Errorf("got %v", f)
	}
	if err := Classify(ctx, nil); err != nil {
		t.Errorf("got %v", err)
	}
}

func FuzzTextsOfServers(f *testing.F) {
	for _, c := range statusCases {
		f.Add(uint32(c.code), c.text)
	}
	f.Fuzz(func(t *testing.T, code uint32, text string) {
		for _, got := range []*fault.Fault{inBand(text), fault.Of(Classify(t.Context(), status.Error(codes.Code(code%17), text)))} {
			if got != nil && (got.Msg == "" && text != "" || got.Kind == fault.Internal) {
				t.Errorf("%q: %v", text, got)
			}
		}
	})
}

func TestMetadataThatCannotBeSentIsTheCallersMistakeAndNotTheUpstreams(t *testing.T) {
	s := counters("a:1")["a:1"]
	u := one(t, s)
	for _, md := range []map[string][]string{
		{"x-note": {"caf\xc3\xa9"}}, {"x-note": {"line\nline"}}, {"x note": {"a"}}, {"": {"a"}},
	} {
		unary, message, prediction := kserve(t, u, request("risk")), newClient(t, u).message(), newClient(t, u).predict(1)
		for _, c := range []*inference.Call{unary, message, prediction} {
			c.Outgoing = md
			f := wantKind(t, receive(t, run(t.Context(), c), "end"), fault.InvalidArgument)
			if f.Upstream || f.Kind.Row().Breaker || !strings.Contains(f.Msg, "cannot be sent") || !strings.Contains(f.Msg, "-bin") {
				t.Errorf("got %+v", f)
			}
			c.Free()
		}
	}
	if n := s.Calls.Load() + s.Streams.Load(); n != 0 {
		t.Errorf("the server had %d calls", n)
	}
}

func TestAModelsOwnInvalidArgumentHasNoCodeInAStream(t *testing.T) {
	const own = "N must be 0 to 100000, not -3"
	if f := fault.Of(Classify(t.Context(), status.Error(codes.InvalidArgument, own))); f.Kind != fault.InvalidArgument {
		t.Errorf("unary: %v", f)
	}
	if f := inBand(own); f.Kind != fault.UpstreamFailed {
		t.Errorf("in a stream: %v", f)
	}
}
