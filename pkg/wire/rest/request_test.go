package rest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/model-gateway/model-gateway/pkg/fault"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// read reads a body that must be good.
func read(t testing.TB, body string, headLen int) (*tritonpb.ModelInferRequest, Wanted) {
	t.Helper()
	f, w, err := Request([]byte(body), headLen, "m", "", 0)
	if err != nil {
		t.Fatalf("%v\nof %.200s", err, body)
	}
	m := &tritonpb.ModelInferRequest{}
	if err := proto.Unmarshal(f.Buf.Materialize(), m); err != nil {
		t.Fatalf("the frame is not a ModelInferRequest: %v", err)
	}
	return m, w
}

// refusal reads a body that must not be good, and gives the fault.
func refusal(t testing.TB, body string, headLen, limit int) *fault.Fault {
	t.Helper()
	_, _, err := Request([]byte(body), headLen, "m", "", limit)
	var f *fault.Fault
	if err == nil {
		t.Fatalf("taken, and must not be: %.200s", body)
	} else if !errors.As(err, &f) {
		t.Fatalf("%T is no fault: %v", err, err)
	}
	return f
}

func one(datatype, shape, data string) string {
	return fmt.Sprintf(`{"inputs":[{"name":"X","shape":%s,"datatype":%q,"data":%s}]}`, shape, datatype, data)
}

func le(v any) []byte {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func TestListsOfEveryDatatypeBecomeTheirBytes(t *testing.T) {
	for _, c := range []struct {
		datatype, shape, data string
		want                  []byte
	}{
		{"BOOL", "[3]", "[true,false, true]", []byte{1, 0, 1}},
		{"INT8", "[3]", "[-128, 0, 127]", le([]int8{-128, 0, 127})},
		{"INT16", "[2]", "[-32768,32767]", le([]int16{-32768, 32767})},
		{"INT32", "[2]", "[-2147483648,2147483647]", le([]int32{math.MinInt32, math.MaxInt32})},
		{"INT64", "[2]", "[9007199254740993, -9223372036854775808]", le([]int64{9007199254740993, math.MinInt64})}, // O-09
		{"UINT8", "[2]", "[0,255]", []byte{0, 255}},
		{"UINT16", "[1]", "[65535]", le([]uint16{65535})},
		{"UINT32", "[1]", "[4294967295]", le([]uint32{math.MaxUint32})},
		{"UINT64", "[1]", "[18446744073709551615]", le([]uint64{math.MaxUint64})},
		{"FP32", "[5]", "[0.1,-2,3e2,1E-3,-0.0]", le([]float32{0.1, -2, 300, 0.001, float32(math.Copysign(0, -1))})},
		{"FP32", "[3]", "[NaN,Infinity,-Infinity]", le([]float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))})},
		{"FP64", "[4]", "[0.1,NaN,-Infinity,1e308]", le([]float64{0.1, math.NaN(), math.Inf(-1), 1e308})},
		{"FP32", "[2,2]", "[[1,2],[3,4]]", le([]float32{1, 2, 3, 4})},
		{"FP32", "[1,2,2]", " [ [ [ 1 , 2 ] ,\n[ 3,4 ] ] ] ", le([]float32{1, 2, 3, 4})},
		{"FP32", "[2,2]", "[1,2,3,4]", le([]float32{1, 2, 3, 4})},
		{"FP32", "[0]", "[]", nil},
		{"FP32", "[2,0]", "[[],[]]", nil},
		{"FP32", "[]", "[7]", le([]float32{7})},
		{"FP32", "[9223372036854775807,9223372036854775807,0]", "[]", nil},
	} {
		m, _ := read(t, one(c.datatype, c.shape, c.data), -1)
		if got := m.RawInputContents[0]; !bytes.Equal(got, c.want) {
			t.Errorf("%s %s: % x, want % x", c.datatype, c.data, got, c.want)
		}
	}
}

func TestStringsBecomeExactBytes(t *testing.T) { // O-12
	m, _ := read(t, one("BYTES", "[4]", `["", "a\u0000b", "\ud83d\ude00", "模型\n\"\\/"]`), -1)
	want := []byte{}
	for _, s := range []string{"", "a\x00b", "😀", "模型\n\"\\/"} {
		want = append(binary.LittleEndian.AppendUint32(want, uint32(len(s))), s...)
	}
	if got := m.RawInputContents[0]; !bytes.Equal(got, want) {
		t.Errorf("% x, want % x", got, want)
	}
}

func TestARequestBecomesItsMessage(t *testing.T) {
	body := `{
	  "outputs": [{"name":"A","parameters":{"binary_data":true}}, {"name":"B","parameters":{"classification":3,"binary_data":false}}, {"name":"C"}],
	  "unknown": {"is": ["passed", {"over": null}]},
	  "inputs": [
	    {"data":[[1],[2]], "parameters":{"scale":0.5}, "datatype":"INT32", "shape":[2,1], "name":"X"},
	    {"name":"S", "shape":[4], "datatype":"FP32", "parameters":{"shared_memory_region":"r","shared_memory_offset":8,"shared_memory_byte_size":16}}
	  ],
	  "parameters": {"sequence_id": 18446744073709551615, "sequence_start": true, "priority": 1, "tag": "x", "ratio": 2.0, "binary_data_output": true},
	  "id": "r-1"
	}`
	f, w, err := Request([]byte(body), -1, "team/bert", "3", 0)
	if err != nil {
		t.Fatal(err)
	}
	got := &tritonpb.ModelInferRequest{}
	if err := proto.Unmarshal(f.Buf.Materialize(), got); err != nil {
		t.Fatal(err)
	}
	i64 := func(n int64) *tritonpb.InferParameter {
		return &tritonpb.InferParameter{ParameterChoice: &tritonpb.InferParameter_Int64Param{Int64Param: n}}
	}
	double := func(v float64) *tritonpb.InferParameter {
		return &tritonpb.InferParameter{ParameterChoice: &tritonpb.InferParameter_DoubleParam{DoubleParam: v}}
	}
	text := func(s string) *tritonpb.InferParameter {
		return &tritonpb.InferParameter{ParameterChoice: &tritonpb.InferParameter_StringParam{StringParam: s}}
	}
	want := &tritonpb.ModelInferRequest{
		ModelName: "team/bert", ModelVersion: "3", Id: "r-1",
		Parameters: map[string]*tritonpb.InferParameter{
			"sequence_id":    {ParameterChoice: &tritonpb.InferParameter_Uint64Param{Uint64Param: math.MaxUint64}},
			"sequence_start": {ParameterChoice: &tritonpb.InferParameter_BoolParam{BoolParam: true}},
			"priority":       i64(1), "tag": text("x"), "ratio": double(2),
		},
		Inputs: []*tritonpb.ModelInferRequest_InferInputTensor{
			{Name: "X", Datatype: "INT32", Shape: []int64{2, 1}, Parameters: map[string]*tritonpb.InferParameter{"scale": double(0.5)}},
			{Name: "S", Datatype: "FP32", Shape: []int64{4}, Parameters: map[string]*tritonpb.InferParameter{
				"shared_memory_region": text("r"), "shared_memory_offset": i64(8), "shared_memory_byte_size": i64(16),
			}},
		},
		Outputs: []*tritonpb.ModelInferRequest_InferRequestedOutputTensor{
			{Name: "A"}, {Name: "B", Parameters: map[string]*tritonpb.InferParameter{"classification": i64(3)}}, {Name: "C"},
		},
		RawInputContents: [][]byte{le([]int32{1, 2})},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(Wanted{Binary: true, Outputs: map[string]bool{"A": true, "B": false}}, w); diff != "" {
		t.Error(diff)
	}
}

func TestRawTensorsFollowTheHeadInOrder(t *testing.T) { // O-14
	head := `{"inputs":[{"name":"A","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}},` +
		`{"name":"J","shape":[1],"datatype":"INT8","data":[5]},` +
		`{"name":"H","shape":[2],"datatype":"FP16","parameters":{"binary_data_size":4}},` +
		`{"name":"T","shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":11}}],"parameters":{"binary_data_output":true}}`
	a, h, s := le([]float32{1, 2}), []byte{0, 0x3c, 0, 0x40}, []byte("\x00\x00\x00\x00\x03\x00\x00\x00\xff\xfe\x00")
	m, w := read(t, head+string(a)+string(h)+string(s), len(head))
	if diff := cmp.Diff([][]byte{a, {5}, h, s}, m.RawInputContents); diff != "" {
		t.Error(diff)
	}
	if !w.Binary || m.Parameters["binary_data_output"] != nil {
		t.Error("binary_data_output is about the answer, not for the model server")
	}
}

func TestRawTensorsAreNotCopied(t *testing.T) {
	raw := make([]byte, 1<<20)
	head := fmt.Sprintf(`{"inputs":[{"name":"A","shape":[%d],"datatype":"UINT8","parameters":{"binary_data_size":%d}}]}`, len(raw), len(raw))
	body := append([]byte(head), raw...)
	f, _, err := Request(body, len(head), "m", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range f.Buf {
		if d := b.ReadOnlyData(); len(d) == len(raw) && &d[0] == &body[len(head)] {
			return
		}
	}
	t.Error("no buffer of the frame is the body's own memory")
}

func TestWhatDoesNotFitIsRefusedByName(t *testing.T) { // O-10, O-13, O-14
	sized := func(datatype, shape string, size int) string {
		return fmt.Sprintf(`{"inputs":[{"name":"X","shape":%s,"datatype":%q,"parameters":{"binary_data_size":%d}}]}`, shape, datatype, size)
	}
	for _, c := range []struct {
		name, head, tail string
		headLen          int // 0: none; 1: of head
		says             string
	}{
		{"too many values", one("FP32", "[2]", "[1,2,3]"), "", 0, `input "X": shape [2] takes 2 elements and data has 3`},
		{"too few values", one("FP32", "[2,2]", "[[1,2],[3]]"), "", 0, "takes 4 elements and data has 3"},
		{"shape -1", one("FP32", "[-1]", "[1]"), "", 0, `input "X": shape [-1]`},
		{"shape overflow", one("FP32", "[4294967296,4294967296]", "[1]"), "", 0, "fit in 64 bits"},
		{"dimension overflow", one("FP32", "[9223372036854775808]", "[1]"), "", 0, "does not fit in 64 bits"},
		{"fraction in shape", one("FP32", "[1.0]", "[1]"), "", 0, "whole numbers"},
		{"text in shape", one("FP32", `["1"]`, "[1]"), "", 0, "whole numbers"},
		{"null", one("FP32", "[2]", "[1,null]"), "", 0, `input "X": data[1]: FP32 elements are numbers, NaN, Infinity or -Infinity; found null`},
		{"quoted number", one("FP32", "[1]", `["7"]`), "", 0, "in quotes; write numbers without them"},
		{"quoted integer", one("INT64", "[1]", `["7"]`), "", 0, "INT64 elements are whole numbers"},
		{"fraction in integers", one("INT32", "[1]", "[1.5]"), "", 0, "whole numbers"},
		{"too large for INT8", one("INT8", "[1]", "[128]"), "", 0, "128 does not fit INT8"},
		{"negative UINT8", one("UINT8", "[1]", "[-1]"), "", 0, "-1 does not fit UINT8"},
		{"too large for INT64", one("INT64", "[1]", "[9223372036854775808]"), "", 0, "does not fit INT64"},
		{"too large for FP32", one("FP32", "[1]", "[1e39]"), "", 0, "1e39 does not fit FP32"},
		{"leading zero", one("FP32", "[1]", "[01]"), "", 0, "FP32 elements"},
		{"hexadecimal", one("FP32", "[1]", "[0x10]"), "", 0, "behind element 1"},
		{"plus", one("FP32", "[1]", "[+1]"), "", 0, "FP32 elements"},
		{"lower-case nan", one("FP32", "[1]", "[nan]"), "", 0, "FP32 elements"},
		{"nan for integers", one("INT32", "[1]", "[NaN]"), "", 0, "INT32 elements"},
		{"number for bool", one("BOOL", "[1]", "[1]"), "", 0, "BOOL elements are true or false"},
		{"number for string", one("BYTES", "[1]", "[1]"), "", 0, "BYTES elements are strings"},
		{"lone surrogate", one("BYTES", "[1]", `["\ud83d"]`), "", 0, "binary_data_size"},
		{"not UTF-8", one("BYTES", "[1]", "[\"\xff\"]"), "", 0, "binary_data_size"},
		{"comma at the end", one("FP32", "[1]", "[1,]"), "", 0, "behind element 1"},
		{"no comma", one("FP32", "[2]", "[1 2]"), "", 0, "behind element 1"},
		{"no comma between lists", one("FP32", "[2]", "[[1][2]]"), "", 0, "behind element 1"},
		{"object in data", one("FP32", "[1]", "[{}]"), "", 0, "FP32 elements are numbers"},
		{"data of one number", one("FP32", "[1]", "1"), "", 0, "data must be a list"},
		{"data broken off", `{"inputs":[{"name":"X","shape":[1],"datatype":"FP32","data":[1,`, "", 0, "behind element 1: the JSON ends there"},
		{"data first, broken off", `{"inputs":[{"data":[1,`, "", 0, "broken off"},
		{"data first, an object in it", `{"inputs":[{"data":[{}],"name":"X","shape":[1],"datatype":"FP32"}]}`, "", 0, "holds an object"},
		{"data first, too many", `{"inputs":[{"data":[1,2],"name":"X","shape":[1],"datatype":"FP32"}]}`, "", 0, "takes 1 elements and data has 2"},
		{"nested too deep", one("FP32", "[1]", strings.Repeat("[", 40)+"1"+strings.Repeat("]", 40)), "", 0, "nested more than 32"},
		{"FP16 as JSON", one("FP16", "[1]", "[1.0]"), "", 0, `input "X": FP16 has no form in JSON; send it as binary data`},
		{"BF16 as JSON", one("BF16", "[1]", "[1.0]"), "", 0, "binary data"},
		{"unknown datatype", one("FLOAT", "[1]", "[1.0]"), "", 0, `datatype "FLOAT" is unknown; it is one of BOOL`},
		{"no datatype", `{"inputs":[{"name":"X","shape":[1],"data":[1]}]}`, "", 0, `input "X": datatype is missing`},
		{"no shape", `{"inputs":[{"name":"X","datatype":"FP32","data":[1]}]}`, "", 0, "shape is missing"},
		{"no name", `{"inputs":[{"shape":[1],"datatype":"FP32","data":[1]}]}`, "", 0, "inputs[0]: name is missing"},
		{"no data", `{"inputs":[{"name":"X","shape":[1],"datatype":"FP32"}]}`, "", 0, "has no data"},
		{"no inputs", `{"id":"1"}`, "", 0, "no inputs"},
		{"the same input twice", `{"inputs":[{"name":"X","shape":[1],"datatype":"FP32","data":[1]},{"name":"X","shape":[1],"datatype":"FP32","data":[1]}]}`, "", 0, `input "X" stands twice`},
		{"the same key twice", `{"inputs":[{"name":"X","shape":[1],"shape":[2],"datatype":"FP32","data":[1]}]}`, "", 0, `"shape" stands twice`},
		{"inputs twice", `{"inputs":[{"name":"X","shape":[1],"datatype":"FP32","data":[1]}],"inputs":[]}`, "", 0, `"inputs" stands twice`},
		{"text behind the brace", one("FP32", "[1]", "[1]") + "x", "", 0, "text after the JSON"},
		{"a zero byte behind the brace", one("FP32", "[1]", "[1]") + "\x00", "", 0, "text after the JSON"},
		{"text behind the brace of a head", one("FP32", "[1]", "[1]") + " {}", "", 1, "text after the JSON"},
		{"no JSON", "hello", "", 0, "expected '{' at byte 0"},
		{"nothing", "", "", 0, "body is empty"},
		{"white space", " \n", "", 0, "body is empty"},
		{"a list", "[]", "", 0, "expected '{'"},
		{"broken off", `{"inputs":[`, "", 0, "expected '{' at byte 11"},
		{"a number as id", `{"id":7}`, "", 0, "id: expected a string"},
		{"null parameters", `{"parameters":null}`, "", 0, "expected an object"},
		{"null parameter", `{"parameters":{"a":null}}`, "", 0, `"a" is null`},
		{"list parameter", `{"parameters":{"a":[1]}}`, "", 0, `"a" is [1]`},
		{"huge parameter", `{"parameters":{"a":99999999999999999999}}`, "", 0, "64 bits"},
		{"same parameter twice", `{"parameters":{"a":1,"a":2}}`, "", 0, "duplicate"},
		{"binary_data not bool", `{"outputs":[{"name":"Y","parameters":{"binary_data":1}}]}`, "", 0, "expected true or false"},
		{"output without name", `{"outputs":[{}]}`, "", 0, "outputs[0]: name is missing"},
		{"head beyond the body", one("FP32", "[1]", "[1]"), "", 999, "Inference-Header-Content-Length is 999 and the body has"},
		{"head cut short", one("FP32", "[1]", "[1]"), "", 20, "does not end"},
		{"raw without head length", sized("FP32", "[1]", 4), "", 0, "Inference-Header-Content-Length is missing"},
		{"raw too short", sized("FP32", "[2]", 8), "1234", 1, `input "X": binary_data_size is 8 and 4 bytes are left`},
		{"raw against shape", sized("FP32", "[2]", 4), "1234", 1, "shape [2] of FP32 takes 8 bytes"},
		{"raw against a huge shape", sized("FP64", "[4611686018427387904]", 8), "12345678", 1, "4611686018427387904×8 bytes"},
		{"raw left over", sized("FP32", "[1]", 4), "12345", 1, "1 bytes are left behind the last binary tensor"},
		{"negative raw size", sized("FP32", "[1]", -4), "", 1, "binary_data_size is -4"},
		{"raw BYTES against shape", sized("BYTES", "[2]", 5), "\x01\x00\x00\x00a", 1, "takes 2 BYTES elements; the raw bytes hold 1"},
		{"raw BYTES cut off", sized("BYTES", "[1]", 5), "\x02\x00\x00\x00a", 1, "takes 1 BYTES elements; the raw bytes hold 0"},
		{"raw and data", `{"inputs":[{"name":"X","shape":[1],"datatype":"UINT8","data":[1],"parameters":{"binary_data_size":1}}]}`, "a", 1, "exclude each other"},
		{"shared memory and data", `{"inputs":[{"name":"X","shape":[1],"datatype":"UINT8","data":[1],"parameters":{"shared_memory_region":"r"}}]}`, "", 0, "exclude each other"},
	} {
		t.Run(c.name, func(t *testing.T) {
			headLen := c.headLen
			switch headLen {
			case 0:
				headLen = -1
			case 1:
				headLen = len(c.head)
			}
			f := refusal(t, c.head+c.tail, headLen, 0)
			if f.HTTP() != 400 || !strings.Contains(f.Msg, c.says) {
				t.Errorf("%d %s\nwant 400 with: %s", f.HTTP(), f.Msg, c.says)
			}
		})
	}
}

func TestABodyOfNothingButRawBytesIsRefused(t *testing.T) {
	if f := refusal(t, "1234", 0, 0); !strings.Contains(f.Msg, "send a JSON head") {
		t.Error(f.Msg)
	}
}

func TestAMessageAboveTheLimitIsTooLarge(t *testing.T) {
	raw := `{"inputs":[{"name":"X","shape":[2000],"datatype":"UINT8","parameters":{"binary_data_size":2000}}]}`
	for name, f := range map[string]*fault.Fault{
		"raw":   refusal(t, raw+strings.Repeat("a", 2000), len(raw), 1000),
		"list":  refusal(t, one("FP64", "[200]", "["+strings.Repeat("1,", 199)+"1]"), -1, 1000),
		"bytes": refusal(t, one("BYTES", "[100]", `["`+strings.Repeat(`123456789","`, 99)+`"]`), -1, 1000),
		"head":  refusal(t, `{"id":"`+strings.Repeat("a", 1000)+`",`+one("FP32", "[1]", "[1]")[1:], -1, 1000),
	} {
		if f.Kind != fault.TooLarge || !strings.Contains(f.Msg, "1000 bytes") {
			t.Errorf("%s: %v", name, f)
		}
	}
}

func TestCountsAreLimited(t *testing.T) {
	input := `{"name":"X%d","shape":[0],"datatype":"FP32","data":[]}`
	var b strings.Builder
	for i := range maxTensors + 1 {
		fmt.Fprintf(&b, ","+input, i)
	}
	for name, body := range map[string]string{
		"inputs":     `{"inputs":[` + b.String()[1:] + `]}`,
		"outputs":    `{"outputs":[` + strings.Repeat(`{"name":"a"},`, maxTensors+1) + `]}`,
		"dimensions": one("FP32", "["+strings.Repeat("1,", maxDims)+"1]", "[1]"),
	} {
		if f := refusal(t, body, -1, 0); !strings.Contains(f.Msg, "more than") {
			t.Errorf("%s: %s", name, f.Msg)
		}
	}
}

func TestAShapeThatLiesGetsNoMemory(t *testing.T) {
	body := []byte(one("FP64", "[100000000]", "[1,2]"))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := Request(body, -1, "m", "", 0)
	runtime.ReadMemStats(&after)
	if err == nil {
		t.Fatal("taken, and must not be")
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 64<<10 {
		t.Errorf("%d bytes were allocated for a body of %d", got, len(body))
	}
}

// image is a JSON body like a client's, 3×224×224.
func image(bits int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	b.WriteString(`{"inputs":[{"name":"X","shape":[1,3,224,224],"datatype":"FP32","data":[`)
	for i := range 3 * 224 * 224 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(appendFloat(nil, r.Float64(), bits))
	}
	b.WriteString(`]}]}`)
	return b.Bytes()
}

func BenchmarkRequestImage(b *testing.B) {
	for _, bits := range []int{32, 64} {
		b.Run(fmt.Sprintf("%dbit_digits", bits), func(b *testing.B) {
			body := image(bits)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := Request(body, -1, "m", "", 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRequestRow(b *testing.B) {
	body := []byte(one("FP32", "[1,16]", "[[0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1.0,1.1,1.2,1.3,1.4,1.5,1.6]]"))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Request(body, -1, "m", "", 0); err != nil {
			b.Fatal(err)
		}
	}
}
