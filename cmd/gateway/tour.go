package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// tour plays what a newcomer would try against the gateway at address, and prints what happens. It fails when
// anything turns out other than it says.
func tour(ctx context.Context, w io.Writer, address string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	t := &guide{ctx: ctx, w: w, address: address, conn: conn}
	for i, step := range []struct {
		title string
		play  func() error
	}{
		{"A prediction: sixteen numbers in, a score out", t.predict},
		{"The same over HTTP and JSON", t.predictHTTP},
		{"A stream: three requests on one connection, the second for a model that is not there", t.stream},
		{"A decoupled model: one request, several answers", t.decoupled},
		{"KServe v2, as tritonclient speaks it; the answer says which version it came from", t.kserve},
		{"An error: a tensor that does not fit", t.mistake},
		{"What the gateway measured", t.measured},
	} {
		fmt.Fprintf(w, "%d. %s\n", i+1, step.title)
		if err := step.play(); err != nil {
			return fmt.Errorf("tour, step %d: %w", i+1, err)
		}
		fmt.Fprintln(w)
	}
	return nil
}

type guide struct {
	ctx     context.Context
	w       io.Writer
	address string
	conn    *grpc.ClientConn
}

func (t *guide) say(format string, args ...any) { fmt.Fprintf(t.w, "   "+format+"\n", args...) }

func (t *guide) predict() error {
	var header metadata.MD
	r, err := inferencepb.NewInferenceServiceClient(t.conn).Predict(t.ctx, &inferencepb.PredictionRequest{
		ModelName: "fraud", InputTensor: fp32(sampleRow()), Metadata: map[string]string{"user_id": "ann"},
	}, grpc.Header(&header))
	if err != nil {
		return err
	}
	t.say("Predict(fraud) → status %s, confidence %.4f, %d ms, output_tensor %s", r.Status, r.Confidence, r.LatencyMs, floats(r.OutputTensor))
	t.say("served by %s, request id %s", strings.Join(header["x-gateway-target"], ""), strings.Join(header["x-request-id"], ""))
	return nil
}

func (t *guide) predictHTTP() error {
	body, err := json.Marshal(map[string]any{"model_name": "fraud", "model_version": 2, "input_tensor": fp32(sampleRow())})
	if err != nil {
		return err
	}
	return t.post("/v1/predict", string(body))
}

func (t *guide) post(path, body string) error {
	req, err := http.NewRequestWithContext(t.ctx, http.MethodPost, "http://"+t.address+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return err
	}
	t.say("POST %s → %s %s", path, r.Status, strings.TrimSpace(string(text)))
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("POST %s: %s", path, r.Status)
	}
	return nil
}

func (t *guide) stream() error {
	s, err := inferencepb.NewInferenceServiceClient(t.conn).PredictStream(t.ctx)
	if err != nil {
		return err
	}
	for _, model := range []string{"fraud", "fraudd", "fraud"} {
		if err := s.Send(&inferencepb.PredictionRequest{ModelName: model, InputTensor: fp32(sampleRow())}); err != nil {
			return err
		}
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	for range 3 {
		r, err := s.Recv()
		if err != nil {
			return err
		}
		t.say("→ status %s, confidence %.4f", r.Status, r.Confidence)
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("the stream should have ended: %w", err)
	}
	return nil
}

func (t *guide) decoupled() error {
	s, err := inferencepb.NewInferenceServiceClient(t.conn).PredictStream(t.ctx)
	if err != nil {
		return err
	}
	if err := s.Send(&inferencepb.PredictionRequest{ModelName: "tokens", InputTensor: binary.LittleEndian.AppendUint32(nil, 3)}); err != nil {
		return err
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		t.say("→ status %s, output_tensor %q", r.Status, r.OutputTensor)
	}
}

func (t *guide) kserve() error {
	request := &tritonpb.ModelInferRequest{
		ModelName: "fraud", Id: "tour-1",
		Inputs:           []*tritonpb.ModelInferRequest_InferInputTensor{{Name: "INPUT", Datatype: "FP32", Shape: []int64{1, 16}}},
		RawInputContents: [][]byte{fp32(sampleRow())},
	}
	r, err := tritonpb.NewGRPCInferenceServiceClient(t.conn).ModelInfer(t.ctx, request)
	if err != nil {
		return err
	}
	t.say("ModelInfer(fraud) → id %s, version %s, %s %v = %s", r.Id, r.ModelVersion, r.Outputs[0].Name, r.Outputs[0].Shape, floats(r.RawOutputContents[0]))
	return t.post("/v2/models/fraud/infer", `{"inputs":[{"name":"INPUT","datatype":"FP32","shape":[1,16],"data":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}]}`)
}

func (t *guide) mistake() error {
	_, err := inferencepb.NewInferenceServiceClient(t.conn).Predict(t.ctx, &inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: make([]byte, 63)})
	if err == nil {
		return errors.New("63 bytes should have been refused")
	}
	t.say("Predict with 63 bytes → %s: %s", status.Code(err), status.Convert(err).Message())
	return nil
}

func (t *guide) measured() error {
	req, err := http.NewRequestWithContext(t.ctx, http.MethodGet, "http://"+t.address+"/metrics", nil)
	if err != nil {
		return err
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(r.Body, 4<<20))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "gateway_request_duration_seconds_count") {
			t.say("%s", strings.TrimSpace(line))
		}
	}
	return nil
}

// floats shows little-endian FP32 bytes as numbers.
func floats(b []byte) string {
	var s []string
	for ; len(b) >= 4; b = b[4:] {
		s = append(s, fmt.Sprintf("%.4f", math.Float32frombits(binary.LittleEndian.Uint32(b))))
	}
	return "[" + strings.Join(s, " ") + "]"
}
