package sandbox

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// step is one request to a real server and its answer; testdata/record_answers.py makes them.
type step struct {
	Name, Method      string
	Request, Response []byte
	Requests          [][]byte
	Responses         [][]byte
	Code, Message     string
	Settle            string
}

// rawCodec sends and receives messages as they are.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

var _ encoding.CodecV2 = rawCodec{}

const servicePath = "/inference.GRPCInferenceService/"

func TestAnswersAreThoseOfARealServer(t *testing.T) {
	b, err := os.ReadFile("testdata/answers.json")
	if err != nil {
		t.Fatal(err)
	}
	var steps []step
	if err := json.Unmarshal(b, &steps); err != nil {
		t.Fatal(err)
	}
	if len(steps) < 400 {
		t.Fatalf("only %d steps", len(steps))
	}
	r := start(t)
	refused := 0
	for i, s := range steps {
		if s.Code != "OK" && s.Settle == "" {
			refused++
		}
		t.Run(fmt.Sprintf("%d %s", i, s.Name), func(t *testing.T) { r.replay(t, s) })
	}
	if refused < 100 {
		t.Errorf("only %d bad requests", refused)
	}
}

func (r *running) replay(t *testing.T, s step) {
	switch {
	case s.Settle != "":
		r.settle(t, s.Settle)
	case s.Method == "ModelStreamInfer":
		r.replayStream(t, s)
	default:
		var got []byte
		err := r.conn.Invoke(soon(t), servicePath+s.Method, &s.Request, &got, grpc.ForceCodecV2(rawCodec{}))
		checkStatus(t, s, err)
		if err == nil && s.Response != nil {
			same(t, s.Method, got, s.Response)
		}
	}
}

// settle waits until a model is neither being loaded nor unloaded.
func (r *running) settle(t *testing.T, model string) {
	t.Helper()
	r.models.closing.Wait() // loads are over when their answer is there
	for _, v := range r.models.snapshot() {
		if v.model == model && v.state != stateReady && v.state != stateUnavailable {
			t.Errorf("%s version %d is %s", model, v.version, v.state)
		}
	}
}

func checkStatus(t *testing.T, s step, err error) {
	t.Helper()
	st := status.Convert(err)
	if name := codeName(st.Code()); name != s.Code {
		t.Fatalf("got %s %q, want %s %q", name, st.Message(), s.Code, s.Message)
	}
	if got, _, _ := strings.Cut(st.Message(), "\n"); got != s.Message {
		t.Errorf("got  %s %q\nwant %s %q", st.Code(), got, s.Code, s.Message)
	}
}

// codeName is the name that other languages give a code.
func codeName(c codes.Code) string {
	var spelled strings.Builder
	for i, ch := range c.String() {
		if i > 0 && 'A' <= ch && ch <= 'Z' && c != codes.OK {
			spelled.WriteByte('_')
		}
		spelled.WriteRune(ch)
	}
	if c == codes.Canceled {
		return "CANCELLED"
	}
	return strings.ToUpper(spelled.String())
}

func (r *running) replayStream(t *testing.T, s step) {
	ctx, cancel := context.WithCancel(soon(t))
	defer cancel()
	stream, err := r.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, servicePath+s.Method, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, req := range s.Requests {
		if err := stream.SendMsg(&req); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		var got []byte
		err := stream.RecvMsg(&got)
		if errors.Is(err, io.EOF) {
			err = nil
		} else if err == nil {
			if i < len(s.Responses) {
				same(t, s.Method, got, s.Responses[i])
			}
			continue
		}
		checkStatus(t, s, err)
		if i != len(s.Responses) {
			t.Errorf("got %d answers, want %d", i, len(s.Responses))
		}
		return
	}
}

func newResponse(method string) proto.Message {
	return map[string]proto.Message{
		"ServerLive": &tritonpb.ServerLiveResponse{}, "ServerReady": &tritonpb.ServerReadyResponse{}, "ModelReady": &tritonpb.ModelReadyResponse{},
		"ServerMetadata": &tritonpb.ServerMetadataResponse{}, "ModelMetadata": &tritonpb.ModelMetadataResponse{}, "ModelInfer": &tritonpb.ModelInferResponse{},
		"ModelStreamInfer": &tritonpb.ModelStreamInferResponse{}, "ModelConfig": &tritonpb.ModelConfigResponse{}, "RepositoryIndex": &tritonpb.RepositoryIndexResponse{},
		"RepositoryModelLoad": &tritonpb.RepositoryModelLoadResponse{}, "RepositoryModelUnload": &tritonpb.RepositoryModelUnloadResponse{},
		"SystemSharedMemoryStatus": &tritonpb.SystemSharedMemoryStatusResponse{}, "SystemSharedMemoryUnregister": &tritonpb.SystemSharedMemoryUnregisterResponse{},
		"CudaSharedMemoryStatus": &tritonpb.CudaSharedMemoryStatusResponse{}, "CudaSharedMemoryUnregister": &tritonpb.CudaSharedMemoryUnregisterResponse{},
		"TraceSetting": &tritonpb.TraceSettingResponse{}, "LogSettings": &tritonpb.LogSettingsResponse{},
	}[method]
}

// same compares two answers; FP32 outputs may differ by 1e-5.
func same(t *testing.T, method string, got, want []byte) {
	t.Helper()
	g, w := newResponse(method), newResponse(method)
	if g == nil {
		t.Fatalf("no message for %s", method)
	}
	if err := errors.Join(proto.Unmarshal(got, g), proto.Unmarshal(want, w)); err != nil {
		t.Fatal(err)
	}
	switch g := g.(type) {
	case *tritonpb.ModelInferResponse:
		blur(g, w.(*tritonpb.ModelInferResponse))
	case *tritonpb.ModelStreamInferResponse:
		blur(g.InferResponse, w.(*tritonpb.ModelStreamInferResponse).InferResponse)
		g.ErrorMessage, _, _ = strings.Cut(g.ErrorMessage, "\n")
	}
	if !proto.Equal(g, w) {
		t.Errorf("got  %v\nwant %v", g, w)
	}
}

// blur gives got the floats of want where they are close enough.
func blur(got, want *tritonpb.ModelInferResponse) {
	for i, o := range want.GetOutputs() {
		if i >= len(got.GetRawOutputContents()) || o.Datatype != "FP32" || len(got.RawOutputContents[i]) != len(want.RawOutputContents[i]) {
			continue
		}
		for b := 0; b+4 <= len(want.RawOutputContents[i]); b += 4 {
			x := math.Float32frombits(binary.LittleEndian.Uint32(got.RawOutputContents[i][b:]))
			y := math.Float32frombits(binary.LittleEndian.Uint32(want.RawOutputContents[i][b:]))
			if math.Abs(float64(x-y)) <= 1e-5 {
				copy(got.RawOutputContents[i][b:b+4], want.RawOutputContents[i][b:b+4])
			}
		}
	}
}
