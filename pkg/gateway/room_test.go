package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/sandbox"
	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
)

// narrow is a configuration whose endpoints take so many calls at once.
func narrow(most int, a, b string) string {
	return fmt.Sprintf(`
version: 1
listen: {metrics: both}
upstreams: {triton: {kind: triton, endpoints: [%q, %q], max_in_flight: %d}}
models:
  - {name: fraud, targets: {fraud_v1: {version: 1}}}
  - {name: spare, targets: {spare_v1: {version: 1, model: fraud}}, fallback: {score: 0.5, on: [overload]}}
  - {name: echo}
`, a, b, most)
}

func TestCallsBeyondWhatEndpointsTakeAreRefusedAndNobodyIsBlamed(t *testing.T) {
	one, oneAt := model(t)
	two, twoAt := model(t)
	r := gatewayOf(t, narrow(1, oneAt, twoAt), nil)
	eventually(t, "both endpoints get calls", func() bool {
		if _, err := r.kserve().ModelInfer(t.Context(), fraudRequest()); err != nil {
			t.Error(err)
		}
		return one.Seen("fraud").Calls > 0 && two.Seen("fraud").Calls > 0
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var held sync.WaitGroup
	hang := func() {
		held.Go(func() { _, _ = r.kserve().ModelInfer(ctx, echo([]byte{1}, 0)) })
	}
	for _, s := range []*sandbox.Server{one, two} {
		set(t, s, sandbox.Fault{Kind: sandbox.Hang, Model: "echo"})
	}
	under := func(n int) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d calls held", n), func() bool {
			return one.Seen("echo").InFlight+two.Seen("echo").InFlight == n
		})
	}
	hang()
	under(1)
	for range 20 { // the other endpoint has room for one after the other
		if _, err := r.kserve().ModelInfer(t.Context(), fraudRequest()); err != nil {
			t.Fatal(err)
		}
	}
	hang()
	under(2)
	if a, b := one.Seen("echo").InFlight, two.Seen("echo").InFlight; a != 1 || b != 1 {
		t.Errorf("%d and %d calls are held", a, b)
	}
	const refusals = 30 // more than opens a breaker, or ejects
	for range refusals {
		_, err := r.kserve().ModelInfer(t.Context(), fraudRequest())
		st := status.Convert(err)
		var reason string
		var again bool
		for _, d := range st.Details() {
			switch d := d.(type) {
			case *errdetails.ErrorInfo:
				reason = d.GetReason()
			case *errdetails.RetryInfo:
				again = d.GetRetryDelay().AsDuration() > 0
			}
		}
		if st.Code() != codes.ResourceExhausted || reason != "OVERLOADED" || !again || !strings.Contains(st.Message(), "upstreams.triton.max_in_flight is 1") {
			t.Fatalf("%v, %s, %t", err, reason, again)
		}
	}
	answer, err := r.predict().Predict(t.Context(), &inferencepb.PredictionRequest{ModelName: "spare", InputTensor: fraudRow()})
	if err != nil || answer.GetStatus() != "DEGRADED" {
		t.Errorf("with a fallback for want of room: %v, %v", answer, err)
	}
	if b := r.breakerOf(t, "fraud_v1"); b.State != "closed" || b.Failures != 0 || b.Calls == 0 {
		t.Errorf("the breaker has seen %+v", b)
	}
	text := r.metrics(t)
	for series, want := range map[string]float64{
		fmt.Sprintf(`gateway_endpoint_in_flight{endpoint=%q,upstream="triton"}`, oneAt):       1,
		fmt.Sprintf(`gateway_endpoint_in_flight_limit{endpoint=%q,upstream="triton"}`, twoAt): 1,
		fmt.Sprintf(`gateway_endpoint_ejected{endpoint=%q,upstream="triton"}`, twoAt):         0,
		`gateway_endpoints_full_total{model="fraud",target="fraud_v1"}`:                       refusals,
		`gateway_endpoints_full_total{model="spare",target="spare_v1"}`:                       1,
	} {
		if got := value(text, series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
	if said := r.admin(t, http.MethodGet, "/endpoints", ""); strings.Count(strings.Join(strings.Fields(said), ""), `"in_flight":1,"max_in_flight":1`) != 2 {
		t.Errorf("the operators' port says %s", said)
	}
	cfg, err := config.Parse("test.yaml", []byte(narrow(2, oneAt, twoAt)), func(name string) string {
		return map[string]string{"GATEWAY_DATA": "127.0.0.1:0", "GATEWAY_ADMIN": "127.0.0.1:0", "GATEWAY_DRAIN_BEFORE": "0s"}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.gateway.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := r.kserve().ModelInfer(t.Context(), fraudRequest()); err != nil {
		t.Errorf("with room for two: %v", err)
	}
	cancel()
	held.Wait()
	under(0)
	eventually(t, "all places given back", func() bool {
		text := r.metrics(t)
		return value(text, fmt.Sprintf(`gateway_endpoint_in_flight{endpoint=%q,upstream="triton"}`, oneAt)) == 0 &&
			value(text, fmt.Sprintf(`gateway_endpoint_in_flight{endpoint=%q,upstream="triton"}`, twoAt)) == 0
	})
}
