package wire

import (
	"runtime"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// maxCost is what one step may allocate in bytes, whatever the size of the tensor.
const maxCost = 2 << 10

func TestNoStepAllocatesMoreForALargerTensor(t *testing.T) {
	tensors := inputsOf(tensorOf("A", "FP32", -1, 16))
	request := func(tensor []byte) []byte {
		return encode(t, &tritonpb.ModelInferRequest{ModelName: "m", RawInputContents: [][]byte{tensor}})
	}
	prediction := func(tensor []byte) []byte {
		return encode(t, &inferencepb.PredictionRequest{ModelName: "m", InputTensor: tensor})
	}
	answer := func(tensor []byte) []byte {
		return encode(t, &tritonpb.ModelInferResponse{Outputs: []*outputPB{outputOf("O", "FP32", 1, int64(len(tensor)/4))}, RawOutputContents: [][]byte{tensor}})
	}
	stream := func(tensor []byte) []byte {
		return encode(t, &tritonpb.ModelStreamInferResponse{InferResponse: &tritonpb.ModelInferResponse{RawOutputContents: [][]byte{tensor}}})
	}
	for name, step := range map[string]struct {
		message func([]byte) []byte
		run     func(f *inference.Frame) error
	}{
		"peek and append": {request, func(f *inference.Frame) error {
			_, err := PeekInfer(*f)
			f.Append(AppendTarget(nil, "model", "1"))
			return err
		}},
		"predict to infer": {prediction, func(f *inference.Frame) error {
			h, err := PeekPredict(*f)
			if err != nil {
				return err
			}
			return PredictToInfer(f, h, "model", "1", tensors)
		}},
		"infer to predict": {answer, func(f *inference.Frame) error {
			_, err := InferToPredict(f, inference.Tensors{}, "OK", time.Millisecond)
			return err
		}},
		"stream answer": {stream, func(f *inference.Frame) error {
			_, err := PeekStreamAnswer(*f)
			f.Append(AppendStreamAnswer(nil, "id", "model"))
			if err != nil {
				return err
			}
			return UnwrapStreamAnswer(f)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range sizes {
				p := prepare(step.message(make([]byte, size.n)))
				const runs = 100
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				for range runs {
					f := p.ready()
					if err := step.run(&f); err != nil {
						t.Fatal(err)
					}
					f.Free()
				}
				runtime.ReadMemStats(&after)
				if cost := (after.TotalAlloc - before.TotalAlloc) / runs; cost > maxCost {
					t.Errorf("%s: %d bytes a call, want at most %d", size.name, cost, maxCost)
				}
			}
		})
	}
}
