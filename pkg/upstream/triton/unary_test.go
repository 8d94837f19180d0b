package triton

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/calm"
	"github.com/model-gateway/model-gateway/pkg/upstream/triton/tritontest"
	"github.com/model-gateway/model-gateway/pkg/wire"
	mlpb "github.com/model-gateway/model-gateway/proto/ml/inference"
	"github.com/model-gateway/model-gateway/proto/triton"
)

func TestACallLeavesForItsTargetAndComesBackUnderTheNameItWasAskedBy(t *testing.T) {
	var got *tritonpb.ModelInferRequest
	var in map[string][]string
	s := &tritontest.Server{Infer: func(ctx context.Context, r *tritonpb.ModelInferRequest) (*tritonpb.ModelInferResponse, error) {
		got, in = r, tritontest.Incoming(ctx)
		_ = grpc.SetHeader(ctx, metadata.Pairs("x-head", "h"))
		_ = grpc.SetTrailer(ctx, metadata.Pairs("x-tail", "t"))
		return tritontest.Response(r, 9), nil
	}}
	u := one(t, s)
	c := kserve(t, u, request("risk", func(r *tritonpb.ModelInferRequest) { r.Id = "mine" }))
	c.Outgoing = map[string][]string{"x-request-id": {"r1"}, "sig-bin": {"\x00\xff\n"}}
	if err := infer(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if got.GetModelName() != "fraud" || got.GetModelVersion() != "3" || got.GetId() != "mine" || !bytes.Equal(got.GetRawInputContents()[0], []byte{7}) {
		t.Errorf("the server saw %v", got)
	}
	if in["x-request-id"][0] != "r1" || in["sig-bin"][0] != "\x00\xff\n" || in["user-agent"][0][:18] != "model-gateway/test" {
		t.Errorf("metadata %q", in)
	}
	answer := decode(t, c.Answer, new(tritonpb.ModelInferResponse))
	if answer.GetModelName() != "risk" || answer.GetModelVersion() != "3" || !bytes.Equal(answer.GetRawOutputContents()[0], []byte{9}) {
		t.Errorf("the client got %v", answer)
	}
	if c.Header["x-head"][0] != "h" || c.Trailer["x-tail"][0] != "t" {
		t.Errorf("header %v, trailer %v", c.Header, c.Trailer)
	}
}

func TestACallThatSaysWhatItsTargetIsLeavesAsItCame(t *testing.T) {
	seen := make(chan []byte, 1)
	s := &tritontest.Server{Raw: func(_ context.Context, f inference.Frame) (inference.Frame, error) {
		seen <- f.Buf.Materialize()
		return f, nil
	}}
	u := one(t, s)
	r := request("fraud", func(r *tritonpb.ModelInferRequest) { r.ModelVersion = "3" })
	c := kserve(t, u, r)
	want := c.Request.Buf.Materialize()
	if err := infer(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, seen, "request"); !bytes.Equal(got, want) {
		t.Errorf("sent %x, want %x", got, want)
	}
	if got := c.Answer.Buf.Materialize(); !bytes.Equal(got, want) {
		t.Errorf("answered %x, want %x", got, want)
	}
}

func TestASecondAttemptSendsTheSameRequest(t *testing.T) {
	var seen [][]byte
	s := &tritontest.Server{Raw: func(_ context.Context, f inference.Frame) (inference.Frame, error) {
		seen = append(seen, f.Buf.Materialize())
		f.Free()
		return inference.Frame{}, status.Error(codes.Unavailable, "Server exiting")
	}}
	u := one(t, s)
	for _, protocol := range []inference.Protocol{inference.KServe, inference.Predict} {
		seen = nil
		c := kserve(t, u, request("risk"))
		if protocol == inference.Predict {
			c = predict(t, u, []byte{1, 2})
		}
		for range 2 {
			wantKind(t, infer(t.Context(), c), fault.Draining)
		}
		if len(seen) != 2 || !bytes.Equal(seen[0], seen[1]) {
			t.Errorf("%s: sent %x", protocol, seen)
		}
		other := *c.Target
		other.Version = "4"
		c.Target = &other
		wantKind(t, infer(t.Context(), c), fault.Draining)
		sent := new(tritonpb.ModelInferRequest)
		if err := proto.Unmarshal(seen[2], sent); err != nil || sent.GetModelVersion() != "4" || sent.GetModelName() != "fraud" {
			t.Errorf("%s: another target got %v, %v", protocol, sent, err)
		}
	}
}

// predict is a Predict call for the target that kserve has, too.
func predict(t testing.TB, u *Upstream, tensor []byte) *inference.Call {
	t.Helper()
	c := kserve(t, u, request("risk"))
	c.Protocol = inference.Predict
	c.Request = encode(t, &mlpb.PredictionRequest{ModelName: "risk", InputTensor: tensor})
	var err error
	if c.Head, err = wire.PeekPredict(c.Request); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAPredictTravelsByTheTensorsOfTheModelsMetadata(t *testing.T) {
	var got *tritonpb.ModelInferRequest
	asked := 0
	s := &tritontest.Server{
		Infer: func(_ context.Context, r *tritonpb.ModelInferRequest) (*tritonpb.ModelInferResponse, error) {
			got = r
			return tritontest.Response(r, 5, 6), nil
		},
		Config: func(_ context.Context, model, _ string) (*tritonpb.ModelConfig, error) {
			asked++
			return &tritonpb.ModelConfig{Name: model}, nil
		},
	}
	u := one(t, s)
	for range 3 {
		c := predict(t, u, []byte{1, 2, 3})
		if err := infer(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if in := got.GetInputs()[0]; in.GetName() != "INPUT" || in.GetShape()[0] != 3 || !bytes.Equal(got.GetRawInputContents()[0], []byte{1, 2, 3}) {
			t.Errorf("the server saw %v", got)
		}
		answer := decode(t, c.Answer, new(mlpb.PredictionResponse))
		if answer.GetStatus() != "OK" || !bytes.Equal(answer.GetOutputTensor(), []byte{5, 6}) || answer.GetLatencyMs() < 1 {
			t.Errorf("the client got %v", answer)
		}
	}
	if asked != 1 {
		t.Errorf("the model was asked for its configuration %d times", asked)
	}
}

func TestDeclaredTensorsNeedNoMetadata(t *testing.T) {
	s := &tritontest.Server{Metadata: func(context.Context, string, string) (*tritonpb.ModelMetadataResponse, error) {
		return nil, status.Error(codes.Unimplemented, "no metadata here")
	}}
	u := one(t, s)
	c := predict(t, u, []byte{1})
	c.Model.Tensors = &inference.Tensors{Inputs: []inference.Tensor{{Name: "X", Datatype: "UINT8", Shape: []int64{-1}}}}
	if err := infer(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	c = predict(t, u, []byte{1})
	wantKind(t, infer(t.Context(), c), fault.NotServed)
}

func TestAnEndedContextIsBlamedOnWhoEndedIt(t *testing.T) {
	ours := fault.New(fault.UpstreamTimeout, "the model had a second")
	arrived, gone := make(chan struct{}), make(chan struct{})
	s := &tritontest.Server{Infer: func(ctx context.Context, _ *tritonpb.ModelInferRequest) (*tritonpb.ModelInferResponse, error) {
		select { // one that comes when its time is over is not waited for
		case arrived <- struct{}{}:
			<-ctx.Done()
			gone <- struct{}{}
		case <-ctx.Done():
		}
		return nil, ctx.Err()
	}}
	u := one(t, s)
	for _, test := range []struct {
		name string
		kind fault.Kind
		end  func() (context.Context, func())
	}{
		{"the caller cancels", fault.Cancelled, func() (context.Context, func()) { return context.WithCancel(t.Context()) }},
		{"the caller's deadline", fault.Deadline, func() (context.Context, func()) {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			t.Cleanup(cancel)
			return ctx, func() {}
		}},
		{"the model's timeout", fault.UpstreamTimeout, func() (context.Context, func()) {
			ctx, cancel := context.WithDeadlineCause(t.Context(), time.Now().Add(500*time.Millisecond), ours)
			t.Cleanup(cancel)
			return ctx, func() {}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			calm.Moment(t, func() error { // in which the call arrives before its time is over
				ctx, end := test.end()
				failed := make(chan error, 1)
				go func() { failed <- infer(ctx, kserve(t, u, request("risk"))) }()
				select {
				case <-arrived:
				case err := <-failed: // it never arrived
					if err == nil {
						t.Error("a call that nobody answers is answered")
					}
					return err
				}
				end()
				f := wantKind(t, receive(t, failed, "fault"), test.kind)
				if test.kind == fault.UpstreamTimeout && !errors.Is(f, ours) {
					t.Errorf("got %v", f)
				}
				receive(t, gone, "the end of the upstream call")
				return nil
			})
		})
	}
}

func TestTooLargeNamesTheCap(t *testing.T) {
	s := &tritontest.Server{Infer: func(_ context.Context, r *tritonpb.ModelInferRequest) (*tritonpb.ModelInferResponse, error) {
		return tritontest.Response(r, make([]byte, 8192)...), nil
	}}
	u := one(t, s, func(o *Options) { o.MaxMessage = 4096 })
	f := wantKind(t, infer(t.Context(), kserve(t, u, request("risk"))), fault.TooLarge)
	if want := "the message is larger than the 4096 bytes that max_message allows on upstream triton"; f.Msg != want {
		t.Errorf("got %q", f.Msg)
	}
}

func TestAUnaryPredictGetsADecoupledModelsOnlyAnswer(t *testing.T) {
	var answers int
	ended := make(chan struct{}, 1)
	s := &tritontest.Server{
		Config: decoupledConfig,
		Stream: func(s *tritontest.Stream) error {
			defer func() { ended <- struct{}{} }()
			r, err := s.Recv()
			if err != nil {
				return err
			}
			if !r.GetParameters()["triton_enable_empty_final_response"].GetBoolParam() {
				t.Error("no empty final answer was asked for")
			}
			for i := range answers {
				if err := s.Send(tritontest.Answer(r, false, byte(i))); err != nil {
					return err
				}
			}
			if answers > 1 {
				<-s.Context().Done() // the gateway has seen enough
				return nil
			}
			return s.Send(tritontest.End(r))
		},
	}
	u := one(t, s)
	for answers = range 3 {
		c := predict(t, u, []byte{1})
		err := infer(t.Context(), c)
		if answers == 1 {
			if err != nil {
				t.Fatal(err)
			}
			if out := decode(t, c.Answer, new(mlpb.PredictionResponse)).GetOutputTensor(); !bytes.Equal(out, []byte{0}) {
				t.Errorf("answer %v", out)
			}
		} else {
			wantKind(t, err, fault.UseStream)
		}
		receive(t, ended, "the end of the upstream stream")
	}
}

func decoupledConfig(_ context.Context, model, _ string) (*tritonpb.ModelConfig, error) {
	return &tritonpb.ModelConfig{Name: model, ModelTransactionPolicy: &tritonpb.ModelTransactionPolicy{Decoupled: true}}, nil
}

func TestFramesAreGivenBackOnEveryPath(t *testing.T) {
	fail := false
	s := &tritontest.Server{Infer: func(_ context.Context, r *tritonpb.ModelInferRequest) (*tritonpb.ModelInferResponse, error) {
		if fail {
			return nil, status.Error(codes.Internal, "no")
		}
		return tritontest.Response(r, make([]byte, 300_000)...), nil
	}}
	buffers, requests := newCounting(), newCounting()
	u := one(t, s, func(o *Options) { o.buffers = buffers })
	big := request("risk", func(r *tritonpb.ModelInferRequest) { r.RawInputContents = [][]byte{make([]byte, 200_000)} })
	for range 4 {
		c := kserve(t, u, big)
		c.Request = requests.frame(c.Request.Buf.Materialize())
		err := infer(t.Context(), c)
		if (err != nil) != fail {
			t.Fatal(err)
		}
		c.Free()
		fail = !fail
	}
	p := predict(t, u, make([]byte, 100_000))
	head := p.Head
	p.Request = requests.frame(p.Request.Buf.Materialize())
	p.Head = head
	if err := infer(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	p.Free()
	requests.wait(t)
	u.Close()
	buffers.wait(t)
}

// TestTheStatusIsThatOfTheTrailers has servers that have sent headers, and even an answer, before they say that they failed.
func TestTheStatusIsThatOfTheTrailers(t *testing.T) {
	failed := status.Error(codes.Unavailable, "Server is stopping, scheduler for model has stopped accepting new inference requests")
	for name, s := range map[string]*tritontest.Server{
		"without headers": {Infer: func(context.Context, *tritonpb.ModelInferRequest) (*tritonpb.ModelInferResponse, error) {
			return nil, failed
		}},
		"after headers": {Infer: func(ctx context.Context, _ *tritonpb.ModelInferRequest) (*tritonpb.ModelInferResponse, error) {
			_ = grpc.SendHeader(ctx, metadata.Pairs("x-head", "h"))
			return nil, failed
		}},
		"after an answer": {Options: []grpc.ServerOption{grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			err := h(srv, ss)
			if err == nil && info.FullMethod == tritonpb.GRPCInferenceService_ModelInfer_FullMethodName {
				err = failed
			}
			return err
		})}},
	} {
		t.Run(name, func(t *testing.T) {
			buffers := newCounting()
			u := one(t, s, func(o *Options) { o.buffers = buffers })
			c := kserve(t, u, request("risk"))
			f := wantKind(t, infer(t.Context(), c), fault.Draining)
			if !f.Kind.Row().Elsewhere || c.Answers != 0 {
				t.Errorf("%d answers, tried elsewhere %t", c.Answers, f.Kind.Row().Elsewhere)
			}
			c.Free()
			buffers.wait(t)
		})
	}
}
