package wire

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

type outputPB = tritonpb.ModelInferResponse_InferOutputTensor

func outputOf(name, datatype string, shape ...int64) *outputPB {
	return &outputPB{Name: name, Datatype: datatype, Shape: shape}
}

func floats(values ...float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// converse runs InferToPredict on answer, cut up in several ways, and gives what came of it.
func converse(t *testing.T, message []byte, tensors inference.Tensors) *inferencepb.PredictionResponse {
	t.Helper()
	var r *inferencepb.PredictionResponse
	for _, size := range []int{len(message) + 1, 1 + len(message)/50, 1 + len(message)/7} {
		l := newLedger(t)
		f := l.frame(message, size)
		if _, err := InferToPredict(&f, tensors, "OK", 2*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		got := decode(t, f, &inferencepb.PredictionResponse{})
		if r != nil && !proto.Equal(got, r) {
			t.Fatalf("in buffers of %d bytes: %v, else %v", size, got, r)
		}
		r = got
		f.Free()
		l.settled()
	}
	return r
}

func TestTheOutputThatAnswersIsChosen(t *testing.T) {
	answer := &tritonpb.ModelInferResponse{
		Outputs:           []*outputPB{outputOf("label", "INT64", 1, 1), outputOf("score", "FP32", 1, 2), outputOf("name", "BYTES", 1)},
		RawOutputContents: [][]byte{{7, 0, 0, 0, 0, 0, 0, 0}, floats(0.25, 0.75), texts("yes")},
	}
	noFloat := &tritonpb.ModelInferResponse{Outputs: answer.Outputs[:1], RawOutputContents: answer.RawOutputContents[:1]}
	for name, c := range map[string]struct {
		answer     *tritonpb.ModelInferResponse
		tensors    inference.Tensors
		want       []byte
		confidence float32
	}{
		"the first floating-point one": {answer, inference.Tensors{}, floats(0.25, 0.75), 0.75},
		"the first of none":            {noFloat, inference.Tensors{}, answer.RawOutputContents[0], 7},
		"the declared one":             {answer, inference.Tensors{Output: "label"}, answer.RawOutputContents[0], 7},
		"text has no confidence":       {answer, inference.Tensors{Output: "name"}, texts("yes"), 0},
		"confidence of another": {
			answer, inference.Tensors{Output: "name", Confidence: inference.Confidence{Output: "score", Reduce: "first"}}, texts("yes"), 0.25,
		},
		"no outputs": {&tritonpb.ModelInferResponse{ModelName: "m"}, inference.Tensors{}, nil, 0},
		"nothing in it": {
			&tritonpb.ModelInferResponse{Outputs: []*outputPB{outputOf("score", "FP32", 0, 2)}}, inference.Tensors{}, nil, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := converse(t, encode(t, c.answer), c.tensors)
			want := &inferencepb.PredictionResponse{OutputTensor: c.want, Confidence: c.confidence, Status: "OK", LatencyMs: 2}
			if !proto.Equal(got, want) {
				t.Fatalf("got %v, want %v", got, want)
			}
		})
	}
}

func TestConfidenceIsReducedOverTheFirstRow(t *testing.T) {
	nan := float32(math.NaN())
	long := make([]float32, 5000)
	long[4095], long[4096] = 1, 2
	for name, c := range map[string]struct {
		shape  []int64
		values []float32
		reduce string
		want   float32
	}{
		"max of a row":             {[]int64{2, 3}, []float32{0.1, 0.5, 0.4, 0.9, 0.9, 0.9}, "", 0.5},
		"one a row is first":       {[]int64{3, 1}, []float32{0.1, 0.5, 0.4}, "", 0.1},
		"no row is one":            {[]int64{3}, []float32{0.1, 0.5, 0.4}, "", 0.1},
		"a scalar":                 {nil, []float32{0.3}, "", 0.3},
		"first":                    {[]int64{1, 3}, []float32{0.1, 0.5, 0.4}, "first", 0.1},
		"max":                      {[]int64{3, 1}, []float32{0.1, 0.5, 0.4}, "max", 0.1},
		"mean":                     {[]int64{1, 2, 2}, []float32{1, 2, 3, 4}, "mean", 2.5},
		"negative max":             {[]int64{1, 2}, []float32{-3, -2}, "max", -2},
		"nan is passed over":       {[]int64{1, 3}, []float32{nan, 0.5, nan}, "", 0.5},
		"nan of a mean":            {[]int64{1, 3}, []float32{nan, 1, 2}, "mean", 1.5},
		"infinity":                 {[]int64{1, 2}, []float32{1, float32(math.Inf(1))}, "", float32(math.Inf(1))},
		"no elements":              {[]int64{0, 2}, nil, "max", 0},
		"fewer bytes than shape":   {[]int64{1, 100}, []float32{1, 2}, "", 2},
		"an impossible shape":      {[]int64{1, math.MaxInt64, math.MaxInt64}, []float32{1, 2}, "", 2},
		"a negative dimension":     {[]int64{1, -1}, []float32{1, 2}, "", 0},
		"a row longer than 4,096":  {[]int64{1, 5000}, long, "", 1},
		"an unknown word is a max": {[]int64{1, 2}, []float32{1, 2}, "median", 2},
	} {
		t.Run(name, func(t *testing.T) {
			b := encode(t, &tritonpb.ModelInferResponse{Outputs: []*outputPB{outputOf("O", "FP32", c.shape...)}, RawOutputContents: [][]byte{floats(c.values...)}})
			if got := converse(t, b, inference.Tensors{Confidence: inference.Confidence{Reduce: c.reduce}}); got.GetConfidence() != c.want {
				t.Fatalf("got %v, want %v", got.GetConfidence(), c.want)
			}
		})
	}
	b := encode(t, &tritonpb.ModelInferResponse{Outputs: []*outputPB{outputOf("O", "FP32", 1, 2)}, RawOutputContents: [][]byte{floats(nan, nan)}})
	if got := converse(t, b, inference.Tensors{}); !math.IsNaN(float64(got.GetConfidence())) {
		t.Fatalf("nothing but NaN gives %v", got.GetConfidence())
	}
}

func TestConfidenceIsReadFromEveryNumericDatatype(t *testing.T) {
	for datatype, raw := range map[string][]byte{
		"BOOL": {0, 1}, "INT8": {0xff, 1}, "INT16": {0, 0x80, 1, 0}, "INT32": {0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0},
		"INT64": {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0, 0, 0, 0}, "UINT8": {0, 1}, "UINT16": {0, 0, 1, 0},
		"UINT32": {0, 0, 0, 0, 1, 0, 0, 0}, "UINT64": {0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}, "FP16": {0, 0, 0, 0x3c},
		"BF16": {0, 0, 0x80, 0x3f}, "FP32": floats(0, 1), "FP64": {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f},
	} {
		t.Run(datatype, func(t *testing.T) {
			b := encode(t, &tritonpb.ModelInferResponse{Outputs: []*outputPB{outputOf("O", datatype, 1, 2)}, RawOutputContents: [][]byte{raw}})
			if got := converse(t, b, inference.Tensors{}); got.GetConfidence() != 1 || !bytes.Equal(got.GetOutputTensor(), raw) {
				t.Fatalf("got %v", got)
			}
		})
	}
}

func TestTypedContentsBecomeRaw(t *testing.T) {
	for datatype, c := range map[string]struct {
		contents *tritonpb.InferTensorContents
		want     []byte
	}{
		"BOOL":   {&tritonpb.InferTensorContents{BoolContents: []bool{true, false}}, []byte{1, 0}},
		"INT8":   {&tritonpb.InferTensorContents{IntContents: []int32{-1, 2}}, []byte{0xff, 2}},
		"INT16":  {&tritonpb.InferTensorContents{IntContents: []int32{-2, 2}}, []byte{0xfe, 0xff, 2, 0}},
		"INT32":  {&tritonpb.InferTensorContents{IntContents: []int32{-1, 2}}, []byte{0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0}},
		"INT64":  {&tritonpb.InferTensorContents{Int64Contents: []int64{-1}}, bytes.Repeat([]byte{0xff}, 8)},
		"UINT8":  {&tritonpb.InferTensorContents{UintContents: []uint32{200}}, []byte{200}},
		"UINT16": {&tritonpb.InferTensorContents{UintContents: []uint32{0x1234}}, []byte{0x34, 0x12}},
		"UINT32": {&tritonpb.InferTensorContents{UintContents: []uint32{0x12345678}}, []byte{0x78, 0x56, 0x34, 0x12}},
		"UINT64": {&tritonpb.InferTensorContents{Uint64Contents: []uint64{1}}, []byte{1, 0, 0, 0, 0, 0, 0, 0}},
		"FP32":   {&tritonpb.InferTensorContents{Fp32Contents: []float32{0.5, 1}}, floats(0.5, 1)},
		"FP64":   {&tritonpb.InferTensorContents{Fp64Contents: []float64{1}}, []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x3f}},
		"BYTES":  {&tritonpb.InferTensorContents{BytesContents: [][]byte{[]byte("a"), nil, []byte("bc")}}, texts("a", "", "bc")},
	} {
		t.Run(datatype, func(t *testing.T) {
			out := outputOf("O", datatype, 1, 2)
			out.Contents = c.contents
			got := converse(t, encode(t, &tritonpb.ModelInferResponse{Outputs: []*outputPB{out}}), inference.Tensors{})
			if !bytes.Equal(got.GetOutputTensor(), c.want) {
				t.Fatalf("got % x, want % x", got.GetOutputTensor(), c.want)
			}
		})
	}
}

func TestContentsMayBeUnpackedAndInParts(t *testing.T) {
	one := protowire.AppendFixed32(protowire.AppendTag(nil, 6, protowire.Fixed32Type), math.Float32bits(0.5))
	packed := protowire.AppendBytes(protowire.AppendTag(nil, 6, protowire.BytesType), floats(1, 2))
	out := appendText(appendText(nil, 1, "O"), 2, "FP32")
	out = protowire.AppendBytes(protowire.AppendTag(out, 5, protowire.BytesType), append(one, packed...))
	out = protowire.AppendBytes(protowire.AppendTag(out, 5, protowire.BytesType), one)
	out = append(out, 0x18, 1, 0x18, 4) // a shape that is not packed either
	got := converse(t, protowire.AppendBytes([]byte{0x2a}, out), inference.Tensors{})
	if !bytes.Equal(got.GetOutputTensor(), floats(0.5, 1, 2, 0.5)) || got.GetConfidence() != 2 {
		t.Fatalf("got %v", got)
	}
}

func TestATrueThatIsNotOneIsOneInRawBytes(t *testing.T) {
	out := appendText(appendText(nil, 1, "O"), 2, "BOOL")
	out = protowire.AppendBytes([]byte{0x2a}, protowire.AppendBytes(append(out, 0x2a), []byte{0x0a, 3, 2, 0, 1}))
	if got := converse(t, out, inference.Tensors{}); !bytes.Equal(got.GetOutputTensor(), []byte{1, 0, 1}) {
		t.Fatalf("got % x", got.GetOutputTensor())
	}
}

func TestAnAnswerThatCannotBeUsedIsTheUpstreamsFault(t *testing.T) {
	out := func(fields ...[]byte) []byte {
		return protowire.AppendBytes([]byte{0x2a}, bytes.Join(append([][]byte{appendText(nil, 1, "O")}, fields...), nil))
	}
	fp32 := appendText(nil, 2, "FP32")
	contents := func(b ...byte) []byte { return protowire.AppendBytes([]byte{0x2a}, b) }
	// Numbers grow to eight bytes each, texts by their length.
	large := append(appendText(nil, 2, "INT64"), contents(protowire.AppendBytes([]byte{3<<3 | 2}, make([]byte, maxTyped/8+1))...)...)
	largeText := append(appendText(nil, 2, "BYTES"), contents(protowire.AppendBytes([]byte{8<<3 | 2}, make([]byte, maxTyped-3))...)...)
	for name, c := range map[string]struct {
		b       []byte
		tensors inference.Tensors
		says    string
	}{
		"cut":                        {[]byte{0x2a, 9}, inference.Tensors{}, "middle of a field"},
		"outputs as a number":        {[]byte{0x28, 1}, inference.Tensors{}, "outputs has wire type 0"},
		"raw as a number":            {[]byte{0x30, 1}, inference.Tensors{}, "raw_output_contents has wire type 0"},
		"shape as text with a cut":   {out([]byte{0x1a, 1, 0x80}), inference.Tensors{}, "middle of a field"},
		"shape as fixed32":           {out([]byte{0x1d, 1, 2, 3, 4}), inference.Tensors{}, "the shape of an output has wire type 5"},
		"rank":                       {out(protowire.AppendBytes([]byte{0x1a}, make([]byte, maxRank+1))), inference.Tensors{}, "more than 32 dimensions"},
		"name not UTF-8":             {out(appendText(nil, 1, "\xff")), inference.Tensors{}, "the name of an output is not valid UTF-8"},
		"contents as a number":       {out([]byte{0x28, 1}), inference.Tensors{}, "the contents of an output has wire type 0"},
		"contents cut":               {out(fp32, contents(0x35, 1)), inference.Tensors{}, "middle of a field"},
		"packed contents cut":        {out(fp32, contents(0x32, 3, 0, 0, 0)), inference.Tensors{}, "middle of a field"},
		"contents of another type":   {out(fp32, contents(0x30, 1)), inference.Tensors{}, "the contents of an output has wire type 0"},
		"text contents as a number":  {out(appendText(nil, 2, "BYTES"), contents(0x40, 1)), inference.Tensors{}, "bytes_contents has wire type 0"},
		"half contents":              {out(appendText(nil, 2, "FP16"), contents(0x32, 0)), inference.Tensors{}, `datatype "FP16" has contents that are not raw`},
		"too large contents":         {out(large), inference.Tensors{}, "larger than 67108864 bytes"},
		"too large a text":           {out(largeText), inference.Tensors{}, "larger than 67108864 bytes"},
		"contents in too many parts": {out(fp32, bytes.Repeat(contents(0x32, 0), maxOutputs+1)), inference.Tensors{}, "contents in more than 1024 parts"},
		"too many outputs":           {bytes.Repeat(out(), maxOutputs+1), inference.Tensors{}, "more than 1024 outputs"},
		"too many raw contents":      {bytes.Repeat([]byte{0x32, 0}, maxOutputs+1), inference.Tensors{}, "more than 1024 raw_output_contents"},
		"fewer raw contents":         {append(append(out(), out(fp32)...), 0x32, 0), inference.Tensors{}, "it has 2 outputs but only 1 raw_output_contents"},
		"fewer, for confidence":      {append(append(out(), protowire.AppendBytes([]byte{0x2a}, appendText(nil, 1, "P"))...), 0x32, 0), inference.Tensors{Confidence: inference.Confidence{Output: "P"}}, "only 1 raw_output_contents"},
		"no such output":             {out(), inference.Tensors{Output: "Q"}, `without the output "Q" that its configuration names; it has "O"`},
		"no output for confidence":   {out(), inference.Tensors{Confidence: inference.Confidence{Output: "Q"}}, `without the output "Q"`},
		"no output where one is due": {nil, inference.Tensors{Output: "Q"}, `without the output "Q" that its configuration names; it has none`},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(t)
			f := l.frame(c.b, 1+len(c.b)/50)
			_, err := InferToPredict(&f, c.tensors, "OK", 0)
			got := wantKind(t, err, fault.UpstreamFailed)
			if !got.Upstream || !strings.Contains(got.Msg, c.says) {
				t.Fatalf("got %q (upstream %v), want it to say %q", got.Msg, got.Upstream, c.says)
			}
			if !bytes.Equal(f.Buf.Materialize(), c.b) {
				t.Fatal("the frame has changed")
			}
			f.Free()
			l.settled()
		})
	}
}

func TestLatencyIsRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 0, -time.Second: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, time.Minute: 60000} {
		f := PredictAnswer(nil, 0, "OK", d)
		if got := decode(t, f, &inferencepb.PredictionResponse{}); got.GetLatencyMs() != want {
			t.Errorf("%v gives %d ms, want %d", d, got.GetLatencyMs(), want)
		}
	}
}

func TestThePredictAnswersOfOurOwn(t *testing.T) {
	got := decode(t, PredictError("no such \xffmodel", 1), &inferencepb.PredictionResponse{})
	if want := (&inferencepb.PredictionResponse{Status: "ERROR: no such \uFFFDmodel", LatencyMs: 1}); !proto.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	got = decode(t, PredictAnswer(floats(0.5), 0.5, "DEGRADED", time.Second), &inferencepb.PredictionResponse{})
	if want := (&inferencepb.PredictionResponse{OutputTensor: floats(0.5), Confidence: 0.5, Status: "DEGRADED", LatencyMs: 1000}); !proto.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}
