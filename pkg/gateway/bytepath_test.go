package gateway

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/calm"
	"github.com/model-gateway/model-gateway/pkg/wire"
	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// rawTriton is an upstream that looks at nothing and copies nothing, so that what is measured is the gateway.
type rawTriton struct {
	tritonpb.UnimplementedGRPCInferenceServiceServer
	answer []byte
}

func (r *rawTriton) ModelMetadata(context.Context, *tritonpb.ModelMetadataRequest) (*tritonpb.ModelMetadataResponse, error) {
	return &tritonpb.ModelMetadataResponse{
		Name: "m", Versions: []string{"1"},
		Inputs:  []*tritonpb.ModelMetadataResponse_TensorMetadata{{Name: "INPUT", Datatype: "UINT8", Shape: []int64{-1}}},
		Outputs: []*tritonpb.ModelMetadataResponse_TensorMetadata{{Name: "OUTPUT", Datatype: "FP32", Shape: []int64{1}}},
	}, nil
}

func (r *rawTriton) ModelReady(context.Context, *tritonpb.ModelReadyRequest) (*tritonpb.ModelReadyResponse, error) {
	return &tritonpb.ModelReadyResponse{Ready: true}, nil
}

func (r *rawTriton) ServerLive(context.Context, *tritonpb.ServerLiveRequest) (*tritonpb.ServerLiveResponse, error) {
	return &tritonpb.ServerLiveResponse{Live: true}, nil
}

func (r *rawTriton) RepositoryIndex(context.Context, *tritonpb.RepositoryIndexRequest) (*tritonpb.RepositoryIndexResponse, error) {
	return &tritonpb.RepositoryIndexResponse{Models: []*tritonpb.RepositoryIndexResponse_ModelIndex{{Name: "m", Version: "1", State: "READY"}}}, nil
}

// startRaw serves a rawTriton.
func startRaw(t testing.TB) string {
	t.Helper()
	answer, err := proto.Marshal(&tritonpb.ModelInferResponse{
		ModelName: "m", ModelVersion: "1", Outputs: []*tritonpb.ModelInferResponse_InferOutputTensor{{Name: "OUTPUT", Datatype: "FP32", Shape: []int64{1}}},
		RawOutputContents: [][]byte{{0, 0, 0, 0}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &rawTriton{answer: answer}
	desc := tritonpb.GRPCInferenceService_ServiceDesc
	desc.Methods = append([]grpc.MethodDesc(nil), desc.Methods...)
	for i := range desc.Methods {
		if desc.Methods[i].MethodName == "ModelInfer" {
			desc.Methods[i].Handler = func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				var f inference.Frame
				if err := decode(&f); err != nil {
					return nil, err
				}
				f.Free()
				answer := inference.NewFrame(r.answer)
				return wire.Give{Frame: &answer}, nil
			}
		}
	}
	s := grpc.NewServer(grpc.ForceServerCodecV2(wire.Codec{}), grpc.MaxRecvMsgSize(128<<20), grpc.InitialWindowSize(1<<20), grpc.InitialConnWindowSize(16<<20))
	s.RegisterService(&desc, r)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { s.Stop(); served.Wait() })
	return l.Addr().String()
}

func rawConn(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.Codec{}), grpc.MaxCallRecvMsgSize(128<<20), grpc.MaxCallSendMsgSize(128<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// messages are requests with a tensor of n bytes.
func messages(t testing.TB, n int) map[string]inference.Frame {
	t.Helper()
	infer, err := proto.Marshal(&tritonpb.ModelInferRequest{
		ModelName: "m", Inputs: []*tritonpb.ModelInferRequest_InferInputTensor{{Name: "INPUT", Datatype: "UINT8", Shape: []int64{int64(n)}}},
		RawInputContents: [][]byte{make([]byte, n)},
	})
	if err != nil {
		t.Fatal(err)
	}
	predict, err := proto.Marshal(&inferencepb.PredictionRequest{ModelName: "m", InputTensor: make([]byte, n)})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]inference.Frame{
		"/inference.GRPCInferenceService/ModelInfer": {Buf: mem.BufferSlice{mem.SliceBuffer(infer)}},
		"/ml.inference.InferenceService/Predict":     {Buf: mem.BufferSlice{mem.SliceBuffer(predict)}},
	}
}

var sizes = map[string]int{"1KiB": 1 << 10, "600KiB": 600 << 10, "16MiB": 16 << 20}

func call(t testing.TB, conn *grpc.ClientConn, method string, request *inference.Frame) {
	var answer inference.Frame
	if err := conn.Invoke(t.Context(), method, request, &answer); err != nil {
		t.Fatal(err)
	}
	answer.Free()
}

// allocated is how many bytes n calls allocate in this process, per call.
func allocated(t testing.TB, n int, conn *grpc.ClientConn, method string, request *inference.Frame) int64 {
	for range 4 { // connections, caches and pools are made once
		call(t, conn, method, request)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n {
		call(t, conn, method, request)
	}
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc-before.TotalAlloc) / int64(n)
}

func TestTheGatewayAddsNextToNoAllocationToATensor(t *testing.T) {
	if raceDetector {
		t.Skip("allocations are measured without the race detector: make unit runs this test again")
	}
	// Pools lose their buffers at a collection, and every hop fills its own again; what stands here is what calls cost, so
	// none may happen meanwhile.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	upstream := startRaw(t)
	direct, through := rawConn(t, upstream), rawConn(t, plain(t, upstream).address)
	for name, n := range sizes {
		requests := messages(t, n)
		infer := requests[tritonpb.GRPCInferenceService_ModelInfer_FullMethodName]
		base := allocated(t, 20, direct, tritonpb.GRPCInferenceService_ModelInfer_FullMethodName, &infer)
		for method, request := range requests {
			runtime.GC()
			// A call that begins before all of the one before has been given back takes new buffers, which then are there for good.
			calm.Luck(t, func() error {
				added := allocated(t, 20, through, method, &request) - base
				if limit := int64(n)/50 + 20<<10; added > limit {
					return fmt.Errorf("%s of %s: %d bytes a call are allocated, the limit is %d", method, name, added, limit)
				} else {
					t.Logf("%s of %s: %d bytes a call (limit %d)", method, name, added, limit)
				}
				return nil
			})
		}
	}
}

func BenchmarkThrough(b *testing.B) {
	upstream := startRaw(b)
	conns := map[string]*grpc.ClientConn{"direct": rawConn(b, upstream), "gateway": rawConn(b, plain(b, upstream).address)}
	for name, n := range sizes {
		for method, request := range messages(b, n) {
			for way, conn := range conns {
				if way == "direct" && method != "/inference.GRPCInferenceService/ModelInfer" {
					continue
				}
				b.Run(fmt.Sprintf("%s/%s%s", name, way, method[len(method)-7:]), func(b *testing.B) {
					b.ReportAllocs()
					b.SetBytes(int64(n))
					for b.Loop() {
						call(b, conn, method, &request)
					}
				})
			}
		}
	}
}
