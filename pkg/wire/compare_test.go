package wire

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// compared runs CompareInfer on answers that are cut up in several ways, and gives what came of it.
func compared(t *testing.T, a, b *tritonpb.ModelInferResponse, tensors inference.Tensors) inference.Difference {
	t.Helper()
	x, y := encode(t, a), encode(t, b)
	var first inference.Difference
	for i, size := range []int{len(x) + len(y), 1 + len(x)/50, 3} {
		l := newLedger(t)
		fx, fy := l.frame(x, size), l.frame(y, size+1)
		d, err := CompareInfer(fx, fy, tensors)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && d != first {
			t.Fatalf("in buffers of %d bytes: %+v, else %+v", size, d, first)
		}
		first = d
		if !bytes.Equal(fx.Buf.Materialize(), x) || !bytes.Equal(fy.Buf.Materialize(), y) {
			t.Fatal("an answer has changed")
		}
		fx.Free()
		fy.Free()
		l.settled()
	}
	return first
}

func scored(values ...float32) *tritonpb.ModelInferResponse {
	return &tritonpb.ModelInferResponse{Outputs: []*outputPB{outputOf("score", "FP32", 1, int64(len(values)))}, RawOutputContents: [][]byte{floats(values...)}}
}

func raw(datatype string, elements ...any) *tritonpb.ModelInferResponse {
	var b []byte
	for _, e := range elements {
		b, _ = binary.Append(b, binary.LittleEndian, e)
	}
	return &tritonpb.ModelInferResponse{Outputs: []*outputPB{outputOf("O", datatype, int64(len(elements)))}, RawOutputContents: [][]byte{b}}
}

func TestAnswersAreComparedNumberByNumber(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for name, c := range map[string]struct {
		a, b *tritonpb.ModelInferResponse
		kind inference.DifferenceKind
		max  float64
	}{
		"equal":                     {scored(0.25, 0.75), scored(0.25, 0.75), inference.Same, 0},
		"within what FP32 explains": {scored(0.5), scored(math.Nextafter32(0.5, 1)), inference.Same, math.Pow(2, -24)},
		"large and as good as same": {scored(1e6), scored(1e6 + 0.5), inference.Same, 0.5},
		"small and far enough":      {scored(1e-5), scored(2e-5), inference.ValuesDiffer, float64(float32(2e-5)) - float64(float32(1e-5))},
		"apart":                     {scored(0.25, 0.75), scored(0.5, 0.625), inference.ValuesDiffer, 0.25},
		"the last of many":          {scored(append(make([]float32, 200), 1)...), scored(make([]float32, 201)...), inference.ValuesDiffer, 1},
		"both are no number":        {scored(nan, 1), scored(nan, 1), inference.Same, 0},
		"one is no number":          {scored(nan, 1), scored(0, 3), inference.NotFinite, 2},
		"one is infinite":           {scored(1), scored(inf), inference.NotFinite, 0},
		"infinite the other way":    {scored(-inf), scored(inf), inference.NotFinite, 0},
		"FP16 a step apart":         {raw("FP16", uint16(0x3c00)), raw("FP16", uint16(0x3c01)), inference.Same, 1.0 / 1024},
		"FP16 apart":                {raw("FP16", uint16(0x3c00)), raw("FP16", uint16(0x4000)), inference.ValuesDiffer, 1},
		"BF16 a step apart":         {raw("BF16", uint16(0x3f80)), raw("BF16", uint16(0x3f81)), inference.Same, 1.0 / 128},
		"BF16 apart":                {raw("BF16", uint16(0x3f80)), raw("BF16", uint16(0x4000)), inference.ValuesDiffer, 1},
		"FP64":                      {raw("FP64", 1.0), raw("FP64", 1.5), inference.ValuesDiffer, 0.5},
		"FP64 beyond measure":       {raw("FP64", -math.MaxFloat64), raw("FP64", math.MaxFloat64), inference.ValuesDiffer, math.MaxFloat64},
		"INT8":                      {raw("INT8", int8(-1)), raw("INT8", int8(1)), inference.ValuesDiffer, 2},
		"INT16":                     {raw("INT16", int16(-300)), raw("INT16", int16(0)), inference.ValuesDiffer, 300},
		"INT32":                     {raw("INT32", int32(7)), raw("INT32", int32(8)), inference.ValuesDiffer, 1},
		"INT64 beyond a float":      {raw("INT64", int64(math.MaxInt64)), raw("INT64", int64(math.MaxInt64-1)), inference.ValuesDiffer, 1},
		"UINT8":                     {raw("UINT8", uint8(255)), raw("UINT8", uint8(0)), inference.ValuesDiffer, 255},
		"UINT16":                    {raw("UINT16", uint16(9)), raw("UINT16", uint16(9)), inference.Same, 0},
		"UINT32":                    {raw("UINT32", uint32(1)), raw("UINT32", uint32(3)), inference.ValuesDiffer, 2},
		"UINT64":                    {raw("UINT64", uint64(math.MaxUint64)), raw("UINT64", uint64(0)), inference.ValuesDiffer, math.Pow(2, 64)},
		"BOOL":                      {raw("BOOL", uint8(1)), raw("BOOL", uint8(0)), inference.ValuesDiffer, 1},
		"BOOL in another spelling":  {raw("BOOL", uint8(1)), raw("BOOL", uint8(2)), inference.Same, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				d := compared(t, c.a, c.b, inference.Tensors{})
				if d.Kind != c.kind || d.MaxAbs != c.max {
					t.Errorf("%+v, want %s, %v", d, c.kind, c.max)
				}
				if math.Abs(d.Value-d.Mirrored) != d.MaxAbs && d.MaxAbs != math.MaxFloat64 && d.MaxAbs != 1 {
					t.Errorf("%v and %v are not %v apart", d.Value, d.Mirrored, d.MaxAbs)
				}
				c.a, c.b = c.b, c.a
			}
		})
	}
}

func TestOutputsAreMatchedByName(t *testing.T) {
	answer := &tritonpb.ModelInferResponse{
		Outputs:           []*outputPB{outputOf("label", "BYTES", 1), outputOf("score", "FP32", 1, 2)},
		RawOutputContents: [][]byte{texts("yes"), floats(0.25, 0.75)},
	}
	turned := &tritonpb.ModelInferResponse{
		Outputs:           []*outputPB{outputOf("score", "FP32", 1, 2), outputOf("label", "BYTES", 1)},
		RawOutputContents: [][]byte{floats(0.25, 0.75), texts("yes")},
	}
	if d := compared(t, answer, turned, inference.Tensors{}); d.Kind != inference.Same || d.Compared != 2 {
		t.Errorf("in another order: %+v", d)
	}
	typed := outputOf("score", "FP32", 1, 2)
	typed.Contents = &tritonpb.InferTensorContents{Fp32Contents: []float32{0.25, 0.5}}
	if d := compared(t, scored(0.25, 0.75), &tritonpb.ModelInferResponse{Outputs: []*outputPB{typed}}, inference.Tensors{}); d.Kind != inference.ValuesDiffer || d.MaxAbs != 0.25 {
		t.Errorf("raw and typed: %+v", d)
	}
	for name, c := range map[string]struct {
		b      *tritonpb.ModelInferResponse
		kind   inference.DifferenceKind
		output string
	}{
		"one is missing":   {&tritonpb.ModelInferResponse{Outputs: turned.Outputs[:1], RawOutputContents: turned.RawOutputContents[:1]}, inference.OutputMissing, "label"},
		"none are there":   {&tritonpb.ModelInferResponse{}, inference.OutputMissing, "label"},
		"other dimensions": {&tritonpb.ModelInferResponse{Outputs: []*outputPB{outputOf("score", "FP32", 2, 1), turned.Outputs[1]}, RawOutputContents: turned.RawOutputContents}, inference.ShapeDiffers, "score"},
		"other batch":      {&tritonpb.ModelInferResponse{Outputs: []*outputPB{outputOf("score", "FP32", 2, 2), turned.Outputs[1]}, RawOutputContents: [][]byte{floats(1, 2, 3, 4), texts("yes")}}, inference.ShapeDiffers, "score"},
		"another datatype": {&tritonpb.ModelInferResponse{Outputs: []*outputPB{outputOf("score", "FP64", 1, 2), turned.Outputs[1]}, RawOutputContents: [][]byte{make([]byte, 16), texts("yes")}}, inference.ShapeDiffers, "score"},
		"another size":     {&tritonpb.ModelInferResponse{Outputs: turned.Outputs, RawOutputContents: [][]byte{floats(0.25), texts("yes")}}, inference.ShapeDiffers, "score"},
		"another text":     {&tritonpb.ModelInferResponse{Outputs: turned.Outputs, RawOutputContents: [][]byte{floats(0.25, 0.75), texts("yea")}}, inference.ValuesDiffer, "label"},
		"a longer text":    {&tritonpb.ModelInferResponse{Outputs: turned.Outputs, RawOutputContents: [][]byte{floats(0.25, 0.75), texts("yes!")}}, inference.ValuesDiffer, "label"},
	} {
		t.Run(name, func(t *testing.T) {
			if d := compared(t, answer, c.b, inference.Tensors{}); d.Kind != c.kind || d.Output != c.output {
				t.Errorf("%+v, want %s of %s", d, c.kind, c.output)
			}
			if d := compared(t, c.b, answer, inference.Tensors{}); d.Kind != c.kind || d.Output != c.output {
				t.Errorf("the other way: %+v, want %s of %s", d, c.kind, c.output)
			}
		})
	}
}

func TestScoresAreWhatAPredictWouldGive(t *testing.T) {
	two := func(values ...float32) *tritonpb.ModelInferResponse {
		return &tritonpb.ModelInferResponse{
			Outputs:           []*outputPB{outputOf("label", "INT64", 1), outputOf("score", "FP32", 1, 2), outputOf("sure", "FP32", 1)},
			RawOutputContents: [][]byte{make([]byte, 8), floats(values[:2]...), floats(values[2])},
		}
	}
	a, b := two(0.25, 0.75, 0.5), two(0.5, 0.25, 0.125)
	for _, c := range []struct {
		tensors inference.Tensors
		a, b    float64
	}{
		{inference.Tensors{}, 0.75, 0.5},
		{inference.Tensors{Confidence: inference.Confidence{Reduce: "first"}}, 0.25, 0.5},
		{inference.Tensors{Confidence: inference.Confidence{Reduce: "mean"}}, 0.5, 0.375},
		{inference.Tensors{Output: "sure"}, 0.5, 0.125},
		{inference.Tensors{Output: "score", Confidence: inference.Confidence{Output: "sure"}}, 0.5, 0.125},
	} {
		if d := compared(t, a, b, c.tensors); !d.Scored || d.Score != c.a || d.MirroredScore != c.b {
			t.Errorf("%+v: %+v", c.tensors, d)
		}
	}
	nan := float32(math.NaN())
	for name, c := range map[string]struct {
		a, b    *tritonpb.ModelInferResponse
		tensors inference.Tensors
	}{
		"no such output": {a, b, inference.Tensors{Output: "other"}},
		"only text":      {&tritonpb.ModelInferResponse{Outputs: []*outputPB{outputOf("O", "BYTES", 1)}, RawOutputContents: [][]byte{texts("a")}}, a, inference.Tensors{}},
		"no elements":    {scored(), scored(), inference.Tensors{}},
		"not a number":   {scored(nan), scored(nan), inference.Tensors{}},
	} {
		if d := compared(t, c.a, c.b, c.tensors); d.Scored {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

func TestNoMoreIsComparedThanTheBound(t *testing.T) {
	long := make([]float32, maxCompared+1)
	other := slices.Clone(long)
	other[maxCompared] = 1
	if d := compared(t, scored(long...), scored(other...), inference.Tensors{}); d.Kind != inference.Same || d.Compared != maxCompared {
		t.Errorf("an element behind the bound: %+v", d)
	}
	other[maxCompared-1] = 2
	if d := compared(t, scored(long...), scored(other...), inference.Tensors{}); d.Kind != inference.ValuesDiffer || d.MaxAbs != 2 {
		t.Errorf("the last one within it: %+v", d)
	}
	typed := func(values []float32) *tritonpb.ModelInferResponse {
		o := outputOf("score", "FP32", 1, int64(len(values)))
		o.Contents = &tritonpb.InferTensorContents{Fp32Contents: values}
		return &tritonpb.ModelInferResponse{Outputs: []*outputPB{o}}
	}
	long = make([]float32, 3*maxCompared)
	if d := compared(t, typed(long), typed(long), inference.Tensors{}); d.Kind != inference.Same || d.Compared != maxCompared {
		t.Errorf("typed contents: %+v", d)
	}
	var many tritonpb.ModelInferResponse
	for i := range 20 {
		many.Outputs = append(many.Outputs, outputOf(strings.Repeat("O", 1+i), "UINT8", maxCompared))
		many.RawOutputContents = append(many.RawOutputContents, make([]byte, maxCompared))
	}
	if d := compared(t, &many, &many, inference.Tensors{}); d.Compared != maxComparedAll {
		t.Errorf("%d elements of many outputs were compared", d.Compared)
	}
}

func TestPredictionsAreComparedByTheDatatypeTheyCameFrom(t *testing.T) {
	answer := func(confidence float32, tensor []byte) *inferencepb.PredictionResponse {
		return &inferencepb.PredictionResponse{Status: "OK", LatencyMs: 3, Confidence: confidence, OutputTensor: tensor}
	}
	nan := float32(math.NaN())
	for name, c := range map[string]struct {
		a, b         *inferencepb.PredictionResponse
		typeA, typeB string
		kind         inference.DifferenceKind
		output       string
		max          float64
	}{
		"same":                   {answer(0.5, floats(0.5)), answer(0.5, floats(0.5)), "FP32", "FP32", inference.Same, "", 0},
		"tensors differ":         {answer(0.5, floats(0.5, 0.25)), answer(0.5, floats(0.5, 0.75)), "FP32", "FP32", inference.ValuesDiffer, "output_tensor", 0.5},
		"confidence differs":     {answer(0.5, floats(0.5)), answer(0.75, floats(0.5)), "FP32", "FP32", inference.ValuesDiffer, "confidence", 0},
		"confidence as in FP16":  {answer(1, []byte{0, 0x3c}), answer(1+1.0/1024, []byte{1, 0x3c}), "FP16", "FP16", inference.Same, "", 1.0 / 1024},
		"confidence is none":     {answer(nan, nil), answer(0.5, nil), "FP32", "FP32", inference.NotFinite, "confidence", 0},
		"size differs":           {answer(0.5, floats(0.5)), answer(0.5, floats(0.5, 1)), "FP32", "FP32", inference.ShapeDiffers, "output_tensor", 0},
		"datatype differs":       {answer(0.5, floats(0.5)), answer(0.5, floats(0.5)), "FP32", "INT32", inference.ShapeDiffers, "output_tensor", 0},
		"nobody knows, same":     {answer(0.5, floats(0.5)), answer(0.5, floats(0.5)), "", "", inference.Same, "", 0},
		"nobody knows, not same": {answer(0.5, floats(0.5)), answer(0.5, floats(0.25)), "", "", inference.ValuesDiffer, "output_tensor", 0},
		"nothing in them":        {answer(0, nil), answer(0, nil), "", "", inference.Same, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{1, 7, 100} {
				l := newLedger(t)
				a, b := l.frame(encode(t, c.a), size), l.frame(encode(t, c.b), size)
				d, err := ComparePredict(a, b, c.typeA, c.typeB)
				if err != nil || d.Kind != c.kind || d.Output != c.output || d.MaxAbs != c.max {
					t.Errorf("%+v, %v; want %s of %q, %v", d, err, c.kind, c.output, c.max)
				}
				a.Free()
				b.Free()
				l.settled()
			}
		})
	}
}

func TestTheDatatypeOfAPredictionIsTold(t *testing.T) {
	for _, datatype := range []string{"FP32", "FP64", "FP16", "BF16", "INT64", "INT32", "INT16", "INT8", "UINT64", "UINT32", "UINT16", "UINT8", "BOOL", "BYTES", "STRING"} {
		f := inference.NewFrame(encode(t, &tritonpb.ModelInferResponse{Outputs: []*outputPB{outputOf("O", datatype, 1)}}))
		want := datatype
		if DatatypeSize(datatype) < 0 {
			want = ""
		}
		if got, err := InferToPredict(&f, inference.Tensors{}, "OK", 0); got != want || err != nil {
			t.Errorf("%s: told %q, %v", datatype, got, err)
		}
	}
}

func TestAnAnswerThatCannotBeReadIsNotCompared(t *testing.T) {
	good, bad := inference.NewFrame(encode(t, scored(1))), inference.NewFrame([]byte{0x2a, 9})
	few := scored(1)
	few.Outputs = append(few.Outputs, outputOf("other", "FP32", 1))
	fewer := inference.NewFrame(encode(t, few))
	for _, pair := range [][2]inference.Frame{{good, bad}, {bad, good}, {fewer, fewer}} {
		_, err := CompareInfer(pair[0], pair[1], inference.Tensors{})
		wantKind(t, err, fault.UpstreamFailed)
	}
	good, bad = PredictAnswer(floats(1), 1, "OK", 0), inference.NewFrame([]byte{0x0d, 0, 0, 0, 0})
	for _, pair := range [][2]inference.Frame{{good, bad}, {bad, good}} {
		_, err := ComparePredict(pair[0], pair[1], "FP32", "FP32")
		wantKind(t, err, fault.UpstreamFailed)
	}
}

func TestRequestsInSharedMemoryAreNoticed(t *testing.T) {
	region := map[string]*tritonpb.InferParameter{
		"shared_memory_byte_size": {ParameterChoice: &tritonpb.InferParameter_Int64Param{Int64Param: 64}},
		"shared_memory_region":    {ParameterChoice: &tritonpb.InferParameter_StringParam{StringParam: "mine"}},
	}
	plain := map[string]*tritonpb.InferParameter{"binary_data": {ParameterChoice: &tritonpb.InferParameter_BoolParam{BoolParam: true}}}
	type input = tritonpb.ModelInferRequest_InferInputTensor
	type output = tritonpb.ModelInferRequest_InferRequestedOutputTensor
	for name, c := range map[string]struct {
		request *tritonpb.ModelInferRequest
		want    bool
	}{
		"none":      {&tritonpb.ModelInferRequest{ModelName: "m", Inputs: []*input{{Name: "I", Parameters: plain}}, Outputs: []*output{{Name: "O", Parameters: plain}}, RawInputContents: [][]byte{make([]byte, 100)}}, false},
		"an input":  {&tritonpb.ModelInferRequest{Inputs: []*input{{Name: "H"}, {Name: "I", Parameters: region}}}, true},
		"an output": {&tritonpb.ModelInferRequest{Inputs: []*input{{Name: "I"}}, Outputs: []*output{{Name: "O", Parameters: region}}}, true},
		"of no use": {&tritonpb.ModelInferRequest{Parameters: region}, false},
	} {
		l := newLedger(t)
		f := l.frame(encode(t, c.request), 5)
		if got := UsesSharedMemory(f); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		f.Free()
		l.settled()
	}
	if !UsesSharedMemory(inference.NewFrame([]byte{0x2a, 9})) {
		t.Error("what cannot be read is taken for harmless")
	}
}

func FuzzCompareInfer(f *testing.F) {
	two := &tritonpb.ModelInferResponse{
		Outputs:           []*outputPB{outputOf("O", "INT64", 1), outputOf("P", "FP32", 2, 2), outputOf("Q", "BYTES", 1)},
		RawOutputContents: [][]byte{make([]byte, 8), floats(1, 2, 3, 4), texts("a")},
	}
	typed := outputOf("P", "FP32", 1, 2)
	typed.Contents = &tritonpb.InferTensorContents{Fp32Contents: []float32{1, 2}}
	for _, b := range []*tritonpb.ModelInferResponse{two, scored(1, 2), {Outputs: []*outputPB{typed}}, {}} {
		f.Add(encode(f, two), encode(f, b), []byte{3, 0, 1})
	}
	f.Fuzz(func(t *testing.T, a, b, cuts []byte) {
		l := newLedger(t)
		x, y := l.frame(a, sizesOf(cuts)...), l.frame(b, sizesOf(cuts)...)
		d, err := CompareInfer(x, y, inference.Tensors{})
		whole, errWhole := CompareInfer(inference.NewFrame(a), inference.NewFrame(b), inference.Tensors{})
		if d != whole || !sameError(err, errWhole) {
			t.Fatalf("in several buffers %+v, %v; in one %+v, %v", d, err, whole, errWhole)
		}
		back, errBack := CompareInfer(inference.NewFrame(b), inference.NewFrame(a), inference.Tensors{})
		if err == nil && errBack == nil && back.Compared != d.Compared && d.Compared < maxComparedAll && unique(t, a) && unique(t, b) {
			t.Fatalf("%+v, and the other way %+v", d, back)
		}
		if self, err := CompareInfer(x, x, inference.Tensors{}); err == nil && (self.Kind != inference.Same || self.MaxAbs != 0) {
			t.Fatalf("an answer differs from itself: %+v", self)
		}
		if p, err := ComparePredict(x, x, "FP32", "FP32"); err == nil && p.Kind != inference.Same {
			t.Fatalf("a prediction differs from itself: %+v", p)
		}
		UsesSharedMemory(x)
		x.Free()
		y.Free()
		l.settled()
	})
}

// unique reports whether no two outputs of an answer have the same name.
func unique(t *testing.T, b []byte) bool {
	a, err := scanAnswer(inference.NewFrame(b))
	if err != nil {
		return false
	}
	seen := map[string]bool{}
	for i := range a.outputs {
		if seen[string(a.outputs[i].name)] {
			return false
		}
		seen[string(a.outputs[i].name)] = true
	}
	return true
}

func BenchmarkCompareInfer(b *testing.B) {
	one := func(n int, step float32) inference.Frame {
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(i) * step
		}
		raw := floats(values...)
		out := appendText(appendText(nil, 1, "score"), 2, "FP32")
		out = protowire.AppendBytes(protowire.AppendTag(out, 3, protowire.BytesType), protowire.AppendVarint([]byte{1}, uint64(n)))
		message := protowire.AppendBytes(protowire.AppendTag(nil, 5, protowire.BytesType), out)
		return inference.NewFrame(protowire.AppendBytes(protowire.AppendTag(message, 6, protowire.BytesType), raw))
	}
	for name, c := range map[string]struct{ x, y inference.Frame }{
		"one equal":          {one(1, 1), one(1, 1)},
		"one apart":          {one(2, 1), one(2, 2)},
		"4096 equal":         {one(4096, 1), one(4096, 1)},
		"4096 apart":         {one(4096, 1), one(4096, 2)},
		"a megabyte, apart ": {one(1<<18, 1), one(1<<18, 2)},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := CompareInfer(c.x, c.y, inference.Tensors{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
