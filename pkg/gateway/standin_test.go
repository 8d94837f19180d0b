package gateway

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/calm"
	"github.com/model-gateway/model-gateway/pkg/sandbox"
	"github.com/model-gateway/model-gateway/pkg/stage/admit"
	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
)

func TestATargetThatHangsInAnothersPlaceOpensItsBreaker(t *testing.T) {
	server, triton := model(t)
	r := gatewayOf(t, fmt.Sprintf(`
version: 1
upstreams: {triton: {kind: triton, endpoints: %q}}
models:
  - name: fraud
    targets: {model_v1: {version: 1}, model_v2: {version: 2}}
    stable: model_v1
    split: [{when: {header: x-arm, is: "2"}, to: model_v2}]
    fallback: {to: model_v2}
    timeout: {max: 500ms}
`, triton), nil)
	r.said(t, "Predict")
	setFault(t, server, sandbox.Fault{Kind: sandbox.NotReady, Model: "fraud", Version: "1"})
	setFault(t, server, sandbox.Fault{Kind: sandbox.Hang, Model: "fraud", Version: "2"})
	var calls sync.WaitGroup
	for range 40 {
		calls.Go(func() {
			if said := r.said(t, "Predict"); said != "Unavailable" { // what befell its own target
				t.Errorf("it says %s", said)
			}
		})
	}
	calls.Wait()
	ended := func(outcome string) string {
		return r.series(t, fmt.Sprintf(`gateway_upstream_duration_seconds_count{model="fraud",outcome=%q,target="model_v2",version="2"}`, outcome))
	}
	if n, err := strconv.Atoi(ended("timeout")); err != nil || n < 20 || ended("deadline") != "" {
		t.Errorf("%d attempts at it ended as timeout, and %q as deadline", n, ended("deadline"))
	}
	if got := r.series(t, `gateway_breaker_state{model="fraud",target="model_v2"}`); got != "2" {
		t.Errorf("the state of its breaker is %s", got)
	}
	calm.Moment(t, func() error {
		start := time.Now()
		said := r.said(t, "Predict")
		took := time.Since(start)
		if said != "Unavailable" {
			t.Errorf("it says %s, and nobody could answer", said)
		}
		if took > 400*time.Millisecond {
			return fmt.Errorf("it took %s", took)
		}
		return nil
	})
}

// bounded is a gateway whose model fraud takes two calls at a time.
func bounded(t *testing.T, triton, fallback string) *rig {
	t.Helper()
	return gatewayOf(t, fmt.Sprintf(`
version: 1
upstreams: {triton: {kind: triton, endpoints: %q}}
models:
  - name: fraud
    targets: {model_v1: {version: 1}, model_v2: {version: 2}}
    stable: model_v1
    split: [{when: {header: x-arm, is: "2"}, to: model_v2}]
    concurrency: {max: 2, queue: 0s}
    fallback: %s
`, triton, fallback), nil)
}

func TestTheBoundOfADeadTargetDoesNotLimitWhatStandsInForIt(t *testing.T) {
	server, triton := model(t)
	r := gatewayOf(t, fmt.Sprintf(`
version: 1
upstreams: {triton: {kind: triton, endpoints: %q}}
models:
  - {name: fraud, targets: {model_v1: {version: 1}}, concurrency: {max: 2}, fallback: {model: deputy}}
  - {name: deputy, targets: {model_v1: {model: fraud, version: 2}}}
`, triton), nil)
	r.said(t, "Predict")
	setFault(t, server, sandbox.Fault{Kind: sandbox.NotReady, Model: "fraud", Version: "1"})
	setFault(t, server, sandbox.Fault{Kind: sandbox.Slow, Model: "fraud", Version: "2", Delay: 300 * time.Millisecond})
	r.said(t, "Predict") // from here on it is known
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			if said := r.said(t, "Predict"); !strings.HasPrefix(said, "DEGRADED ") {
				t.Errorf("it says %s", said)
			}
		})
	}
	calls.Wait()
}

func TestATargetThatStandsInHasABoundOfItsOwn(t *testing.T) {
	server, triton := model(t)
	r := bounded(t, triton, "{to: model_v2}")
	r.said(t, "Predict")
	setFault(t, server, sandbox.Fault{Kind: sandbox.NotReady, Model: "fraud", Version: "1"})
	r.said(t, "Predict")
	setFault(t, server, sandbox.Fault{Kind: sandbox.Hang, Model: "fraud", Version: "2"})
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	for range 2 {
		calls.Go(func() {
			_, _ = r.predict().Predict(ctx, &inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: fraudRow()})
		})
	}
	if _, err := server.Await(soon(t), "fraud", func(s sandbox.Seen) bool { return s.InFlight == 2 }); err != nil {
		t.Fatal(err)
	}
	if said := r.said(t, "Predict"); said != "Unavailable" {
		t.Errorf("a third call says %s", said)
	}
	cancel()
	calls.Wait()
}

func TestTheGatewaysOwnBoundIsAnsweredForOnlyWhereTheFallbackIsForOverload(t *testing.T) {
	for on, want := range map[string]string{"[outage]": "ResourceExhausted", "[outage, overload]": "DEGRADED " + half + " 0.5"} {
		server, triton := model(t)
		r := bounded(t, triton, "{score: 0.5, on: "+on+"}")
		r.said(t, "Predict")
		setFault(t, server, sandbox.Fault{Kind: sandbox.Hang, Model: "fraud"})
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		var others atomic.Int64
		for range 2 {
			calls.Go(func() {
				_, err := r.predict().Predict(ctx, &inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: fraudRow()})
				if status.Code(err) != codes.Canceled {
					others.Add(1)
				}
			})
		}
		if _, err := server.Await(soon(t), "fraud", func(s sandbox.Seen) bool { return s.InFlight == 2 }); err != nil {
			t.Fatal(err)
		}
		if said := r.said(t, "Predict"); said != want {
			t.Errorf("on: %s gives %s", on, said)
		}
		cancel()
		calls.Wait()
		if others.Load() > 0 {
			t.Errorf("%d calls that had a place ended otherwise than by their caller", others.Load())
		}
	}
}

func TestATargetInAnothersPlaceGetsThePriorityOfTheCallWhereItsOwnModelPassesItOn(t *testing.T) {
	target := func(name string) *inference.Target { return &inference.Target{Name: name, Model: name, Asked: name} }
	deputy := &inference.Model{Name: "deputy", Stable: target("deputy"), PassPriority: true}
	own := &inference.Model{Name: "own", Fallback: &inference.Fallback{Model: deputy, Predict: true, Outage: true}}
	asked := 0
	h := fold([]inference.Stage{{Wrap: newFallback(nil, nil).Wrap}, {Wrap: admit.New(nil).Wrap}}, func(_ context.Context, c *inference.Call) error {
		if asked++; c.Model == own {
			if c.Priority != inference.PriorityDefault {
				t.Errorf("a model that hands nothing on has a call of priority %s", c.Priority)
			}
			clear(c.Incoming) // as stages further in may
			return fault.New(fault.NoEndpoint, "nobody there")
		}
		if c.Priority != inference.PrioritySheddable || !c.Model.PassPriority {
			t.Errorf("the priority is %s", c.Priority)
		}
		return nil
	})
	c := &inference.Call{
		Protocol: inference.Predict, Model: own, Target: target("own"), Start: time.Now(), Incoming: map[string][]string{"x-priority": {"sheddable"}},
		Request: inference.NewFrame([]byte("request")), Identity: inference.Identity{Caller: &inference.Caller{Priority: inference.PriorityCritical}},
	}
	defer c.Free()
	if err := h(t.Context(), c); err != nil || asked != 2 {
		t.Errorf("%v, %d targets asked", err, asked)
	}
}
