package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
)

func TestTheDoorTakesFromEachAddressOnceACallOrStreamAndNeverFromProbes(t *testing.T) {
	_, upstream := model(t)
	r := gatewayOf(t, fmt.Sprintf(`
version: 1
trusted_proxies: [127.0.0.0/8]
limits: [{name: edge, per: ip, rate: 2/h, burst: 2}]
upstreams: {triton: {kind: triton, endpoints: "%s"}}
models: [{name: fraud}]
`, upstream), nil)
	from := func(address string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "x-forwarded-for", "1.1.1.1, "+address)
	}
	for _, address := range []string{"192.0.2.1", "192.0.2.2", "2001:db8::1"} {
		passed := 0
		for range 5 {
			_, err := r.kserve().ModelInfer(from(address), fraudRequest())
			if err == nil {
				passed++
			} else if status.Code(err) != codes.ResourceExhausted {
				t.Fatal(err)
			}
		}
		if passed != 2 {
			t.Errorf("%s: %d calls passed, want 2", address, passed)
		}
	}

	stream, err := inferencepb.NewInferenceServiceClient(r.conn).PredictStream(from("192.0.2.3"))
	if err != nil {
		t.Fatal(err)
	}
	for range 6 {
		if err := stream.Send(&inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: make([]byte, 64)}); err != nil {
			t.Fatal(err)
		}
		if a, err := stream.Recv(); err != nil || a.Status != "OK" {
			t.Fatalf("a message of a stream that was let in: %v, %v", a, err)
		}
	}
	_ = stream.CloseSend()
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}

	for range 5 {
		if _, err := healthpb.NewHealthClient(r.conn).Check(from("192.0.2.1"), &healthpb.HealthCheckRequest{}); err != nil {
			t.Errorf("a probe from an address that is over its limit: %v", err)
		}
	}
}

func TestEachMessageOfAStreamIsChargedAndARefusalLeavesTheStreamOpen(t *testing.T) {
	_, upstream := model(t)
	r := gatewayOf(t, fmt.Sprintf(`
version: 1
upstreams: {triton: {kind: triton, endpoints: "%s"}}
models: [{name: fraud, limits: [{per: user, rate: 2/h, burst: 2}]}]
`, upstream), nil)
	stream, err := inferencepb.NewInferenceServiceClient(r.conn).PredictStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, user := range []string{"ann", "ann", "ann", "bob"} {
		err := stream.Send(&inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: make([]byte, 64), Metadata: map[string]string{"user_id": user}})
		if err != nil {
			t.Fatal(err)
		}
		a, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, a.Status[:min(len(a.Status), len("ERROR: RATE_LIMITED"))])
	}
	if want := "[OK OK ERROR: RATE_LIMITED OK]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}
