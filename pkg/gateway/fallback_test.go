package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/calm"
	"github.com/model-gateway/model-gateway/pkg/internal/redistest"
	"github.com/model-gateway/model-gateway/pkg/sandbox"
	"github.com/model-gateway/model-gateway/pkg/stats"
	"github.com/model-gateway/model-gateway/pkg/upstream/triton"
	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// oneDown is a gateway with a model that has a fallback.
func oneDown(t *testing.T, triton, fallback string) *rig {
	t.Helper()
	return gatewayOf(t, fmt.Sprintf(`
version: 1
upstreams: {triton: {kind: triton, endpoints: "%s"}}
models:
  - name: fraud
    targets: {model_v1: {version: 1}, model_v2: {version: 2}}
    stable: model_v1
    split: [{when: {header: x-arm, is: "2"}, to: model_v2}]
    fallback: %s
`, triton, fallback), nil)
}

func setFault(t *testing.T, s *sandbox.Server, f sandbox.Fault) {
	t.Helper()
	if _, err := s.Faults.Set(f); err != nil {
		t.Fatal(err)
	}
}

// said is what a caller gets: "status tensor confidence" of a Predict, "degraded outputs" of KServe, or the code of an error.
func (r *rig) said(t *testing.T, way string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	row := inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: fraudRow()}
	predicted := func(a *inferencepb.PredictionResponse, err error) string {
		if err != nil {
			return status.Code(err).String()
		}
		return fmt.Sprintf("%s %x %v", a.Status, a.OutputTensor, a.Confidence)
	}
	inferred := func(a *tritonpb.ModelInferResponse, err error) string {
		if err != nil {
			return status.Code(err).String()
		}
		text := fmt.Sprint(a.Parameters["gateway_degraded"].GetBoolParam(), " ", a.ModelName)
		for i, o := range a.Outputs {
			text += fmt.Sprintf(" %s %s %v %x", o.Name, o.Datatype, o.Shape, a.RawOutputContents[i])
		}
		return text
	}
	switch way {
	case "Predict":
		return predicted(r.predict().Predict(ctx, &row))
	case "PredictStream":
		s, err := r.predict().PredictStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_ = s.Send(&row)
		return predicted(s.Recv())
	case "ModelInfer":
		return inferred(r.kserve().ModelInfer(ctx, fraudRequest()))
	case "ModelStreamInfer":
		s, err := r.kserve().ModelStreamInfer(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_ = s.Send(fraudRequest())
		a, err := s.Recv()
		if err == nil && a.ErrorMessage != "" {
			return "error_message"
		}
		return inferred(a.GetInferResponse(), err)
	}
	body := `{"model_name":"fraud","input_tensor":"` + base64.StdEncoding.EncodeToString(fraudRow()) + `"}`
	if way != "/v1/predict" {
		body = `{"inputs":[{"name":"INPUT","datatype":"FP32","shape":[1,16],"data":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}]}`
	}
	return r.post(t, way, body, nil)
}

// post gives the code and the body, without latency_ms.
func (r *rig) post(t *testing.T, path, body string, header *http.Header) string {
	t.Helper()
	a, err := http.Post("http://"+r.address+path, "application/json", bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Body.Close() }()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		*header = a.Header
	}
	if a.StatusCode != http.StatusOK {
		return fmt.Sprint(a.StatusCode)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	delete(fields, "latency_ms")
	text, _ = json.Marshal(fields)
	return fmt.Sprintf("%d %s", a.StatusCode, text)
}

const half = "0000003f"

// asHalves is how each way says that the score is a half.
func asHalves(v2 bool) map[string]string {
	said := map[string]string{
		"Predict": "DEGRADED " + half + " 0.5", "PredictStream": "DEGRADED " + half + " 0.5",
		"/v1/predict": `200 {"confidence":0.5,"fallback_score":0.5,"output_tensor":"AAAAPw==","status":"DEGRADED"}`,
		"ModelInfer":  "Unavailable", "ModelStreamInfer": "error_message", "/v2/models/fraud/infer": "503",
	}
	if v2 {
		said["ModelInfer"] = "true fraud SCORE FP32 [1 1] " + half
		said["ModelStreamInfer"] = said["ModelInfer"]
		said["/v2/models/fraud/infer"] = `200 {"model_name":"fraud","model_version":"1","outputs":[{"data":[0.5],"datatype":"FP32","name":"SCORE","shape":[1,1]}],"parameters":{"gateway_degraded":true}}`
	}
	return said
}

func TestWhenTritonStopsPredictAnswersAHalfByItself(t *testing.T) {
	server, triton := model(t)
	r := plain(t, triton)
	if said := r.said(t, "Predict"); !strings.HasPrefix(said, "OK ") {
		t.Fatalf("before: %s", said)
	}
	setFault(t, server, sandbox.Fault{Kind: sandbox.Down})
	for way, want := range asHalves(false) {
		if said := r.said(t, way); said != want {
			t.Errorf("%s: %s, want %s", way, said, want)
		}
	}
	if !r.gateway.Ready() {
		t.Error("the gateway is not ready")
	}
	for start, want := range map[string]string{
		`gateway_request_duration_seconds_count{code="degraded",grpc_code="OK",model="fraud",protocol="predict",target="model_v2",version="2"}`: "1",
		`gateway_request_duration_seconds_count{code="503",grpc_code="UNAVAILABLE",model="fraud",protocol="v2_grpc",`:                           "1",
		`gateway_request_errors_total{code="503",degraded="true"}`:                                                                              "3",
		`gateway_request_errors_total{code="503",degraded="false"}`:                                                                             "3",
	} {
		if got := r.series(t, start); got != want {
			t.Errorf("%s is %q, want %q", start, got, want)
		}
	}
	if got := r.series(t, `gateway_degraded_total{model="fraud"`); got == "" {
		t.Error("no degraded answer is counted by its reason")
	}
	for target := range r.gateway.stats.All {
		if n := target.Of(stats.W1m, stats.Live).Count(stats.Of(stats.OK)); n != 1 {
			t.Errorf("stats have %d answers of the model, which gave one", n)
		}
	}
	calm.Moment(t, func() error {
		begin := time.Now()
		for way := range asHalves(false) {
			r.said(t, way)
		}
		if took := time.Since(begin); took > 2*time.Second {
			return fmt.Errorf("answers of every way took %s", took)
		}
		return nil
	})
	server.Faults.Clear()
	r.awaitOK(t)
}

// awaitOK waits until Predict is answered by the model again.
func (r *rig) awaitOK(t *testing.T) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for said := ""; !strings.HasPrefix(said, "OK "); said = r.said(t, "Predict") {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("it still says %s", said)
		}
	}
}

func TestAGatewayThatStartsWithoutTritonAnswersAHalfForAnyName(t *testing.T) {
	address := fmt.Sprint("127.0.0.1:", redistest.Port(t)) // nobody is there
	r := begin(t, "", map[string]string{"TRITON_GRPC_HOST": address})
	for way, want := range asHalves(false) {
		if said := r.said(t, way); said != want {
			t.Errorf("%s: %s, want %s", way, said, want)
		}
	}
	var header http.Header
	for i := range 50 { // more names than an upstream would be asked for
		body := fmt.Sprintf(`{"model_name":"m%d","input_tensor":"AAAAAA=="}`, i)
		if said := r.post(t, "/v1/predict", body, &header); said != asHalves(false)["/v1/predict"] {
			t.Fatalf("name %d: %s", i, said)
		}
	}
	if header.Get("X-Gateway-Degraded") != "NO_ENDPOINT" || header.Get("X-Gateway-Target") != "" || header.Get("X-Request-Id") == "" {
		t.Errorf("headers %v", header)
	}
	if got := r.series(t, `gateway_request_duration_seconds_count{code="degraded",grpc_code="OK",model="unknown",protocol="predict_http",target="unknown",version="unknown"}`); got != "51" {
		t.Errorf("%s calls are counted for the unknown model", got)
	}
}

func TestARouteOfWhichNothingIsKnownIsAnsweredFor(t *testing.T) {
	address := fmt.Sprint("127.0.0.1:", redistest.Port(t))
	r := begin(t, fmt.Sprintf("version: 1\nupstreams: {triton: {endpoints: %q}}\nmodels: [{name: fraud, fallback: {score: 0.5, protocols: [predict, v2]}}]\n", address), nil)
	want := asHalves(true)
	want["ModelInfer"] = "true fraud score FP32 [1] " + half // one FP32, since nobody has said more
	want["ModelStreamInfer"] = want["ModelInfer"]
	want["/v2/models/fraud/infer"] = `200 {"model_name":"fraud","model_version":"","outputs":[{"data":[0.5],"datatype":"FP32","name":"score","shape":[1]}],"parameters":{"gateway_degraded":true}}`
	for way, want := range want {
		if said := r.said(t, way); said != want {
			t.Errorf("%s: %s, want %s", way, said, want)
		}
	}
	pinned, err := r.predict().Predict(t.Context(), &inferencepb.PredictionRequest{ModelName: "fraud", ModelVersion: 7, InputTensor: fraudRow()})
	if err != nil || pinned.Status != "DEGRADED" {
		t.Errorf("pinned: %v, %v", pinned, err)
	}
}

func TestKServeGetsTheTensorsOfTheModelWhereTheFallbackIsForIt(t *testing.T) {
	server, triton := model(t)
	r := oneDown(t, triton, "{score: 0.5, protocols: [predict, v2]}")
	r.awaitTensors(t)
	setFault(t, server, sandbox.Fault{Kind: sandbox.Down})
	for way, want := range asHalves(true) {
		if said := r.said(t, way); said != want {
			t.Errorf("%s: %s, want %s", way, said, want)
		}
	}
	rows := fraudRequest()
	rows.Inputs[0].Shape, rows.RawInputContents = []int64{3, 16}, [][]byte{make([]byte, 192)}
	a, err := r.kserve().ModelInfer(t.Context(), rows)
	if err != nil || hex.EncodeToString(a.RawOutputContents[0]) != half+half+half || fmt.Sprint(a.Outputs[0].Shape) != "[3 1]" {
		t.Errorf("three rows: %v, %v", a, err)
	}
	p, err := r.predict().Predict(t.Context(), &inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: make([]byte, 128)})
	if err != nil || hex.EncodeToString(p.OutputTensor) != half+half {
		t.Errorf("two rows: %v, %v", p, err)
	}
	if _, err := r.predict().Predict(t.Context(), &inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: make([]byte, 7)}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("bad input: %v", err)
	}
}

// awaitTensors waits until the tensors of fraud's stable target are known.
func (r *rig) awaitTensors(t *testing.T) {
	t.Helper()
	pool := r.gateway.catalog.Declared("fraud").Stable.Pool.(inference.Describer)
	eventually(t, "somebody says which tensors fraud has", func() bool { return len(pool.Tensors().Outputs) > 0 })
}

func TestASilentTritonIsAnsweredForWithinTheCallersDeadline(t *testing.T) {
	calm.Moment(t, func() error { return silentTriton(t) })
}

func silentTriton(t *testing.T) error {
	server, triton := model(t)
	r := oneDown(t, triton, "{score: 0.5, protocols: [predict, v2]}")
	defer func() { _ = r.stop() }()
	r.said(t, "Predict")
	setFault(t, server, sandbox.Fault{Kind: sandbox.Hang})
	late, end := context.WithTimeout(t.Context(), 2*time.Second) // the twentieth part is ours, to answer in
	defer end()
	var header metadata.MD
	a, err := r.predict().Predict(late, &inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: fraudRow()}, grpc.Header(&header))
	if err != nil {
		if status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("it is answered with %v", err)
		}
		return err
	}
	if a.Status != "DEGRADED" || a.LatencyMs < 1800 || header.Get("x-gateway-degraded")[0] != "DEADLINE" {
		t.Errorf("%v, headers %v", a, header)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := r.predict().Predict(ctx, &inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: fraudRow()}); status.Code(err) != codes.Canceled {
		t.Errorf("cancelled: %v", err)
	}
	r.awaitSeries(t, `gateway_request_errors_total{code="499",degraded="false"}`, "1")
	if got := r.series(t, `gateway_degraded_total{model="fraud",reason="DEADLINE",target="model_v1"}`); got != "1" {
		t.Errorf("%s degraded answers", got)
	}
	return nil
}

func TestAnotherVersionAnswersInEveryProtocolAndSaysSo(t *testing.T) {
	server, triton := model(t)
	r := oneDown(t, triton, "{to: model_v1, else: {score: 0.25}, protocols: [predict, v2]}")
	arm := metadata.AppendToOutgoingContext(t.Context(), "x-arm", "2")
	before, err := r.predict().Predict(t.Context(), &inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: fraudRow()})
	if err != nil || before.Status != "OK" {
		t.Fatal(before, err)
	}
	setFault(t, server, sandbox.Fault{Kind: sandbox.NotReady, Model: "fraud", Version: "2"})
	var header metadata.MD
	a, err := r.predict().Predict(arm, &inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: fraudRow()}, grpc.Header(&header))
	if err != nil || a.Status != "DEGRADED" || !bytes.Equal(a.OutputTensor, before.OutputTensor) || a.Confidence != before.Confidence {
		t.Fatalf("%v, %v; version 1 says %v", a, err, before)
	}
	for name, want := range map[string]string{"x-gateway-target": "model_v1", "x-gateway-model-version": "1", "x-gateway-degraded": "MODEL_NOT_READY"} {
		if strings.Join(header.Get(name), " ") != want {
			t.Errorf("%s is %v, want %s", name, header.Get(name), want)
		}
	}
	k, err := r.kserve().ModelInfer(arm, fraudRequest())
	if err != nil || k.ModelVersion != "1" || k.ModelName != "fraud" || !k.Parameters["gateway_degraded"].GetBoolParam() || !bytes.Equal(k.RawOutputContents[0], before.OutputTensor) {
		t.Errorf("ModelInfer: %v, %v", k, err)
	}
	s, err := r.kserve().ModelStreamInfer(arm)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Send(fraudRequest())
	sa, err := s.Recv()
	if err != nil || sa.GetInferResponse().GetModelVersion() != "1" || !sa.GetInferResponse().GetParameters()["gateway_degraded"].GetBoolParam() {
		t.Errorf("ModelStreamInfer: %v, %v", sa, err)
	}
	p, err := r.predict().PredictStream(arm)
	if err != nil {
		t.Fatal(err)
	}
	_ = p.Send(&inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: fraudRow()})
	if pa, err := p.Recv(); err != nil || pa.Status != "DEGRADED" || !bytes.Equal(pa.OutputTensor, before.OutputTensor) {
		t.Errorf("PredictStream: %v, %v", pa, err)
	}
	pinned, err := r.predict().Predict(t.Context(), &inferencepb.PredictionRequest{ModelName: "fraud", ModelVersion: 2, InputTensor: fraudRow()}, grpc.Header(&header))
	if err != nil || pinned.Confidence != 0.25 {
		t.Errorf("pinned: %v, %v", pinned, err)
	}
	if got := r.series(t, `gateway_degraded_total{model="fraud",reason="MODEL_NOT_READY",target="model_v2"}`); got != "5" {
		t.Errorf("%s degraded answers of version 2", got)
	}
	if got := r.series(t, `gateway_upstream_duration_seconds_count{model="fraud",outcome="ok",target="model_v1",version="1"}`); got != "5" {
		t.Errorf("version 1 has answered %s times", got)
	}
}

func TestAFullQueueIsAnsweredForOnlyWhereTheFallbackIsForOverload(t *testing.T) {
	for on, want := range map[string]string{"[outage]": "ResourceExhausted", "[outage, overload]": "DEGRADED " + half + " 0.5"} {
		server, triton := model(t)
		r := oneDown(t, triton, "{score: 0.5, on: "+on+"}")
		r.said(t, "Predict")
		setFault(t, server, sandbox.Fault{Kind: sandbox.QueueFull, Model: "fraud"})
		if said := r.said(t, "Predict"); said != want {
			t.Errorf("on: %s gives %s", on, said)
		}
	}
}

func TestRefusalsAreNoOutages(t *testing.T) {
	server, triton := model(t)
	r := gatewayOf(t, fmt.Sprintf(`
version: 1
upstreams: {triton: {kind: triton, endpoints: "%s"}}
passthrough: true
models: [{name: fraud, fallback: {score: 0.5, protocols: [predict, v2]}, limits: [{per: model, rate: 0.001/s, burst: 1}]}]
`, triton), nil)
	if said := r.said(t, "Predict"); !strings.HasPrefix(said, "OK ") {
		t.Fatal(said)
	}
	if said := r.said(t, "Predict"); said != "ResourceExhausted" {
		t.Errorf("over its rate: %s", said)
	}
	if _, err := r.predict().Predict(t.Context(), &inferencepb.PredictionRequest{ModelName: "nobody", InputTensor: fraudRow()}); status.Code(err) != codes.NotFound {
		t.Errorf("a name that is not there: %v", err)
	}
	if _, err := r.predict().Predict(t.Context(), &inferencepb.PredictionRequest{ModelName: "text", ModelVersion: 9, InputTensor: fraudRow()}); status.Code(err) != codes.NotFound {
		t.Errorf("a version that is not there: %v", err)
	}
	setFault(t, server, sandbox.Fault{Kind: sandbox.Down})
	if said := r.said(t, "Predict"); said != "ResourceExhausted" {
		t.Errorf("over its rate, and down: %s", said)
	}
	if got := r.series(t, "gateway_degraded_total"); got != "" {
		t.Errorf("degraded answers %s", got)
	}
}

func TestADecoupledCallThatHasHadAnAnswerEndsWithAnErrorAndTheNextOneIsAnsweredFor(t *testing.T) {
	server, triton := model(t)
	r := gatewayOf(t, fmt.Sprintf("version: 1\nupstreams: {triton: {endpoints: %q}}\nmodels: [{name: tokens, fallback: {score: 0.5, protocols: [predict, v2]}}]\n", triton), nil)
	s, err := r.kserve().ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	number := func(name string, n byte) *tritonpb.ModelInferRequest_InferInputTensor {
		return &tritonpb.ModelInferRequest_InferInputTensor{Name: name, Datatype: "INT32", Shape: []int64{1}, Contents: &tritonpb.InferTensorContents{IntContents: []int32{int32(n)}}}
	}
	request := &tritonpb.ModelInferRequest{ModelName: "tokens", Id: "7", Inputs: []*tritonpb.ModelInferRequest_InferInputTensor{number("N", 50), number("DELAY_MS", 100)}}
	_ = s.Send(request)
	if a, err := s.Recv(); err != nil || a.ErrorMessage != "" {
		t.Fatal(a, err)
	}
	setFault(t, server, sandbox.Fault{Kind: sandbox.Down})
	for {
		a, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if a.GetInferResponse().GetParameters()["gateway_degraded"].GetBoolParam() {
			t.Fatalf("answered for in the middle: %v", a)
		}
		if a.ErrorMessage != "" {
			break
		}
	}
	_ = s.Send(request)
	a, err := s.Recv()
	if err != nil || !a.GetInferResponse().GetParameters()["gateway_degraded"].GetBoolParam() || !a.InferResponse.Parameters["triton_final_response"].GetBoolParam() ||
		a.InferResponse.Id != "7" || string(a.InferResponse.RawOutputContents[0]) != "\x03\x00\x00\x000.5" {
		t.Errorf("the next message: %v, %v", a, err)
	}
	_ = s.CloseSend()
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
}

// described is a pool that can be asked for its tensors.
type described struct {
	inference.Pool
	ready atomic.Bool
	asked chan bool // whether it served by then
}

func (d *described) Ready() bool { return d.ready.Load() }

func (d *described) Info(context.Context) (*triton.Info, error) {
	d.asked <- d.ready.Load()
	return nil, errors.New("not now")
}

func TestTensorsOfModelsWithAFallbackAreLearntOnceTheyServe(t *testing.T) {
	pools := map[string]*described{}
	for _, name := range []string{"with", "without", "declared"} {
		pools[name] = &described{asked: make(chan bool, 100)}
	}
	score := 0.5
	f := &inference.Fallback{Score: &score}
	target := func(name string) *inference.Target { return &inference.Target{Name: name, Pool: pools[name]} }
	models := []*inference.Model{
		{Targets: map[string]*inference.Target{"without": target("without")}},
		{Targets: map[string]*inference.Target{"declared": target("declared")}, Fallback: f, Tensors: &inference.Tensors{Outputs: make([]inference.Tensor, 1)}},
		{Current: func() *inference.Target { return target("with") }, Fallback: f},
		{Current: func() *inference.Target { return nil }, Fallback: f},
	}
	looks, looked := 0, make(chan int, 100)
	p := startPrimer(func() []*inference.Model {
		if looks++; looks == 2 { // the look before is over
			for _, d := range pools {
				d.ready.Store(true)
			}
		}
		looked <- looks
		return models
	})
	defer p.close()
	p.changed("")
	next := func() {
		t.Helper()
		late := soon(t)
		for {
			select {
			case look := <-looked:
				if look == 1 { // nothing serves, so nobody is asked
					p.changed("fraud")
				}
			case served := <-pools["with"].asked:
				if !served {
					t.Error("a model that does not serve is asked")
				}
				return
			case <-pools["without"].asked:
				t.Fatal("a model without a fallback is asked")
			case <-pools["declared"].asked:
				t.Fatal("a model that says what its tensors are is asked")
			case <-late.Done():
				t.Fatal("nobody asks")
			}
		}
	}
	next()
	p.changed("fraud") // it was of no use, and is tried again
	next()
}
