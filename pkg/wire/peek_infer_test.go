package wire

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// headOf is what PeekInfer must find, read from the decoded message.
func headOf(r *tritonpb.ModelInferRequest) inference.Head {
	h := inference.Head{Model: r.GetModelName(), Version: r.GetModelVersion(), ID: r.GetId()}
	switch id := r.GetParameters()["sequence_id"].GetParameterChoice().(type) {
	case *tritonpb.InferParameter_Int64Param:
		if id.Int64Param != 0 {
			h.Sequence.ID = strconv.FormatInt(id.Int64Param, 10)
		}
	case *tritonpb.InferParameter_Uint64Param:
		if id.Uint64Param != 0 {
			h.Sequence.ID = strconv.FormatUint(id.Uint64Param, 10)
		}
	case *tritonpb.InferParameter_StringParam:
		h.Sequence.ID = id.StringParam
	}
	h.Sequence.Start = r.GetParameters()["sequence_start"].GetBoolParam()
	h.Sequence.End = r.GetParameters()["sequence_end"].GetBoolParam()
	h.EmptyFinal = r.GetParameters()["triton_enable_empty_final_response"].GetBoolParam()
	if len(r.GetInputs()) > 0 && len(r.GetInputs()[0].GetShape()) > 0 {
		h.Rows = max(r.GetInputs()[0].GetShape()[0], 0)
	}
	return h
}

func sameHead(a, b inference.Head) bool {
	return a.Model == b.Model && a.Version == b.Version && a.ID == b.ID && a.Sequence == b.Sequence &&
		a.EmptyFinal == b.EmptyFinal && a.Rows == b.Rows && a.TensorOff == b.TensorOff && a.TensorLen == b.TensorLen
}

func boolOf(v bool) *tritonpb.InferParameter {
	return &tritonpb.InferParameter{ParameterChoice: &tritonpb.InferParameter_BoolParam{BoolParam: v}}
}

func intOf(v int64) *tritonpb.InferParameter {
	return &tritonpb.InferParameter{ParameterChoice: &tritonpb.InferParameter_Int64Param{Int64Param: v}}
}

func uintOf(v uint64) *tritonpb.InferParameter {
	return &tritonpb.InferParameter{ParameterChoice: &tritonpb.InferParameter_Uint64Param{Uint64Param: v}}
}

func textOf(v string) *tritonpb.InferParameter {
	return &tritonpb.InferParameter{ParameterChoice: &tritonpb.InferParameter_StringParam{StringParam: v}}
}

func doubleOf(v float64) *tritonpb.InferParameter {
	return &tritonpb.InferParameter{ParameterChoice: &tritonpb.InferParameter_DoubleParam{DoubleParam: v}}
}

// drawParam draws a parameter of any type.
func drawParam(t *rapid.T) *tritonpb.InferParameter {
	switch rapid.IntRange(0, 5).Draw(t, "type") {
	case 0:
		return boolOf(rapid.Bool().Draw(t, "bool"))
	case 1:
		return intOf(rapid.Int64().Draw(t, "int64"))
	case 2:
		return uintOf(rapid.Uint64().Draw(t, "uint64"))
	case 3:
		return textOf(rapid.StringN(0, 20, 40).Draw(t, "string"))
	case 4:
		return doubleOf(rapid.Float64().Draw(t, "double"))
	}
	return &tritonpb.InferParameter{}
}

var drawKey = rapid.SampledFrom([]string{
	"sequence_id", "sequence_start", "sequence_end", "triton_enable_empty_final_response", "triton_final_response",
	"priority", "", "sequence_id2", strings.Repeat("k", 70),
})

func drawParams(t *rapid.T) map[string]*tritonpb.InferParameter {
	return rapid.MapOfN(drawKey, rapid.Custom(drawParam), 0, 5).Draw(t, "parameters")
}

// drawRequest draws the bytes of a ModelInferRequest: several messages one behind the other, which is one message whose
// fields occur several times.
func drawRequest(t *rapid.T) []byte {
	var b []byte
	for range rapid.IntRange(1, 3).Draw(t, "parts") {
		r := &tritonpb.ModelInferRequest{
			ModelName:    rapid.StringN(0, 20, 60).Draw(t, "model"),
			ModelVersion: rapid.StringMatching(`[0-9]{0,3}`).Draw(t, "version"),
			Id:           rapid.StringN(0, 20, 60).Draw(t, "id"),
			Parameters:   drawParams(t),
		}
		for range rapid.IntRange(0, 2).Draw(t, "inputs") {
			r.Inputs = append(r.Inputs, &tritonpb.ModelInferRequest_InferInputTensor{
				Name: "IN", Datatype: "UINT8", Shape: rapid.SliceOfN(rapid.Int64Range(-2, 1<<40), 0, 3).Draw(t, "shape"), Parameters: drawParams(t),
				Contents: &tritonpb.InferTensorContents{UintContents: rapid.SliceOfN(rapid.Uint32(), 0, 5).Draw(t, "contents")},
			})
			r.RawInputContents = append(r.RawInputContents, rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "raw"))
		}
		m, err := proto.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, m...)
	}
	return b
}

var drawCuts = rapid.SliceOfN(rapid.Byte(), 0, 8)

func TestWhatIsPeekedIsWhatProtobufDecodes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := drawRequest(rt)
		l := newLedger(t)
		f := l.frame(b, sizesOf(drawCuts.Draw(rt, "cuts"))...)
		got, err := PeekInfer(f)
		if err != nil {
			rt.Fatal(err)
		}
		f.Free() // the head must not need the frame
		l.settled()
		var r tritonpb.ModelInferRequest
		if err := proto.Unmarshal(b, &r); err != nil {
			rt.Fatal(err)
		}
		if want := headOf(&r); !sameHead(got, want) {
			rt.Fatalf("peeked %+v, want %+v", got, want)
		}
	})
}

func TestASecondModelNameDoesNotSlipPast(t *testing.T) {
	b := encode(t, &tritonpb.ModelInferRequest{ModelName: "allowed", ModelVersion: "1", RawInputContents: [][]byte{make([]byte, 5000)}})
	b = append(b, encode(t, &tritonpb.ModelInferRequest{ModelName: "forbidden", Parameters: map[string]*tritonpb.InferParameter{"sequence_id": intOf(9)}})...)
	h, err := PeekInfer(inference.NewFrame(b))
	if err != nil || h.Model != "forbidden" || h.Version != "1" || h.Sequence.ID != "9" {
		t.Fatalf("got %+v, %v", h, err)
	}
}

func TestRowsAreTheFirstDimensionOfTheFirstInputHoweverItIsWritten(t *testing.T) {
	input := func(fields ...[]byte) []byte { return protowire.AppendBytes([]byte{0x2a}, bytes.Join(fields, nil)) }
	packed := func(numbers ...uint64) []byte {
		var b []byte
		for _, n := range numbers {
			b = protowire.AppendVarint(b, n)
		}
		return protowire.AppendBytes([]byte{0x1a}, b)
	}
	single := func(n uint64) []byte { return protowire.AppendVarint([]byte{0x18}, n) }
	minus := uint64(1<<64 - 1)
	for name, c := range map[string]struct {
		b    []byte
		want int64
	}{
		"packed":                    {input(packed(300, 4)), 300},
		"one by one":                {input(single(5), single(7)), 5},
		"packed in pieces":          {input(packed(), packed(6), packed(7, 8)), 6},
		"contents before the shape": {input(protowire.AppendBytes([]byte{0x2a}, make([]byte, 1000)), packed(9)), 9},
		"the second input":          {append(input(packed(2)), input(packed(3))...), 2},
		"no shape":                  {append(input(), input(packed(3))...), 0},
		"no input":                  {appendText(nil, 1, "m"), 0},
		"negative":                  {input(packed(minus)), 0},
	} {
		t.Run(name, func(t *testing.T) {
			for _, cut := range []int{1, 2, 3, 1 << 20} {
				h, err := PeekInfer(newLedger(t).frame(c.b, cut))
				if err != nil || h.Rows != c.want {
					t.Errorf("cut at %d: %d rows, %v; want %d", cut, h.Rows, err, c.want)
				}
			}
		})
	}
}

func TestPeekInferReadsEverySequenceID(t *testing.T) {
	for name, c := range map[string]struct {
		param *tritonpb.InferParameter
		want  string
	}{
		"int64":            {intOf(42), "42"},
		"negative":         {intOf(-1), "-1"},
		"uint64":           {uintOf(1 << 63), "9223372036854775808"},
		"text":             {textOf("abc"), "abc"},
		"no sequence":      {intOf(0), ""},
		"a double is none": {doubleOf(7), ""},
		"a bool is none":   {boolOf(true), ""},
		"no value at all":  {&tritonpb.InferParameter{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := encode(t, &tritonpb.ModelInferRequest{ModelName: "m", Parameters: map[string]*tritonpb.InferParameter{"sequence_id": c.param}})
			h, err := PeekInfer(inference.NewFrame(b))
			if err != nil || h.Sequence.ID != c.want {
				t.Fatalf("got %q, %v, want %q", h.Sequence.ID, err, c.want)
			}
		})
	}
}

func TestTheLastEntryOfAParameterWins(t *testing.T) {
	b := appendParam(nil, "sequence_id", stringParam, 0, "first")
	b = appendParam(b, "sequence_start", boolParam, 1, "")
	b = appendParam(b, "sequence_id", int64Param, 2, "")
	b = appendParam(b, "sequence_start", boolParam, 0, "")
	h, err := PeekInfer(inference.NewFrame(b))
	if err != nil || h.Sequence.ID != "2" || h.Sequence.Start {
		t.Fatalf("got %+v, %v", h, err)
	}
}

func TestTheLastKeyOfAnEntryIsItsKey(t *testing.T) {
	value := []byte{0x12, 2, 0x10, 5}
	short, long := appendText(nil, 1, "sequence_id"), appendText(nil, 1, strings.Repeat("k", maxKey+1))
	for want, keys := range map[string][]byte{"5": append(long, short...), "": append(slices.Clone(short), long...)} {
		h, err := PeekInfer(inference.NewFrame(protowire.AppendBytes([]byte{0x22}, append(keys, value...))))
		if err != nil || h.Sequence.ID != want {
			t.Fatalf("got %q, %v, want %q", h.Sequence.ID, err, want)
		}
	}
}

func TestUnknownFieldsArePassedOver(t *testing.T) {
	unknown := []byte{0x4d, 1, 2, 3, 4, 0x51, 1, 2, 3, 4, 5, 6, 7, 8, 0x58, 0x80, 1, 0x62, 2, 'x', 'y'}
	value := append(append([]byte{0x10, 5}, unknown...), unknown...)
	entry := append(append(appendText(nil, 1, "sequence_id"), unknown...), protowire.AppendBytes([]byte{0x12}, value)...)
	b := append(slices.Clone(unknown), protowire.AppendBytes([]byte{0x22}, entry)...)
	b = append(appendText(b, 1, "m"), unknown...)
	h, err := PeekInfer(newLedger(t).frame(b, 2))
	if err != nil || h.Sequence.ID != "5" || h.Model != "m" {
		t.Fatalf("got %+v, %v", h, err)
	}
}

func TestPeekInferRefusesWhatIsMalformed(t *testing.T) {
	tag := protowire.AppendTag
	text := func(num protowire.Number, s string) []byte { return appendText(nil, num, s) }
	many := bytes.Repeat(appendParam(nil, "k", boolParam, 1, ""), maxParameters+1)
	for name, c := range map[string]struct {
		b    []byte
		says string
	}{
		"cut tag":                 {[]byte{0x8a}, "middle of a field"},
		"cut length":              {[]byte{0x0a, 0x80}, "middle of a field"},
		"cut text":                {[]byte{0x0a, 5, 'a'}, "middle of a field"},
		"length beyond int":       {append([]byte{0x0a}, protowire.AppendVarint(nil, 1<<63)...), "middle of a field"},
		"cut fixed32":             {append(tag(nil, 9, protowire.Fixed32Type), 1, 2, 3), "middle of a field"},
		"cut fixed64":             {append(tag(nil, 9, protowire.Fixed64Type), 1, 2, 3), "middle of a field"},
		"varint of 11 bytes":      {append(tag(nil, 9, protowire.VarintType), 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1), "longer than 64 bits"},
		"varint beyond 64 bits":   {append(tag(nil, 9, protowire.VarintType), 255, 255, 255, 255, 255, 255, 255, 255, 255, 2), "longer than 64 bits"},
		"group":                   {[]byte{9<<3 | 3, 9<<3 | 4}, "group"},
		"wire type 7":             {[]byte{9<<3 | 7}, "group"},
		"field number 0":          {[]byte{0x02, 0}, "field number"},
		"field number too large":  {protowire.AppendVarint(nil, 1<<32|1<<3|2), "field number"},
		"model_name a number":     {[]byte{0x08, 1}, "model_name has wire type 0"},
		"model_version a fixed32": {[]byte{0x15, 1, 2, 3, 4}, "model_version has wire type 5"},
		"inputs a number":         {[]byte{0x28, 1}, "inputs has wire type 0"},
		"an input that is cut":    {[]byte{0x2a, 2, 0x1a, 5}, "middle of a field"},
		"a shape that is cut":     {[]byte{0x2a, 3, 0x1a, 1, 0x80}, "middle of a field"},
		"shape a fixed32":         {append([]byte{0x2a, 5}, append(tag(nil, 3, protowire.Fixed32Type), 1, 2, 3, 4)...), "shape of an input has wire type 5"},
		"parameters a number":     {[]byte{0x20, 1}, "parameters has wire type 0"},
		"parameter key a number":  {[]byte{0x22, 2, 0x08, 1}, "a key of parameters"},
		"parameter value a number": {
			[]byte{0x22, 2, 0x10, 1}, "a value of parameters",
		},
		"bool_param as bytes":    {[]byte{0x22, 5, 0x12, 3, 0x0a, 1, 1}, "a value of parameters"},
		"entry cut":              {[]byte{0x22, 2, 0x0a, 5}, "middle of a field"},
		"value beyond its entry": {[]byte{0x22, 2, 0x12, 4, 0x08, 1, 0x08, 1}, "middle of a field"},
		"model_name not UTF-8":   {text(1, "\xff"), "model_name is not valid UTF-8"},
		"id not UTF-8":           {text(3, "a\xc0"), "id is not valid UTF-8"},
		"an earlier one not UTF-8": {
			append(text(1, "\xff"), text(1, "fine")...), "model_name is not valid UTF-8",
		},
		"model_name too long":    {text(1, strings.Repeat("m", maxModel+1)), "model_name is 1025 bytes long"},
		"model_version too long": {text(2, strings.Repeat("1", maxVersion+1)), "model_version is 257 bytes long"},
		"id too long":            {text(3, strings.Repeat("i", maxID+1)), "id is 1025 bytes long"},
		"sequence_id too long":   {appendParam(nil, "sequence_id", stringParam, 0, strings.Repeat("s", maxSequenceID+1)), "longer than 1024 bytes"},
		"sequence_id not UTF-8":  {appendParam(nil, "sequence_id", stringParam, 0, "\xff"), "sequence_id is not valid UTF-8"},
		"too many parameters":    {many, "more than 1000 parameters"},
		"too many fields":        {bytes.Repeat([]byte{0x48, 0}, maxFields+1), "more than 1048576 fields"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{1 << 20, 1, 3} {
				l := newLedger(t)
				f := l.frame(c.b, max(size, len(c.b)/1000))
				_, err := PeekInfer(f)
				if got := wantKind(t, err, fault.InvalidArgument); !strings.HasPrefix(got.Msg, "malformed ModelInferRequest: ") || !strings.Contains(got.Msg, c.says) {
					t.Fatalf("got %q, want it to say %q", got.Msg, c.says)
				}
				f.Free()
				l.settled()
			}
		})
	}
}

func TestPeekInferTakesWhatIsAtTheLimits(t *testing.T) {
	b := appendText(nil, 1, strings.Repeat("m", maxModel))
	b = appendText(b, 3, strings.Repeat("i", maxID))
	b = appendParam(b, "sequence_id", stringParam, 0, strings.Repeat("s", maxSequenceID))
	b = append(b, bytes.Repeat(appendParam(nil, "k", boolParam, 1, ""), maxParameters-1)...)
	h, err := PeekInfer(newLedger(t).frame(b, 100))
	if err != nil || len(h.Model) != maxModel || len(h.ID) != maxID || len(h.Sequence.ID) != maxSequenceID {
		t.Fatal(h, err)
	}
}

func TestAnEmptyMessageHasAnEmptyHead(t *testing.T) {
	for _, f := range []inference.Frame{{}, inference.NewFrame(nil)} {
		if h, err := PeekInfer(f); err != nil || !sameHead(h, inference.Head{}) {
			t.Fatal(h, err)
		}
	}
}

func TestPeekInferAllocatesItsStringsOnly(t *testing.T) {
	b := encode(t, &tritonpb.ModelInferRequest{
		ModelName: "fraud", ModelVersion: "2", Id: "a request",
		Parameters: map[string]*tritonpb.InferParameter{"sequence_id": intOf(77), "sequence_start": boolOf(true), "other": textOf("x")},
	})
	f := inference.NewFrame(b)
	if n := testing.AllocsPerRun(100, func() { _, _ = PeekInfer(f) }); n > 1 {
		t.Fatalf("%v allocations, want 1", n)
	}
}
