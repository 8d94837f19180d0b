package sandbox

import (
	"context"
	"encoding/binary"
	"math"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
	tritonmodels "github.com/model-gateway/model-gateway/triton-models"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is a server and a client of it.
type running struct {
	*Server
	client tritonpb.GRPCInferenceServiceClient
	conn   *grpc.ClientConn
	addr   string
}

// start runs a server with the models of the repository until the test ends.
func start(t testing.TB, change ...func(*Options)) *running {
	t.Helper()
	o := Options{Models: tritonmodels.FS}
	for _, f := range change {
		f(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(lis) }()
	r := &running{Server: s, addr: lis.Addr().String()}
	r.conn = r.dial(t)
	r.client = tritonpb.NewGRPCInferenceServiceClient(r.conn)
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return r
}

func (r *running) dial(t testing.TB) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func ask(model string, inputs ...*tritonpb.ModelInferRequest_InferInputTensor) *tritonpb.ModelInferRequest {
	return &tritonpb.ModelInferRequest{ModelName: model, Inputs: inputs}
}

func floats(name string, shape ...int64) *tritonpb.ModelInferRequest_InferInputTensor {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	data := make([]float32, n)
	for i := range data {
		data[i] = float32(i%7) / 7
	}
	return &tritonpb.ModelInferRequest_InferInputTensor{Name: name, Datatype: "FP32", Shape: shape, Contents: &tritonpb.InferTensorContents{Fp32Contents: data}}
}

func ints(name string, v int32, shape ...int64) *tritonpb.ModelInferRequest_InferInputTensor {
	return &tritonpb.ModelInferRequest_InferInputTensor{Name: name, Datatype: "INT32", Shape: shape, Contents: &tritonpb.InferTensorContents{IntContents: []int32{v}}}
}

func fraud() *tritonpb.ModelInferRequest { return ask("fraud", floats("INPUT", 1, 16)) }

func wantCode(t testing.TB, err error, code codes.Code) {
	t.Helper()
	if status.Code(err) != code {
		t.Fatalf("got %v, want %v", err, code)
	}
}

func TestAScoreComesBack(t *testing.T) {
	r := start(t)
	began := time.Now()
	resp, err := r.client.ModelInfer(soon(t), fraud())
	if err != nil {
		t.Fatal(err)
	}
	if resp.ModelVersion != "2" || len(resp.Outputs) != 1 || resp.Outputs[0].Name != "SCORE" || len(resp.RawOutputContents) != 1 {
		t.Fatalf("got %v", resp)
	}
	score := math.Float32frombits(binary.LittleEndian.Uint32(resp.RawOutputContents[0]))
	if !(score > 0 && score < 1) {
		t.Errorf("score %v after %v", score, time.Since(began))
	}
}
