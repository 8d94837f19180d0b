package httpfront

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/wire"
	predictpb "github.com/model-gateway/model-gateway/proto/ml/inference"
)

// predict answers POST /v1/predict: a PredictionRequest by the rules of protobuf's JSON (both input_tensor and
// inputTensor, bytes as base64), unknown fields refused by name.
func (x *exchange) predict() error {
	c := x.newCall(inference.Infer, inference.HTTPPredict)
	ctx, cancel, err := x.headers()
	defer cancel()
	if err != nil {
		return x.refuse(ctx, err)
	}
	x.read = func() error { return x.readPredict(c) }
	c.Source = x
	if err := x.front.Pipeline.Do(ctx, c); err != nil {
		return err
	}
	body, err := predictAnswer(c)
	if err != nil {
		return err
	}
	x.write(http.StatusOK, jsonType, body, true)
	return nil
}

func (x *exchange) readPredict(c *inference.Call) error {
	body, err := x.body()
	if err != nil {
		return err
	}
	c.Start = time.Now()
	msg := &predictpb.PredictionRequest{}
	if err := protojson.Unmarshal(body, msg); err != nil {
		return fault.Wrap(fault.InvalidArgument, err, "the body is not a PredictionRequest as JSON: %s; its fields are model_name, model_version, input_tensor (base64) and metadata", protoError(err))
	}
	if c.Request, err = predictFrame(msg); err != nil {
		return err
	}
	c.Head, err = wire.PeekPredict(c.Request)
	return err
}

// predictFrame makes the message, with the tensor in a buffer of its own so that it is not copied once more.
func predictFrame(msg *predictpb.PredictionRequest) (inference.Frame, error) {
	const tensorField = 3
	tensor := msg.InputTensor
	msg.InputTensor = nil
	b, err := proto.Marshal(msg)
	if err != nil {
		return inference.Frame{}, fault.Wrap(fault.InvalidArgument, err, "the request cannot be sent on: %s", protoError(err))
	}
	if len(tensor) == 0 {
		return inference.NewFrame(b), nil
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, tensorField, protowire.BytesType), uint64(len(tensor)))
	f := inference.NewFrame(b)
	f.Append(tensor)
	return f, nil
}

// protoError is the text of an error of protobuf's JSON, which has no-break spaces at random so that nobody compares it.
func protoError(err error) string {
	text := strings.ReplaceAll(err.Error(), "\u00a0", " ")
	return strings.TrimSpace(strings.TrimPrefix(text, "proto:"))
}

// predictAnswer renders a PredictionResponse: all fields under their names in the proto, output_tensor as base64,
// latency_ms as a number (protobuf's JSON would quote it, being 64 bits wide), confidence as a number or "NaN",
// "Infinity", "-Infinity". A score that a fallback gave is there once more, as fallback_score.
func predictAnswer(c *inference.Call) ([]byte, error) {
	msg := &predictpb.PredictionResponse{}
	if err := proto.Unmarshal(c.Answer.Buf.Materialize(), msg); err != nil {
		return nil, fault.Wrap(fault.Internal, err, "internal error of the gateway: the answer cannot be read")
	}
	b := make([]byte, 0, base64.StdEncoding.EncodedLen(len(msg.OutputTensor))+128)
	b = append(b, `{"output_tensor":"`...)
	b = base64.StdEncoding.AppendEncode(b, msg.OutputTensor)
	b = append(b, `","confidence":`...)
	b = appendNumber(b, float64(msg.Confidence), 32)
	b, _ = jsontext.AppendQuote(append(b, `,"status":`...), msg.Status)
	b = strconv.AppendInt(append(b, `,"latency_ms":`...), msg.LatencyMs, 10)
	if c.Degraded != nil && c.Degraded.Target == nil {
		b = appendNumber(append(b, `,"fallback_score":`...), c.Degraded.Score, 64)
	}
	return append(b, '}'), nil
}
