package triton

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/calm"
	"github.com/model-gateway/model-gateway/pkg/upstream/triton/tritontest"
	mlpb "github.com/model-gateway/model-gateway/proto/ml/inference"
	"github.com/model-gateway/model-gateway/proto/triton"
)

// client is a client stream as a front keeps it.
type client struct {
	t      testing.TB
	u      *Upstream
	stream *inference.Stream
	turn   inference.Turn
}

func newClient(t testing.TB, u *Upstream) *client {
	c := &client{t: t, u: u, stream: &inference.Stream{Context: t.Context()}}
	t.Cleanup(c.stream.Close)
	return c
}

// message is the next message of the stream.
func (c *client) message(change ...func(*tritonpb.ModelInferRequest)) *inference.Call {
	call := kserve(c.t, c.u, request("risk", change...))
	call.Protocol = inference.KServeStream
	return c.next(call)
}

func (c *client) predict(tensor ...byte) *inference.Call {
	call := predict(c.t, c.u, tensor)
	call.Protocol = inference.PredictStream
	return c.next(call)
}

func (c *client) next(call *inference.Call) *inference.Call {
	c.turn = c.turn.Next()
	call.Stream, call.Turn = c.stream, c.turn
	return call
}

// run sends call on its way; its error comes once it has been answered for good.
func run(ctx context.Context, call *inference.Call) <-chan error {
	done := make(chan error, 1)
	go func() {
		defer call.Turn.Pass()
		done <- infer(ctx, call)
	}()
	return done
}

// answers collects what call sends.
func answers(t testing.TB, call *inference.Call) func() []*tritonpb.ModelStreamInferResponse {
	var mu sync.Mutex
	var all []*tritonpb.ModelStreamInferResponse
	call.Sink = func(f inference.Frame) error {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, decode(t, f, new(tritonpb.ModelStreamInferResponse)))
		f.Free()
		return nil
	}
	return func() []*tritonpb.ModelStreamInferResponse {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

func withID(id string) func(*tritonpb.ModelInferRequest) {
	return func(r *tritonpb.ModelInferRequest) { r.Id = id }
}

// serve runs do for each request of a stream.
func serve(do func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error) func(*tritontest.Stream) error {
	return func(s *tritontest.Stream) error {
		for {
			r, err := s.Recv()
			if err != nil {
				if errors.Is(err, io.EOF) {
					return nil
				}
				return err
			}
			if err := do(s, r); err != nil {
				return err
			}
		}
	}
}

func TestMessagesShareOneUpstreamStreamAndKeepTheirOwnIDs(t *testing.T) {
	seen := make(chan *tritonpb.ModelInferRequest, 10)
	s := &tritontest.Server{Stream: serve(func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error {
		seen <- r
		return s.Send(tritontest.Answer(r, true, r.GetRawInputContents()[0][0]))
	})}
	u := one(t, s)
	c := newClient(t, u)
	ids := map[string]bool{}
	for i := range 5 {
		call := c.message(withID("same"), func(r *tritonpb.ModelInferRequest) { r.RawInputContents[0][0] = byte(i) })
		got := answers(t, call)
		if err := receive(t, run(t.Context(), call), "end"); err != nil {
			t.Fatal(err)
		}
		r := receive(t, seen, "request")
		if r.GetModelName() != "fraud" || r.GetModelVersion() != "3" || ids[r.GetId()] || r.GetId() == "same" {
			t.Errorf("the server saw %v", r)
		}
		ids[r.GetId()] = true
		a := got()
		if len(a) != 1 || a[0].GetInferResponse().GetId() != "same" || a[0].GetInferResponse().GetModelName() != "risk" || a[0].GetInferResponse().GetRawOutputContents()[0][0] != byte(i) {
			t.Errorf("the client got %v", a)
		}
	}
	if n := s.Streams.Load(); n != 1 {
		t.Errorf("%d upstream streams", n)
	}
	if a := c.message(); u.InFlight("a:1") != 0 || a.Answers != 0 {
		t.Error("calls that have ended are counted as under way")
	}
}

func TestAnErrorInAStreamEndsItsCallAlone(t *testing.T) {
	s := &tritontest.Server{Stream: serve(func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error {
		if r.GetParameters()["bad"] != nil {
			return s.Send(tritontest.Failure(r, "[request id: "+r.GetId()+"] unexpected shape for input 'INPUT' for model 'fraud'.", false))
		}
		return s.Send(tritontest.Answer(r, true, 1))
	})}
	u := one(t, s)
	c := newClient(t, u)
	for i, id := range []string{"one", "two", "", "four"} {
		bad := i == 1 || i == 2
		call := c.message(withID(id), func(r *tritonpb.ModelInferRequest) {
			if bad {
				r.Parameters = map[string]*tritonpb.InferParameter{"bad": {}}
			}
		})
		got := answers(t, call)
		if err := receive(t, run(t.Context(), call), "end"); err != nil {
			t.Fatal(err)
		}
		a := got()
		if len(a) != 1 || a[0].GetInferResponse().GetId() != id {
			t.Fatalf("%s: got %v", id, a)
		}
		if !bad {
			if call.InBand != nil || a[0].GetErrorMessage() != "" {
				t.Errorf("%s: got %v, %v", id, a, call.InBand)
			}
			continue
		}
		shown := id
		if shown == "" {
			shown = "<id_unknown>"
		}
		wantKind(t, call.InBand, fault.InvalidArgument)
		if want := "[request id: " + shown + "] unexpected shape for input 'INPUT' for model 'fraud'."; a[0].GetErrorMessage() != want {
			t.Errorf("got %q, want %q", a[0].GetErrorMessage(), want)
		}
	}
	p := c.predict(1)
	if err := receive(t, run(t.Context(), p), "end"); err != nil {
		t.Error(err)
	}
}

func TestADecoupledCallEndsAtTheFinalMarkAndHidesItFromWhoHadNotAsked(t *testing.T) {
	s := &tritontest.Server{Config: decoupledConfig, Stream: serve(func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error {
		if !r.GetParameters()["triton_enable_empty_final_response"].GetBoolParam() {
			t.Error("no empty final answer was asked for")
		}
		for i := range r.GetRawInputContents()[0][0] {
			if err := s.Send(tritontest.Answer(r, false, i)); err != nil {
				return err
			}
		}
		return s.Send(tritontest.End(r))
	})}
	u := one(t, s)
	c := newClient(t, u)
	for _, tokens := range []byte{0, 1, 3, 40} {
		for _, asked := range []bool{false, true} {
			call := c.message(withID("x"), func(r *tritonpb.ModelInferRequest) { r.RawInputContents[0][0] = tokens })
			call.Head.EmptyFinal = asked
			got := answers(t, call)
			if err := receive(t, run(t.Context(), call), "end"); err != nil {
				t.Fatal(err)
			}
			want := int(tokens)
			if asked {
				want++
			}
			if a := got(); len(a) != want || !call.Decoupled || call.Answers != want {
				t.Errorf("%d tokens, asked %t: %d answers", tokens, asked, len(a))
			}
		}
		call := c.predict(tokens)
		n := 0
		call.Sink = func(f inference.Frame) error {
			if out := decode(t, f, new(mlpb.PredictionResponse)).GetOutputTensor(); !bytes.Equal(out, []byte{byte(n)}) {
				t.Errorf("answer %d is %v", n, out)
			}
			n++
			f.Free()
			return nil
		}
		if err := receive(t, run(t.Context(), call), "end"); err != nil || n != int(tokens) {
			t.Errorf("%d tokens: %d answers, %v", tokens, n, err)
		}
	}
}

func TestADecoupledModelsErrorIsNotTheEndButOneFromBeforeTheModelIs(t *testing.T) {
	release := make(chan struct{})
	s := &tritontest.Server{Config: decoupledConfig, Stream: serve(func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error {
		if r.GetRawInputContents()[0][0] == 0 {
			return s.Send(tritontest.Failure(r, "unexpected inference input 'X' for model 'fraud'", false))
		}
		_ = s.Send(tritontest.Answer(r, false, 1))
		_ = s.Send(tritontest.Failure(r, "token 1 failed", true))
		<-release
		return s.Send(tritontest.End(r))
	})}
	u := one(t, s)
	c := newClient(t, u)
	call := c.message(func(r *tritonpb.ModelInferRequest) { r.RawInputContents[0][0] = 0 })
	if err := receive(t, run(t.Context(), call), "end"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, call.InBand, fault.InvalidArgument)
	call.Free()
	wantKind(t, receive(t, run(t.Context(), c.predict(0)), "end"), fault.InvalidArgument)

	call = c.message()
	got := make(chan *tritonpb.ModelStreamInferResponse, 5)
	call.Sink = func(f inference.Frame) error {
		got <- decode(t, f, new(tritonpb.ModelStreamInferResponse))
		f.Free()
		return nil
	}
	done := run(t.Context(), call)
	receive(t, got, "first")
	if a := receive(t, got, "error"); a.GetErrorMessage() != "token 1 failed" || a.GetInferResponse().GetModelName() != "risk" {
		t.Errorf("got %v", a)
	}
	select {
	case err := <-done:
		t.Errorf("the call ended with the error: %v", err)
	default:
	}
	release <- struct{}{}
	if err := receive(t, done, "end"); err != nil {
		t.Error(err)
	}
	wantKind(t, call.InBand, fault.UpstreamFailed)

	p := c.predict(1)
	done = run(t.Context(), p)
	release <- struct{}{}
	f := wantKind(t, receive(t, done, "end"), fault.UpstreamFailed)
	if f.Msg != "token 1 failed" || p.Answers != 1 {
		t.Errorf("got %v after %d answers", f, p.Answers)
	}
	p.Free()
}

func TestMessagesLeaveInTheOrderTheyCameAndADecoupledPredictWaitsForTheOneBefore(t *testing.T) {
	for _, test := range []struct {
		name      string
		decoupled bool
		predict   bool
		waits     bool
	}{{"predict", false, true, false}, {"decoupled predict", true, true, true}, {"decoupled kserve", true, false, false}} {
		t.Run(test.name, func(t *testing.T) {
			seen, release := make(chan byte, 10), make(chan struct{})
			s := &tritontest.Server{Stream: serve(func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error {
				seen <- r.GetRawInputContents()[0][0]
				go func() {
					<-release
					_ = s.Send(tritontest.Answer(r, true, 1))
				}()
				return nil
			})}
			if test.decoupled {
				s.Config = decoupledConfig
			}
			u := one(t, s)
			c := newClient(t, u)
			const n = 5
			var calls []*inference.Call
			for i := range n {
				if test.predict {
					calls = append(calls, c.predict(byte(i)))
				} else {
					calls = append(calls, c.message(func(r *tritonpb.ModelInferRequest) { r.RawInputContents[0][0] = byte(i) }))
				}
			}
			done := make([]<-chan error, n)
			for i := n - 1; i >= 0; i-- { // the last starts first, and yet waits for its turn
				done[i] = run(t.Context(), calls[i])
			}
			for i := range n {
				if got := receive(t, seen, "request"); got != byte(i) {
					t.Fatalf("message %d came as number %d", got, i)
				}
				if !test.waits {
					continue
				}
				select {
				case got := <-seen:
					t.Fatalf("message %d was sent before the one before it had ended", got)
				default:
				}
				release <- struct{}{}
				if err := receive(t, done[i], "end"); err != nil {
					t.Fatal(err)
				}
			}
			if !test.waits {
				for range n {
					release <- struct{}{}
				}
				for i := range n {
					if err := receive(t, done[i], "end"); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, c := range calls {
				c.Free()
			}
		})
	}
}

func TestTheEndOfACallEndsOnlyThatCall(t *testing.T) {
	held := make(chan *tritonpb.ModelInferRequest, 1)
	streams := make(chan *tritontest.Stream, 1)
	s := &tritontest.Server{Stream: serve(func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error {
		if r.GetRawInputContents()[0][0] == 1 {
			held <- r
			streams <- s
			return nil
		}
		return s.Send(tritontest.Answer(r, true, 1))
	})}
	u := one(t, s)
	c := newClient(t, u)
	ctx, cancel := context.WithCancel(t.Context())
	slow := c.message(func(r *tritonpb.ModelInferRequest) { r.RawInputContents[0][0] = 1 })
	done := run(ctx, slow)
	r, st := receive(t, held, "request"), receive(t, streams, "stream")
	cancel()
	wantKind(t, receive(t, done, "end"), fault.Cancelled)
	if err := st.Send(tritontest.Answer(r, true, 1)); err != nil { // too late: nobody gets it
		t.Fatal(err)
	}
	next := c.message(withID("n"), func(r *tritonpb.ModelInferRequest) { r.RawInputContents[0][0] = 2 })
	got := answers(t, next)
	if err := receive(t, run(t.Context(), next), "end"); err != nil {
		t.Fatal(err)
	}
	if a := got(); len(a) != 1 || a[0].GetInferResponse().GetId() != "n" || slow.Answers != 0 || s.Streams.Load() != 1 {
		t.Errorf("got %v, %d, over %d streams", a, slow.Answers, s.Streams.Load())
	}
}

func TestAModelThatFallsSilentIsToldFromOneThatNeverAnswered(t *testing.T) {
	s := &tritontest.Server{Config: decoupledConfig, Stream: serve(func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error {
		switch r.GetRawInputContents()[0][0] {
		case 1:
			return s.Send(tritontest.Answer(r, false, 1))
		case 2:
			return s.Send(tritontest.Failure(r, "token 0 failed", true))
		}
		return nil
	})}
	u := one(t, s)
	for _, test := range []struct {
		first, idle time.Duration
		byte        byte
		msg         string
	}{
		{20 * time.Millisecond, time.Hour, 0, `model "risk" gave no answer for 20ms`},
		{time.Hour, 30 * time.Millisecond, 1, `model "risk" gave no answer for 30ms`},
		{time.Hour, 30 * time.Millisecond, 2, ""},
	} {
		for _, kserve := range []bool{true, false} {
			c := newClient(t, u)
			var call *inference.Call
			if kserve {
				call = c.message(func(r *tritonpb.ModelInferRequest) { r.RawInputContents[0][0] = test.byte })
			} else {
				call = c.predict(test.byte)
			}
			call.Model.Timeouts = inference.Timeouts{FirstAnswer: test.first, Idle: test.idle}
			err := receive(t, run(t.Context(), call), fmt.Sprintf("the end of %d, KServe %t", test.byte, kserve))
			switch {
			case test.msg != "":
				if f := wantKind(t, err, fault.UpstreamTimeout); f.Msg != test.msg {
					t.Errorf("got %q, want %q", f.Msg, test.msg)
				}
			case kserve:
				if err != nil {
					t.Error(err)
				}
				wantKind(t, call.InBand, fault.UpstreamFailed)
			default:
				wantKind(t, err, fault.UpstreamFailed)
			}
			call.Free()
		}
	}
}

func notYet() (io.Closer, error) { return nil, errors.New("not yet") }

func TestASlowClientHoldsUpItsOwnStreamOnlyAndLosesNothing(t *testing.T) {
	const many = 200
	s := &tritontest.Server{Config: decoupledConfig, Stream: serve(func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error {
		for i := range many {
			if err := s.Send(tritontest.Answer(r, i == many-1, byte(i))); err != nil {
				return err
			}
		}
		return nil
	})}
	u := one(t, s)
	// A machine that stalls for longer than the timeouts keeps answers from us as a silent model does: that is the error.
	calm.Moment(t, func() error { return slowBesideQuick(t, u, many) })
}

func slowBesideQuick(t *testing.T, u *Upstream, many int) error {
	slow, quick := newClient(t, u), newClient(t, u)
	call := slow.message()
	call.Model.Timeouts = inference.Timeouts{FirstAnswer: time.Hour, Idle: 50 * time.Millisecond}
	gate, n := make(chan struct{}), 0
	call.Sink = func(f inference.Frame) error {
		<-gate
		a := decode(t, f, new(tritonpb.ModelStreamInferResponse))
		if got := a.GetInferResponse().GetRawOutputContents()[0][0]; got != byte(n) {
			t.Errorf("answer %d came as number %d", got, n)
		}
		n++
		f.Free()
		return nil
	}
	done := run(t.Context(), call)
	k, err := slow.stream.Keep(linkKey{pool: u.pool("fraud", "3"), ep: u.list()[0]}, func(io.Closer) bool { return false }, notYet)
	for until := time.Now().Add(patience); err != nil || k.(*link).held.Load() != heldNow; runtime.Gosched() {
		if time.Now().After(until) {
			t.Fatal("the slow client holds up nothing")
		}
		k, err = slow.stream.Keep(linkKey{pool: u.pool("fraud", "3"), ep: u.list()[0]}, func(io.Closer) bool { return false }, notYet)
	}
	second := slow.message() // waits behind the slow one, and is not held to be silent meanwhile
	second.Model.Timeouts = inference.Timeouts{FirstAnswer: 10 * time.Millisecond}
	behind := run(t.Context(), second)
	for range 3 {
		other := quick.message()
		got := answers(t, other)
		if err := receive(t, run(t.Context(), other), "end"); err != nil || len(got()) != many {
			t.Fatalf("%d answers, %v", len(got()), err)
		}
	}
	select {
	case err := <-behind:
		t.Fatalf("the message behind the slow one ended with %v", err)
	case <-time.After(60 * time.Millisecond): // several first-answer timeouts
	}
	close(gate)
	first, next := receive(t, done, "end"), receive(t, behind, "end")
	second.Free()
	if first == nil && n != many {
		t.Errorf("%d answers", n)
	}
	return errors.Join(first, next)
}

func TestAnEndpointIsNotBusyWithAnAnswerThatWaitsForTheClient(t *testing.T) {
	s := &tritontest.Server{Stream: serve(func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error {
		return s.Send(tritontest.Answer(r, true, 1))
	})}
	u := one(t, s)
	call := newClient(t, u).message()
	handed, gate := make(chan int), make(chan struct{})
	call.Sink = func(f inference.Frame) error {
		f.Free()
		handed <- u.InFlight(u.list()[0].name)
		<-gate
		return nil
	}
	done := run(t.Context(), call)
	if n := receive(t, handed, "answer"); n != 0 {
		t.Errorf("%d calls are under way on an endpoint that has answered them all", n)
	}
	close(gate)
	if err := receive(t, done, "end"); err != nil {
		t.Error(err)
	}
}

func TestABrokenStreamFailsEachOfItsCallsAndTheNextOpensAnother(t *testing.T) {
	arrived, fall := make(chan struct{}, 10), make(chan error)
	s := &tritontest.Server{Stream: func(s *tritontest.Stream) error {
		r, err := s.Recv()
		if err != nil {
			return err
		}
		arrived <- struct{}{}
		if r.GetInputs()[0].GetName() != "STEP" { // one message of the other two has come
			if _, err := s.Recv(); err != nil {
				return err
			}
			arrived <- struct{}{}
		}
		return <-fall
	}}
	u := one(t, s)
	c := newClient(t, u)
	for i, test := range []struct {
		with error
		kind fault.Kind
		seq  fault.Kind
	}{
		{nil, fault.EndpointLost, fault.SequenceLost},
		{status.Error(codes.Unavailable, "Server exiting"), fault.Draining, fault.SequenceLost},
		{status.Error(codes.Internal, "Unable to parse request"), fault.InvalidArgument, fault.InvalidArgument},
	} {
		sequence := c.message(func(r *tritonpb.ModelInferRequest) { r.Inputs[0].Name = "STEP" }) // on a stream of its own
		sequence.Head.Sequence.ID = fmt.Sprint(77 + i)
		calls := []<-chan error{run(t.Context(), c.message()), run(t.Context(), c.predict(1)), run(t.Context(), sequence)}
		for range calls {
			receive(t, arrived, "request")
		}
		fall <- test.with
		fall <- test.with
		wantKind(t, receive(t, calls[0], "end"), test.kind)
		wantKind(t, receive(t, calls[1], "end"), test.kind)
		wantKind(t, receive(t, calls[2], "end"), test.seq)
	}
	if n := s.Streams.Load(); n != 6 {
		t.Errorf("%d streams", n)
	}
}

func TestALostConnectionFailsTheCallsOnItAndTheStreamLivesOn(t *testing.T) {
	arrived := make(chan struct{}, 10)
	answering := false
	s := &tritontest.Server{Stream: serve(func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error {
		if answering {
			return s.Send(tritontest.Answer(r, true, 1))
		}
		arrived <- struct{}{}
		<-s.Context().Done()
		return nil
	})}
	u := one(t, s)
	c := newClient(t, u)
	done := run(t.Context(), c.message())
	receive(t, arrived, "request")
	s.Stop()
	wantKind(t, receive(t, done, "end"), fault.EndpointLost)
	refused := receive(t, run(t.Context(), c.message()), "end")
	if k := fault.Of(refused).Kind; k != fault.UpstreamUnavailable && k != fault.EndpointLost {
		t.Errorf("got %v", refused)
	}
	answering = true
	s.Start()
	until := time.Now().Add(patience)
	for {
		call := c.message()
		err := receive(t, run(t.Context(), call), "end")
		call.Free()
		if err == nil {
			break
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
}

func TestClosingTheClientsStreamLeavesNothingBehind(t *testing.T) {
	ended := make(chan struct{}, 1)
	s := &tritontest.Server{Stream: func(s *tritontest.Stream) error {
		defer func() { ended <- struct{}{} }()
		if _, err := s.Recv(); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	}}
	u := one(t, s)
	c := newClient(t, u)
	done := run(t.Context(), c.message())
	for s.Streams.Load() == 0 {
		select {
		case err := <-done:
			t.Fatal(err)
		default:
		}
	}
	c.stream.Close()
	wantKind(t, receive(t, done, "end"), fault.Cancelled)
	receive(t, ended, "the end upstream")
	wantKind(t, receive(t, run(t.Context(), c.message()), "end"), fault.Cancelled)
}

func TestAThousandCancelledCallsLeaveNothingUpstream(t *testing.T) {
	calm.Moment(t, func() error { return aThousandCancelled(t) })
}

func aThousandCancelled(t *testing.T) error {
	const n = 500 // of each kind
	arrived, gone := make(chan struct{}, 4*n), make(chan struct{}, 4*n)
	s := &tritontest.Server{
		Infer: func(ctx context.Context, _ *tritonpb.ModelInferRequest) (*tritonpb.ModelInferResponse, error) {
			arrived <- struct{}{}
			<-ctx.Done()
			gone <- struct{}{}
			return nil, ctx.Err()
		},
		Stream: func(s *tritontest.Stream) error {
			if _, err := s.Recv(); err != nil {
				return err
			}
			arrived <- struct{}{}
			<-s.Context().Done()
			gone <- struct{}{}
			return nil
		},
	}
	u := one(t, s)
	defer s.Stop()
	defer u.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all []<-chan error
	for range n {
		all = append(all, run(ctx, kserve(t, u, request("risk"))))
		c := newClient(t, u)
		c.stream.Context = ctx
		all = append(all, run(ctx, c.message()))
	}
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for n := 0; n < len(all); {
		select {
		case <-arrived:
			n++
		case <-look.C:
			for _, done := range all {
				if len(done) == 0 {
					continue
				}
				err := <-done // it took too long to connect, for one
				cancel()
				if err == nil {
					t.Error("a call that nobody answers is answered")
				}
				return fmt.Errorf("a call has ended before it was cancelled: %w", err)
			}
		}
	}
	e := u.list()[0]
	if got := len(*e.conns.Load()); got < 2*n/streamsPerConn {
		t.Errorf("%d connections for %d streams", got, 2*n)
	}
	begin := time.Now()
	cancel()
	for _, done := range all {
		wantKind(t, receive(t, done, "end"), fault.Cancelled)
	}
	for range all {
		receive(t, gone, "the end upstream")
	}
	took := time.Since(begin)
	if u.InFlight("a:1") != 0 {
		t.Errorf("%d calls are under way", u.InFlight("a:1"))
	}
	for until := time.Now().Add(patience); len(*e.conns.Load()) > 1; e.trim() {
		if time.Now().After(until) {
			t.Fatalf("%d connections are left", len(*e.conns.Load()))
		}
	}
	if took > 5*time.Second {
		return fmt.Errorf("it took %s", took)
	}
	return nil
}

func TestFramesOfStreamsAreGivenBack(t *testing.T) {
	s := &tritontest.Server{Config: decoupledConfig, Stream: serve(func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error {
		for i := range 20 {
			if err := s.Send(tritontest.Answer(r, i == 19, make([]byte, 20_000)...)); err != nil {
				return err
			}
		}
		return nil
	})}
	buffers, requests := newCounting(), newCounting()
	u := one(t, s, func(o *Options) { o.buffers = buffers })
	c := newClient(t, u)
	big := func(r *tritonpb.ModelInferRequest) { r.RawInputContents[0] = make([]byte, 50_000) }
	for i := range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		call := c.message(big)
		call.Request = requests.frame(call.Request.Buf.Materialize())
		n := 0
		call.Sink = func(f inference.Frame) error {
			f.Free()
			if n++; i == 1 && n == 3 {
				cancel() // with answers in the mailbox and behind it
			}
			if i == 2 && n == 4 {
				return errors.New("the client is gone")
			}
			return nil
		}
		err := receive(t, run(ctx, call), "end")
		if (err == nil) != (i == 0) {
			t.Errorf("call %d: %v", i, err)
		}
		call.Free()
		cancel()
	}
	p := c.predict(make([]byte, 50_000)...)
	p.Request = requests.frame(p.Request.Buf.Materialize())
	p.Sink = func(f inference.Frame) error { f.Free(); return nil }
	if err := receive(t, run(t.Context(), p), "end"); err != nil || p.Answers != 20 {
		t.Errorf("%d answers, %v", p.Answers, err)
	}
	p.Free()
	c.stream.Close()
	requests.wait(t)
	u.Close()
	buffers.wait(t)
}

func TestAModelThatDescribesNothingCanBeStreamedTo(t *testing.T) {
	s := &tritontest.Server{
		Config: func(context.Context, string, string) (*tritonpb.ModelConfig, error) {
			return nil, status.Error(codes.Internal, "no configuration")
		},
		Stream: serve(func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error {
			return s.Send(tritontest.Answer(r, true, 1)) // as every model of Triton ends
		}),
	}
	u := one(t, s)
	call := newClient(t, u).message()
	got := answers(t, call)
	if err := receive(t, run(t.Context(), call), "end"); err != nil || len(got()) != 1 || call.Decoupled {
		t.Errorf("%v, %v", got(), err)
	}
}

func TestADecoupledModelThatDescribesNothingIsFoundOutByItsFirstAnswer(t *testing.T) {
	requests := make(chan *tritonpb.ModelInferRequest, 2)
	s := &tritontest.Server{
		Config: func(context.Context, string, string) (*tritonpb.ModelConfig, error) {
			return nil, status.Error(codes.Internal, "no configuration")
		},
		Stream: func(s *tritontest.Stream) error {
			for range 2 {
				r, err := s.Recv()
				if err != nil {
					return err
				}
				requests <- r
			}
			first, second := <-requests, <-requests
			for i := range 5 * mailbox {
				if err := s.Send(tritontest.Answer(second, i == 5*mailbox-1, 1)); err != nil {
					return err
				}
			}
			return s.Send(tritontest.Answer(first, true, 1))
		},
	}
	u := one(t, s)
	c := newClient(t, u)
	first, second := c.message(), c.message()
	mayAnswer := make(chan struct{}) // the front holds answers back until the call before has ended, or need not
	second.OnDecoupled = func() { close(mayAnswer) }
	second.Sink = func(f inference.Frame) error {
		<-mayAnswer
		f.Free()
		return nil
	}
	a, b := run(t.Context(), first), run(t.Context(), second)
	if err := receive(t, b, "second"); err != nil || second.Answers != 5*mailbox {
		t.Errorf("%d answers, %v", second.Answers, err)
	}
	if err := receive(t, a, "first"); err != nil || first.Decoupled || !second.Decoupled {
		t.Errorf("%v", err)
	}
	first.Free()
}

func TestAMessageOverTheCapHarmsNoOther(t *testing.T) {
	s := &tritontest.Server{Stream: serve(func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error {
		return s.Send(tritontest.Answer(r, true, 1))
	})}
	u := one(t, s, func(o *Options) { o.MaxMessage = 100_000 })
	c := newClient(t, u)
	for i := range 3 {
		call := c.message(func(r *tritonpb.ModelInferRequest) {
			if i == 1 {
				r.RawInputContents[0] = make([]byte, 200_000)
			}
		})
		err := receive(t, run(t.Context(), call), "end")
		if i == 1 {
			if f := wantKind(t, err, fault.TooLarge); !strings.Contains(f.Msg, "100000") {
				t.Errorf("the cap is not named: %s", f.Msg)
			}
		} else if err != nil {
			t.Error(err)
		}
		call.Free()
	}
	if s.Streams.Load() != 1 {
		t.Errorf("%d streams", s.Streams.Load())
	}
}

func TestASendThatTheServerDoesNotTakeEndsWithItsCall(t *testing.T) {
	stop := make(chan struct{})
	s := &tritontest.Server{Stream: func(s *tritontest.Stream) error {
		select { // reads nothing
		case <-stop:
		case <-s.Context().Done():
		}
		return nil
	}}
	u := one(t, s)
	c := newClient(t, u)
	big := func(r *tritonpb.ModelInferRequest) { r.RawInputContents[0] = make([]byte, 4<<20) }
	call := c.message(big)
	call.Model.Timeouts.FirstAnswer = 100 * time.Millisecond
	var all []<-chan error
	all = append(all, run(t.Context(), call))
	for range 3 {
		all = append(all, run(t.Context(), c.message(big)))
	}
	failed := 0
	wantKind(t, receive(t, all[0], "end"), fault.UpstreamTimeout)
	c.stream.Close()
	for _, done := range all[1:] {
		if receive(t, done, "end") != nil {
			failed++
		}
	}
	close(stop)
	if failed != 3 {
		t.Errorf("%d calls failed", failed)
	}
}

func TestMessagesToSeveralModelsTravelOnStreamsOfTheirOwn(t *testing.T) {
	s := &tritontest.Server{Stream: serve(func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error {
		return s.Send(tritontest.Answer(r, true, []byte(r.GetModelName())...))
	})}
	u := one(t, s)
	c := newClient(t, u)
	for i := range 6 {
		name := fmt.Sprintf("m%d", i%3)
		call := c.message()
		call.Target = &inference.Target{Model: name, Version: "1", Asked: "risk", Pool: u.Pool(name, "1")}
		got := answers(t, call)
		if err := receive(t, run(t.Context(), call), "end"); err != nil {
			t.Fatal(err)
		}
		if a := got(); string(a[0].GetInferResponse().GetRawOutputContents()[0]) != name {
			t.Errorf("%s got %v", name, a)
		}
	}
	if s.Streams.Load() != 3 {
		t.Errorf("%d streams", s.Streams.Load())
	}
}

func TestAnUpstreamThatTakesNoConnectionHoldsUpNoOtherModelOfTheStream(t *testing.T) {
	hole := make(chan struct{})
	void, err := New(Options{Name: "void", Endpoints: []string{"void:1"}, Dial: func(ctx context.Context, _ string) (net.Conn, error) {
		select {
		case <-hole:
		case <-ctx.Done():
		}
		return nil, errors.New("connection refused")
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer void.Close()
	u := upstream(t, counters("a:1"), func(o *Options) { o.Endpoints = []string{"a:1"} })
	c := newClient(t, u)
	// The model describes nothing, so that the message gets as far as opening a stream.
	target := &inference.Target{Model: "gone", Version: "1", Pool: void.Pool("gone", "1")}
	void.pool("gone", "1").info.known.Store(&Info{until: time.Now().Add(time.Hour)})
	stuck, behind := c.message(), c.message()
	stuck.Target, behind.Target = target, target
	calls := []<-chan error{run(t.Context(), stuck), run(t.Context(), behind)}
	for range 3 {
		if err := receive(t, run(t.Context(), c.message()), "a message to another model"); err != nil {
			t.Error(err)
		}
	}
	for _, done := range calls {
		select {
		case err := <-done:
			t.Errorf("the black hole answered %v", err)
		default:
		}
	}
	close(hole)
	for _, done := range calls {
		wantKind(t, receive(t, done, "end"), fault.UpstreamUnavailable)
	}
}
