package wire

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// drawStreamAnswer draws the bytes of a ModelStreamInferResponse, parts of which may occur several times.
func drawStreamAnswer(t *rapid.T) []byte {
	var b []byte
	for range rapid.IntRange(1, 3).Draw(t, "parts") {
		r := &tritonpb.ModelStreamInferResponse{ErrorMessage: rapid.StringN(0, 10, 30).Draw(t, "error")}
		if rapid.Bool().Draw(t, "with a response") {
			r.InferResponse = &tritonpb.ModelInferResponse{
				ModelName:    rapid.StringN(0, 10, 30).Draw(t, "model"),
				ModelVersion: rapid.StringMatching(`[0-9]{0,3}`).Draw(t, "version"),
				Id:           rapid.StringN(0, 10, 30).Draw(t, "id"),
				Parameters:   drawParams(t),
			}
			for range rapid.IntRange(0, 2).Draw(t, "outputs") {
				r.InferResponse.Outputs = append(r.InferResponse.Outputs, &tritonpb.ModelInferResponse_InferOutputTensor{Name: "OUT"})
				r.InferResponse.RawOutputContents = append(r.InferResponse.RawOutputContents, rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "raw"))
			}
		}
		m, err := proto.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, m...)
	}
	return b
}

// streamAnswerOf is what PeekStreamAnswer must find, read from the decoded message.
func streamAnswerOf(r *tritonpb.ModelStreamInferResponse) StreamAnswer {
	in := r.GetInferResponse()
	return StreamAnswer{
		ID: in.GetId(), Model: in.GetModelName(), Version: in.GetModelVersion(), Error: r.GetErrorMessage(),
		Final:   in.GetParameters()["triton_final_response"].GetBoolParam(),
		Empty:   len(in.GetOutputs()) == 0 && r.GetErrorMessage() == "",
		Outputs: len(in.GetOutputs()), RawOutputs: len(in.GetRawOutputContents()),
	}
}

func TestStreamAnswersArePeekedAsProtobufDecodesThem(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := drawStreamAnswer(rt)
		var r tritonpb.ModelStreamInferResponse
		if err := proto.Unmarshal(b, &r); err != nil {
			rt.Fatal(err)
		}
		l := newLedger(t)
		f := l.frame(b, sizesOf(drawCuts.Draw(rt, "cuts"))...)
		got, err := PeekStreamAnswer(f)
		if want := streamAnswerOf(&r); err != nil || got != want {
			rt.Fatalf("peeked %+v, %v, want %+v", got, err, want)
		}
		if r.InferResponse == nil {
			r.InferResponse = &tritonpb.ModelInferResponse{}
		}
		id, model := rapid.SampledFrom([]string{"", "mine"}).Draw(rt, "new id"), rapid.SampledFrom([]string{"", "asked"}).Draw(rt, "new model")
		f.Append(AppendStreamAnswer(nil, id, model))
		r.InferResponse.Id = id
		if model != "" {
			r.InferResponse.ModelName = model
		}
		if got := decode(t, f, &tritonpb.ModelStreamInferResponse{}); !proto.Equal(got, &r) {
			rt.Fatalf("after the append: %v, want %v", got, &r)
		}
		if err := UnwrapStreamAnswer(&f); err != nil {
			rt.Fatal(err)
		}
		if got := decode(t, f, &tritonpb.ModelInferResponse{}); !proto.Equal(got, r.InferResponse) {
			rt.Fatalf("unwrapped %v, want %v", got, r.InferResponse)
		}
		f.Free()
		l.settled()
	})
}

func TestAStreamErrorCarriesItsID(t *testing.T) {
	f := StreamError("42", "fraud", "no\xffgood")
	r := decode(t, f, &tritonpb.ModelStreamInferResponse{})
	if r.GetErrorMessage() != "no\uFFFDgood" || r.GetInferResponse().GetId() != "42" || r.GetInferResponse().GetModelName() != "fraud" {
		t.Fatal(r)
	}
	a, err := PeekStreamAnswer(f)
	if err != nil || a.ID != "42" || a.Empty || a.Error == "" {
		t.Fatalf("%+v, %v", a, err)
	}
}

func TestALongErrorTextIsCut(t *testing.T) {
	b := encode(t, &tritonpb.ModelStreamInferResponse{ErrorMessage: strings.Repeat("é", maxErrorText), InferResponse: &tritonpb.ModelInferResponse{Id: "7"}})
	a, err := PeekStreamAnswer(newLedger(t).frame(b, 1001))
	if err != nil || len(a.Error) < maxErrorText || len(a.Error) > maxErrorText+3 || a.ID != "7" {
		t.Fatal(len(a.Error), a.ID, err)
	}
}

func TestAMalformedStreamAnswerIsTheUpstreamsFault(t *testing.T) {
	in := func(b ...byte) []byte { return protowire.AppendBytes([]byte{0x12}, b) }
	for name, b := range map[string][]byte{
		"cut":                  {0x12, 5, 1},
		"error as a number":    {0x08, 1},
		"response as a number": {0x10, 1},
		"id not UTF-8":         in(0x1a, 1, 0xff),
		"outputs as a number":  in(0x28, 1),
		"raw as a number":      in(0x30, 1),
		"parameter as number":  in(0x20, 1),
		"inner cut":            in(0x1a, 9, 'a'),
		"too many parameters":  in(bytes.Repeat(appendParam(nil, "k", boolParam, 1, ""), maxParameters+1)...),
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(t)
			f := l.frame(b, max(1, len(b)/1000))
			_, err := PeekStreamAnswer(f)
			if got := wantKind(t, err, fault.UpstreamFailed); !got.Upstream {
				t.Fatalf("%v is not marked as the upstream's", got)
			}
			_ = UnwrapStreamAnswer(&f) // may well succeed: it does not look inside
			f.Free()
			l.settled()
		})
	}
}

func TestUnwrappingAMalformedAnswerLeavesIt(t *testing.T) {
	b := append(protowire.AppendBytes([]byte{0x12}, []byte{0x1a, 1, 'x'}), 0x12, 9)
	l := newLedger(t)
	f := l.frame(b, 2)
	wantKind(t, UnwrapStreamAnswer(&f), fault.UpstreamFailed)
	if !bytes.Equal(f.Buf.Materialize(), b) {
		t.Fatal("the frame has changed")
	}
	f.Free()
	l.settled()
}

func TestAnAnswerWithoutAResponseUnwrapsToNothing(t *testing.T) {
	l := newLedger(t)
	f := l.frame(encode(t, &tritonpb.ModelStreamInferResponse{ErrorMessage: "no"}), 2)
	if err := UnwrapStreamAnswer(&f); err != nil || f.Len() != 0 {
		t.Fatal(f.Len(), err)
	}
	l.settled()
	f.Free()
	if err := UnwrapStreamAnswer(&inference.Frame{}); err != nil {
		t.Fatal(err)
	}
}
