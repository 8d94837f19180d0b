package wire

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	predictpb "github.com/model-gateway/model-gateway/proto/ml/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

func fraudTensors() inference.Tensors {
	return inference.Tensors{
		Inputs:  []inference.Tensor{{Name: "INPUT", Datatype: "FP32", Shape: []int64{-1, 2}}},
		Outputs: []inference.Tensor{{Name: "LABEL", Datatype: "BYTES", Shape: []int64{-1, 1}}, {Name: "SCORE", Datatype: "FP32", Shape: []int64{-1, 1}}, {Name: "N", Datatype: "INT64", Shape: []int64{-1}}},
	}
}

// predictCall is a Predict of so many bytes.
func predictCall(t *testing.T, bytes int) *inference.Call {
	t.Helper()
	c := &inference.Call{Protocol: inference.Predict, Start: time.Now(), Request: framed(t, &predictpb.PredictionRequest{ModelName: "fraud", InputTensor: make([]byte, bytes)})}
	var err error
	if c.Head, err = PeekPredict(c.Request); err != nil {
		t.Fatal(err)
	}
	return c
}

// inferCall is a ModelInfer of so many rows.
func inferCall(t *testing.T, p inference.Protocol, rows int64, outputs ...*tritonpb.ModelInferRequest_InferRequestedOutputTensor) *inference.Call {
	t.Helper()
	c := &inference.Call{Protocol: p, Target: &inference.Target{Version: "3"}, Request: framed(t, &tritonpb.ModelInferRequest{
		ModelName: "fraud", Id: "a7", Inputs: []*tritonpb.ModelInferRequest_InferInputTensor{{Name: "INPUT", Datatype: "FP32", Shape: []int64{rows, 2}}}, Outputs: outputs,
	})}
	var err error
	if c.Head, err = PeekInfer(c.Request); err != nil {
		t.Fatal(err)
	}
	return c
}

func framed(t *testing.T, m proto.Message) inference.Frame {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return inference.NewFrame(b)
}

func degradedPredict(t *testing.T, c *inference.Call, tensors inference.Tensors) (*predictpb.PredictionResponse, string) {
	t.Helper()
	f, datatype, err := DegradedAnswer(c, tensors, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	a := &predictpb.PredictionResponse{}
	if err := proto.Unmarshal(f.Buf.Materialize(), a); err != nil {
		t.Fatal(err)
	}
	return a, datatype
}

func TestADegradedPredictIsTheScoreInTheShapeAndDatatypeOfTheOutput(t *testing.T) {
	fp64 := fraudTensors()
	fp64.Outputs[1].Datatype = "FP64"
	named := fraudTensors()
	named.Output = "N"
	elsewhere := fraudTensors()
	elsewhere.Output = "GONE"
	fixed := inference.Tensors{
		Inputs:  []inference.Tensor{{Name: "INPUT", Datatype: "FP32", Shape: []int64{6}}},
		Outputs: []inference.Tensor{{Name: "SCORE", Datatype: "FP32", Shape: []int64{-1, 2, -1}}},
	}
	for name, tt := range map[string]struct {
		tensors  inference.Tensors
		tensor   string
		datatype string
	}{
		"three rows":            {fraudTensors(), strings.Repeat("0000003f", 3), "FP32"},
		"FP64":                  {fp64, strings.Repeat("000000000000e03f", 3), "FP64"},
		"the declared output":   {named, strings.Repeat("0100000000000000", 3), "INT64"},
		"an output not known":   {elsewhere, "0000003f", "FP32"},
		"nothing is known":      {inference.Tensors{}, "0000003f", "FP32"},
		"without a batch":       {fixed, "0000003f0000003f", "FP32"},
		"an odd datatype":       {inference.Tensors{Outputs: []inference.Tensor{{Name: "S", Datatype: "X"}}}, "0000003f", "FP32"},
		"a scalar":              {inference.Tensors{Outputs: []inference.Tensor{{Name: "S", Datatype: "FP16"}}}, "0038", "FP16"},
		"only texts":            {inference.Tensors{Outputs: []inference.Tensor{{Name: "S", Datatype: "BYTES", Shape: []int64{-1}}}}, "03000000302e35", "BYTES"},
		"a dimension of nought": {inference.Tensors{Outputs: []inference.Tensor{{Name: "S", Datatype: "FP32", Shape: []int64{1, 0}}}}, "", "FP32"},
	} {
		c := predictCall(t, 24)
		a, datatype := degradedPredict(t, c, tt.tensors)
		if a.Status != "DEGRADED" || a.Confidence != 0.5 || hex.EncodeToString(a.OutputTensor) != tt.tensor || datatype != tt.datatype || a.LatencyMs < 1 {
			t.Errorf("%s: %v, %s", name, a, datatype)
		}
		if name != "three rows" {
			continue
		}
		if err := PredictToInfer(&c.Request, c.Head, "fraud", "1", tt.tensors); err != nil {
			t.Fatal(err)
		}
		c.Rewritten = &inference.Target{}
		if a, _ := degradedPredict(t, c, tt.tensors); hex.EncodeToString(a.OutputTensor) != tt.tensor {
			t.Errorf("after it has been rewritten: %v", a)
		}
	}
}

func TestBadInputGetsNoDegradedAnswer(t *testing.T) {
	for _, n := range []int{0, 7} {
		if _, _, err := DegradedAnswer(predictCall(t, n), fraudTensors(), 0.5); fault.Of(err).Kind != fault.BadTensor {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	missing := inferCall(t, inference.KServe, 1, &tritonpb.ModelInferRequest_InferRequestedOutputTensor{Name: "SCOER"})
	if _, _, err := DegradedAnswer(missing, fraudTensors(), 0.5); fault.Of(err).Kind != fault.InvalidArgument || !strings.Contains(fault.Of(err).Msg, "SCORE") {
		t.Errorf("an output that is not there: %v", err)
	}
}

func TestADegradedInferHasTheTensorsThatWereAskedFor(t *testing.T) {
	requested := func(names ...string) (all []*tritonpb.ModelInferRequest_InferRequestedOutputTensor) {
		for _, n := range names {
			all = append(all, &tritonpb.ModelInferRequest_InferRequestedOutputTensor{Name: n})
		}
		return all
	}
	unbatched := fraudTensors()
	unbatched.Inputs[0].Shape = []int64{2, 2}
	for name, tt := range map[string]struct {
		tensors inference.Tensors
		asked   []string
		want    []string
	}{
		"all": {fraudTensors(), nil, []string{
			"LABEL BYTES [2 1] 03000000302e3503000000302e35", "SCORE FP32 [2 1] 0000003f0000003f", "N INT64 [2] 01000000000000000100000000000000",
		}},
		"two of them, in another order": {fraudTensors(), []string{"N", "LABEL", "N"}, []string{"N INT64 [2] 01000000000000000100000000000000", "LABEL BYTES [2 1] 03000000302e3503000000302e35"}},
		"without a batch":               {unbatched, []string{"SCORE"}, []string{"SCORE FP32 [1 1] 0000003f"}},
		"nothing is known":              {inference.Tensors{}, nil, []string{"score FP32 [1] 0000003f"}},
		"only a name is known":          {inference.Tensors{Output: "SCORE"}, nil, []string{"SCORE FP32 [1] 0000003f"}},
		"only what is asked for":        {inference.Tensors{Output: "SCORE"}, []string{"A", "B"}, []string{"A FP32 [1] 0000003f", "B FP32 [1] 0000003f"}},
	} {
		for _, p := range []inference.Protocol{inference.KServe, inference.HTTPKServe, inference.KServeStream} {
			f, _, err := DegradedAnswer(inferCall(t, p, 2, requested(tt.asked...)...), tt.tensors, 0.5)
			if err != nil {
				t.Fatal(err)
			}
			a := &tritonpb.ModelInferResponse{}
			if p == inference.KServeStream {
				s := &tritonpb.ModelStreamInferResponse{}
				if err := proto.Unmarshal(f.Buf.Materialize(), s); err != nil {
					t.Fatal(err)
				}
				a = s.InferResponse
				if !a.Parameters["triton_final_response"].GetBoolParam() {
					t.Errorf("%s: nothing says that it is the last answer", name)
				}
			} else if err := proto.Unmarshal(f.Buf.Materialize(), a); err != nil {
				t.Fatal(err)
			}
			if a.ModelName != "fraud" || a.ModelVersion != "3" || a.Id != "a7" || !a.Parameters["gateway_degraded"].GetBoolParam() {
				t.Errorf("%s, %s: %v", name, p, a)
			}
			var got []string
			for i, o := range a.Outputs {
				got = append(got, fmt.Sprintf("%s %s %v %x", o.Name, o.Datatype, o.Shape, a.RawOutputContents[i]))
			}
			if !slices.Equal(got, tt.want) || len(a.RawOutputContents) != len(a.Outputs) {
				t.Errorf("%s, %s: %q", name, p, got)
			}
		}
	}
}

func TestWhatNoScoreCanBeIsNoAnswer(t *testing.T) {
	text := func(s string) *tritonpb.InferParameter {
		return &tritonpb.InferParameter{ParameterChoice: &tritonpb.InferParameter_StringParam{StringParam: s}}
	}
	huge := fraudTensors()
	huge.Outputs[1].Shape = []int64{-1, 1 << 40}
	odd := fraudTensors()
	odd.Outputs[2].Datatype = "COMPLEX"
	deep := fraudTensors()
	deep.Outputs[1].Shape = make([]int64, 33)
	for name, tt := range map[string]struct {
		c       *inference.Call
		tensors inference.Tensors
	}{
		"in shared memory": {inferCall(t, inference.KServe, 1, &tritonpb.ModelInferRequest_InferRequestedOutputTensor{
			Name: "SCORE", Parameters: map[string]*tritonpb.InferParameter{"shared_memory_region": text("r")},
		}), fraudTensors()},
		"as classes": {inferCall(t, inference.KServe, 1, &tritonpb.ModelInferRequest_InferRequestedOutputTensor{
			Name: "SCORE", Parameters: map[string]*tritonpb.InferParameter{"classification": text("3")},
		}), fraudTensors()},
		"more rows than fit":       {inferCall(t, inference.KServe, 1<<62), fraudTensors()},
		"an output beyond bounds":  {inferCall(t, inference.KServe, 1), huge},
		"Predict, the same":        {predictCall(t, 8), huge},
		"an unknown datatype":      {inferCall(t, inference.KServe, 1), odd},
		"more dimensions than fit": {inferCall(t, inference.KServe, 1), deep},
	} {
		if _, _, err := DegradedAnswer(tt.c, tt.tensors, 0.5); fault.Of(err).Kind != fault.Internal {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnotherTargetsAnswerIsMarkedInEveryProtocol(t *testing.T) {
	for _, p := range inference.Protocols() {
		var m, marked proto.Message
		switch {
		case p.SpeaksPredict():
			m, marked = &predictpb.PredictionResponse{Status: "OK", Confidence: 0.25}, &predictpb.PredictionResponse{}
		case p == inference.KServeStream:
			m, marked = &tritonpb.ModelStreamInferResponse{InferResponse: &tritonpb.ModelInferResponse{Id: "a7"}}, &tritonpb.ModelStreamInferResponse{}
		default:
			m, marked = &tritonpb.ModelInferResponse{Id: "a7"}, &tritonpb.ModelInferResponse{}
		}
		f := framed(t, m)
		MarkDegraded(&f, p)
		if err := proto.Unmarshal(f.Buf.Materialize(), marked); err != nil {
			t.Fatal(err)
		}
		switch a := marked.(type) {
		case *predictpb.PredictionResponse:
			if a.Status != "DEGRADED" || a.Confidence != 0.25 {
				t.Errorf("%s: %v", p, a)
			}
		case *tritonpb.ModelStreamInferResponse:
			if a.InferResponse.Id != "a7" || !a.InferResponse.Parameters["gateway_degraded"].GetBoolParam() {
				t.Errorf("%s: %v", p, a)
			}
		case *tritonpb.ModelInferResponse:
			if a.Id != "a7" || !a.Parameters["gateway_degraded"].GetBoolParam() {
				t.Errorf("%s: %v", p, a)
			}
		}
	}
}

func FuzzDegradedInfer(f *testing.F) {
	f.Add([]byte("\x0a\x05fraud\x32\x07\x0a\x05SCORE"), int64(2))
	f.Add([]byte("\x32\x02\x12\x00"), int64(-1))
	f.Fuzz(func(t *testing.T, request []byte, rows int64) {
		c := &inference.Call{Protocol: inference.KServe, Request: inference.NewFrame(request)}
		c.Head.Rows = rows
		a, _, err := DegradedAnswer(c, fraudTensors(), 0.5)
		if err != nil {
			return
		}
		if err := proto.Unmarshal(a.Buf.Materialize(), &tritonpb.ModelInferResponse{}); err != nil {
			t.Fatal(err)
		}
	})
}
