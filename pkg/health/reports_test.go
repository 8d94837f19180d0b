package health

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

func TestARefusedCallTakesTheEndpointOutAtOnceAndTwoGoodAnswersHaveItBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &server{ready: map[string]bool{"fraud/1": true}}, &server{ready: map[string]bool{"fraud/1": true}}
		r := start(t, map[string]*server{"a": a, "b": b}, fraud1)
		after(time.Second)
		a.set(func() { a.err = refused })
		r.took()
		r.Refused("a", errors.New("connection refused"))
		r.want(t, "a", "fraud", "1", inference.NotReady)
		r.want(t, "b", "fraud", "1", inference.Ready)
		if out, silent := r.Out("a"); !out || silent {
			t.Errorf("out %t, silent %t", out, silent)
		}
		if got := r.took(); len(got) == 0 || got[0] != "" {
			t.Errorf("told of %q", got)
		}
		after(30 * time.Second)
		a.set(func() { a.err = nil })
		after(2*time.Second + 600*time.Millisecond)
		r.want(t, "a", "fraud", "1", inference.Ready)
		r.Refused("a", errors.New("connection refused")) // by mistake
		r.want(t, "a", "fraud", "1", inference.NotReady)
		after(510 * time.Millisecond)
		r.want(t, "a", "fraud", "1", inference.Ready)
		r.Refused("nowhere", nil)
		r.NotReady("nowhere", "fraud", "1")
		r.Doubt("nowhere")
	})
}

func TestAModelThatACallFoundNotReadyIsOutThereAtOnceAndNothingElseIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ready := map[string]bool{"fraud/1": true, "cnn/1": true}
		a, b := &server{ready: ready}, &server{ready: ready}
		r := start(t, map[string]*server{"a": a, "b": b}, fraud1, key{"cnn", "1"})
		after(time.Second)
		a.set(func() { a.ready = map[string]bool{"cnn/1": true} })
		r.NotReady("a", "fraud", "1")
		r.want(t, "a", "fraud", "1", inference.NotReady)
		r.want(t, "a", "cnn", "1", inference.Ready)
		r.want(t, "b", "fraud", "1", inference.Ready)
		r.NotReady("b", "never probed", "1")
		r.want(t, "b", "never probed", "1", inference.NotReady)
		after(10 * time.Second)
		r.want(t, "a", "fraud", "1", inference.NotReady)
		a.set(func() { a.ready = ready })
		after(2*time.Second + 600*time.Millisecond)
		r.want(t, "a", "fraud", "1", inference.Ready)
	})
}

func TestAnEndpointThatSaysItIsStoppingIsOutAndFinishesWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{ready: map[string]bool{"fraud/1": true}}
		r := start(t, map[string]*server{"a": s}, fraud1)
		after(time.Second)
		s.set(func() { s.err = fault.New(fault.Draining, "Server exiting") })
		r.Leaving("a", s.err)
		r.want(t, "a", "fraud", "1", inference.NotReady)
		if out, silent := r.Out("a"); !out || silent || !r.Draining("a") {
			t.Errorf("out %t, silent %t, draining %t", out, silent, r.Draining("a"))
		}
		after(4 * time.Second)
		s.set(func() { s.err = refused })
		after(time.Minute)
		if out, silent := r.Out("a"); !out || silent || !r.Draining("a") {
			t.Errorf("after it has gone: out %t, silent %t, draining %t", out, silent, r.Draining("a"))
		}
		s.set(func() { s.err = nil })
		after(2*time.Second + 600*time.Millisecond)
		if out, _ := r.Out("a"); out || r.Draining("a") {
			t.Error("it is not back")
		}
	})
}

func TestASilentEndpointIsSaidToBeSilentSoThatItsCallsAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{ready: map[string]bool{"fraud/1": true}}
		r := start(t, map[string]*server{"a": s}, fraud1)
		after(2*time.Second + time.Millisecond) // just after it has been asked
		s.set(func() { s.silent = true })
		after(4*time.Second + 900*time.Millisecond)
		r.want(t, "a", "fraud", "1", inference.Ready)
		after(2 * time.Second)
		r.want(t, "a", "fraud", "1", inference.NotReady)
		if out, silent := r.Out("a"); !out || !silent {
			t.Errorf("out %t, silent %t", out, silent)
		}
	})
}

// busy is a connection over which calls are answered although questions are not.
type busy struct {
	*server
	calls atomic.Bool
}

func (b *busy) Answered() bool { return b.calls.Load() }

func TestMissingAnswersAreNoEvidenceWhileCallsAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &busy{server: &server{ready: map[string]bool{"fraud/1": true}}}
		r := start(t, nil, fraud1)
		r.SetEndpoints(map[string]grpc.ClientConnInterface{"a": b})
		after(time.Second)
		b.calls.Store(true)
		b.set(func() { b.silent = true })
		after(time.Minute)
		r.want(t, "a", "fraud", "1", inference.Ready)
		b.calls.Store(false)
		after(7 * time.Second)
		r.want(t, "a", "fraud", "1", inference.NotReady)
	})
}

func TestAHostThatCannotConnectAtAllSaysNothingOfItsEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{ready: map[string]bool{"fraud/1": true}}
		r := start(t, map[string]*server{"a": s}, fraud1)
		after(time.Second)
		s.set(func() { s.err = fault.New(fault.Internal, "too many open files") })
		after(time.Minute)
		r.want(t, "a", "fraud", "1", inference.Ready)
	})
}

// late is a connection whose answers do not come, and whose failures to come are noticed late: this process has no time.
type late struct{ *server }

func (l late) Invoke(ctx context.Context, method string, q, a any, opts ...grpc.CallOption) error {
	err := l.server.Invoke(ctx, method, q, a, opts...)
	if err != nil {
		after(2 * time.Second)
	}
	return err
}

func TestAProcessThatHasNoTimeTakesNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{ready: map[string]bool{"fraud/1": true}}
		r := start(t, nil, fraud1)
		r.SetEndpoints(map[string]grpc.ClientConnInterface{"a": late{s}})
		after(time.Second)
		s.set(func() { s.silent = true })
		after(time.Minute)
		r.want(t, "a", "fraud", "1", inference.Ready)
	})
}

func TestABrokenConnectionHasTheEndpointAskedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{ready: map[string]bool{"fraud/1": true}}
		r := start(t, map[string]*server{"a": s}, fraud1)
		after(time.Second)
		s.set(func() { s.err = refused })
		r.Doubt("a")
		r.want(t, "a", "fraud", "1", inference.NotReady)
	})
}
