package wire

import (
	"bytes"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
)

func TestWhatIsPeekedOfAPredictionIsWhatProtobufDecodes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var b []byte
		for range rapid.IntRange(1, 3).Draw(rt, "parts") {
			r := &inferencepb.PredictionRequest{
				ModelName:    rapid.StringN(0, 20, 60).Draw(rt, "model"),
				ModelVersion: rapid.Int32Min(0).Draw(rt, "version"),
				InputTensor:  rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(rt, "tensor"),
				Metadata:     rapid.MapOfN(rapid.StringN(0, 20, 60), rapid.StringN(0, 20, 60), 0, 5).Draw(rt, "metadata"),
			}
			m, err := proto.Marshal(r)
			if err != nil {
				rt.Fatal(err)
			}
			b = append(b, m...)
		}
		l := newLedger(t)
		f := l.frame(b, sizesOf(drawCuts.Draw(rt, "cuts"))...)
		got, err := PeekPredict(f)
		if err != nil {
			rt.Fatal(err)
		}
		f.Free() // the head must not need the frame
		l.settled()
		checkPrediction(rt, b, got)
	})
}

// fataler is what testing and rapid have in common.
type fataler interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// checkPrediction fails unless h is the head of the PredictionRequest b.
func checkPrediction(t fataler, b []byte, h inference.Head) {
	var r inferencepb.PredictionRequest
	if err := proto.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	version := ""
	if r.GetModelVersion() != 0 {
		version = strconv.Itoa(int(r.GetModelVersion()))
	}
	if h.Model != r.GetModelName() || h.Version != version || !maps.Equal(h.Metadata, r.GetMetadata()) {
		t.Fatalf("peeked %+v of %v", h, &r)
	}
	if !bytes.Equal(b[h.TensorOff:h.TensorOff+h.TensorLen], r.GetInputTensor()) {
		t.Fatalf("the tensor is not at %d+%d of %v", h.TensorOff, h.TensorLen, &r)
	}
}

func TestPeekPredictReadsTheSequenceFromMetadata(t *testing.T) {
	for name, c := range map[string]struct {
		metadata map[string]string
		want     inference.Sequence
	}{
		"none":            {nil, inference.Sequence{}},
		"all":             {map[string]string{"sequence_id": "s-1", "sequence_start": "true", "sequence_end": "1"}, inference.Sequence{ID: "s-1", Start: true, End: true}},
		"false":           {map[string]string{"sequence_id": "8", "sequence_start": "false", "sequence_end": "0"}, inference.Sequence{ID: "8"}},
		"0 is no id":      {map[string]string{"sequence_id": "0"}, inference.Sequence{}},
		"an empty string": {map[string]string{"sequence_id": ""}, inference.Sequence{}},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := PeekPredict(inference.NewFrame(encode(t, &inferencepb.PredictionRequest{Metadata: c.metadata})))
			if err != nil || h.Sequence != c.want {
				t.Fatalf("got %+v, %v, want %+v", h.Sequence, err, c.want)
			}
		})
	}
}

func TestPeekPredictRefusesWhatIsMalformed(t *testing.T) {
	entry := func(key, value string) []byte {
		e := appendText(appendText(nil, 1, key), 2, value)
		return protowire.AppendBytes([]byte{0x22}, e)
	}
	var many []byte
	for i := range maxMetadata + 1 {
		many = append(many, entry(fmt.Sprint(i), "v")...)
	}
	minusOne := protowire.AppendVarint([]byte{0x10}, ^uint64(0))
	for name, c := range map[string]struct {
		b    []byte
		kind fault.Kind
		says string
	}{
		"negative version":         {minusOne, fault.BadVersion, "model_version is -1"},
		"version as text":          {appendText(nil, 2, "1"), fault.InvalidArgument, "model_version has wire type 2"},
		"model_name as a number":   {[]byte{0x08, 1}, fault.InvalidArgument, "model_name has wire type 0"},
		"input_tensor as a number": {[]byte{0x18, 1}, fault.InvalidArgument, "input_tensor has wire type 0"},
		"input_tensor cut":         {[]byte{0x1a, 4, 1, 2, 3}, fault.InvalidArgument, "middle of a field"},
		"metadata as a number":     {[]byte{0x20, 1}, fault.InvalidArgument, "metadata has wire type 0"},
		"key as a number":          {[]byte{0x22, 2, 0x08, 1}, fault.InvalidArgument, "a key of metadata has wire type 0"},
		"value not UTF-8":          {entry("k", "\xff"), fault.InvalidArgument, "a value of metadata is not valid UTF-8"},
		"key not UTF-8":            {entry("\xff", "v"), fault.InvalidArgument, "a key of metadata is not valid UTF-8"},
		"too many entries":         {many, fault.InvalidArgument, "metadata has more than 64 entries"},
		"too large an entry":       {entry("k", strings.Repeat("v", maxMetadataEntry)), fault.InvalidArgument, "an entry of metadata is"},
		"a group":                  {[]byte{9<<3 | 3}, fault.InvalidArgument, "group"},
		"sequence_start":           {entry("sequence_start", "maybe"), fault.InvalidArgument, `metadata["sequence_start"] is "maybe"; send true or false`},
		"sequence_end":             {entry("sequence_end", ""), fault.InvalidArgument, `metadata["sequence_end"] is ""; send true or false`},
		"sequence_id too long":     {entry("sequence_id", strings.Repeat("s", maxSequenceID+1)), fault.InvalidArgument, "longer than 1024 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{1 << 20, 1, 3} {
				l := newLedger(t)
				f := l.frame(c.b, size)
				_, err := PeekPredict(f)
				if got := wantKind(t, err, c.kind); !strings.Contains(got.Msg, c.says) {
					t.Fatalf("got %q, want it to say %q", got.Msg, c.says)
				}
				f.Free()
				l.settled()
			}
		})
	}
}

func TestAVersionIsTheLowHalfOfItsVarint(t *testing.T) {
	b := protowire.AppendVarint([]byte{0x10}, 1<<32|5)
	h, err := PeekPredict(inference.NewFrame(b))
	if err != nil {
		t.Fatal(err)
	}
	checkPrediction(t, b, h)
}
