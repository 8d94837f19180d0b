package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/explain"
	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/internal/calm"
	"github.com/model-gateway/model-gateway/pkg/internal/redistest"
	"github.com/model-gateway/model-gateway/pkg/sandbox"
	"github.com/model-gateway/model-gateway/pkg/stage/breaker"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// guarded is a gateway with one model of two targets, whose breakers stay open for as long as open says.
func guarded(triton, open, more string) string {
	return fmt.Sprintf(`
version: 1
passthrough: true
upstreams: {triton: {kind: triton, endpoints: %q}}
defaults: {breaker: {open: %s, open_max: 1h}}
models:
  - name: fraud
    targets: {model_v1: {version: 1}, model_v2: {version: 2}}
    stable: model_v1
    pins: declared
%s`, triton, open, more)
}

// infer calls fraud, with a version or none, and gives the code.
func (r *rig) infer(ctx context.Context, version string) codes.Code {
	request := fraudRequest()
	request.ModelVersion = version
	_, err := r.kserve().ModelInfer(ctx, request)
	return status.Code(err)
}

// breakerOf gives what the operators' port says of a breaker.
func (r *rig) breakerOf(t *testing.T, target string) breakerShown {
	t.Helper()
	var list []breakerShown
	said := r.admin(t, http.MethodGet, "/breakers", "")
	if err := json.Unmarshal([]byte(said), &list); err != nil {
		t.Fatal(err, said)
	}
	for _, b := range list {
		if b.Target == target {
			return b
		}
	}
	return breakerShown{}
}

type breakerShown struct {
	Target, State, Why string
	Calls, Failures    int
	Slow               int
	Force              *struct{ State, Who, Scope string }
}

func set(t *testing.T, server *sandbox.Server, f sandbox.Fault) (undo func()) {
	t.Helper()
	undo, err := server.Faults.Set(f)
	if err != nil {
		t.Fatal(err)
	}
	return undo
}

func TestATargetHalfOfWhoseCallsFailIsLeftAloneAndProbed(t *testing.T) {
	server, triton := model(t)
	r := gatewayOf(t, guarded(triton, "300ms", ""), nil)
	undo := set(t, server, sandbox.Fault{Kind: sandbox.Fail, Model: "fraud", Version: "1", Code: codes.Internal, Message: "CUDA error", Every: 2})
	var failed int
	for range 20 {
		if r.infer(t.Context(), "") == codes.Internal {
			failed++
		}
	}
	if b := r.breakerOf(t, "model_v1"); failed != 10 || b.State == "closed" || b.Why != "failures" {
		t.Fatalf("after %d failures of 20: %+v", failed, b)
	}
	// The other target is not concerned.
	if code := r.infer(t.Context(), "2"); code != codes.OK {
		t.Errorf("of version 2: %s", code)
	}
	undo()
	calls := server.Seen("fraud").Calls
	var refused, answered int
	late := soon(t)
	for r.breakerOf(t, "model_v1").State != "closed" {
		switch r.infer(t.Context(), "") {
		case codes.Unavailable:
			refused++
		case codes.OK:
			answered++
		}
		if late.Err() != nil {
			t.Fatal("it stays open")
		}
	}
	if sent := server.Seen("fraud").Calls - calls; sent != answered || answered != 5 {
		t.Errorf("%d probes were answered, %d calls were sent, %d were refused at once", answered, sent, refused)
	}
	text := scraped(t, r)
	for _, want := range []string{
		`gateway_breaker_state{model="fraud",target="model_v1"} 0`,
		`gateway_breaker_transitions_total{model="fraud",reason="failures",state="open",target="model_v1"} 1`,
		`gateway_breaker_transitions_total{model="fraud",reason="probed",state="closed",target="model_v1"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

func scraped(t *testing.T, r *rig) string {
	t.Helper()
	return r.admin(t, http.MethodGet, "/metrics", "")
}

func TestTheCallersOwnDoingOpensNoBreaker(t *testing.T) { // O-26
	server, triton := model(t)
	r := gatewayOf(t, guarded(triton, "1h", ""), nil)
	undo := set(t, server, sandbox.Fault{Kind: sandbox.Hang, Model: "fraud", Version: "1"})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() { _ = r.infer(ctx, "") })
	}
	if _, err := server.Await(soon(t), "fraud", func(s sandbox.Seen) bool { return s.InFlight == 100 }); err != nil {
		t.Fatal(err)
	}
	cancel()
	wg.Wait()
	if _, err := server.Await(soon(t), "fraud", func(s sandbox.Seen) bool { return s.InFlight == 0 }); err != nil {
		t.Fatal(err)
	}
	undo()
	for range 30 {
		brief, end := context.WithTimeout(t.Context(), time.Nanosecond)
		_ = r.infer(brief, "")
		end()
		bad := fraudRequest()
		bad.Inputs[0].Shape = []int64{1, 15}
		if _, err := r.kserve().ModelInfer(t.Context(), bad); status.Code(err) != codes.InvalidArgument {
			t.Fatal(err)
		}
		if code := r.infer(t.Context(), "9"); code != codes.NotFound {
			t.Fatal(code)
		}
	}
	if b := r.breakerOf(t, "model_v1"); b.State != "closed" || b.Failures != 0 {
		t.Fatalf("%+v", b)
	}
	_ = set(t, server, sandbox.Fault{Kind: sandbox.Fail, Model: "fraud", Version: "1", Code: codes.DataLoss, Message: "x"})
	for range 20 {
		_ = r.infer(t.Context(), "")
	}
	if b := r.breakerOf(t, "model_v1"); b.State != "open" {
		t.Errorf("%+v", b)
	}
	calls := server.Seen("fraud").Calls
	_, err := r.kserve().ModelInfer(t.Context(), fraudRequest())
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "model_v1") {
		t.Error(err)
	}
	if server.Seen("fraud").Calls != calls {
		t.Error("it was sent")
	}
}

func TestATargetThatBreaksItsPromiseIsLeftAlone(t *testing.T) {
	server, triton := model(t)
	r := gatewayOf(t, guarded(triton, "1h", "    slo: {p999: 20ms}\n"), nil)
	_ = set(t, server, sandbox.Fault{Kind: sandbox.Slow, Model: "fraud", Version: "1", Delay: 40 * time.Millisecond})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if code := r.infer(t.Context(), ""); code != codes.OK {
				t.Error(code)
			}
		})
	}
	wg.Wait()
	if b := r.breakerOf(t, "model_v1"); b.State != "open" || b.Why != "slow" {
		t.Errorf("%+v", b)
	}
	if text := scraped(t, r); !strings.Contains(text, `gateway_slo_seconds{model="fraud",share="0.999"} 0.02`) {
		t.Error("metrics lack the promise")
	}
}

func TestADeadServerCostsNoTimeAndComesBackWithoutAHerd(t *testing.T) {
	server, triton := model(t)
	r := gatewayOf(t, guarded(triton, "1h", ""), nil)
	if code := r.infer(t.Context(), ""); code != codes.OK {
		t.Fatal(code)
	}
	undo := set(t, server, sandbox.Fault{Kind: sandbox.Down})
	eventually(t, "the outage is known", func() bool {
		_ = r.infer(t.Context(), "")
		return r.breakerOf(t, "model_v1").Why == "no_endpoint"
	})
	calm.Moment(t, func() error {
		begin := time.Now()
		_, err := r.kserve().ModelInfer(t.Context(), fraudRequest())
		took := time.Since(begin)
		if status.Code(err) != codes.Unavailable {
			t.Errorf("it ended with %v", err)
		}
		if took > 500*time.Millisecond {
			return fmt.Errorf("it took %s", took)
		}
		return nil
	})
	report, err := r.gateway.explainer().Explain(t.Context(), explain.Question{Model: "fraud"})
	if err != nil || report.Served || report.Target.Breaker.State != "open" || report.Target.Breaker.Why != "no_endpoint" {
		t.Errorf("%+v, %v", report, err)
	}
	// Up again, and slow: of many calls the five that probe it get there, however long the breaker was to stay open.
	slow := set(t, server, sandbox.Fault{Kind: sandbox.Hang, Model: "fraud", Version: "1"})
	undo()
	eventually(t, "half-open", func() bool { return r.breakerOf(t, "model_v1").State == "half-open" })
	calls := server.Seen("fraud").Calls
	var ok, refused atomic.Int64
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			switch code := r.infer(t.Context(), ""); code {
			case codes.OK:
				ok.Add(1)
			case codes.Unavailable:
				refused.Add(1)
			default:
				t.Error(code)
			}
		})
	}
	eventually(t, "all but the probes are refused", func() bool { return refused.Load() == 95 })
	slow()
	wg.Wait()
	if sent := server.Seen("fraud").Calls - calls; sent != 5 || ok.Load() != 5 || refused.Load() != 95 {
		t.Errorf("%d were sent, %d answered, %d refused", sent, ok.Load(), refused.Load())
	}
	if b := r.breakerOf(t, "model_v1"); b.State != "closed" {
		t.Errorf("%+v", b)
	}
}

func TestAStreamOutlivesAnOpenBreaker(t *testing.T) {
	server, triton := model(t)
	r := gatewayOf(t, guarded(triton, "300ms", ""), nil)
	undo := set(t, server, sandbox.Fault{Kind: sandbox.Fail, Model: "fraud", Version: "1", Code: codes.Internal, Message: "CUDA error"})
	s, err := r.kserve().ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := func() *tritonpb.ModelStreamInferResponse {
		if err := s.Send(fraudRequest()); err != nil {
			t.Fatal(err)
		}
		a, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for range 20 {
		if a := ask(); !strings.Contains(a.ErrorMessage, "CUDA error") {
			t.Fatal(a)
		}
	}
	eventually(t, "a refusal in the stream", func() bool { return strings.Contains(ask().ErrorMessage, "gets no calls now") })
	undo()
	eventually(t, "answers in the same stream", func() bool { return ask().ErrorMessage == "" })
	if err := s.CloseSend(); err != nil {
		t.Error(err)
	}
}

func TestOperatorsForceBreakersOnThisReplica(t *testing.T) {
	_, triton := model(t)
	r := gatewayOf(t, guarded(triton, "1h", ""), nil)
	const path = "/breakers/fraud/model_v1"
	if said := r.admin(t, http.MethodPost, path, `{"state": "open"}`); !strings.Contains(said, `"this replica"`) {
		t.Error(said)
	}
	if code := r.infer(t.Context(), ""); code != codes.Unavailable {
		t.Error(code)
	}
	report, err := r.gateway.explainer().Explain(t.Context(), explain.Question{Model: "fraud"})
	if err != nil || report.Refusal == nil || report.Refusal.Stage != "breaker" || report.Refusal.Reason != fault.CircuitOpen.Reason() || report.Target.Breaker.Forced != "loopback" {
		t.Errorf("%+v, %v", report, err)
	}
	if b := r.breakerOf(t, "model_v1"); b.State != "open" || b.Why != "forced" || b.Force == nil || b.Force.Who != "loopback" {
		t.Errorf("%+v", b)
	}
	for body, want := range map[string]string{`{"state": "ajar"}`: "must be open, closed or auto", `{}`: "say which state"} {
		if said := r.admin(t, http.MethodPost, path, body); !strings.Contains(said, want) {
			t.Error(said)
		}
	}
	if said := r.admin(t, http.MethodPost, "/breakers/fraud/model_v3", `{"state": "open"}`); !strings.Contains(said, "no target") {
		t.Error(said)
	}
	// One that passes through is known by the versions that it has.
	if said := r.admin(t, http.MethodPost, "/breakers/cnn/model_v1", `{"state": "open"}`); !strings.Contains(said, "no target") {
		t.Error("of a model that nobody has called", said)
	}
	r.admin(t, http.MethodPost, path, `{"state": "auto"}`)
	for range 5 {
		if code := r.infer(t.Context(), ""); code != codes.OK {
			t.Error(code)
		}
	}
	if b := r.breakerOf(t, "model_v1"); b.State != "closed" || b.Force != nil {
		t.Errorf("%+v", b)
	}
}

func TestAllReplicasFollowWhatAnOperatorForces(t *testing.T) {
	_, triton := model(t)
	redis := redistest.Start(t)
	shared := guarded(triton, "1h", fmt.Sprintf("redis: {address: %q, prefix: test, timeout: 1s}\n", redis.Addr))
	a, b := gatewayOf(t, shared, nil), gatewayOf(t, shared, nil)
	if code := b.infer(t.Context(), ""); code != codes.OK {
		t.Fatal(code)
	}
	if said := a.admin(t, http.MethodPost, "/breakers/fraud/model_v1", `{"state": "open"}`); !strings.Contains(said, `"all replicas"`) {
		t.Error(said)
	}
	calm.Moment(t, func() error {
		a.admin(t, http.MethodPost, "/breakers/fraud/model_v1", `{"state": "auto"}`)
		eventually(t, "it is taken back", func() bool { return b.infer(t.Context(), "") == codes.OK })
		a.admin(t, http.MethodPost, "/breakers/fraud/model_v1", `{"state": "open"}`)
		begin := time.Now()
		eventually(t, "the other replica follows", func() bool { return b.infer(t.Context(), "") == codes.Unavailable })
		if took := time.Since(begin); took > 2*time.Second {
			return fmt.Errorf("the other replica followed after %s", took)
		}
		return nil
	})
	late := gatewayOf(t, shared, nil) // one that starts later, too
	eventually(t, "a new replica follows", func() bool { return late.infer(t.Context(), "") == codes.Unavailable })
	b.admin(t, http.MethodPost, "/breakers/fraud/model_v1", `{"state": "auto"}`)
	eventually(t, "it is taken back on all", func() bool {
		return a.gateway.breaker.Forced("fraud", "model_v1") == breaker.Auto && late.gateway.breaker.Forced("fraud", "model_v1") == breaker.Auto
	})
	// What Redis loses is not lost.
	a.admin(t, http.MethodPost, "/breakers/fraud/model_v1", `{"state": "open"}`)
	redis.Do("FLUSHALL")
	eventually(t, "it is in Redis again", func() bool { return strings.Contains(redis.Do("KEYS", "*"), "overrides:{breakers}") })
	if got := a.gateway.breaker.Forced("fraud", "model_v1"); got != breaker.Open {
		t.Errorf("it is %s", got)
	}
}

func TestWhatABreakerKnowsOutlivesAReload(t *testing.T) {
	server, triton := model(t)
	r := gatewayOf(t, guarded(triton, "1h", ""), nil)
	_ = set(t, server, sandbox.Fault{Kind: sandbox.Fail, Model: "fraud", Version: "1", Code: codes.Internal, Message: "x"})
	for range 20 {
		_ = r.infer(t.Context(), "")
	}
	next := *r.gateway.catalog.Snapshot().Config
	next.Hash = "other"
	if err := r.gateway.Reload(&next); err != nil {
		t.Fatal(err)
	}
	calls := server.Seen("fraud").Calls
	if code := r.infer(t.Context(), ""); code != codes.Unavailable || server.Seen("fraud").Calls != calls {
		t.Errorf("after a reload: %s", code)
	}
}
