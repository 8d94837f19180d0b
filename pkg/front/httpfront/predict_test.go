package httpfront

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	predictpb "github.com/model-gateway/model-gateway/proto/ml/inference"
)

func TestPredictTakesBothSpellingsOfProtobufJSON(t *testing.T) {
	want := &predictpb.PredictionRequest{ModelName: "fraud", ModelVersion: 2, InputTensor: []byte{0, 1, 0xff}, Metadata: map[string]string{"user_id": "u"}}
	for _, body := range []string{
		`{"model_name":"fraud","model_version":2,"input_tensor":"AAH/","metadata":{"user_id":"u"}}`,
		`{"modelName":"fraud","modelVersion":"2","inputTensor":"AAH_","metadata":{"user_id":"u"}}`,
	} {
		p := &pipeline{do: func(_ context.Context, c *inference.Call) error { return c.Send(inference.NewFrame([]byte{})) }}
		w := send(front(Config{Pipeline: p}), "POST", "/v1/predict", body)
		wantStatus(t, w, 200)
		if diff := cmp.Diff(want, prediction(t, p.frames[0]), protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
		c := p.calls[0]
		if c.Kind != inference.Infer || c.Protocol != inference.HTTPPredict || c.Method != "/v1/predict" || c.Head.Model != "fraud" || c.Head.Version != "2" || c.Head.TensorLen != 3 || c.Start.IsZero() || c.Peer == nil {
			t.Errorf("the call is %+v", c)
		}
	}
}

func TestPredictAnswersWithAllFields(t *testing.T) {
	for _, c := range []struct {
		answer *predictpb.PredictionResponse
		want   string
	}{
		{
			&predictpb.PredictionResponse{OutputTensor: []byte{0, 1, 0xff}, Confidence: 0.9, Status: "OK", LatencyMs: 12},
			`{"output_tensor":"AAH/","confidence":0.9,"status":"OK","latency_ms":12}`,
		},
		{
			&predictpb.PredictionResponse{Confidence: 0.5, Status: "FINE", LatencyMs: 9007199254740993},
			`{"output_tensor":"","confidence":0.5,"status":"FINE","latency_ms":9007199254740993}`,
		},
		{
			&predictpb.PredictionResponse{Confidence: float32(math.Inf(-1)), Status: "a \"b\""},
			`{"output_tensor":"","confidence":"-Infinity","status":"a \"b\"","latency_ms":0}`,
		},
	} {
		w := send(front(Config{Pipeline: answering(t, c.answer)}), "POST", "/v1/predict", `{"model_name":"fraud"}`)
		wantBody(t, w, c.want)
		if !json.Valid(w.Body.Bytes()) {
			t.Error("that is not JSON")
		}
		for name, want := range map[string]string{"Content-Type": "application/json", "X-Request-Id": "id-1", "X-Gateway-Target": "stable", "X-Gateway-Model-Version": "2", "X-Gateway-Upstream": "triton"} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
	}
}

func TestADegradedPredictionSaysSoAndGivesItsScore(t *testing.T) {
	cause := fault.New(fault.NoEndpoint, "nobody there")
	target := &inference.Target{Name: "v2"}
	for name, tt := range map[string]struct {
		degraded *inference.Degraded
		want     string
	}{
		"a score":        {&inference.Degraded{Cause: cause, Score: 0.1}, `{"output_tensor":"","confidence":0.1,"status":"DEGRADED","latency_ms":0,"fallback_score":0.1}`},
		"another target": {&inference.Degraded{Cause: cause, Target: target}, `{"output_tensor":"","confidence":0.1,"status":"DEGRADED","latency_ms":0}`},
	} {
		p := answering(t, &predictpb.PredictionResponse{Confidence: 0.1, Status: "DEGRADED"})
		answer := p.do
		p.do = func(ctx context.Context, c *inference.Call) error {
			c.Degraded, c.Target = tt.degraded, inference.Nowhere("", cause)
			return answer(ctx, c)
		}
		w := send(front(Config{Pipeline: p}), "POST", "/v1/predict", `{"model_name":"fraud"}`)
		wantStatus(t, w, 200)
		wantBody(t, w, tt.want)
		if h := w.Header(); h.Get("X-Gateway-Degraded") != "NO_ENDPOINT" || len(h["X-Gateway-Target"]) > 0 {
			t.Errorf("%s: headers %v", name, h)
		}
	}
}

func TestABadPredictionIsRefusedAndCounted(t *testing.T) {
	for _, c := range []struct{ name, body, says string }{
		{"unknown field", `{"model_name":"a","user":"b"}`, `unknown field \"user\"`},
		{"broken off", `{"model_name":`, "PredictionRequest as JSON"},
		{"empty", ``, "PredictionRequest as JSON"},
		{"two objects", `{} {}`, "PredictionRequest as JSON"},
		{"no base64", `{"input_tensor":"***"}`, "input_tensor"},
		{"version below 0", `{"model_name":"a","model_version":-1}`, "model_version is -1"}, // O-15
		{"version too large", `{"model_name":"a","model_version":4294967296}`, "model_version"},
		{"metadata of numbers", `{"metadata":{"a":1}}`, "PredictionRequest as JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &pipeline{}
			w := send(front(Config{Pipeline: p}), "POST", "/v1/predict", c.body)
			wantStatus(t, w, 400, c.says)
			if len(p.refused) != 1 || len(p.frames) != 0 || w.Header().Get("X-Request-Id") != "id-refused" {
				t.Errorf("refused %v, called %d times, id %q; want one refusal and no call", p.refused, len(p.frames), w.Header().Get("X-Request-Id"))
			}
		})
	}
}

func TestAFaultOfThePipelineKeepsWhatIsKnownOfTheCall(t *testing.T) {
	p := &pipeline{do: func(context.Context, *inference.Call) error {
		return &fault.Fault{Kind: fault.Overloaded, Msg: "too many calls \"now\"", RetryAfter: 1200 * time.Millisecond}
	}}
	w := send(front(Config{Pipeline: p}), "POST", "/v1/predict", `{"model_name":"fraud"}`)
	wantStatus(t, w, http.StatusTooManyRequests)
	if got, want := w.Body.String(), `{"error":"too many calls \"now\"","reason":"OVERLOADED"}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for name, want := range map[string]string{"Retry-After": "2", "X-Request-Id": "id-1", "X-Gateway-Target": "stable"} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestARefusalByALimitSaysWhatIsLeftAndWhenToComeBack(t *testing.T) {
	p := &pipeline{do: func(context.Context, *inference.Call) error {
		return &fault.Fault{Kind: fault.RateLimited, Msg: "used up", RetryAfter: 50 * time.Millisecond, Quota: &fault.Quota{
			Limit: "per-user", Subject: "user:ann", Burst: 40, Remaining: .9, Reset: 1500 * time.Millisecond,
		}}
	}}
	w := send(front(Config{Pipeline: p}), "POST", "/v1/predict", `{"model_name":"fraud"}`)
	wantStatus(t, w, http.StatusTooManyRequests, `{"error":"used up","reason":"RATE_LIMITED"}`)
	for name, want := range map[string]string{"Retry-After": "1", "RateLimit-Limit": "40", "RateLimit-Remaining": "0", "RateLimit-Reset": "2"} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestEveryKindOfFaultHasItsStatus(t *testing.T) {
	for _, k := range fault.Kinds() {
		p := &pipeline{do: func(context.Context, *inference.Call) error { return fault.New(k, "text") }}
		w := send(front(Config{Pipeline: p}), "POST", "/v1/predict", `{"model_name":"fraud"}`)
		wantStatus(t, w, k.Row().HTTP, `{"error":"text","reason":"`+k.Reason()+`"}`)
		if hint := w.Header().Get("Retry-After") != ""; hint != (k.Row().Retry > 0) {
			t.Errorf("%s: Retry-After there: %t", k.Reason(), hint)
		}
	}
}

func TestAPanicIsAnInternalErrorThatSaysNothing(t *testing.T) {
	p := &pipeline{do: func(context.Context, *inference.Call) error { panic("secret") }}
	w := send(front(Config{Pipeline: p}), "POST", "/v1/predict", `{"model_name":"fraud"}`)
	wantStatus(t, w, 500, `"reason":"INTERNAL"`)
	if strings.Contains(w.Body.String(), "secret") {
		t.Error(w.Body)
	}
}

func TestTheClientMayLimitItsTime(t *testing.T) {
	for _, c := range []struct {
		header string
		status int
		says   string
	}{
		{"20ms", 504, "DEADLINE"}, {"0s", 504, "DEADLINE_EXPIRED"}, {"-1s", 504, "DEADLINE_EXPIRED"}, {"300", 400, "300ms"},
	} {
		p := &pipeline{do: func(ctx context.Context, _ *inference.Call) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		w := send(front(Config{Pipeline: p}), "POST", "/v1/predict", `{"model_name":"fraud"}`, "X-Request-Timeout", c.header)
		wantStatus(t, w, c.status, c.says)
		if called := len(p.frames) == 1; called != (c.header == "20ms") {
			t.Errorf("%s: called %t", c.header, called)
		}
	}
}
