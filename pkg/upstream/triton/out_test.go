package triton

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/health"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/calm"
	"github.com/model-gateway/model-gateway/pkg/upstream/triton/tritontest"
	"github.com/model-gateway/model-gateway/proto/triton"
)

// patient is an upstream whose prober asks at the start and then only when traffic gives it reason to.
func patient(t *testing.T, servers tritontest.Network, change ...func(*Options)) *Upstream {
	return upstream(t, servers, append(change, func(o *Options) {
		o.Health = health.New(health.Options{Every: time.Hour, Confirm: 5 * time.Millisecond, IndexEvery: time.Hour, Timeout: 10 * time.Second, PerSecond: 1000})
	})...)
}

// eventually waits until is holds.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for until := time.Now().Add(patience); !is(); {
		if time.Now().After(until) {
			t.Fatalf("not so in time: %s", what)
		}
	}
}

// on sends a call to one endpoint.
func on(t *testing.T, u *Upstream, address string, c *inference.Call) error {
	t.Helper()
	s := u.pool("fraud", "3").current().seatOf(address)
	if s == nil {
		t.Errorf("%s cannot be chosen", address)
		return nil
	}
	return s.Infer(t.Context(), c)
}

func TestARefusedConnectionTakesTheEndpointOutWithTheFirstCallThatMeetsIt(t *testing.T) {
	servers := tritontest.Network{"a:1": {}, "b:1": {}}
	u := patient(t, servers)
	become(t, u, ok)
	eventually(t, "both are up", func() bool { return u.Up("a:1") && u.Up("b:1") && len(u.pool("fraud", "3").current().ready) == 2 })
	servers["a:1"].Stop()
	for out := false; !out; {
		c := kserve(t, u, request("risk"))
		e, err := c.Target.Pool.Pick(c, nil)
		if err != nil {
			t.Fatal(err)
		}
		if e.Name() == "a:1" {
			if f := wantOneOf(t, e.Infer(t.Context(), c), fault.EndpointLost, fault.UpstreamUnavailable); !f.Kind.Row().Elsewhere {
				t.Errorf("%v is not tried elsewhere", f)
			}
		}
		out = !u.Up("a:1")
	}
	for range 20 {
		if err := infer(t.Context(), kserve(t, u, request("risk"))); err != nil {
			if f := fault.Of(err); f.Kind != fault.EndpointLost {
				t.Fatal(err)
			}
		}
	}
}

func wantOneOf(t *testing.T, err error, kinds ...fault.Kind) *fault.Fault {
	t.Helper()
	f := fault.Of(err)
	for _, k := range kinds {
		if f != nil && f.Kind == k {
			return f
		}
	}
	t.Fatalf("got %v", err)
	return nil
}

func TestAModelThatIsNotReadyLeavesThePoolOfThatEndpointWithTheCallThatFindsOut(t *testing.T) {
	var gone atomic.Bool
	servers := tritontest.Network{
		"a:1": {
			Infer: func(_ context.Context, r *tritonpb.ModelInferRequest) (*tritonpb.ModelInferResponse, error) {
				if gone.Load() {
					return nil, status.Error(codes.Unavailable, "Request for unknown model: 'fraud' version 3 is not at ready state")
				}
				return tritontest.Response(r, 1), nil
			},
			Ready: func(context.Context, string, string) (bool, error) { return !gone.Load(), nil },
		},
		"b:1": {},
	}
	u := patient(t, servers)
	become(t, u, ok)
	eventually(t, "both are ready", func() bool { return len(u.pool("fraud", "3").current().ready) == 2 })
	gone.Store(true)
	wantKind(t, on(t, u, "a:1", kserve(t, u, request("risk"))), fault.ModelNotReady)
	eventually(t, "it has left the pool", func() bool { return len(u.pool("fraud", "3").current().ready) == 1 })
	if !u.Up("a:1") {
		t.Error("the endpoint is out for all models")
	}
	gone.Store(false)
	u.health.Kick("fraud", "3")
	eventually(t, "it is back", func() bool {
		u.health.Kick("fraud", "3")
		return len(u.pool("fraud", "3").current().ready) == 2
	})
}

func TestAServerThatIsStoppingGetsNoCallsAndFinishesThoseItHas(t *testing.T) {
	arrived, release := make(chan struct{}, 1), make(chan struct{})
	var stopping atomic.Bool
	servers := tritontest.Network{
		"a:1": {
			Infer: func(_ context.Context, r *tritonpb.ModelInferRequest) (*tritonpb.ModelInferResponse, error) {
				if stopping.Load() {
					return nil, status.Error(codes.Unavailable, "[request id: <id_unknown>] Server is stopping, scheduler for model has stopped accepting new inference requests")
				}
				arrived <- struct{}{}
				<-release
				return tritontest.Response(r, 1), nil
			},
			Live: func(context.Context) (bool, error) {
				if stopping.Load() {
					return false, status.Error(codes.Unavailable, "Server exiting")
				}
				return true, nil
			},
		},
		"b:1": {},
	}
	u := patient(t, servers)
	eventually(t, "both are up", func() bool { return u.Up("a:1") && u.Up("b:1") })
	under := make(chan error, 1)
	go func() { under <- on(t, u, "a:1", kserve(t, u, request("risk"))) }()
	receive(t, arrived, "call")
	stopping.Store(true)
	wantKind(t, on(t, u, "a:1", kserve(t, u, request("risk"))), fault.Draining)
	eventually(t, "it is out", func() bool { return !u.Up("a:1") })
	for range 20 {
		if err := infer(t.Context(), kserve(t, u, request("risk"))); err != nil {
			t.Fatal(err)
		}
	}
	close(release)
	if err := receive(t, under, "the call under way"); err != nil {
		t.Errorf("a call that was being finished failed: %v", err)
	}
}

func TestAnEndpointThatGoesSilentGivesItsCallsUpAtOnceAndItsSequencesNot(t *testing.T) {
	arrived := make(chan struct{}, 10)
	release := make(chan struct{})
	silent := tritontest.Server{
		Infer: func(ctx context.Context, r *tritonpb.ModelInferRequest) (*tritonpb.ModelInferResponse, error) {
			arrived <- struct{}{}
			select {
			case <-release:
				return tritontest.Response(r, 1), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
		Stream: func(s *tritontest.Stream) error {
			for {
				if _, err := s.Recv(); err != nil {
					return err
				}
				arrived <- struct{}{}
			}
		},
	}
	k := &known{}
	u := one(t, &silent, func(o *Options) { o.Health = k })
	k.set("", map[string]inference.Readiness{"a:1": inference.Ready})
	c := newClient(t, u)
	step := kserve(t, u, request("risk"))
	step.Head.Sequence = inference.Sequence{ID: "7", Start: true}
	sequence := run(t.Context(), step)
	first, second := c.message(), c.predict(1)
	calls := []<-chan error{run(t.Context(), kserve(t, u, request("risk"))), run(t.Context(), first), run(t.Context(), second)}
	for range 4 {
		receive(t, arrived, "request")
	}
	k.goOut("a:1")
	for _, call := range calls {
		f := wantKind(t, receive(t, call, "end"), fault.EndpointLost)
		if f.Code() != codes.Unavailable {
			t.Errorf("got %s", f.Code())
		}
	}
	if first.Answers+second.Answers != 0 {
		t.Error("messages of a stream were answered, and cannot be tried elsewhere")
	}
	close(release)
	if err := receive(t, sequence, "the sequence's step"); err != nil {
		t.Errorf("a step of a sequence was cut: %v", err)
	}
	k.set("", map[string]inference.Readiness{"a:1": inference.Ready})
	if err := infer(t.Context(), kserve(t, u, request("risk"))); err != nil {
		t.Errorf("after it is back: %v", err)
	}
}

func TestALostEndpointIsLookedForAgainWithTheNextQuestion(t *testing.T) {
	s := &tritontest.Server{}
	u := watched(t, tritontest.Network{"a:1": s})
	become(t, u, ok)
	for range 3 {
		s.Stop()
		eventually(t, "it is out", func() bool { return !u.Up("a:1") })
		calm.Moment(t, func() error {
			s.Start()
			begin := time.Now()
			become(t, u, ok)
			if took := time.Since(begin); took > 5*time.Second {
				s.Stop()
				eventually(t, "it is out", func() bool { return !u.Up("a:1") })
				return fmt.Errorf("back after %s", took)
			}
			return nil
		})
	}
}

func TestWhatThisHostCannotDoIsNoEvidenceAgainstAnEndpoint(t *testing.T) {
	for text, want := range map[string]fault.Kind{
		"dial tcp 10.0.0.1:8001: socket: too many open files":                fault.Internal,
		"dial tcp 10.0.0.1:8001: connect: cannot assign requested address":   fault.Internal,
		"dial tcp 10.0.0.1:8001: i/o timeout":                                fault.UpstreamTimeout,
		"dial tcp 10.0.0.1:8001: connect: connection refused":                fault.UpstreamUnavailable,
		"dial tcp 10.0.0.1:8001: connect: no route to host":                  fault.UpstreamUnavailable,
		"authentication handshake failed: tls: failed to verify certificate": fault.UpstreamUnavailable,
	} {
		u := one(t, &tritontest.Server{}, func(o *Options) {
			o.Dial = func(context.Context, string) (net.Conn, error) { return nil, errors.New(text) }
		})
		err := probe{line{u.list()[0]}}.Invoke(t.Context(), tritonpb.GRPCInferenceService_ServerLive_FullMethodName, &tritonpb.ServerLiveRequest{}, &tritonpb.ServerLiveResponse{})
		if f := wantKind(t, err, want); f.Cause == nil {
			t.Errorf("%s: nothing for the log", text)
		}
	}
}

func TestAnUpstreamThatIsBackMeetsASmallPartOfTheCallsAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, old, back := &pool{}, &endpoint{name: "a:1", inflight: new(underWay)}, &endpoint{name: "b:1", inflight: new(underWay)}
		seats := []*seat{{pool: pool, ep: old}, {pool: pool, ep: back}}
		after(time.Minute)
		back.since.Store(time.Now().UnixNano())
		share := func() int {
			n := 0
			for range 10_000 {
				if pool.of(&inference.Call{Start: time.Now()}, seats, true).ep == back {
					n++
				}
			}
			return n
		}
		for _, step := range []struct{ least, most int }{{300, 800}, {1000, 1600}, {2200, 2900}, {3500, 4100}, {4600, 5400}} {
			if n := share(); n < step.least || n > step.most {
				t.Errorf("after %s: %d of 10000 calls, want %d to %d", time.Duration(time.Now().UnixNano()-back.since.Load()), n, step.least, step.most)
			}
			after(2500 * time.Millisecond)
		}
	})
}

func after(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // inside a synctest bubble it is the clock that moves
