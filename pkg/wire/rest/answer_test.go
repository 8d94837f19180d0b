package rest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// frame cuts a message into buffers of odd sizes, as messages come off the wire.
func frame(t testing.TB, m proto.Message) inference.Frame {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var f inference.Frame
	for len(b) > 0 {
		n := min(len(b), 7)
		f.Buf = append(f.Buf, mem.SliceBuffer(b[:n]))
		b = b[n:]
	}
	return f
}

func output(name, datatype string, raw []byte, shape ...int64) *tritonpb.ModelInferResponse {
	return &tritonpb.ModelInferResponse{
		ModelName: "m", ModelVersion: "1", RawOutputContents: [][]byte{raw},
		Outputs: []*tritonpb.ModelInferResponse_InferOutputTensor{{Name: name, Datatype: datatype, Shape: shape}},
	}
}

// data renders an answer of one output and cuts the list out.
func data(t *testing.T, m *tritonpb.ModelInferResponse) string {
	t.Helper()
	body, headLen, err := Answer(frame(t, m), Wanted{})
	if err != nil {
		t.Fatal(err)
	}
	if headLen != -1 {
		t.Fatalf("head length %d of an answer that is all JSON", headLen)
	}
	_, list, ok := strings.Cut(string(body), `"data":`)
	if !ok {
		t.Fatalf("no data in %s", body)
	}
	return strings.TrimSuffix(list, "}]}")
}

func bytesOf(elements ...string) []byte {
	var b []byte
	for _, e := range elements {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(e))), e...)
	}
	return b
}

func TestEveryDatatypeIsPrinted(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		datatype string
		raw      []byte
		n        int64
		want     string
	}{
		{"BOOL", []byte{0, 1, 2}, 3, "[false,true,true]"},
		{"INT8", []byte{0x80, 0x7f}, 2, "[-128,127]"},
		{"INT16", le([]int16{-32768}), 1, "[-32768]"},
		{"INT32", le([]int32{-1}), 1, "[-1]"},
		{"INT64", le([]int64{9007199254740993, math.MinInt64}), 2, "[9007199254740993,-9223372036854775808]"}, // O-09
		{"UINT8", []byte{255}, 1, "[255]"},
		{"UINT16", le([]uint16{65535}), 1, "[65535]"},
		{"UINT32", le([]uint32{math.MaxUint32}), 1, "[4294967295]"},
		{"UINT64", le([]uint64{math.MaxUint64}), 1, "[18446744073709551615]"},
		{"FP32", le([]float32{float32(nan), float32(inf), float32(-inf), 0.1, 3, 1e-9, 1e20, float32(math.Copysign(0, -1))}), 8, "[NaN,Infinity,-Infinity,0.1,3.0,1e-09,1e+20,-0.0]"}, // O-11
		{"FP64", le([]float64{nan, 0.1, 1e300, 5e-324}), 4, "[NaN,0.1,1e+300,5e-324]"},
		{"FP16", le([]uint16{0x3c00, 0xc000, 0x7bff, 0x0001, 0x03ff, 0x7c00, 0xfc00, 0x7e00, 0x3555, 0x8000}), 10, "[1.0,-2.0,65504.0,5.9604645e-08,0.00006097555,Infinity,-Infinity,NaN,0.33325195,-0.0]"}, // O-10
		{"BF16", le([]uint16{0x3f80, 0x4049, 0x7f80}), 3, "[1.0,3.140625,Infinity]"},
		{"BYTES", bytesOf("", "a\x00b", "😀", `<"\>`), 4, `["","a\u0000b","😀","<\"\\>"]`}, // O-12
		{"FP32", nil, 0, "[]"},
		{"BYTES", nil, 0, "[]"},
	} {
		if got := data(t, output("Y", c.datatype, c.raw, c.n)); got != c.want {
			t.Errorf("%s: %s, want %s", c.datatype, got, c.want)
		}
	}
}

func TestFloat32ReadsBackEqual(t *testing.T) {
	raw := make([]byte, 0, 4*100_000)
	for i := range 100_000 {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(i)*42949)
	}
	list := data(t, output("Y", "FP32", raw, 100_000))
	m, _ := read(t, one("FP32", "[100000]", list), -1)
	for i := range 100_000 {
		got, want := binary.LittleEndian.Uint32(m.RawInputContents[0][4*i:]), binary.LittleEndian.Uint32(raw[4*i:])
		if got != want && math.Float32frombits(want) == math.Float32frombits(want) {
			t.Fatalf("%08x came back as %08x", want, got)
		}
	}
}

func TestBytesThatAreNotTextPointToBinaryData(t *testing.T) { // O-12
	m := output("Y", "BYTES", bytesOf("ok", "\xff\xfe"), 2)
	_, _, err := Answer(frame(t, m), Wanted{})
	f := fault.Of(err)
	if f.HTTP() != 400 || !strings.Contains(f.Msg, `output "Y": element 1 is not UTF-8`) || !strings.Contains(f.Msg, "binary_data") {
		t.Errorf("%d %s", f.HTTP(), f.Msg)
	}
	body, headLen, err := Answer(frame(t, m), Wanted{Binary: true})
	if err != nil || string(body[headLen:]) != string(m.RawOutputContents[0]) {
		t.Errorf("%q, %v; want the bytes as they are", body, err)
	}
}

func TestAnAnswerInBothForms(t *testing.T) { // O-14
	m := &tritonpb.ModelInferResponse{
		ModelName: "team/bert", ModelVersion: "7", Id: "r\"1",
		Parameters: map[string]*tritonpb.InferParameter{
			"b": {ParameterChoice: &tritonpb.InferParameter_BoolParam{BoolParam: true}},
			"a": {ParameterChoice: &tritonpb.InferParameter_Int64Param{Int64Param: -1}},
			"c": {ParameterChoice: &tritonpb.InferParameter_StringParam{StringParam: "x"}},
			"d": {ParameterChoice: &tritonpb.InferParameter_DoubleParam{DoubleParam: 0.5}},
			"e": {ParameterChoice: &tritonpb.InferParameter_Uint64Param{Uint64Param: math.MaxUint64}},
		},
		Outputs: []*tritonpb.ModelInferResponse_InferOutputTensor{
			{Name: "A", Datatype: "FP32", Shape: []int64{1, 2}, Parameters: map[string]*tritonpb.InferParameter{"k": {ParameterChoice: &tritonpb.InferParameter_Int64Param{Int64Param: 2}}}},
			{Name: "B", Datatype: "INT64", Shape: []int64{2}},
			{Name: "C", Datatype: "UINT8", Shape: []int64{0}},
		},
		RawOutputContents: [][]byte{le([]float32{1, 2}), le([]int64{3, 4}), nil},
	}
	for _, c := range []struct {
		w          Wanted
		head, tail string
	}{
		{
			Wanted{},
			`{"id":"r\"1","model_name":"team/bert","model_version":"7","parameters":{"a":-1,"b":true,"c":"x","d":0.5,"e":18446744073709551615},"outputs":[` +
				`{"name":"A","datatype":"FP32","shape":[1,2],"parameters":{"k":2},"data":[1.0,2.0]},{"name":"B","datatype":"INT64","shape":[2],"data":[3,4]},{"name":"C","datatype":"UINT8","shape":[0],"data":[]}]}`,
			"",
		},
		{
			Wanted{Binary: true, Outputs: map[string]bool{"B": false}},
			`{"id":"r\"1","model_name":"team/bert","model_version":"7","parameters":{"a":-1,"b":true,"c":"x","d":0.5,"e":18446744073709551615},"outputs":[` +
				`{"name":"A","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8,"k":2}},{"name":"B","datatype":"INT64","shape":[2],"data":[3,4]},{"name":"C","datatype":"UINT8","shape":[0],"parameters":{"binary_data_size":0}}]}`,
			string(le([]float32{1, 2})),
		},
	} {
		body, headLen, err := Answer(frame(t, m), c.w)
		if err != nil {
			t.Fatal(err)
		}
		if c.tail == "" {
			if headLen != -1 || string(body) != c.head {
				t.Errorf("%d %s\nwant %s", headLen, body, c.head)
			}
			if !json.Valid(body) {
				t.Error("that is not JSON")
			}
			continue
		}
		if headLen != len(c.head) || string(body) != c.head+c.tail {
			t.Errorf("%d %q\nwant %q", headLen, body, c.head+c.tail)
		}
	}
}

func TestTypedContentsAreAnsweredToo(t *testing.T) {
	type contents = tritonpb.InferTensorContents
	for datatype, c := range map[string]struct {
		contents *contents
		want     string
	}{
		"BOOL":   {&contents{BoolContents: []bool{true, false}}, "[true,false]"},
		"INT8":   {&contents{IntContents: []int32{-1, 2}}, "[-1,2]"},
		"INT16":  {&contents{IntContents: []int32{-1, 2}}, "[-1,2]"},
		"INT32":  {&contents{IntContents: []int32{-1, 2}}, "[-1,2]"},
		"INT64":  {&contents{Int64Contents: []int64{-1, 2}}, "[-1,2]"},
		"UINT8":  {&contents{UintContents: []uint32{1, 255}}, "[1,255]"},
		"UINT16": {&contents{UintContents: []uint32{1, 2}}, "[1,2]"},
		"UINT32": {&contents{UintContents: []uint32{1, 2}}, "[1,2]"},
		"UINT64": {&contents{Uint64Contents: []uint64{1, 2}}, "[1,2]"},
		"FP32":   {&contents{Fp32Contents: []float32{0.1, 2}}, "[0.1,2.0]"},
		"FP64":   {&contents{Fp64Contents: []float64{0.1, 2}}, "[0.1,2.0]"},
		"BYTES":  {&contents{BytesContents: [][]byte{[]byte("a"), nil}}, `["a",""]`},
	} {
		m := output("Y", datatype, nil, 2)
		m.RawOutputContents, m.Outputs[0].Contents = nil, c.contents
		if got := data(t, m); got != c.want {
			t.Errorf("%s: %s, want %s", datatype, got, c.want)
		}
	}
}

func TestOutputsInSharedMemoryHaveNoData(t *testing.T) {
	region := map[string]*tritonpb.InferParameter{"shared_memory_region": {ParameterChoice: &tritonpb.InferParameter_StringParam{StringParam: "r"}}}
	m := &tritonpb.ModelInferResponse{ModelName: "m", Outputs: []*tritonpb.ModelInferResponse_InferOutputTensor{
		{Name: "S", Datatype: "FP32", Shape: []int64{2}, Parameters: region}, {Name: "Y", Datatype: "UINT8", Shape: []int64{1}},
	}}
	t.Run("as Triton answers", func(t *testing.T) {
		body := `{"inputs":[{"name":"X","shape":[1],"datatype":"UINT8","data":[9]}],"outputs":[{"name":"S","parameters":{"shared_memory_region":"r","shared_memory_byte_size":8}},{"name":"Y"}]}`
		in, w := read(t, body, -1)
		if in.Outputs[0].Parameters["shared_memory_region"].GetStringParam() != "r" {
			t.Errorf("outputs %v", in.Outputs)
		}
		m := &tritonpb.ModelInferResponse{ModelName: "m", RawOutputContents: [][]byte{nil, {9}}, Outputs: []*tritonpb.ModelInferResponse_InferOutputTensor{
			{Name: "S", Datatype: "FP32", Shape: []int64{2}}, {Name: "Y", Datatype: "UINT8", Shape: []int64{1}},
		}}
		got, _, err := Answer(frame(t, m), w)
		want := `{"model_name":"m","model_version":"","outputs":[{"name":"S","datatype":"FP32","shape":[2]},{"name":"Y","datatype":"UINT8","shape":[1],"data":[9]}]}`
		if err != nil || string(got) != want {
			t.Errorf("%s, %v\nwant %s", got, err, want)
		}
	})
	for _, raw := range [][][]byte{{{9}}, {nil, {9}}} { // servers differ in whether the region takes an entry
		m.RawOutputContents = raw
		body, _, err := Answer(frame(t, m), Wanted{})
		want := `{"model_name":"m","model_version":"","outputs":[{"name":"S","datatype":"FP32","shape":[2],"parameters":{"shared_memory_region":"r"}},{"name":"Y","datatype":"UINT8","shape":[1],"data":[9]}]}`
		if err != nil || string(body) != want {
			t.Errorf("%s, %v\nwant %s", body, err, want)
		}
	}
}

func TestABrokenAnswerIsTheUpstreamsFailure(t *testing.T) {
	for name, m := range map[string]*tritonpb.ModelInferResponse{
		"too few bytes":     output("Y", "FP32", []byte{1}, 1),
		"a huge shape":      output("Y", "FP32", []byte{1, 2, 3, 4}, 1<<62),
		"a negative shape":  output("Y", "FP32", nil, -1),
		"unknown datatype":  output("Y", "FLOAT", nil, 0),
		"BYTES cut off":     output("Y", "BYTES", []byte{9, 0, 0, 0}, 1),
		"no contents":       {Outputs: []*tritonpb.ModelInferResponse_InferOutputTensor{{Name: "Y", Datatype: "FP32", Shape: []int64{1}}}},
		"raw without place": {RawOutputContents: [][]byte{{1}}},
	} {
		for _, w := range []Wanted{{}, {Binary: true}} {
			_, _, err := Answer(frame(t, m), w)
			if f := fault.Of(err); err == nil || f.Kind != fault.UpstreamFailed {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	_, _, err := Answer(inference.NewFrame([]byte{0xff, 0xff}), Wanted{})
	if f := fault.Of(err); err == nil || f.Kind != fault.UpstreamFailed {
		t.Errorf("garbage: %v", err)
	}
}

// FuzzRequest: whatever comes in is a fault of the client's, or a message whose tensors fit their shapes.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(one("FP32", "[1,2]", "[[1,NaN]]")), -1)
	f.Add([]byte(one("BYTES", "[2]", `["a","\ud83d\ude00"]`)), -1)
	f.Add([]byte(`{"id":"x","inputs":[{"name":"X","shape":[2],"datatype":"INT16","parameters":{"binary_data_size":4}}],"outputs":[{"name":"Y"}]}abcd`), 121)
	f.Add([]byte(`{"parameters":{"a":1.5},"inputs":[{"data":[true],"shape":[1],"datatype":"BOOL","name":"X"}]}`), -1)
	f.Fuzz(func(t *testing.T, body []byte, headLen int) {
		fr, _, err := Request(bytes.Clone(body), headLen, "m", "1", 1<<20)
		if err != nil {
			var fa *fault.Fault
			if !errors.As(err, &fa) || (fa.HTTP() != 400 && fa.HTTP() != 413) || fa.Msg == "" {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		m := &tritonpb.ModelInferRequest{}
		if err := proto.Unmarshal(fr.Buf.Materialize(), m); err != nil {
			t.Fatalf("the frame is not a message: %v", err)
		}
		next := 0
		for _, in := range m.Inputs {
			if _, ok := in.Parameters["shared_memory_region"]; ok {
				continue
			}
			raw := m.RawInputContents[next]
			next++
			n, ok := elements(in.Shape)
			if size := int64(datatypes[in.Datatype].size); !ok || (size > 0 && n*size != int64(len(raw))) {
				t.Fatalf("%s %v has %d bytes", in.Datatype, in.Shape, len(raw))
			}
			if got, ok := countBytes(raw); in.Datatype == "BYTES" && (!ok || got != n) {
				t.Fatalf("BYTES %v has %d elements", in.Shape, got)
			}
		}
		if next != len(m.RawInputContents) {
			t.Fatalf("%d raw tensors for %d inputs", len(m.RawInputContents), next)
		}
	})
}

// FuzzRoundTrip: a tensor printed as JSON and read again has the same bytes, and the same goes for the binary form.
func FuzzRoundTrip(f *testing.F) {
	for i := range 13 {
		f.Add(uint8(i), []byte{0, 1, 2, 3, 4, 5, 6, 7, 0x80, 0xff, 0x7f, 0xff, 9, 9, 9, 9})
	}
	names := strings.Split(datatypeList, ", ")
	f.Fuzz(func(t *testing.T, which uint8, raw []byte) {
		dt := datatypes[names[int(which)%len(names)]]
		var n int64
		switch dt.size {
		case 0: // each byte is the length of a string of the bytes behind it
			var elements []string
			for len(raw) > 0 {
				size := min(int(raw[0]), len(raw)-1)
				elements = append(elements, strings.ToValidUTF8(string(raw[1:1+size]), "?"))
				raw = raw[1+size:]
			}
			n, raw = int64(len(elements)), bytesOf(elements...)
		default:
			raw = bytes.Clone(raw[:len(raw)/dt.size*dt.size])
			n = int64(len(raw) / dt.size)
		}
		normalize(dt, raw)
		m := output("X", dt.name, raw, n)
		body, headLen, err := Answer(frame(t, m), Wanted{Binary: true})
		if err != nil || !bytes.Equal(body[headLen:], raw) {
			t.Fatalf("binary: %q, %v; want %q", body[headLen:], err, raw)
		}
		again, _ := read(t, strings.Replace(string(body[:headLen]), `"outputs"`, `"inputs"`, 1)+string(body[headLen:]), headLen-1)
		if !bytes.Equal(again.RawInputContents[0], raw) {
			t.Fatalf("binary: % x came back as % x", raw, again.RawInputContents[0])
		}
		if dt.name == "FP16" || dt.name == "BF16" {
			return // printed, but not read
		}
		if body, _, err = Answer(frame(t, m), Wanted{}); err != nil {
			t.Fatal(err)
		}
		again, _ = read(t, strings.Replace(string(body), `"outputs"`, `"inputs"`, 1), -1)
		if !bytes.Equal(again.RawInputContents[0], raw) {
			t.Fatalf("JSON %s: % x came back as % x", body, raw, again.RawInputContents[0])
		}
	})
}

// normalize gives values with several byte forms the one that comes back: NaN, true.
func normalize(dt datatype, raw []byte) {
	for i := 0; dt.size > 0 && i < len(raw); i += dt.size {
		e := raw[i : i+dt.size]
		switch dt.name {
		case "BOOL":
			e[0] = min(e[0], 1)
		case "FP32":
			if f := math.Float32frombits(binary.LittleEndian.Uint32(e)); f != f {
				binary.LittleEndian.PutUint32(e, math.Float32bits(float32(math.NaN())))
			}
		case "FP64":
			if f := math.Float64frombits(binary.LittleEndian.Uint64(e)); f != f {
				binary.LittleEndian.PutUint64(e, math.Float64bits(math.NaN()))
			}
		}
	}
}

func BenchmarkAnswer(b *testing.B) {
	raw := make([]byte, 4*1000)
	for i := range 1000 {
		binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(1/float32(i+1)))
	}
	f := frame(b, output("Y", "FP32", raw, 1, 1000))
	for _, w := range []Wanted{{}, {Binary: true}} {
		b.Run(fmt.Sprintf("binary=%t", w.Binary), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := Answer(f, w); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
