package triton

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/health"
	"github.com/model-gateway/model-gateway/pkg/upstream/triton/tritontest"
	"github.com/model-gateway/model-gateway/proto/triton"
)

// watched is an upstream whose prober has no patience.
func watched(t *testing.T, servers tritontest.Network) *Upstream {
	return upstream(t, servers, func(o *Options) {
		o.Health = health.New(health.Options{Every: 20 * time.Millisecond, Confirm: 5 * time.Millisecond, IndexEvery: 50 * time.Millisecond, Timeout: 10 * time.Second, PerSecond: 1000})
	})
}

// become calls until the outcome is kind.
func become(t *testing.T, u *Upstream, kind fault.Kind) {
	t.Helper()
	changed := make(chan struct{}, 1)
	u.Watch(func(string) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	for until := time.Now().Add(patience); ; {
		err := infer(t.Context(), kserve(t, u, request("risk")))
		if err == nil && kind == fault.Internal || err != nil && fault.Of(err).Kind == kind {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("the last outcome is %v, want %s", err, kind.Reason())
		}
		select {
		case <-changed:
		case <-time.After(50 * time.Millisecond):
		}
	}
}

const ok = fault.Internal // for become

func TestCallsFollowWhatTheProberFinds(t *testing.T) {
	var ready atomic.Bool
	ready.Store(true)
	index := func(context.Context) ([]*tritonpb.RepositoryIndexResponse_ModelIndex, error) {
		state := "UNAVAILABLE"
		if ready.Load() {
			state = "READY"
		}
		return []*tritonpb.RepositoryIndexResponse_ModelIndex{{Name: "fraud", Version: "3", State: state, Reason: "unloaded"}}, nil
	}
	s := &tritontest.Server{Index: index, Ready: func(context.Context, string, string) (bool, error) { return ready.Load(), nil }}
	u := watched(t, tritontest.Network{"a:1": s})
	become(t, u, ok)
	ready.Store(false)
	become(t, u, fault.ModelNotReady)
	before := s.Calls.Load()
	wantKind(t, infer(t.Context(), kserve(t, u, request("risk"))), fault.ModelNotReady)
	if s.Calls.Load() != before {
		t.Error("a model that is known not to be ready was called")
	}
	for until := time.Now().Add(patience); ; {
		if v := u.Versions("fraud"); len(v) == 1 && v[0].Unloaded && u.Listed("fraud") {
			break
		} else if time.Now().After(until) {
			t.Fatalf("versions %+v", v)
		}
	}
	ready.Store(true)
	become(t, u, ok)
	s.Stop()
	become(t, u, fault.NoEndpoint)
	s.Start()
	become(t, u, ok)
}

func TestAnEndpointThatGoesLeavesItsCallsToTheOther(t *testing.T) {
	servers := tritontest.Network{"a:1": {}, "b:1": {}}
	u := watched(t, servers)
	become(t, u, ok)
	servers["a:1"].Stop()
	for until := time.Now().Add(patience); u.Up("a:1"); {
		if time.Now().After(until) {
			t.Fatal("the endpoint is not found to be out")
		}
		_ = infer(t.Context(), kserve(t, u, request("risk")))
	}
	for good, until := 0, time.Now().Add(patience); good < 20; good++ {
		if err := infer(t.Context(), kserve(t, u, request("risk"))); err != nil {
			if good = -1; time.Now().After(until) {
				t.Fatal(err)
			}
		}
	}
}
