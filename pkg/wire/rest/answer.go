package rest

import (
	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

const answerRawField = 6 // ModelInferResponse.raw_output_contents

// Answer renders a ModelInferResponse as the body of an HTTP answer. headLen is the length of the JSON in front of
// raw tensors, the value of Inference-Header-Content-Length, or -1 when the whole body is JSON.
//
// In JSON, NaN and the infinities are the bare tokens NaN, Infinity and -Infinity, 64-bit integers are unquoted
// digits, floating-point numbers read back equal, and FP16 and BF16, which every float32 holds exactly, are printed
// as the float32 they are. BYTES that are not UTF-8 cannot be JSON: a fault says to ask for binary_data.
//
// body is new memory; f stays the caller's. The error is a *fault.Fault.
func Answer(f inference.Frame, w Wanted) (body []byte, headLen int, err error) {
	msg, raw, err := openAnswer(f)
	if err != nil {
		return nil, 0, err
	}
	if raw, err = alignRaw(msg, raw, w); err != nil {
		return nil, 0, err
	}
	b := append(make([]byte, 0, f.Len()+512), '{')
	if msg.Id != "" {
		b = appendText(append(b, `"id":`...), msg.Id)
		b = append(b, ',')
	}
	b = appendText(append(b, `"model_name":`...), msg.ModelName)
	b = appendText(append(b, `,"model_version":`...), msg.ModelVersion)
	if len(msg.Parameters) > 0 {
		b = appendParameters(append(b, `,"parameters":`...), msg.Parameters, -1)
	}
	b = append(b, `,"outputs":[`...)
	var tail [][]byte
	for i, out := range msg.Outputs {
		if i > 0 {
			b = append(b, ',')
		}
		var binary bool
		if b, binary, err = appendOutput(b, out, raw[i], w); err != nil {
			return nil, 0, err
		}
		if binary {
			tail = append(tail, raw[i])
		}
	}
	b = append(b, "]}"...)
	if tail == nil {
		return b, -1, nil
	}
	headLen = len(b)
	for _, t := range tail {
		b = append(b, t...)
	}
	return b, headLen, nil
}

// openAnswer decodes all of the message but raw_output_contents, which it gives as slices.
func openAnswer(f inference.Frame) (*tritonpb.ModelInferResponse, [][]byte, error) {
	var all []byte
	if len(f.Buf) == 1 {
		all = f.Buf[0].ReadOnlyData()
	} else {
		all = f.Buf.Materialize()
	}
	var rest []byte
	var raw [][]byte
	for b := all; len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, nil, malformedAnswer(protowire.ParseError(n))
		}
		if num == answerRawField && typ == protowire.BytesType {
			v, m := protowire.ConsumeBytes(b[n:])
			if m < 0 {
				return nil, nil, malformedAnswer(protowire.ParseError(m))
			}
			raw, b = append(raw, v), b[n+m:]
			continue
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			return nil, nil, malformedAnswer(protowire.ParseError(m))
		}
		rest, b = append(rest, b[:n+m]...), b[n+m:]
	}
	msg := &tritonpb.ModelInferResponse{}
	if err := proto.Unmarshal(rest, msg); err != nil {
		return nil, nil, malformedAnswer(err)
	}
	return msg, raw, nil
}

func malformedAnswer(err error) error {
	return fault.Wrap(fault.UpstreamFailed, err, "the model server's answer is not a valid ModelInferResponse")
}

func brokenOutput(out *tritonpb.ModelInferResponse_InferOutputTensor, format string, args ...any) error {
	f := fault.New(fault.UpstreamFailed, format, args...)
	f.Msg = "the model server's answer is broken: output \"" + snippet([]byte(out.Name)) + "\" " + f.Msg
	return f
}

// shared reports whether an output has been left in shared memory. The answer of a server need not say so.
func (w Wanted) shared(out *tritonpb.ModelInferResponse_InferOutputTensor) bool {
	_, ok := out.Parameters[region]
	return ok || w.Shared[out.Name]
}

// alignRaw gives each output its raw bytes: the entry of the same place, or, where outputs in shared memory or with
// typed contents take none, the next one. Typed contents are made raw.
func alignRaw(msg *tritonpb.ModelInferResponse, raw [][]byte, w Wanted) ([][]byte, error) {
	aligned := make([][]byte, len(msg.Outputs))
	everyOne, next := len(raw) == len(msg.Outputs), 0
	for i, out := range msg.Outputs {
		switch {
		case everyOne && out.Contents == nil:
			aligned[i] = raw[i]
			next++
		case w.shared(out):
			next += b2i(everyOne)
		case out.Contents != nil:
			var err error
			if aligned[i], err = packContents(out); err != nil {
				return nil, err
			}
			next += b2i(everyOne)
		case next < len(raw):
			aligned[i] = raw[next]
			next++
		default:
			return nil, brokenOutput(out, "has no contents")
		}
	}
	if next != len(raw) {
		return nil, fault.New(fault.UpstreamFailed, "the model server's answer is broken: %d raw tensors for %d outputs", len(raw), len(msg.Outputs))
	}
	return aligned, nil
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// appendOutput renders one output, and reports whether its bytes go behind the JSON.
func appendOutput(b []byte, out *tritonpb.ModelInferResponse_InferOutputTensor, raw []byte, w Wanted) ([]byte, bool, error) {
	b = appendText(append(b, `{"name":`...), out.Name)
	b = appendText(append(b, `,"datatype":`...), out.Datatype)
	b = append(append(b, `,"shape":`...), shapeText(out.Shape)...)
	if w.shared(out) {
		if len(out.Parameters) > 0 {
			b = appendParameters(append(b, `,"parameters":`...), out.Parameters, -1)
		}
		return append(b, '}'), false, nil
	}
	dt, ok := datatypes[out.Datatype]
	if !ok {
		return nil, false, brokenOutput(out, "has the unknown datatype %q", out.Datatype)
	}
	n, ok := elements(out.Shape)
	if !ok || (dt.size > 0 && (n > int64(len(raw)) || n*int64(dt.size) != int64(len(raw)))) {
		return nil, false, brokenOutput(out, "of %s and shape %s has %d bytes", dt.name, shapeText(out.Shape), len(raw))
	}
	if dt.size == 0 {
		if got, ok := countBytes(raw); !ok || got != n {
			return nil, false, brokenOutput(out, "of shape %s does not hold so many BYTES elements", shapeText(out.Shape))
		}
	}
	if w.binary(out.Name) {
		b = appendParameters(append(b, `,"parameters":`...), out.Parameters, len(raw))
		return append(b, '}'), true, nil
	}
	if len(out.Parameters) > 0 {
		b = appendParameters(append(b, `,"parameters":`...), out.Parameters, -1)
	}
	b, err := appendData(append(b, `,"data":[`...), out.Name, dt, raw)
	return append(b, "]}"...), false, err
}

// appendText quotes s; what is not UTF-8 in a name becomes U+FFFD, since JSON has nothing else for it.
func appendText(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}
