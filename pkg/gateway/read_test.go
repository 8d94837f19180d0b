package gateway

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/inference"
	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// fresh begins a call over HTTP on a connection of its own, with headers that promise a large body, and sends none of it.
func (r *rig) fresh(t *testing.T, path string, headers ...string) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: gateway\r\nContent-Length: 60000000\r\n%s\r\n", path, strings.Join(append(headers, ""), "\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	_ = answer.Body.Close()
	return answer
}

// speechless begins a unary call over gRPC, sends no message, and gives what it is told.
func (r *rig) speechless(t *testing.T, method, key string) error {
	t.Helper()
	stream, err := r.conn.NewStream(as(t, key), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		t.Fatal(err)
	}
	var answer inference.Frame
	return stream.RecvMsg(&answer)
}

// Everything that a stranger could send a large message to.
var (
	paths   = []string{"/v1/predict", "/v2/models/fraud/infer", "/v2/repository/models/fraud/load", "/v2/repository/index"}
	methods = []string{
		inferencepb.InferenceService_Predict_FullMethodName, tritonpb.GRPCInferenceService_ModelInfer_FullMethodName,
		tritonpb.GRPCInferenceService_RepositoryModelLoad_FullMethodName, tritonpb.GRPCInferenceService_ModelMetadata_FullMethodName,
		tritonpb.GRPCInferenceService_ServerLive_FullMethodName,
	}
)

func TestAStrangersMessageIsRefusedBeforeItIsRead(t *testing.T) {
	_, triton := model(t)
	r := ruled(t, true, triton)
	for _, path := range paths {
		if answer := r.fresh(t, path); answer.StatusCode != http.StatusUnauthorized || !answer.Close {
			t.Errorf("%s: %s, and the connection stays: %v", path, answer.Status, !answer.Close)
		}
	}
	for _, method := range methods {
		if err := r.speechless(t, method, ""); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: %v", method, err)
		}
	}
}

func TestAnAddressThatIsOverItsLimitIsRefusedBeforeItsMessageIsRead(t *testing.T) {
	_, triton := model(t)
	r := gatewayOf(t, fmt.Sprintf(`
version: 1
limits: [{name: edge, per: ip, rate: 1/h, burst: 1}]
upstreams: {triton: {kind: triton, endpoints: "%s"}}
models: [{name: fraud}]
`, triton), nil)
	if _, err := r.kserve().ModelInfer(t.Context(), fraudRequest()); err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if answer := r.fresh(t, path); answer.StatusCode != http.StatusTooManyRequests {
			t.Errorf("%s: %s", path, answer.Status)
		}
	}
	for _, method := range methods[:4] {
		if err := r.speechless(t, method, ""); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%s: %v", method, err)
		}
	}
}

func TestAUnaryCallWithoutAMessageIsRefusedWithWhatToDo(t *testing.T) {
	_, triton := model(t)
	r := plain(t, triton)
	for _, method := range methods {
		stream, err := r.conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.CloseSend()
		var answer inference.Frame
		if err := stream.RecvMsg(&answer); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "send one") {
			t.Errorf("%s: %v", method, err)
		}
	}
}

func TestQuestionsCountAtTheLimitsThatSpanModelsAndHealthNever(t *testing.T) {
	_, triton := model(t)
	hash := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(keyOf("bob"))))
	r := gatewayOf(t, fmt.Sprintf(`
version: 1
limits: [{name: callers, per: caller, rate: 1/h, burst: 4, cost: rows}, {name: edge, per: ip, rate: 1/h, burst: 8}]
callers: [{name: bob, keys: ["%s"]}]
upstreams: {triton: {kind: triton, endpoints: "%s"}}
models: [{name: fraud, limits: [{per: model, rate: 1/h, burst: 1}]}]
`, hash, triton), nil)
	ctx := as(t, "bob")
	ask := map[string]func() error{
		"ServerMetadata": func() error { _, err := r.kserve().ServerMetadata(ctx, &tritonpb.ServerMetadataRequest{}); return err },
		"ModelMetadata": func() error {
			_, err := r.kserve().ModelMetadata(ctx, &tritonpb.ModelMetadataRequest{Name: "fraud"})
			return err
		},
		"ModelReady": func() error {
			_, err := r.kserve().ModelReady(ctx, &tritonpb.ModelReadyRequest{Name: "fraud"})
			return err
		},
		"RepositoryIndex": func() error {
			_, err := r.kserve().RepositoryIndex(ctx, &tritonpb.RepositoryIndexRequest{})
			return err
		},
	}
	for name, do := range ask { // four in all, which is what the bucket of bob holds
		if err := do(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, do := range ask {
		if err := do(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), `limit "callers"`) {
			t.Errorf("%s once bob's bucket is empty: %v", name, err)
		}
	}
	if _, err := r.kserve().ModelInfer(ctx, fraudRequest()); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("an inference once bob's bucket is empty: %v", err)
	}
	// The address has none left either; whether the gateway lives may be asked all the same.
	for range 5 {
		if _, err := r.kserve().ServerLive(ctx, &tritonpb.ServerLiveRequest{}); err != nil {
			t.Errorf("ServerLive: %v", err)
		}
		if ready, err := r.kserve().ServerReady(ctx, &tritonpb.ServerReadyRequest{}); err != nil || !ready.Ready {
			t.Errorf("ServerReady: %v %v", ready, err)
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.address+"/v2", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("x-api-key", keyOf("bob"))
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusTooManyRequests || answer.Header.Get("Retry-After") == "" || answer.Header.Get("RateLimit-Limit") == "" {
		t.Errorf("GET /v2: %s %s %v", answer.Status, body, answer.Header)
	}
}
