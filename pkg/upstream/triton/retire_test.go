package triton

import (
	"context"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/upstream/triton/tritontest"
	"github.com/model-gateway/model-gateway/proto/triton"
)

func TestAnUpstreamThatRetiresLetsCallsAndStreamsFinish(t *testing.T) {
	arrived, release := make(chan struct{}, 2), make(chan struct{})
	s := &tritontest.Server{
		Infer: func(_ context.Context, r *tritonpb.ModelInferRequest) (*tritonpb.ModelInferResponse, error) {
			arrived <- struct{}{}
			<-release
			return tritontest.Response(r, 1), nil
		},
		Stream: serve(func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error {
			arrived <- struct{}{}
			<-release
			return s.Send(tritontest.Answer(r, true, 1))
		}),
	}
	u := one(t, s)
	unary, message := kserve(t, u, request("risk")), newClient(t, u).message()
	calls := []<-chan error{run(t.Context(), unary), run(t.Context(), message)}
	for range calls {
		receive(t, arrived, "request")
	}
	gone := u.list()[0].gone
	ended := u.Retire(time.Hour)
	if u.Retire(0) != ended {
		t.Error("a second Retire is another one")
	}
	if u.Update(Options{Name: "triton", Endpoints: []string{"b:1"}}) == nil {
		t.Error("a retired upstream was updated")
	}
	late := run(t.Context(), kserve(t, u, request("risk")))
	receive(t, arrived, "a call that had been sent its way before")
	receive(t, gone.Done(), "the endpoint's retirement")
	select {
	case <-ended:
		t.Error("it ended with calls on it")
	default:
	}
	close(release)
	for _, done := range append(calls, late) {
		if err := receive(t, done, "end"); err != nil {
			t.Error(err)
		}
	}
	if unary.Answers != 1 || message.Answers != 1 {
		t.Errorf("%d and %d answers", unary.Answers, message.Answers)
	}
	receive(t, ended, "the end")
	wantKind(t, infer(t.Context(), kserve(t, u, request("risk"))), fault.EndpointLost)
	u.Close()
	receive(t, u.Retire(0), "the end of what has ended")
}

func TestARetiredUpstreamEndsAfterItsGraceOrWhenClosed(t *testing.T) {
	for _, closed := range []bool{false, true} {
		arrived := make(chan struct{}, 2)
		s := &tritontest.Server{Infer: func(ctx context.Context, r *tritonpb.ModelInferRequest) (*tritonpb.ModelInferResponse, error) {
			arrived <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		u := one(t, s)
		done := run(t.Context(), kserve(t, u, request("risk")))
		receive(t, arrived, "request")
		grace := linger + 50*time.Millisecond
		if closed {
			grace = time.Hour
		}
		ended := u.Retire(grace)
		if closed {
			u.Close()
			select {
			case <-ended:
			default:
				t.Error("Close has left something")
			}
		}
		wantKind(t, receive(t, done, "the call"), fault.EndpointLost)
		receive(t, ended, "the end")
	}
}

func TestARetiredUpstreamAsksNothingMore(t *testing.T) {
	h := &closing{closed: make(chan struct{}, 3)}
	u := upstream(t, counters("a:1"), func(o *Options) { o.Health = h })
	u.Retire(time.Hour)
	receive(t, h.closed, "the end of probes")
	u.Close()
}

type closing struct {
	ignorance
	closed chan struct{}
}

func (c *closing) Close() { c.closed <- struct{}{} }
