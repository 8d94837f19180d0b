package wire

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

func tensorOf(name, datatype string, shape ...int64) inference.Tensor {
	return inference.Tensor{Name: name, Datatype: datatype, Shape: shape}
}

func inputsOf(inputs ...inference.Tensor) inference.Tensors { return inference.Tensors{Inputs: inputs} }

// texts is the raw form of a BYTES tensor.
func texts(elements ...string) []byte {
	var b []byte
	for _, e := range elements {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(e)))
		b = append(b, e...)
	}
	return b
}

func TestAPredictionBecomesAnInferenceAroundTheSameBytes(t *testing.T) {
	for name, c := range map[string]struct {
		tensors  inference.Tensors
		bytes    []byte
		metadata map[string]string
		shapes   [][]int64
		sizes    []int
	}{
		"a row":            {inputsOf(tensorOf("A", "FP32", -1, 16)), make([]byte, 64), nil, [][]int64{{1, 16}}, []int{64}},
		"three rows":       {inputsOf(tensorOf("A", "FP32", -1, 16)), make([]byte, 192), nil, [][]int64{{3, 16}}, []int{192}},
		"no open one":      {inputsOf(tensorOf("A", "INT8", 2, 3)), make([]byte, 6), nil, [][]int64{{2, 3}}, []int{6}},
		"a scalar":         {inputsOf(tensorOf("A", "FP64")), make([]byte, 8), nil, [][]int64{nil}, []int{8}},
		"an inner one":     {inputsOf(tensorOf("A", "UINT8", 1, -1, 3)), make([]byte, 12), nil, [][]int64{{1, 4, 3}}, []int{12}},
		"an image":         {inputsOf(tensorOf("A", "FP32", -1, 3, 224, 224)), make([]byte, 602112), nil, [][]int64{{1, 3, 224, 224}}, []int{602112}},
		"half":             {inputsOf(tensorOf("A", "FP16", -1)), make([]byte, 6), nil, [][]int64{{3}}, []int{6}},
		"two, one batch":   {inputsOf(tensorOf("A", "FP32", -1, 2), tensorOf("B", "INT64", -1, 1)), make([]byte, 48), nil, [][]int64{{3, 2}, {3, 1}}, []int{24, 24}},
		"two, one open":    {inputsOf(tensorOf("A", "FP32", 4), tensorOf("B", "INT8", 1, -1)), make([]byte, 19), nil, [][]int64{{4}, {1, 3}}, []int{16, 3}},
		"shape from":       {inputsOf(tensorOf("A", "FP32", -1, -1)), make([]byte, 64), map[string]string{"tensor.A.shape": "1,16"}, [][]int64{{1, 16}}, []int{64}},
		"shape from, open": {inputsOf(tensorOf("A", "INT8", -1, -1), tensorOf("B", "INT8", 2, -1)), make([]byte, 14), map[string]string{"tensor.A.shape": " 2, 3 "}, [][]int64{{2, 3}, {2, 4}}, []int{6, 8}},
		"text":             {inputsOf(tensorOf("T", "BYTES", -1, 1)), texts("hello", "", "world"), nil, [][]int64{{3, 1}}, []int{22}},
		"text pairs":       {inputsOf(tensorOf("T", "BYTES", -1, 2)), texts("a", "b", "c", "d"), nil, [][]int64{{2, 2}}, []int{20}},
		"one text":         {inputsOf(tensorOf("T", "BYTES", 1)), texts("hello"), nil, [][]int64{{1}}, []int{9}},
		"text, then rows":  {inputsOf(tensorOf("T", "BYTES", 2), tensorOf("A", "INT8", -1, 3)), append(texts("a", "bc"), 1, 2, 3, 4, 5, 6), nil, [][]int64{{2}, {2, 3}}, []int{11, 6}},
		"rows, then text":  {inputsOf(tensorOf("A", "INT8", 3), tensorOf("T", "BYTES", -1)), append([]byte{1, 2, 3}, texts("a", "bc")...), nil, [][]int64{{3}, {2}}, []int{3, 11}},
		"text in between":  {inputsOf(tensorOf("A", "INT8", 3), tensorOf("T", "BYTES", -1), tensorOf("B", "INT16", 1)), append(append([]byte{1, 2, 3}, texts("a")...), 9, 9), nil, [][]int64{{3}, {1}, {1}}, []int{3, 5, 2}},
		"two texts":        {inputsOf(tensorOf("T", "BYTES", -1), tensorOf("U", "BYTES", -1)), texts("a", "b", "c"), map[string]string{"tensor.T.shape": "1"}, [][]int64{{1}, {2}}, []int{5, 10}},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range c.bytes {
				if c.metadata == nil && !slices.ContainsFunc(c.tensors.Inputs, func(in inference.Tensor) bool { return in.Datatype == "BYTES" }) {
					c.bytes[i] = byte(i * 7)
				}
			}
			message := encode(t, &inferencepb.PredictionRequest{ModelName: "asked", ModelVersion: 4, InputTensor: c.bytes, Metadata: c.metadata})
			for _, size := range []int{len(message), 1 + len(message)/100, 1 + len(message)/7} {
				l := newLedger(t)
				f := l.frame(message, size)
				h, err := PeekPredict(f)
				if err != nil {
					t.Fatal(err)
				}
				if err := PredictToInfer(&f, h, "real", "7", c.tensors); err != nil {
					t.Fatal(err)
				}
				r := decode(t, f, &tritonpb.ModelInferRequest{})
				if r.GetModelName() != "real" || r.GetModelVersion() != "7" || r.GetId() != "" || len(r.GetParameters()) > 0 {
					t.Fatalf("got %v", r)
				}
				if !bytes.Equal(slices.Concat(r.GetRawInputContents()...), c.bytes) {
					t.Fatal("the tensor bytes have changed")
				}
				for i, in := range r.GetInputs() {
					want := c.tensors.Inputs[i]
					if in.GetName() != want.Name || in.GetDatatype() != want.Datatype || !slices.Equal(in.GetShape(), c.shapes[i]) || len(r.GetRawInputContents()[i]) != c.sizes[i] {
						t.Fatalf("input %d is %v with %d bytes, want shape %v and %d bytes", i, in, len(r.GetRawInputContents()[i]), c.shapes[i], c.sizes[i])
					}
				}
				f.Free()
				l.settled()
			}
		})
	}
}

func TestATensorThatDoesNotFitSaysWhatWould(t *testing.T) {
	fp32 := inputsOf(tensorOf("INPUT", "FP32", -1, 16))
	text := inputsOf(tensorOf("TEXT", "BYTES", -1, 2))
	large := bytes.Repeat(texts(""), maxElements+1)
	for name, c := range map[string]struct {
		tensors  inference.Tensors
		bytes    []byte
		metadata map[string]string
		kind     fault.Kind
		says     string
	}{
		"does not divide":   {fp32, make([]byte, 63), nil, fault.BadTensor, "input_tensor has 63 bytes; INPUT FP32 [-1,16] needs a multiple of 64"},
		"empty":             {fp32, nil, nil, fault.BadTensor, "input_tensor is empty; the model needs INPUT FP32 [-1,16]"},
		"fixed":             {inputsOf(tensorOf("A", "FP32", 4)), make([]byte, 17), nil, fault.BadTensor, "input_tensor has 17 bytes; A FP32 [4] needs exactly 16"},
		"fixed, metadata":   {fp32, make([]byte, 64), map[string]string{"tensor.INPUT.shape": "2,16"}, fault.BadTensor, "input_tensor has 64 bytes; INPUT FP32 [2,16] needs exactly 128"},
		"two":               {inputsOf(tensorOf("A", "FP32", -1, 2), tensorOf("B", "INT8", -1)), make([]byte, 10), nil, fault.BadTensor, "input_tensor has 10 bytes; A FP32 [-1,2] and B INT8 [-1] together need a multiple of 9"},
		"three":             {inputsOf(tensorOf("A", "INT8", 1), tensorOf("B", "INT8", 1), tensorOf("C", "INT8", -1, 5)), make([]byte, 6), nil, fault.BadTensor, "A INT8 [1], B INT8 [1] and C INT8 [-1,5] together need 2 and a multiple of 5"},
		"nothing left":      {inputsOf(tensorOf("A", "INT8", 4), tensorOf("B", "INT8", -1)), make([]byte, 4), nil, fault.BadTensor, "together need 4 and a multiple of 1"},
		"two open in one":   {inputsOf(tensorOf("A", "INT8", -1, -1)), make([]byte, 4), nil, fault.BadTensor, `A INT8 [-1,-1] leaves more than one dimension open; send its shape as metadata["tensor.A.shape"]`},
		"two open inside":   {inputsOf(tensorOf("A", "INT8", -1, 1), tensorOf("B", "INT8", 1, -1)), make([]byte, 4), nil, fault.BadTensor, "does not tell the shapes of A INT8 [-1,1] and B INT8 [1,-1]"},
		"two texts open":    {inputsOf(tensorOf("T", "BYTES", -1), tensorOf("U", "BYTES", -1)), texts("a"), nil, fault.BadTensor, "does not tell the shapes"},
		"text behind":       {inputsOf(tensorOf("A", "INT8", -1), tensorOf("U", "BYTES", 1)), texts("a"), nil, fault.BadTensor, "does not tell the shapes"},
		"text and batch":    {inputsOf(tensorOf("T", "BYTES", -1), tensorOf("A", "INT8", -1)), texts("a"), nil, fault.BadTensor, "does not tell the shapes"},
		"odd elements":      {text, texts("a", "b", "c"), nil, fault.BadTensor, "input_tensor has 3 elements for TEXT BYTES [-1,2]; it needs a multiple of 2"},
		"too few elements":  {inputsOf(tensorOf("T", "BYTES", 3)), texts("a", "b"), nil, fault.BadTensor, "input_tensor has 2 elements for T BYTES [3]; it needs 3"},
		"too many elements": {inputsOf(tensorOf("T", "BYTES", 1)), texts("a", "b"), nil, fault.BadTensor, "input_tensor has 10 bytes; T BYTES [1] needs 5"},
		"plain text":        {text, []byte("hello world"), nil, fault.BadTensor, "element 0 of TEXT BYTES [-1,2] is cut: it has 1819043176 bytes, 7 are left"},
		"cut length":        {text, append(texts("a"), 1, 0, 0), nil, fault.BadTensor, "element 1 of TEXT BYTES [-1,2] is cut"},
		"a byte too few":    {text, texts("a", "b")[:9], nil, fault.BadTensor, "element 1 of TEXT BYTES [-1,2] is cut: it has 1 bytes, 0 are left"},
		"fixed and endless": {inputsOf(tensorOf("T", "BYTES", maxElements+1)), texts("a"), nil, fault.BadTensor, "T BYTES [1048577] has more than 1048576 elements; use KServe v2"},
		"many inputs":       {inputsOf(slices.Repeat([]inference.Tensor{tensorOf("A", "INT8", 1)}, 20)...), texts("a"), nil, fault.BadTensor, "A INT8 [1] and 4 more together need exactly 20"},
		"too many inputs":   {inputsOf(slices.Repeat([]inference.Tensor{tensorOf("A", "INT8", 1)}, maxInputs+1)...), texts("a"), nil, fault.Internal, "the model has 257 known inputs"},
		"endless elements":  {text, large, nil, fault.BadTensor, "more than 1048576 elements"},
		"rows beside text":  {inputsOf(tensorOf("T", "BYTES", 1), tensorOf("A", "INT32", -1)), append(texts("a"), 1, 2, 3), nil, fault.BadTensor, "input_tensor has 3 bytes for A INT32 [-1]; it needs a multiple of 4"},
		"row beside text":   {inputsOf(tensorOf("T", "BYTES", 1), tensorOf("A", "INT32", 2)), append(texts("a"), 1, 2, 3), nil, fault.BadTensor, "input_tensor has 3 bytes for A INT32 [2]; it needs 8"},
		"text takes all":    {inputsOf(tensorOf("T", "BYTES", 1), tensorOf("A", "INT32", 2)), texts("a"), nil, fault.BadTensor, "together need more"},
		"text left nothing": {inputsOf(tensorOf("T", "BYTES", -1), tensorOf("A", "INT32", 2)), texts("a"), nil, fault.BadTensor, "together need more"},
		"shape of words":    {fp32, make([]byte, 64), map[string]string{"tensor.INPUT.shape": "one"}, fault.InvalidArgument, `metadata["tensor.INPUT.shape"] is "one"; send positive numbers`},
		"shape of -1":       {fp32, make([]byte, 64), map[string]string{"tensor.INPUT.shape": "-1,16"}, fault.InvalidArgument, "send positive numbers"},
		"shape too short":   {fp32, make([]byte, 64), map[string]string{"tensor.INPUT.shape": "16"}, fault.BadTensor, `metadata["tensor.INPUT.shape"] is [16]; the model expects INPUT FP32 [`},
		"shape too long":    {fp32, make([]byte, 64), map[string]string{"tensor.INPUT.shape": "1,16,1"}, fault.BadTensor, "the model expects INPUT FP32 [-1,16]"},
		"shape not theirs":  {fp32, make([]byte, 64), map[string]string{"tensor.INPUT.shape": "1,15"}, fault.BadTensor, "the model expects INPUT FP32 [-1,16]"},
		"shape huge":        {inputsOf(tensorOf("A", "INT8", -1, -1, -1)), make([]byte, 64), map[string]string{"tensor.A.shape": "9223372036854775807,9223372036854775807,4"}, fault.BadTensor, "larger than any message"},
		"no inputs":         {inference.Tensors{}, make([]byte, 4), nil, fault.Internal, "the model has 0 known inputs"},
		"unknown datatype":  {inputsOf(tensorOf("A", "FLOAT", -1)), make([]byte, 4), nil, fault.Internal, `input A of the model has the unknown datatype "FLOAT"`},
		"zero dimension":    {inputsOf(tensorOf("A", "INT8", -1, 0)), make([]byte, 4), nil, fault.Internal, "A INT8 [-1,0] of the model has a dimension that is neither positive nor -1"},
		"high rank":         {inputsOf(tensorOf("A", "INT8", make([]int64, maxRank+1)...)), make([]byte, 4), nil, fault.Internal, "33 dimensions"},
	} {
		t.Run(name, func(t *testing.T) {
			message := encode(t, &inferencepb.PredictionRequest{ModelName: "m", InputTensor: c.bytes, Metadata: c.metadata})
			l := newLedger(t)
			f := l.frame(message, 1+len(message)/50)
			h, err := PeekPredict(f)
			if err != nil {
				t.Fatal(err)
			}
			if got := wantKind(t, PredictToInfer(&f, h, "m", "1", c.tensors), c.kind); !strings.Contains(got.Msg, c.says) {
				t.Fatalf("got %q, want it to say %q", got.Msg, c.says)
			}
			if !bytes.Equal(f.Buf.Materialize(), message) {
				t.Fatal("the frame has changed")
			}
			f.Free()
			l.settled()
		})
	}
}

func TestAHeadOfAnotherMessageIsRefused(t *testing.T) {
	f := inference.NewFrame([]byte{1, 2, 3})
	err := PredictToInfer(&f, inference.Head{TensorOff: 2, TensorLen: 2}, "m", "", inputsOf(tensorOf("A", "INT8", -1)))
	wantKind(t, err, fault.Internal)
}

func TestASequenceOfMetadataTravelsAsParameters(t *testing.T) {
	for name, c := range map[string]struct {
		id   string
		want *tritonpb.InferParameter
	}{
		"a number":            {"42", intOf(42)},
		"a negative":          {"-3", intOf(-3)},
		"text":                {"abc", textOf("abc")},
		"not canonical":       {"007", textOf("007")},
		"larger than 63 bits": {"9223372036854775808", textOf("9223372036854775808")},
	} {
		t.Run(name, func(t *testing.T) {
			f := inference.NewFrame(encode(t, &inferencepb.PredictionRequest{InputTensor: []byte{1}, Metadata: map[string]string{
				"sequence_id": c.id, "sequence_start": "true", "sequence_end": "true",
			}}))
			h, err := PeekPredict(f)
			if err != nil {
				t.Fatal(err)
			}
			h.ID, h.EmptyFinal = "9", true
			if err := PredictToInfer(&f, h, "m", "", inputsOf(tensorOf("A", "INT8", -1))); err != nil {
				t.Fatal(err)
			}
			want := &tritonpb.ModelInferRequest{
				ModelName: "m", Id: "9",
				Parameters: map[string]*tritonpb.InferParameter{
					"sequence_id": c.want, "sequence_start": boolOf(true), "sequence_end": boolOf(true), "triton_enable_empty_final_response": boolOf(true),
				},
				Inputs:           []*tritonpb.ModelInferRequest_InferInputTensor{{Name: "A", Datatype: "INT8", Shape: []int64{1}}},
				RawInputContents: [][]byte{{1}},
			}
			if got := decode(t, f, &tritonpb.ModelInferRequest{}); !proto.Equal(got, want) {
				t.Fatalf("got %v, want %v", got, want)
			}
			back, err := PeekInfer(f)
			if err != nil || back.Sequence != h.Sequence {
				t.Fatalf("%+v, %v, want %+v", back.Sequence, err, h.Sequence)
			}
		})
	}
}

func TestManyInputsShareOneTensor(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		batch := rapid.IntRange(1, 5).Draw(rt, "batch")
		datatypes := rapid.SliceOfN(rapid.SampledFrom([]string{"BOOL", "INT16", "FP32", "FP64", "BF16"}), 1, 12).Draw(rt, "datatypes")
		var tensors inference.Tensors
		total := 0
		for _, d := range datatypes {
			width := rapid.IntRange(1, 40).Draw(rt, "width")
			tensors.Inputs = append(tensors.Inputs, tensorOf(rapid.StringMatching(`[A-Z]{1,9}`).Draw(rt, "name"), d, -1, int64(width)))
			total += batch * width * DatatypeSize(d)
		}
		data := bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7}, total/7+1)[:total]
		message, err := proto.Marshal(&inferencepb.PredictionRequest{ModelName: "m", InputTensor: data, Metadata: map[string]string{"k": "v"}})
		if err != nil {
			rt.Fatal(err)
		}
		l := newLedger(t)
		f := l.frame(message, sizesOf(drawCuts.Draw(rt, "cuts"))...)
		h, err := PeekPredict(f)
		if err != nil {
			rt.Fatal(err)
		}
		if err := PredictToInfer(&f, h, "m", "1", tensors); err != nil {
			rt.Fatal(err)
		}
		checkInference(rt, f, data, tensors)
		f.Free()
		l.settled()
	})
}

// checkInference fails unless f is a ModelInferRequest whose inputs are those of tensors and share the bytes of data.
func checkInference(t fataler, f inference.Frame, data []byte, tensors inference.Tensors) {
	var r tritonpb.ModelInferRequest
	if err := proto.Unmarshal(f.Buf.Materialize(), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.GetInputs()) != len(tensors.Inputs) || len(r.GetRawInputContents()) != len(tensors.Inputs) {
		t.Fatalf("%d inputs and %d raw contents, want %d", len(r.GetInputs()), len(r.GetRawInputContents()), len(tensors.Inputs))
	}
	if !bytes.Equal(slices.Concat(r.GetRawInputContents()...), data) {
		t.Fatal("the tensor bytes have changed")
	}
	for i, in := range r.GetInputs() {
		want, raw := tensors.Inputs[i], r.GetRawInputContents()[i]
		if in.GetName() != want.Name || in.GetDatatype() != want.Datatype || len(in.GetShape()) != len(want.Shape) {
			t.Fatalf("input %d is %v, want %v", i, in, want)
		}
		elements := 1
		for j, d := range in.GetShape() {
			if d <= 0 || want.Shape[j] != -1 && want.Shape[j] != d {
				t.Fatalf("input %d is %v, want %v", i, in, want)
			}
			elements *= int(d)
		}
		if want.Datatype == "BYTES" {
			for ; elements > 0; elements-- {
				raw = raw[4+binary.LittleEndian.Uint32(raw):]
			}
		} else {
			raw = raw[elements*DatatypeSize(want.Datatype):]
		}
		if len(raw) > 0 {
			t.Fatalf("input %d has %d bytes more than its shape", i, len(raw))
		}
	}
}
