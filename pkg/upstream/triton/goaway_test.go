package triton

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/upstream/triton/tritontest"
	"github.com/model-gateway/model-gateway/proto/triton"
)

// TestAServerThatSendsConnectionsAwayAndTakesOthersHurtsNoCall has one whose connections live for some moments, as behind
// a proxy with a maximum age. Nothing is tried again here: no call may fail in the first place.
func TestAServerThatSendsConnectionsAwayAndTakesOthersHurtsNoCall(t *testing.T) {
	s := counters("a:1")["a:1"]
	s.Options = []grpc.ServerOption{grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: 30 * time.Millisecond})}
	var connections atomic.Int64
	u := one(t, s, func(o *Options) {
		dial := o.Dial
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			connections.Add(1)
			return dial(ctx, address)
		}
	})
	out := 0 // times that anything was said of the endpoint
	u.Watch(func(string) { out++ })
	const enough = 12
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all sync.WaitGroup
	var calls atomic.Int64
	for i := range 4 {
		c := newClient(t, u)
		all.Go(func() {
			for connections.Load() < enough && ctx.Err() == nil {
				call := kserve(t, u, request("risk"))
				if i%2 == 0 {
					call = c.message()
				}
				if err := infer(ctx, call); err != nil {
					t.Error(err)
				}
				call.Turn.Pass()
				call.Free()
				calls.Add(1)
			}
		})
	}
	all.Wait()
	if connections.Load() < enough {
		t.Fatalf("only %d connections were made", connections.Load())
	}
	if out > 0 || !u.Up("a:1") {
		t.Errorf("the endpoint was out for being told to connect anew")
	}
	t.Logf("%d calls over %d connections", calls.Load(), connections.Load())
}

// TestAServerThatSendsConnectionsAwayAndTakesNoneFinishesItsCallsAndIsOut is one that is asked to end.
func TestAServerThatSendsConnectionsAwayAndTakesNoneFinishesItsCallsAndIsOut(t *testing.T) {
	gate, arrived := make(chan struct{}), make(chan struct{})
	var held atomic.Bool
	leaving := &tritontest.Server{Infer: func(_ context.Context, r *tritonpb.ModelInferRequest) (*tritonpb.ModelInferResponse, error) {
		if held.CompareAndSwap(false, true) { // the first one; others are answered at once
			close(arrived)
			<-gate
		}
		return tritontest.Response(r, 1), nil
	}}
	u := watched(t, tritontest.Network{"a:1": leaving, "b:1": {}})
	var under <-chan error // that the server has when it leaves
	for under == nil {
		call := run(t.Context(), kserve(t, u, request("risk")))
		select {
		case <-arrived:
			under = call
		case err := <-call:
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	gone := make(chan struct{})
	go func() { leaving.Leave(); close(gone) }()
	// A call that finds nobody was not sent, so that a further attempt is free; before long nobody looks there.
	for until, row := time.Now().Add(patience), 0; row < 50; row++ {
		if err := infer(t.Context(), kserve(t, u, request("risk"))); err != nil {
			if row = 0; !fault.Of(err).Unsent {
				t.Errorf("%v, which is not free to be tried again", err)
			}
		}
		if time.Now().After(until) {
			t.Fatal("calls still go there")
		}
	}
	for until := time.Now().Add(patience); u.Up("a:1"); {
		_ = infer(t.Context(), kserve(t, u, request("risk")))
		if time.Now().After(until) {
			t.Fatal("it is still up")
		}
	}
	close(gate)
	if err := receive(t, under, "the end"); err != nil {
		t.Errorf("a call that the server had ended with %v", err)
	}
	receive(t, gone, "the end of the server")
}

// TestAServerThatComplainsOfPingsIsPingedLessUntilItDoesNot has a real server with its own policy: its default tells off who
// pings more often than every five minutes.
func TestAServerThatComplainsOfPingsIsPingedLessUntilItDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := &tritontest.Server{
			Infer: func(ctx context.Context, r *tritonpb.ModelInferRequest) (*tritonpb.ModelInferResponse, error) {
				select {
				case <-time.After(30 * time.Minute):
				case <-ctx.Done():
				}
				return tritontest.Response(r, 1), nil
			},
			Options: []grpc.ServerOption{grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Minute, PermitWithoutStream: true})},
		}
		s.Start()
		u, err := New(Options{
			Name: "triton", Endpoints: []string{"a:1"}, Dial: tritontest.Network{"a:1": s}.Dial, Keepalive: 30 * time.Second,
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		lost := 0
		var every []time.Duration
		for {
			err := infer(t.Context(), kserve(t, u, request("risk")))
			if err == nil {
				break
			}
			f := wantKind(t, err, fault.EndpointLost)
			if f.Cause == nil || !strings.Contains(f.Cause.Error(), "too_many_pings") {
				t.Fatalf("it was lost by %v", f.Cause)
			}
			every = append(every, u.list()[0].options().Keepalive)
			if lost++; lost > 10 {
				t.Fatalf("it goes on being told off; it pings every %v", every)
			}
		}
		u.Close()
		s.Stop()
		if lost == 0 || every[0] != time.Minute || every[len(every)-1] != DefaultKeepalive {
			t.Errorf("told off %d times, after which it pinged every %v", lost, every)
		}
		if n := strings.Count(log.String(), "because of too many pings"); n == 0 || n > lost || !strings.Contains(log.String(), "from_now_on=1m0s") {
			t.Errorf("the log says so %d times: %s", n, log.String())
		}
		t.Logf("told off %d times, then pinged every %v", lost, every)
	})
}
