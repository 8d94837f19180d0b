package wire

import (
	"bytes"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

func TestSmoke(t *testing.T) {
	tensor := bytes.Repeat([]byte{1, 2, 3, 4}, 32)
	b, _ := proto.Marshal(&inferencepb.PredictionRequest{ModelName: "m", InputTensor: tensor, Metadata: map[string]string{"sequence_id": "7"}})
	f := inference.NewFrame(b)
	h, err := PeekPredict(f)
	if err != nil {
		t.Fatal(err)
	}
	ts := inference.Tensors{Inputs: []inference.Tensor{{Name: "INPUT", Datatype: "FP32", Shape: []int64{-1, 16}}}}
	if err := PredictToInfer(&f, h, "real", "3", ts); err != nil {
		t.Fatal(err)
	}
	var r tritonpb.ModelInferRequest
	if err := proto.Unmarshal(f.Buf.Materialize(), &r); err != nil {
		t.Fatal(err)
	}
	t.Log(&r)
	h, err = PeekInfer(f)
	t.Log(h, err)
	b, _ = proto.Marshal(&tritonpb.ModelInferResponse{Outputs: []*tritonpb.ModelInferResponse_InferOutputTensor{{Name: "O", Datatype: "FP32", Shape: []int64{1, 2}}}, RawOutputContents: [][]byte{{0, 0, 0, 0x3f, 0, 0, 0, 0}}})
	f = inference.NewFrame(b)
	if err := InferToPredict(&f, inference.Tensors{}, "OK", 1500*time.Microsecond); err != nil {
		t.Fatal(err)
	}
	var a inferencepb.PredictionResponse
	if err := proto.Unmarshal(f.Buf.Materialize(), &a); err != nil {
		t.Fatal(err)
	}
	t.Log(&a)
}
