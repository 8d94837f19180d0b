package wire

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/inference"
	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// The fuzz targets hold this package against protobuf's own reading of the same bytes. We are stricter than protobuf in
// some ways (groups, wire types, limits) and do not look into tensors, so each target says what must be the same when.

// only keeps the top-level fields of b that have one of those numbers. Where b cannot be walked, ok is false.
func only(b []byte, nums ...protowire.Number) (kept []byte, ok bool) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, false
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			return nil, false
		}
		for _, want := range nums {
			if num == want {
				kept = append(kept, b[:n+m]...)
			}
		}
		b = b[n+m:]
	}
	return kept, true
}

func sameError(a, b error) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Error() == b.Error())
}

func FuzzPeekInfer(f *testing.F) {
	f.Add(encode(f, &tritonpb.ModelInferRequest{
		ModelName: "fraud", ModelVersion: "2", Id: "7",
		Parameters:       map[string]*tritonpb.InferParameter{"sequence_id": intOf(7), "sequence_start": boolOf(true), "sequence_end": boolOf(false)},
		Inputs:           []*tritonpb.ModelInferRequest_InferInputTensor{{Name: "INPUT", Datatype: "FP32", Shape: []int64{1, 16}}},
		RawInputContents: [][]byte{make([]byte, 64)},
	}), []byte{3, 0, 1})
	f.Add(AppendEmptyFinal(AppendID(AppendTarget(appendParam(nil, "sequence_id", stringParam, 0, "text"), "model", "1"), "")), []byte{})
	f.Add(appendParam(appendParam(nil, "sequence_id", uint64Param, 1<<63, ""), "sequence_start", int64Param, 1, ""), []byte{1})
	f.Add([]byte{0x0a, 1, 'a', 0x0a, 1, 'b', 0x4d, 1, 2, 3, 4, 0x49, 1, 2, 3, 4, 5, 6, 7, 8, 0x48, 0xff, 1}, []byte{2})
	f.Add([]byte{0x8a, 0x80, 0, 0x81, 0, 'x'}, []byte{1})
	f.Fuzz(func(t *testing.T, b, cuts []byte) {
		got, err := PeekInfer(inference.NewFrame(b))
		l := newLedger(t)
		cut := l.frame(b, sizesOf(cuts)...)
		again, errAgain := PeekInfer(cut)
		cut.Free()
		l.settled()
		if !sameError(err, errAgain) || !sameHead(got, again) {
			t.Fatalf("in one buffer %+v, %v; in several %+v, %v", got, err, again, errAgain)
		}
		var r tritonpb.ModelInferRequest
		decoded := proto.Unmarshal(b, &r)
		switch {
		case err == nil && decoded == nil:
			if want := headOf(&r); !sameHead(got, want) {
				t.Fatalf("peeked %+v, want %+v", got, want)
			}
			checkAppend(t, b, &r)
		case err == nil:
			// Something is wrong inside of what is passed over, but never in the strings.
			texts, ok := only(b, 1, 2, 3)
			if !ok {
				t.Fatalf("peeked %+v of a message that cannot be walked", got)
			}
			if err := proto.Unmarshal(texts, &r); err != nil || r.GetModelName() != got.Model || r.GetModelVersion() != got.Version || r.GetId() != got.ID {
				t.Fatalf("peeked %+v, want %v (%v)", got, &r, err)
			}
		case decoded == nil:
			// What a usual client writes is never refused but for its limits.
			r.ProtoReflect().SetUnknown(nil)
			usual := encode(t, &r)
			if len(usual) < 1024 {
				if _, err := PeekInfer(inference.NewFrame(usual)); err != nil && len(r.GetModelVersion()) <= maxVersion && !unknownIn(&r) {
					t.Fatalf("%v is refused: %v", &r, err)
				}
			}
		}
	})
}

// unknownIn reports whether a parameter has fields that protobuf did not know.
func unknownIn(r *tritonpb.ModelInferRequest) bool {
	for _, p := range r.GetParameters() {
		if len(p.ProtoReflect().GetUnknown()) > 0 {
			return true
		}
	}
	return false
}

// checkAppend fails unless appending to b what overrides its target changes nothing else.
func checkAppend(t *testing.T, b []byte, want *tritonpb.ModelInferRequest) {
	t.Helper()
	f := inference.NewFrame(b)
	f.Append(AppendID(AppendTarget(nil, "new", "5"), "id"))
	want.ModelName, want.ModelVersion, want.Id = "new", "5", "id"
	if got := decode(t, f, &tritonpb.ModelInferRequest{}); !proto.Equal(got, want) {
		t.Fatalf("after the append: %v, want %v", got, want)
	}
}

func FuzzPeekPredict(f *testing.F) {
	f.Add(encode(f, &inferencepb.PredictionRequest{
		ModelName: "fraud", ModelVersion: 2, InputTensor: make([]byte, 64), Metadata: map[string]string{"user_id": "ann", "sequence_id": "9", "sequence_end": "true"},
	}), []byte{3, 0, 1})
	f.Add([]byte{0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, []byte{1})
	f.Add([]byte{0x1a, 1, 1, 0x1a, 2, 3, 4, 0x22, 3, 0x0a, 1, 'k', 0x22, 0}, []byte{})
	f.Fuzz(func(t *testing.T, b, cuts []byte) {
		got, err := PeekPredict(inference.NewFrame(b))
		l := newLedger(t)
		cut := l.frame(b, sizesOf(cuts)...)
		again, errAgain := PeekPredict(cut)
		cut.Free()
		l.settled()
		if !sameError(err, errAgain) || !sameHead(got, again) {
			t.Fatalf("in one buffer %+v, %v; in several %+v, %v", got, err, again, errAgain)
		}
		if err == nil {
			checkPrediction(t, b, got)
		}
	})
}

func FuzzPeekStreamAnswer(f *testing.F) {
	f.Add(encode(f, &tritonpb.ModelStreamInferResponse{ErrorMessage: "no", InferResponse: &tritonpb.ModelInferResponse{
		ModelName: "m", ModelVersion: "1", Id: "7", Parameters: map[string]*tritonpb.InferParameter{"triton_final_response": boolOf(true)},
		Outputs: []*outputPB{outputOf("O", "FP32", 1)}, RawOutputContents: [][]byte{floats(1)},
	}}), []byte{3, 0, 1})
	f.Add(AppendStreamAnswer(AppendStreamAnswer(nil, "a", "m"), "", "n"), []byte{2})
	f.Add(StreamError("7", "", "gone").Buf.Materialize(), []byte{})
	f.Fuzz(func(t *testing.T, b, cuts []byte) {
		got, err := PeekStreamAnswer(inference.NewFrame(b))
		l := newLedger(t)
		cut := l.frame(b, sizesOf(cuts)...)
		again, errAgain := PeekStreamAnswer(cut)
		if !sameError(err, errAgain) || got != again {
			t.Fatalf("in one buffer %+v, %v; in several %+v, %v", got, err, again, errAgain)
		}
		var r tritonpb.ModelStreamInferResponse
		decoded := proto.Unmarshal(b, &r)
		if want := streamAnswerOf(&r); err == nil && decoded == nil && got != want {
			t.Fatalf("peeked %+v, want %+v", got, want)
		}
		unwrapped := UnwrapStreamAnswer(&cut)
		switch {
		case unwrapped != nil && err == nil:
			t.Fatalf("peeked, but not unwrapped: %v", unwrapped)
		case unwrapped != nil && !bytes.Equal(cut.Buf.Materialize(), b):
			t.Fatal("the frame has changed")
		case unwrapped == nil && decoded == nil:
			want := r.GetInferResponse()
			if want == nil {
				want = &tritonpb.ModelInferResponse{}
			}
			if inner := decode(t, cut, &tritonpb.ModelInferResponse{}); !proto.Equal(inner, want) {
				t.Fatalf("unwrapped %v, want %v", inner, want)
			}
		}
		cut.Free()
		l.settled()
	})
}

// fuzzedTensors are the models that predictions are made for.
var fuzzedTensors = []inference.Tensors{
	inputsOf(tensorOf("A", "FP32", -1, 2)),
	inputsOf(tensorOf("A", "INT8", 3)),
	inputsOf(tensorOf("A", "FP16", -1), tensorOf("B", "INT64", -1, 1)),
	inputsOf(tensorOf("T", "BYTES", -1, 1)),
	inputsOf(tensorOf("A", "INT8", 2), tensorOf("T", "BYTES", -1), tensorOf("B", "INT8", 1)),
	inputsOf(tensorOf("T", "BYTES", 1), tensorOf("U", "BYTES", 2), tensorOf("A", "UINT8", -1, 2)),
	inputsOf(tensorOf("A", "INT8", -1, -1)),
	inputsOf(tensorOf("A", "NONE", -1)),
	{},
}

func FuzzPredictToInfer(f *testing.F) {
	add := func(kind byte, tensor []byte, metadata map[string]string) {
		f.Add(encode(f, &inferencepb.PredictionRequest{ModelName: "m", InputTensor: tensor, Metadata: metadata}), []byte{5, 0, 1}, kind)
	}
	add(0, floats(1, 2, 3, 4), map[string]string{"sequence_id": "9", "sequence_start": "true"})
	add(0, floats(1, 2, 3), nil)
	add(1, []byte{1, 2, 3}, nil)
	add(2, make([]byte, 20), nil)
	add(3, texts("hello", "", "world"), nil)
	add(3, []byte("hello"), nil)
	add(4, append(append([]byte{1, 2}, texts("a", "b")...), 3), nil)
	add(5, append(texts("a", "b", "c"), 1, 2, 3, 4), nil)
	add(6, make([]byte, 6), map[string]string{"tensor.A.shape": "2,3"})
	add(7, []byte{1}, nil)
	add(8, []byte{1}, nil)
	f.Fuzz(func(t *testing.T, b, cuts []byte, kind byte) {
		tensors := fuzzedTensors[int(kind)%len(fuzzedTensors)]
		l := newLedger(t)
		cut := l.frame(b, sizesOf(cuts)...)
		h, err := PeekPredict(cut)
		if err == nil {
			if err = PredictToInfer(&cut, h, "real", "3", tensors); err == nil {
				checkInference(t, cut, b[h.TensorOff:h.TensorOff+h.TensorLen], tensors)
				back, err := PeekInfer(cut)
				if err != nil || back.Model != "real" || back.Version != "3" || back.Sequence != h.Sequence {
					t.Fatalf("the request has the head %+v, %v; the prediction had %+v", back, err, h)
				}
			}
		}
		if err != nil && !bytes.Equal(cut.Buf.Materialize(), b) {
			t.Fatal("the frame has changed")
		}
		cut.Free()
		l.settled()
	})
}

// fuzzedAnswers are ways to make a prediction of an answer.
var fuzzedAnswers = []inference.Tensors{
	{},
	{Output: "O"},
	{Confidence: inference.Confidence{Output: "P", Reduce: "first"}},
	{Output: "P", Confidence: inference.Confidence{Output: "O", Reduce: "mean"}},
	{Confidence: inference.Confidence{Reduce: "max"}},
}

func FuzzInferToPredict(f *testing.F) {
	two := &tritonpb.ModelInferResponse{
		ModelName: "m", Outputs: []*outputPB{outputOf("O", "INT64", 1), outputOf("P", "FP32", 2, 2)},
		RawOutputContents: [][]byte{make([]byte, 8), floats(1, 2, 3, 4)},
	}
	typed := outputOf("O", "FP64", 1, 2)
	typed.Contents = &tritonpb.InferTensorContents{Fp64Contents: []float64{1, 2}}
	text := outputOf("O", "BYTES", 1, 2)
	text.Contents = &tritonpb.InferTensorContents{BytesContents: [][]byte{[]byte("a"), nil}}
	small := outputOf("O", "INT8", 1, 2)
	small.Contents = &tritonpb.InferTensorContents{IntContents: []int32{-1, 300}}
	for kind := range fuzzedAnswers {
		for _, m := range []*tritonpb.ModelInferResponse{two, {Outputs: []*outputPB{typed}}, {Outputs: []*outputPB{text}}, {Outputs: []*outputPB{small}}, {}} {
			f.Add(encode(f, m), []byte{3, 0, 1}, byte(kind))
		}
	}
	f.Fuzz(func(t *testing.T, b, cuts []byte, kind byte) {
		tensors := fuzzedAnswers[int(kind)%len(fuzzedAnswers)]
		l := newLedger(t)
		cut := l.frame(b, sizesOf(cuts)...)
		datatype, err := InferToPredict(&cut, tensors, "OK", 3*time.Millisecond)
		whole := inference.NewFrame(b)
		if typeWhole, errWhole := InferToPredict(&whole, tensors, "OK", 3*time.Millisecond); datatype != typeWhole || !sameError(err, errWhole) || !bytes.Equal(cut.Buf.Materialize(), whole.Buf.Materialize()) {
			t.Fatalf("in one buffer %v, in several %v", errWhole, err)
		}
		if err != nil {
			if !bytes.Equal(cut.Buf.Materialize(), b) {
				t.Fatal("the frame has changed")
			}
		} else {
			got := decode(t, cut, &inferencepb.PredictionResponse{})
			var r tritonpb.ModelInferResponse
			if proto.Unmarshal(b, &r) == nil {
				if want := predictionOf(&r, tensors); !proto.Equal(got, want) {
					t.Fatalf("got %v, want %v, from %v", got, want, &r)
				}
			}
		}
		cut.Free()
		l.settled()
	})
}

// predictionOf is what InferToPredict must make of r, made from the decoded message.
func predictionOf(r *tritonpb.ModelInferResponse, tensors inference.Tensors) *inferencepb.PredictionResponse {
	want := &inferencepb.PredictionResponse{Status: "OK", LatencyMs: 3}
	find := func(name string) int {
		for i, o := range r.GetOutputs() {
			switch o.GetDatatype() {
			case "FP16", "BF16", "FP32", "FP64":
				if name == "" {
					return i
				}
			}
			if name != "" && o.GetName() == name {
				return i
			}
		}
		return 0
	}
	if len(r.GetOutputs()) == 0 {
		return want
	}
	raw := func(i int) []byte {
		if len(r.GetRawOutputContents()) > 0 {
			return r.GetRawOutputContents()[i]
		}
		return rawOf(r.GetOutputs()[i])
	}
	chosen := find(tensors.Output)
	judged := chosen
	if tensors.Confidence.Output != "" {
		judged = find(tensors.Confidence.Output)
	}
	want.OutputTensor = raw(chosen)
	o := r.GetOutputs()[judged]
	row := 1.0
	for _, d := range o.GetShape()[min(1, len(o.GetShape())):] {
		row = math.Min(row*math.Max(float64(d), 0), 1e15)
	}
	want.Confidence = confidenceOf(raw(judged), o.GetDatatype(), row, tensors.Confidence.Reduce)
	return want
}

func confidenceOf(raw []byte, datatype string, row float64, reduce string) float32 {
	size := DatatypeSize(datatype)
	if size <= 0 {
		return 0
	}
	n := int(math.Min(row, 4096))
	n = min(n, len(raw)/size)
	if n == 0 {
		return 0
	}
	if reduce == "first" || reduce == "" && row == 1 {
		n = 1
	}
	var values []float64
	sum := 0.0
	for i := range n {
		var bits [8]byte
		copy(bits[:], raw[i*size:(i+1)*size])
		if v := number(datatype, binary.LittleEndian.Uint64(bits[:])); !math.IsNaN(v) {
			values = append(values, v)
			sum += v
		}
	}
	if len(values) == 0 {
		return float32(math.NaN())
	}
	if reduce == "mean" {
		return float32(sum / float64(len(values)))
	}
	best := values[0]
	for _, v := range values {
		best = math.Max(best, v)
	}
	return float32(best)
}

// rawOf encodes typed contents as raw bytes.
func rawOf(o *outputPB) []byte {
	var b bytes.Buffer
	write := func(v any) { _ = binary.Write(&b, binary.LittleEndian, v) }
	c := o.GetContents()
	switch o.GetDatatype() {
	case "BOOL":
		write(c.GetBoolContents())
	case "INT8":
		for _, v := range c.GetIntContents() {
			write(int8(v))
		}
	case "INT16":
		for _, v := range c.GetIntContents() {
			write(int16(v))
		}
	case "INT32":
		write(c.GetIntContents())
	case "INT64":
		write(c.GetInt64Contents())
	case "UINT8":
		for _, v := range c.GetUintContents() {
			write(uint8(v))
		}
	case "UINT16":
		for _, v := range c.GetUintContents() {
			write(uint16(v))
		}
	case "UINT32":
		write(c.GetUintContents())
	case "UINT64":
		write(c.GetUint64Contents())
	case "FP32":
		write(c.GetFp32Contents())
	case "FP64":
		write(c.GetFp64Contents())
	case "BYTES":
		for _, e := range c.GetBytesContents() {
			write(uint32(len(e)))
			b.Write(e)
		}
	}
	return b.Bytes()
}
