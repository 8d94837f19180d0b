package wire

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/model-gateway/model-gateway/pkg/inference"
	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// sizes of the tensor, in bytes.
var sizes = []struct {
	name string
	n    int
}{{"1KiB", 1 << 10}, {"600KiB", 600 << 10}, {"16MiB", 16 << 20}}

// prepared is a message as it comes in: in buffers of 16 KiB, HTTP/2's usual frame, that count references. ready gives
// a Frame of it with headroom, again and again without allocating.
type prepared struct {
	whole mem.BufferSlice
	list  mem.BufferSlice
}

func prepare(message []byte) *prepared {
	p := &prepared{}
	pool := mem.NopBufferPool{}
	for len(message) > 0 {
		n := min(len(message), 16<<10)
		data := pool.Get(max(n, 2048)) // smaller ones would not count references
		*data = (*data)[:copy(*data, message[:n])]
		p.whole = append(p.whole, mem.NewBuffer(data, pool))
		message = message[n:]
	}
	p.list = make(mem.BufferSlice, 0, len(p.whole)+inference.Headroom)
	return p
}

func (p *prepared) ready() inference.Frame {
	p.whole.Ref()
	return inference.Frame{Buf: append(p.list[:0], p.whole...)}
}

func benchmark(b *testing.B, message func(tensor []byte) []byte, run func(b *testing.B, f *inference.Frame)) {
	b.Helper()
	for _, size := range sizes {
		b.Run(size.name, func(b *testing.B) {
			p := prepare(message(make([]byte, size.n)))
			b.ReportAllocs()
			for b.Loop() {
				f := p.ready()
				run(b, &f)
				f.Free()
			}
		})
	}
}

func inferMessage(b *testing.B) func([]byte) []byte {
	return func(tensor []byte) []byte {
		return encode(b, &tritonpb.ModelInferRequest{
			ModelName: "fraud", ModelVersion: "2", Id: "0123456789", Parameters: map[string]*tritonpb.InferParameter{"sequence_id": intOf(7)},
			Inputs:           []*tritonpb.ModelInferRequest_InferInputTensor{{Name: "INPUT", Datatype: "FP32", Shape: []int64{1, int64(len(tensor) / 4)}}},
			RawInputContents: [][]byte{tensor},
		})
	}
}

// BenchmarkPrepare is what the others spend on making their frames ready and on freeing them.
func BenchmarkPrepare(b *testing.B) {
	benchmark(b, inferMessage(b), func(*testing.B, *inference.Frame) {})
}

func BenchmarkPeekInfer(b *testing.B) {
	benchmark(b, inferMessage(b), func(b *testing.B, f *inference.Frame) {
		if h, err := PeekInfer(*f); err != nil || h.Model != "fraud" {
			b.Fatal(h, err)
		}
	})
}

func BenchmarkAppendTarget(b *testing.B) {
	benchmark(b, inferMessage(b), func(_ *testing.B, f *inference.Frame) {
		f.Append(AppendTarget(nil, "fraud_v2", "3"))
	})
}

func predictMessage(b *testing.B) func([]byte) []byte {
	return func(tensor []byte) []byte {
		return encode(b, &inferencepb.PredictionRequest{
			ModelName: "fraud", ModelVersion: 2, InputTensor: tensor, Metadata: map[string]string{"user_id": "ann", "trace_id": "0af7651916cd43dd8448eb211c80319c"},
		})
	}
}

func BenchmarkPeekPredict(b *testing.B) {
	benchmark(b, predictMessage(b), func(b *testing.B, f *inference.Frame) {
		if h, err := PeekPredict(*f); err != nil || h.Model != "fraud" {
			b.Fatal(h, err)
		}
	})
}

func BenchmarkPredictToInfer(b *testing.B) {
	for _, inputs := range []int{1, 2} {
		b.Run(fmt.Sprintf("inputs=%d", inputs), func(b *testing.B) {
			var tensors inference.Tensors
			for i := range inputs {
				tensors.Inputs = append(tensors.Inputs, tensorOf(fmt.Sprintf("INPUT%d", i), "FP32", -1, 16))
			}
			var h inference.Head
			benchmark(b, func(tensor []byte) []byte {
				m := predictMessage(b)(tensor)
				var err error
				if h, err = PeekPredict(inference.NewFrame(m)); err != nil {
					b.Fatal(err)
				}
				return m
			}, func(b *testing.B, f *inference.Frame) {
				if err := PredictToInfer(f, h, "fraud", "2", tensors); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

func BenchmarkInferToPredict(b *testing.B) {
	benchmark(b, func(tensor []byte) []byte {
		return encode(b, &tritonpb.ModelInferResponse{
			ModelName: "fraud", ModelVersion: "2",
			Outputs:           []*outputPB{outputOf("PROBABILITY", "FP32", int64(len(tensor)/64), 16)},
			RawOutputContents: [][]byte{tensor},
		})
	}, func(b *testing.B, f *inference.Frame) {
		if _, err := InferToPredict(f, inference.Tensors{}, "OK", time.Millisecond); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkStreamAnswer(b *testing.B) {
	benchmark(b, func(tensor []byte) []byte {
		return encode(b, &tritonpb.ModelStreamInferResponse{InferResponse: &tritonpb.ModelInferResponse{
			ModelName: "fraud", Id: "7", Parameters: map[string]*tritonpb.InferParameter{"triton_final_response": boolOf(true)},
			Outputs: []*outputPB{outputOf("OUT", "FP32", 1, 2)}, RawOutputContents: [][]byte{tensor},
		}})
	}, func(b *testing.B, f *inference.Frame) {
		if _, err := PeekStreamAnswer(*f); err != nil {
			b.Fatal(err)
		}
		f.Append(AppendStreamAnswer(nil, "mine", "fraud"))
		if err := UnwrapStreamAnswer(f); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkConfidence reads the longest row there may be.
func BenchmarkConfidence(b *testing.B) {
	for _, datatype := range []string{"FP32", "FP16"} {
		b.Run(datatype, func(b *testing.B) {
			f := prepare(make([]byte, maxConfidence*DatatypeSize(datatype))).whole
			b.ReportAllocs()
			for b.Loop() {
				reduce(newCursor(inference.Frame{Buf: f}), datatype, maxConfidence, "")
			}
		})
	}
}
