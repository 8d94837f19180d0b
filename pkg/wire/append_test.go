package wire

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/model-gateway/model-gateway/pkg/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

func TestAppendedFieldsOverrideAndLeaveTheRest(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := drawRequest(rt)
		var want tritonpb.ModelInferRequest
		if err := proto.Unmarshal(b, &want); err != nil {
			rt.Fatal(err)
		}
		l := newLedger(t)
		f := l.frame(b, sizesOf(drawCuts.Draw(rt, "cuts"))...)
		model, version := rapid.StringN(0, 20, 60).Draw(rt, "new model"), rapid.StringMatching(`[0-9]{0,3}`).Draw(rt, "new version")
		f.Append(AppendTarget(nil, model, version))
		if model != "" {
			want.ModelName = model
		}
		if version != "" {
			want.ModelVersion = version
		}
		if rapid.Bool().Draw(rt, "with id") {
			want.Id = rapid.StringN(0, 20, 60).Draw(rt, "new id")
			f.Append(AppendID(nil, want.Id))
		}
		if rapid.Bool().Draw(rt, "with empty final") {
			f.Append(AppendEmptyFinal(nil))
			if want.Parameters == nil {
				want.Parameters = map[string]*tritonpb.InferParameter{}
			}
			want.Parameters["triton_enable_empty_final_response"] = boolOf(true)
		}
		if rapid.Bool().Draw(rt, "with priority") {
			level := rapid.Uint64Range(1, 300).Draw(rt, "priority")
			f.Append(AppendPriority(nil, level))
			if want.Parameters == nil {
				want.Parameters = map[string]*tritonpb.InferParameter{}
			}
			want.Parameters["priority"] = &tritonpb.InferParameter{ParameterChoice: &tritonpb.InferParameter_Int64Param{Int64Param: int64(level)}}
		}
		if got := decode(t, f, &tritonpb.ModelInferRequest{}); !proto.Equal(got, &want) {
			rt.Fatalf("got %v, want %v", got, &want)
		}
		if h, err := PeekInfer(f); err != nil || !sameHead(h, headOf(&want)) {
			rt.Fatalf("peeked %+v, %v", h, err)
		}
		f.Free()
		l.settled()
	})
}

func TestOneListOfFieldsIsOneAllocation(t *testing.T) {
	for name, fields := range map[string]func() []byte{
		"target":       func() []byte { return AppendTarget(nil, "a model with a long name", "17") },
		"id":           func() []byte { return AppendID(nil, "0123456789abcdef0123456789abcdef") },
		"empty final":  func() []byte { return AppendEmptyFinal(nil) },
		"priority":     func() []byte { return AppendPriority(nil, 300) },
		"answer model": func() []byte { return AppendAnswerModel(nil, "a model with a long name") },
		"answer id":    func() []byte { return AppendAnswerID(nil, "an id") },
		"stream":       func() []byte { return AppendStreamAnswer(nil, "an id", "a model with a long name") },
	} {
		t.Run(name, func(t *testing.T) {
			if n := testing.AllocsPerRun(100, func() { _ = fields() }); n > 1 {
				t.Fatalf("%v allocations", n)
			}
		})
	}
	b := make([]byte, 0, 256)
	if n := testing.AllocsPerRun(100, func() { _ = AppendEmptyFinal(AppendID(AppendTarget(b, "m", "1"), "x")) }); n > 0 {
		t.Fatalf("%v allocations with room to append to", n)
	}
}

func TestAppendingKeepsWhatWasThere(t *testing.T) {
	for _, spare := range []int{0, 3, 500} {
		b := append(make([]byte, 0, 2+spare), 0x48, 7) // an unknown field
		b = AppendStreamAnswer(AppendEmptyFinal(AppendID(AppendTarget(b, "m", "1"), "x")), "", "")
		if b[0] != 0x48 || b[1] != 7 {
			t.Fatalf("with %d spare bytes: % x", spare, b)
		}
	}
}

func TestAnAnswerCarriesTheNameThatWasAsked(t *testing.T) {
	answer := &tritonpb.ModelInferResponse{ModelName: "fraud_v2", ModelVersion: "3", Id: "ours", RawOutputContents: [][]byte{{1, 2}}}
	f := inference.NewFrame(encode(t, answer))
	f.Append(AppendAnswerModel(nil, "fraud"))
	f.Append(AppendAnswerID(nil, ""))
	answer.ModelName, answer.Id = "fraud", ""
	if got := decode(t, f, &tritonpb.ModelInferResponse{}); !proto.Equal(got, answer) {
		t.Fatalf("got %v", got)
	}
}
