package triton

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/upstream/triton/tritontest"
	"github.com/model-gateway/model-gateway/pkg/wire"
	"github.com/model-gateway/model-gateway/proto/triton"
)

// garbage is no protobuf message.
func garbage() wire.Give {
	f := inference.NewFrame([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	return wire.Give{Frame: &f}
}

func TestAMessageThatCannotBeSentBreaksTheStreamAfterAMoment(t *testing.T) {
	for _, cancelled := range []bool{false, true} {
		s := &tritontest.Server{Stream: func(s *tritontest.Stream) error { // reads nothing
			<-s.Context().Done()
			return nil
		}}
		u := one(t, s)
		c := newClient(t, u)
		big := func(r *tritonpb.ModelInferRequest) { r.RawInputContents[0] = make([]byte, 4<<20) }
		first := run(t.Context(), c.message(big)) // is taken over whole, and fills the window
		second := c.message(big)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if !cancelled {
			second.Model.Timeouts.FirstAnswer = time.Millisecond
		}
		done := run(ctx, second)
		k, err := c.stream.Keep(linkKey{pool: u.pool("fraud", "3"), ep: u.list()[0]}, func(io.Closer) bool { return false }, notYet)
		for until := time.Now().Add(patience); err != nil || k.(*link).sends.Load() != 3; {
			if time.Now().After(until) {
				t.Fatal("the second message is not being sent")
			}
			k, err = c.stream.Keep(linkKey{pool: u.pool("fraud", "3"), ep: u.list()[0]}, func(io.Closer) bool { return false }, notYet)
		}
		third := run(t.Context(), c.message())
		want := fault.UpstreamTimeout
		if cancelled {
			cancel()
			want = fault.Cancelled
		}
		wantKind(t, receive(t, done, "the message that is stuck"), want)
		wantKind(t, receive(t, first, "the one before"), fault.UpstreamTimeout)
		_ = third // waits for its turn, or opens another stream
		c.stream.Close()
		receive(t, third, "the one behind") //nolint:errcheck // either way it ends
	}
}

func TestWaitingForAStuckMessageEndsWithTheCall(t *testing.T) {
	l := &link{sending: make(chan struct{}, 1)}
	l.sending <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantKind(t, l.send(ctx, &inference.Call{Model: &inference.Model{}}), fault.Cancelled)
}

func TestAnErrorWithoutAnIDIsTheOnlyCallsOrEverybodys(t *testing.T) {
	n := 1
	s := &tritontest.Server{Stream: func(s *tritontest.Stream) error {
		for range n {
			if _, err := s.Recv(); err != nil {
				return err
			}
		}
		if err := s.Send(&tritonpb.ModelStreamInferResponse{ErrorMessage: "Server exiting"}); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	}}
	u := one(t, s)
	for n = 1; n <= 3; n++ {
		c := newClient(t, u)
		var all []<-chan error
		for range n {
			all = append(all, run(t.Context(), c.predict(1)))
		}
		for _, done := range all {
			wantKind(t, receive(t, done, "end"), fault.Draining)
		}
	}
}

func TestAnAnswerThatNobodyCanReadIsTheUpstreamsFailure(t *testing.T) {
	decoupled := false
	s := &tritontest.Server{
		Config: func(ctx context.Context, model, version string) (*tritonpb.ModelConfig, error) {
			if decoupled {
				return decoupledConfig(ctx, model, version)
			}
			return &tritonpb.ModelConfig{}, nil
		},
		Raw: func(_ context.Context, f inference.Frame) (inference.Frame, error) {
			f.Free()
			return *garbage().Frame, nil
		},
		Stream: serve(func(s *tritontest.Stream, _ *tritonpb.ModelInferRequest) error { return s.SendMsg(garbage()) }),
	}
	for _, decoupled = range []bool{false, true} {
		u := one(t, s)
		wantKind(t, infer(t.Context(), predict(t, u, []byte{1})), fault.UpstreamFailed)
		wantKind(t, receive(t, run(t.Context(), newClient(t, u).predict(1)), "end"), fault.UpstreamFailed)
		wantKind(t, receive(t, run(t.Context(), newClient(t, u).message()), "end"), fault.UpstreamFailed)
		u.Close()
		s.Stop()
	}
	u := one(t, &tritontest.Server{Stream: serve(func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error {
		return s.Send(tritontest.Answer(r, true, 1))
	})})
	call := newClient(t, u).predict(1)
	call.Model.Tensors = &inference.Tensors{Inputs: []inference.Tensor{{Name: "INPUT", Datatype: "UINT8", Shape: []int64{-1}}}, Output: "SCORE"}
	wantKind(t, receive(t, run(t.Context(), call), "end"), fault.UpstreamFailed)
}

func TestAUnaryPredictToADecoupledModelFailsAsTheStreamDoes(t *testing.T) {
	var do func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error
	s := &tritontest.Server{Config: decoupledConfig, Stream: func(s *tritontest.Stream) error {
		r, err := s.Recv()
		if err != nil {
			return err
		}
		return do(s, r)
	}}
	u := one(t, s)
	for _, test := range []struct {
		do   func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error
		kind fault.Kind
	}{
		{func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error {
			return s.Send(tritontest.Failure(r, "token 0 failed", true))
		}, fault.UpstreamFailed},
		{func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error {
			return s.Send(tritontest.Failure(r, "[request id: <id_unknown>] unexpected shape for input 'X'", false))
		}, fault.InvalidArgument},
		{func(*tritontest.Stream, *tritonpb.ModelInferRequest) error {
			return status.Error(codes.Unavailable, "Server exiting")
		}, fault.Draining},
		{func(*tritontest.Stream, *tritonpb.ModelInferRequest) error { return nil }, fault.UseStream},
	} {
		do = test.do
		wantKind(t, infer(t.Context(), predict(t, u, []byte{1})), test.kind)
	}
	s.Stop()
	err := infer(t.Context(), predict(t, u, []byte{1}))
	if k := fault.Of(err).Kind; k != fault.UpstreamUnavailable && k != fault.EndpointLost {
		t.Errorf("got %v", err)
	}
}

func TestAnEndpointThatHasBeenTakenOutTakesNoMoreCalls(t *testing.T) {
	servers := tritontest.Network{"a:1": {}, "b:1": {}}
	u := upstream(t, servers, func(o *Options) { o.Endpoints = []string{"a:1"} })
	c := kserve(t, u, request("risk"))
	late, err := c.Target.Pool.Pick(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Update(Options{Name: "triton", Dial: servers.Dial, Version: "test", Endpoints: []string{"b:1"}}); err != nil {
		t.Fatal(err)
	}
	wantKind(t, late.Infer(t.Context(), c), fault.EndpointLost)
	if err := infer(t.Context(), c); err != nil { // the request is as good as before
		t.Error(err)
	}
	if len(u.retired) != 1 || !u.retired[0].empty() {
		t.Error("something is left on an endpoint without calls")
	}
}

func TestAFullEndpointSharesItsConnections(t *testing.T) {
	e := &endpoint{name: "x", up: &Upstream{name: "u"}}
	e.gone, e.leave = context.WithCancel(t.Context())
	defer e.leave()
	var conns []*conn
	for range maxConns {
		c := &conn{}
		c.open.Store(streamsPerConn)
		conns = append(conns, c)
	}
	e.conns.Store(&conns)
	c, err := e.conn(false)
	if err != nil || c.open.Load() != streamsPerConn+1 {
		t.Errorf("%v", err)
	}
	for _, c := range conns {
		c.open.Store(closed)
	}
	_, err = e.conn(false)
	wantKind(t, err, fault.EndpointLost)
}

func TestOptionalInputsAreNotPartOfAPrediction(t *testing.T) {
	optional := func(names ...string) func(context.Context, string, string) (*tritonpb.ModelConfig, error) {
		return func(context.Context, string, string) (*tritonpb.ModelConfig, error) {
			c := &tritonpb.ModelConfig{}
			for _, n := range names {
				c.Input = append(c.Input, &tritonpb.ModelInput{Name: n, Optional: true})
			}
			return c, nil
		}
	}
	metadata := func(context.Context, string, string) (*tritonpb.ModelMetadataResponse, error) {
		return &tritonpb.ModelMetadataResponse{Inputs: []*tritonpb.ModelMetadataResponse_TensorMetadata{{Name: "A"}, {Name: "B"}}}, nil
	}
	for names, want := range map[string]string{"": "A B", "B": "A", "A B": "A B"} {
		u := one(t, &tritontest.Server{Metadata: metadata, Config: optional(strings.Fields(names)...)})
		info, err := u.Info(t.Context(), "m", "1")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, in := range info.Tensors.Inputs {
			got = append(got, in.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("optional %q: %q", names, got)
		}
	}
	many := func(context.Context, string, string) (*tritonpb.ModelMetadataResponse, error) {
		m := &tritonpb.ModelMetadataResponse{}
		for range maxTensors + 1 {
			m.Inputs = append(m.Inputs, &tritonpb.ModelMetadataResponse_TensorMetadata{Name: "A"})
		}
		return m, nil
	}
	u := one(t, &tritontest.Server{Metadata: many})
	_, err := u.Info(t.Context(), "m", "1")
	wantKind(t, err, fault.UpstreamFailed)
}

func TestClosingAnUpstreamEndsWhatIsUnderWay(t *testing.T) {
	arrived := make(chan struct{}, 2)
	s := &tritontest.Server{
		Infer: func(ctx context.Context, _ *tritonpb.ModelInferRequest) (*tritonpb.ModelInferResponse, error) {
			arrived <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		},
		Stream: serve(func(*tritontest.Stream, *tritonpb.ModelInferRequest) error {
			arrived <- struct{}{}
			return nil
		}),
	}
	u := one(t, s)
	unary, streamed := run(t.Context(), kserve(t, u, request("risk"))), run(t.Context(), newClient(t, u).message())
	receive(t, arrived, "call")
	receive(t, arrived, "call")
	u.Close()
	wantKind(t, receive(t, unary, "end"), fault.EndpointLost)
	wantKind(t, receive(t, streamed, "end"), fault.EndpointLost)
	_, err := u.Info(t.Context(), "new", "1")
	wantKind(t, err, fault.ShuttingDown)
	if err := (line{u.list()[0]}).Invoke(t.Context(), "/x/y", nil, nil); err == nil {
		t.Error("a closed connection works")
	}
	if _, err := (line{u.list()[0]}).NewStream(t.Context(), &grpc.StreamDesc{}, "/x/y"); err == nil {
		t.Error("a stream was opened")
	}
}
