package gateway

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/model-gateway/model-gateway/pkg/explain"
	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// splitRig is a gateway whose premium users go to version 2, and a tenth of the others.
func splitRig(t *testing.T, triton string) *rig {
	t.Helper()
	return gatewayOf(t, fmt.Sprintf(`
version: 1
upstreams: {triton: {kind: triton, endpoints: "%s"}}
models:
  - name: fraud
    targets: {model_v1: {version: 1}, model_v2: {version: 2}}
    stable: model_v1
    set_headers: {x-mesh-route: "{target}"}
    split:
      - {when: {header: x-user-type, is: premium}, to: model_v2, set_headers: {x-mesh-route: "premium-{target}"}}
      - {when: {metadata: region, in: [eu, us]}, to: model_v2}
      - {when: {who: user, prefix: qa-}, to: model_v2}
      - {weights: {model_v1: 90, model_v2: 10}, salt: fraud-2026-11}
`, triton), nil)
}

func TestARuleSendsACallToItsTargetOverEveryProtocolAndTheAnswerSaysSo(t *testing.T) {
	server, triton := model(t)
	r := splitRig(t, triton)
	premium := metadata.AppendToOutgoingContext(t.Context(), "X-User-Type", "premium", "x-mesh-route", "mine")
	check := func(way string, target, version, upstream []string) {
		t.Helper()
		if got := strings.Join(append(append(target, version...), upstream...), " "); got != "model_v2 2 triton" {
			t.Errorf("%s: the answer is from %q", way, got)
		}
		if seen := server.Seen("fraud"); seen.Request.ModelVersion != "2" || strings.Join(seen.Metadata.Get("x-mesh-route"), " ") != "premium-model_v2" {
			t.Errorf("%s: the upstream got version %s with x-mesh-route %v", way, seen.Request.ModelVersion, seen.Metadata.Get("x-mesh-route"))
		}
	}
	of := func(way string, md metadata.MD) {
		t.Helper()
		check(way, md.Get("x-gateway-target"), md.Get("x-gateway-model-version"), md.Get("x-gateway-upstream"))
	}

	var header metadata.MD
	if _, err := r.predict().Predict(premium, &inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: fraudRow()}, grpc.Header(&header)); err != nil {
		t.Fatal(err)
	}
	of("Predict", header)
	if _, err := r.kserve().ModelInfer(premium, fraudRequest(), grpc.Header(&header)); err != nil {
		t.Fatal(err)
	}
	of("ModelInfer", header)

	predicts, err := r.predict().PredictStream(premium)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_ = predicts.Send(&inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: fraudRow()})
		if a, err := predicts.Recv(); err != nil || a.Status != "OK" {
			t.Fatalf("%v %v", a, err)
		}
	}
	_ = predicts.CloseSend()
	if _, err := predicts.Recv(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	header, _ = predicts.Header()
	of("PredictStream", header)
	of("PredictStream, at its end", predicts.Trailer())

	infers, err := r.kserve().ModelStreamInfer(premium)
	if err != nil {
		t.Fatal(err)
	}
	_ = infers.Send(fraudRequest())
	if a, err := infers.Recv(); err != nil || a.ErrorMessage != "" || a.InferResponse.ModelVersion != "2" {
		t.Fatalf("%v %v", a, err)
	}
	_ = infers.CloseSend()
	if _, err := infers.Recv(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	of("ModelStreamInfer, at its end", infers.Trailer())

	for path, body := range map[string]string{
		"/v1/predict":            `{"model_name":"fraud","input_tensor":"` + base64.StdEncoding.EncodeToString(fraudRow()) + `"}`,
		"/v2/models/fraud/infer": `{"inputs":[{"name":"INPUT","datatype":"FP32","shape":[1,16],"data":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}]}`,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.address+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("X-User-Type", "premium")
		a, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(a.Body)
		_ = a.Body.Close()
		if a.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s", path, a.StatusCode, text)
		}
		check(path, a.Header.Values("x-gateway-target"), a.Header.Values("x-gateway-model-version"), a.Header.Values("x-gateway-upstream"))
	}
}

func TestUsersAreSplitByWeightAndByWhatTheirMessagesSay(t *testing.T) {
	_, triton := model(t)
	r := splitRig(t, triton)
	target := func(user string, more map[string]string) string {
		t.Helper()
		var header metadata.MD
		request := &inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: fraudRow(), Metadata: map[string]string{"user_id": user}}
		for k, v := range more {
			request.Metadata[k] = v
		}
		if _, err := r.predict().Predict(t.Context(), request, grpc.Header(&header)); err != nil {
			t.Fatal(err)
		}
		return header.Get("x-gateway-target")[0]
	}
	canary := 0
	for i := range 300 {
		user := fmt.Sprint("user-", i)
		first := target(user, nil)
		if again := target(user, nil); again != first {
			t.Errorf("%s went to %s and to %s", user, first, again)
		}
		if first == "model_v2" {
			canary++
		}
		if i < 3 {
			e, err := r.gateway.explainer().Explain(t.Context(), explain.Question{Model: "fraud", User: user})
			if err != nil || e.Target.Name != first || len(e.Split) != 4 || !e.Split[3].Decides || e.Split[3].Target != first {
				t.Errorf("%s went to %s, explained is %+v %v", user, first, e, err)
			}
		}
	}
	if canary < 10 || canary > 55 {
		t.Errorf("%d of 300 users go to model_v2, a tenth is meant to", canary)
	}
	if got := target("someone", map[string]string{"region": "eu"}); got != "model_v2" {
		t.Errorf("region eu goes to %s", got)
	}
	if got := target("qa-7", nil); got != "model_v2" {
		t.Errorf("a user that begins with qa- goes to %s", got)
	}
	e, err := r.gateway.explainer().Explain(t.Context(), explain.Question{Model: "fraud", User: "ann", Headers: map[string][]string{"x-user-type": {"premium"}}})
	if err != nil || e.Target.Name != "model_v2" || !e.Split[0].Decides || !strings.Contains(e.Target.Why, "header x-user-type") {
		t.Errorf("%+v %v", e, err)
	}
}

func TestAModelWithoutTargetsIsServedByItsLowestVersionWhereRulesSplitIt(t *testing.T) {
	_, triton := model(t)
	r := gatewayOf(t, fmt.Sprintf(`
version: 1
upstreams: {triton: {kind: triton, endpoints: "%s"}}
models:
  - name: fraud
    split:
      - {when: {header: x-user-type, is: premium}, to: model_v2}
      - {when: {header: x-user-type, is: nobody}, to: model_v9}
  - name: plain
    model: fraud
`, triton), nil)
	for way, want := range map[string]string{"premium": "model_v2", "free": "model_v1", "nobody": "model_v1"} {
		var header metadata.MD
		if _, err := r.kserve().ModelInfer(metadata.AppendToOutgoingContext(t.Context(), "x-user-type", way), fraudRequest(), grpc.Header(&header)); err != nil || header.Get("x-gateway-target")[0] != want {
			t.Errorf("%s: %v, %v", way, header.Get("x-gateway-target"), err)
		}
	}
	request := fraudRequest()
	request.ModelName = "plain"
	var header metadata.MD
	if _, err := r.kserve().ModelInfer(t.Context(), request, grpc.Header(&header)); err != nil || header.Get("x-gateway-target")[0] != "model_v2" {
		t.Errorf("without rules: %v, %v", header.Get("x-gateway-target"), err)
	}
	if ready, err := r.kserve().ModelReady(t.Context(), &tritonpb.ModelReadyRequest{Name: "fraud"}); err != nil || !ready.Ready {
		t.Errorf("%v %v", ready, err)
	}
}
