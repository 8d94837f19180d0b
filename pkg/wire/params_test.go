package wire

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

func TestParametersAreReadAsTheirTypesSay(t *testing.T) {
	b := encode(t, &tritonpb.ModelInferRequest{
		ModelName: "fraud",
		Parameters: map[string]*tritonpb.InferParameter{
			"priority": intOf(-3), "debug": boolOf(true), "region": textOf("eu"), "none": {},
			"score": {ParameterChoice: &tritonpb.InferParameter_DoubleParam{DoubleParam: 0.25}},
			"big":   {ParameterChoice: &tritonpb.InferParameter_Uint64Param{Uint64Param: 1 << 63}},
			"small": {ParameterChoice: &tritonpb.InferParameter_Uint64Param{Uint64Param: 7}},
			"long":  textOf(strings.Repeat("x", MaxPeekedText+1)), strings.Repeat("k", maxPeekedKey+1): intOf(1),
		},
		RawInputContents: [][]byte{make([]byte, 64)},
	})
	b = appendParam(b, "region", stringParam, 0, "us") // the last one wins
	l := newLedger(t)
	frame := l.frame(b, 1, 2, 3, 5, 7)
	defer frame.Free()
	got, err := PeekParams(frame)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"priority": int64(-3), "debug": true, "region": "us", "score": 0.25, "big": float64(1 << 63), "small": int64(7),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got, err := PeekParams(inference.NewFrame(encode(t, &tritonpb.ModelInferRequest{ModelName: "m"}))); got != nil || err != nil {
		t.Errorf("without parameters: %v, %v", got, err)
	}
}

func TestParametersBeyondTheBoundAreLeftOut(t *testing.T) {
	var b []byte
	for i := range maxParameters * 2 {
		b = appendParam(b, fmt.Sprint("k", i), int64Param, uint64(i), "")
	}
	got, err := PeekParams(inference.NewFrame(b))
	if err != nil || len(got) != MaxPeekedParams || got["k63"] != int64(63) {
		t.Errorf("%d parameters, %v", len(got), err)
	}
}

func FuzzPeekParams(f *testing.F) {
	f.Add(encode(f, &tritonpb.ModelInferRequest{Parameters: map[string]*tritonpb.InferParameter{"a": intOf(7), "b": boolOf(true), "c": textOf("x")}}), []byte{3, 0, 1})
	f.Add(appendParam(appendParam(nil, "a", uint64Param, 1<<63, ""), "a", doubleParam, math.Float64bits(1.5), ""), []byte{1})
	f.Add([]byte{0x22, 4, 0x0a, 0, 0x12, 0, 0x22, 2, 0x12, 0}, []byte{2})
	f.Fuzz(func(t *testing.T, b, cuts []byte) {
		got, err := PeekParams(inference.NewFrame(b))
		l := newLedger(t)
		cut := l.frame(b, sizesOf(cuts)...)
		again, errCut := PeekParams(cut)
		cut.Free()
		if !sameError(err, errCut) || !cmp.Equal(got, again, cmpopts.EquateNaNs()) {
			t.Fatalf("in one piece %v, %v; in several %v, %v", got, err, again, errCut)
		}
		if len(got) > MaxPeekedParams {
			t.Fatalf("%d parameters", len(got))
		}
		kept, ok := only(b, 4)
		var m tritonpb.ModelInferRequest
		if err != nil || !ok || proto.Unmarshal(kept, &m) != nil || len(m.Parameters) > MaxPeekedParams {
			return
		}
		for name, value := range got {
			var theirs any
			switch p := m.Parameters[name].GetParameterChoice().(type) {
			case *tritonpb.InferParameter_BoolParam:
				theirs = p.BoolParam
			case *tritonpb.InferParameter_Int64Param:
				theirs = p.Int64Param
			case *tritonpb.InferParameter_DoubleParam:
				theirs = p.DoubleParam
			case *tritonpb.InferParameter_StringParam:
				theirs = p.StringParam
			case *tritonpb.InferParameter_Uint64Param:
				if theirs = int64(p.Uint64Param); p.Uint64Param > math.MaxInt64 {
					theirs = float64(p.Uint64Param)
				}
			}
			if !cmp.Equal(value, theirs, cmpopts.EquateNaNs()) {
				t.Fatalf("%q is %v, protobuf says %v", name, value, theirs)
			}
		}
	})
}
