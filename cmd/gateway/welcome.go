package main

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/model-gateway/model-gateway/pkg/sandbox"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// grpcurl is the client that the printed line runs, pinned.
const grpcurl = "github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3"

// sampleRow is one transaction for the fraud model: 16 numbers.
func sampleRow() []float32 {
	row := make([]float32, 16)
	for i := range row {
		row[i] = float32(i-8) / 8
	}
	return row
}

// fp32 gives numbers as the little-endian bytes of numpy's tobytes().
func fp32(values []float32) []byte {
	b := make([]byte, 0, 4*len(values))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// welcome prints what there is and lines to paste.
func welcome(ctx context.Context, w io.Writer, f sandboxFlags, address string, server *sandbox.Server, took time.Duration) {
	row := base64.StdEncoding.EncodeToString(fp32(sampleRow()))
	fmt.Fprintf(w, `model-gateway sandbox, ready in %s. It ends with Ctrl-C.

  gateway          %s   gRPC and HTTP: ml.inference, KServe v2 / Triton, /metrics
  operators        %s   /readyz /metrics /pipeline /catalog /endpoints
  model server     %s   embedded, Triton's protocol
`, took.Round(time.Millisecond), address, f.admin, f.triton)
	if f.faults != "off" {
		fmt.Fprintf(w, "  its faults       %s   see docs/sandbox.md\n", f.faults)
	}
	fmt.Fprintf(w, "\nModels: %s\n", modelList(ctx, server))
	fmt.Fprintf(w, `
Try it from another terminal, in this folder:

  # HTTP, one prediction
  curl -s http://%[1]s/v1/predict -d '{"model_name":"fraud","input_tensor":"%[2]s","metadata":{"user_id":"ann"}}'

  # gRPC, the same
  go run %[3]s -plaintext -d '{"model_name":"fraud","input_tensor":"%[2]s"}' %[1]s ml.inference.InferenceService/Predict

  # Python; needs only grpcio, grpcio-tools to read the proto, and the proto itself
  python3 -c "import grpc,struct; pb,rpc=grpc.protos_and_services('proto/ml/inference/inference.proto'); r=rpc.InferenceServiceStub(grpc.insecure_channel('%[1]s')).Predict(pb.PredictionRequest(model_name='fraud',input_tensor=struct.pack('<16f',*[(i-8)/8 for i in range(16)]))); print(r.status,r.confidence)"

`, address, row, grpcurl)
}

// modelList names what the model server has loaded, with its versions.
func modelList(ctx context.Context, server *sandbox.Server) string {
	index, err := server.RepositoryIndex(ctx, &tritonpb.RepositoryIndexRequest{Ready: true})
	if err != nil {
		return "none: " + err.Error()
	}
	var names []string
	for _, m := range index.Models {
		names = append(names, m.Name+" v"+m.Version)
	}
	return strings.Join(names, ", ")
}
