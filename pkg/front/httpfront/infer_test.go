package httpfront

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

func tensor(datatype, shape, data string) string {
	return fmt.Sprintf(`{"inputs":[{"name":"X","shape":%s,"datatype":%q,"data":%s}]}`, shape, datatype, data)
}

func TestInferGoesThroughAsAMessage(t *testing.T) {
	p := &pipeline{do: echo}
	w := send(front(Config{Pipeline: p}), "POST", "/v2/models/fraud/versions/2/infer", `{"id":"r1","parameters":{"sequence_id":7,"sequence_start":true},"inputs":[{"name":"X","shape":[1,2],"datatype":"FP32","data":[[0.5,1]]}]}`)
	wantBody(t, w, `{"id":"r1","model_name":"fraud","model_version":"2","outputs":[{"name":"X","datatype":"FP32","shape":[1,2],"data":[0.5,1.0]}]}`)
	c := p.calls[0]
	if c.Protocol != inference.HTTPKServe || c.Method != "/v2/models/{model}/versions/{version}/infer" || c.Head.Model != "fraud" || c.Head.Version != "2" || c.Head.ID != "r1" || c.Head.Sequence.ID != "7" || !c.Head.Sequence.Start {
		t.Errorf("the call is %+v", c)
	}
	if w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Inference-Header-Content-Length") != "" {
		t.Errorf("headers %v", w.Header())
	}
}

func TestSpecialNumbersPassThrough(t *testing.T) { // O-09, O-11, O-12
	for _, c := range []struct{ datatype, shape, data string }{
		{"INT64", "[2]", "[9007199254740993,-9223372036854775808]"},
		{"FP32", "[3]", "[NaN,Infinity,-Infinity]"},
		{"BYTES", "[3]", `["","a\u0000b","😀"]`},
	} {
		w := send(front(Config{}), "POST", "/v2/models/echo/infer", tensor(c.datatype, c.shape, c.data))
		wantStatus(t, w, 200, `"data":`+c.data)
	}
}

func TestBadTensorsDoNotReachThePipeline(t *testing.T) { // O-10, O-13, O-14
	for _, c := range []struct {
		body string
		head string
	}{
		{tensor("FP16", "[1]", "[1.0]"), ""},
		{tensor("BF16", "[1]", "[1.0]"), ""},
		{tensor("FP32", "[2]", "[1,2,3]"), ""},
		{tensor("FP32", "[-1]", "[1]"), ""},
		{tensor("FP32", "[1]", "[null]"), ""},
		{tensor("FP32", "[1]", `["7"]`), ""},
		{tensor("FP32", "[1]", "[1]") + "x", ""},
		{tensor("FP32", "[1]", "[1]"), "99999"},
		{tensor("FP32", "[1]", "[1]"), "-1"},
		{tensor("FP32", "[1]", "[1]"), "ten"},
		{"1234", "0"},
	} {
		p := &pipeline{}
		var headers []string
		if c.head != "" {
			headers = []string{"Inference-Header-Content-Length", c.head}
		}
		wantStatus(t, send(front(Config{Pipeline: p}), "POST", "/v2/models/m/infer", c.body, headers...), 400)
		if len(p.frames) != 0 || len(p.refused) != 1 {
			t.Errorf("%s: %d calls, %d refusals; want one refusal", c.body, len(p.frames), len(p.refused))
		}
	}
}

func TestOutputsThatJSONCannotHoldAreA400(t *testing.T) { // O-12
	raw := "\x02\x00\x00\x00\xff\xfe"
	head := fmt.Sprintf(`{"inputs":[{"name":"X","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":%d}}]}`, len(raw))
	w := send(front(Config{}), "POST", "/v2/models/m/infer", head+raw, "Inference-Header-Content-Length", strconv.Itoa(len(head)))
	wantStatus(t, w, 400, `output \"X\"`, "binary_data")
}

// clientRequest is, byte for byte, what the Python client for HTTP sends by default: no spaces, the head's length, raw
// tensors behind it, and the wish for raw outputs.
func clientRequest() (body string, headLen int) {
	raw := binary.LittleEndian.AppendUint32(nil, math.Float32bits(0.5))
	raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(-1))
	head := `{"id":"1","inputs":[{"name":"IN","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}},{"name":"T","shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":11}}],"parameters":{"sequence_id":3,"sequence_start":true,"sequence_end":false,"binary_data_output":true}}`
	return head + string(raw) + "\x01\x00\x00\x00a\x02\x00\x00\x00\xff\x00", len(head)
}

func TestThePythonClientsBinaryRequestWorks(t *testing.T) { // O-14
	p := &pipeline{do: echo}
	body, headLen := clientRequest()
	w := send(front(Config{Pipeline: p}), "POST", "/v2/models/m/infer", body, "Inference-Header-Content-Length", strconv.Itoa(headLen))
	wantStatus(t, w, 200)
	n, err := strconv.Atoi(w.Header().Get("Inference-Header-Content-Length"))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"id":"1","model_name":"m","model_version":"2","outputs":[{"name":"IN","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8}},{"name":"T","datatype":"BYTES","shape":[2],"parameters":{"binary_data_size":11}}]}`
	if got := w.Body.String(); got[:n] != want || got[n:] != body[headLen:] {
		t.Errorf("%q\nwant %s and the same raw bytes", got, want)
	}
	if got := w.Header().Get("Content-Type"); got != "application/octet-stream" {
		t.Errorf("Content-Type %s", got)
	}
	if got := len(p.calls[0].Incoming["inference-header-content-length"]); got != 0 {
		t.Error("the header of the body was taken for the call's metadata")
	}
}

func TestAModelWithoutAnswerIsSaidSo(t *testing.T) {
	p := &pipeline{do: func(context.Context, *inference.Call) error { return nil }}
	wantStatus(t, send(front(Config{Pipeline: p}), "POST", "/v2/models/m/infer", tensor("FP32", "[1]", "[1]")), 500, "no answer")
}

func TestNamesInPathsAreDecodedOnce(t *testing.T) { // O-16
	for path, want := range map[string]string{
		"/v2/models/team%2Fbert/infer":                 "team/bert",
		"/v2/models/team%252Fbert/infer":               "team%2Fbert",
		"/v2/models/%E6%A8%A1%E5%9E%8B-1/infer":        "模型-1",
		"/v2/models/a+b/infer":                         "a+b",
		"/v2/models/a%20b/infer/":                      "a b",
		"/v2/models/stats/infer":                       "stats",
		"/v2/models/team%2Fbert/versions/latest/infer": "team/bert",
		"/v2/models/team/bert/infer":                   "",
		"/v2/models//infer":                            "",
		"/v2/./models/a/infer":                         "",
		"/v2/models/%2e%2e/infer":                      "..",
	} {
		p := &pipeline{do: echo}
		w := send(front(Config{Pipeline: p}), "POST", path, tensor("FP32", "[1]", "[1]"))
		if want == "" {
			if w.Code != 404 || len(p.frames) != 0 {
				t.Errorf("%s: %d, want 404", path, w.Code)
			}
			continue
		}
		if w.Code != 200 || p.calls[0].Head.Model != want {
			t.Errorf("%s: %d %s; want model %q", path, w.Code, w.Body, want)
		}
	}
}

func TestTheVersionOfThePathIsThePipelinesToJudge(t *testing.T) { // O-15
	for _, v := range []string{"0", "-1", "latest", "9"} {
		p := &pipeline{do: echo}
		send(front(Config{Pipeline: p}), "POST", "/v2/models/m/versions/"+v+"/infer", tensor("FP32", "[1]", "[1]"))
		m := &tritonpb.ModelInferRequest{}
		if len(p.frames) != 1 {
			continue // the peek may already refuse what is no version
		}
		if err := proto.Unmarshal(p.frames[0], m); err != nil || m.ModelVersion != v {
			t.Errorf("%s became %q, %v", v, m.ModelVersion, err)
		}
	}
}
