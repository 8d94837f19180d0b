package authorize

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/access"
	"github.com/model-gateway/model-gateway/pkg/catalog"
	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/control"
	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/front/grpcfront"
	"github.com/model-gateway/model-gateway/pkg/front/httpfront"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/stage/resolve"
	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// world is a gateway of fronts, the stages that refuse, control and catalog, over one upstream that has some models. Every
// call comes from bob, who may infer and see open-*.
type world struct {
	upstream *source
	catalog  *catalog.Catalog
	policy   *access.Policy
	control  *control.Service
	stage    Stage
}

// source is an upstream that counts how often it is asked about a model.
type source struct {
	models []string
	asked  atomic.Int64
}

func (s *source) Name() string                             { return "triton" }
func (s *source) Pool(string, string) inference.Pool       { return nothing{} }
func (s *source) Answers() bool                            { return true }
func (s *source) Listed(model string) bool                 { return slices.Contains(s.models, model) }
func (s *source) Versions(string) []inference.VersionState { return nil }
func (s *source) Refresh()                                 {}

func (s *source) Describe(_ context.Context, model, _ string) ([]string, error) {
	s.asked.Add(1)
	if slices.Contains(s.models, model) {
		return []string{"1"}, nil
	}
	return nil, fault.New(fault.ModelNotFound, "not here")
}

func (s *source) Each(context.Context, func(context.Context, string, grpc.ClientConnInterface) error) map[string]error {
	s.asked.Add(1)
	return nil
}

func (s *source) Any(context.Context, string, string, func(context.Context, string, grpc.ClientConnInterface) error) error {
	s.asked.Add(1)
	return nil
}

type nothing struct{}

func (nothing) Ready() bool { return true }
func (nothing) Pick(*inference.Call, []inference.Endpoint) (inference.Endpoint, error) {
	return nil, fault.New(fault.NoEndpoint, "nobody")
}

func newWorld(t *testing.T, hide bool, models ...string) *world {
	t.Helper()
	w := &world{upstream: &source{models: models}, catalog: catalog.New()}
	w.policy = access.New(hide, []access.Rule{{
		Callers: []string{"bob"}, Models: []string{"open-*"}, Allow: []inference.Kind{inference.Infer, inference.Metadata},
	}}, true)
	snapshot, err := w.catalog.Build(&config.Config{Passthrough: true, Upstreams: []config.Upstream{{Name: "triton"}}}, map[string]catalog.Source{"triton": w.upstream})
	if err != nil {
		t.Fatal(err)
	}
	w.catalog.Use(snapshot)
	w.stage = Stage{Access: w.policy}
	w.control = &control.Service{View: w, Access: w.policy}
	return w
}

// World is control's view of the gateway.
func (w *world) Model(ctx context.Context, name string) (*inference.Model, error) {
	return w.catalog.Model(ctx, name)
}
func (w *world) Upstreams() []control.Upstream    { return []control.Upstream{w.upstream} }
func (w *world) NamesOf(_, model string) []string { return []string{model} }
func (w *world) Open(inference.Kind) bool         { return true }
func (w *world) Ready() bool                      { return true }
func (w *world) identify(c *inference.Call) {
	c.Caller, c.RequestID = &inference.Caller{Name: "bob"}, "r-1"
}
func (w *world) Refuse(_ context.Context, _ *inference.Call, err error) error { return err }

func (w *world) Message(ctx context.Context, c *inference.Call) error {
	w.identify(c)
	answer := func(context.Context, *inference.Call) error {
		return fault.New(fault.NoEndpoint, "reached the upstream")
	}
	if err := c.Read(); err != nil {
		return err
	}
	return w.stage.Wrap(resolve.Stage{Catalog: w.catalog}.Wrap(answer))(ctx, c)
}

func (w *world) Open2(ctx context.Context, c *inference.Call, body inference.Handler) error {
	w.identify(c)
	return body(ctx, c)
}

// pipeline and questions give the world the methods that fronts want and that its view has otherwise.
type pipeline struct{ *world }

func (p pipeline) Do(ctx context.Context, c *inference.Call) error { return p.Message(ctx, c) }
func (p pipeline) Open(ctx context.Context, c *inference.Call, body inference.Handler) error {
	return p.Open2(ctx, c, body)
}

type questions struct{ *world }

func (q questions) Do(ctx context.Context, c *inference.Call, method string, request proto.Message) (answer proto.Message, err error) {
	q.identify(c)
	err = q.stage.Question(func(ctx context.Context, c *inference.Call) error {
		if err := c.Read(); err != nil {
			return err
		}
		answer, err = q.control.Do(ctx, c, method, request)
		return err
	})(ctx, c)
	return answer, err
}

// overGRPC asks everything that names a model and gives back the bytes of each answer: metadata, status, message.
func (w *world) overGRPC(t *testing.T, model string) map[string]string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	front := grpcfront.New(grpcfront.Options{Pipeline: pipeline{w}, Control: questions{w}, MaxMessage: 1 << 20, Log: slog.New(slog.DiscardHandler)})
	go func() { _ = front.Serve(l) }()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	defer front.Drain(ended)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	got := make(map[string]string)
	for method, ask := range map[string][2]proto.Message{
		"/inference.GRPCInferenceService/ModelInfer":            {&tritonpb.ModelInferRequest{ModelName: model}, &tritonpb.ModelInferResponse{}},
		"/ml.inference.InferenceService/Predict":                {&inferencepb.PredictionRequest{ModelName: model}, &inferencepb.PredictionResponse{}},
		"/inference.GRPCInferenceService/ModelMetadata":         {&tritonpb.ModelMetadataRequest{Name: model}, &tritonpb.ModelMetadataResponse{}},
		"/inference.GRPCInferenceService/ModelMetadata?version": {&tritonpb.ModelMetadataRequest{Name: model, Version: "latest"}, &tritonpb.ModelMetadataResponse{}},
		"/inference.GRPCInferenceService/ModelConfig":           {&tritonpb.ModelConfigRequest{Name: model, Version: "1"}, &tritonpb.ModelConfigResponse{}},
		"/inference.GRPCInferenceService/ModelStatistics":       {&tritonpb.ModelStatisticsRequest{Name: model}, &tritonpb.ModelStatisticsResponse{}},
		"/inference.GRPCInferenceService/ModelReady":            {&tritonpb.ModelReadyRequest{Name: model}, &tritonpb.ModelReadyResponse{}},
		"/inference.GRPCInferenceService/RepositoryModelLoad":   {&tritonpb.RepositoryModelLoadRequest{ModelName: model}, &tritonpb.RepositoryModelLoadResponse{}},
		"/inference.GRPCInferenceService/RepositoryModelUnload": {&tritonpb.RepositoryModelUnloadRequest{ModelName: model}, &tritonpb.RepositoryModelUnloadResponse{}},
	} {
		var header, trailer metadata.MD
		path, _, _ := strings.Cut(method, "?")
		err := conn.Invoke(t.Context(), path, ask[0], ask[1], grpc.Header(&header), grpc.Trailer(&trailer))
		s, _ := proto.MarshalOptions{Deterministic: true}.Marshal(status.Convert(err).Proto())
		m, _ := proto.MarshalOptions{Deterministic: true}.Marshal(ask[1])
		got[method] = fmt.Sprintf("%q %q %q %q", all(header), all(trailer), s, m)
	}
	stream, err := tritonpb.NewGRPCInferenceServiceClient(conn).ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&tritonpb.ModelInferRequest{ModelName: model, Id: "7"}); err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(answer)
	got["ModelStreamInfer"] = fmt.Sprintf("%q", b)
	return got
}

func all(md metadata.MD) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(md)) {
		fmt.Fprintf(&b, "%s=%q ", k, md[k])
	}
	return b.String()
}

// overHTTP is overGRPC for the other front: headers, status, body.
func (w *world) overHTTP(t *testing.T, model string) map[string]string {
	t.Helper()
	front := httpfront.New(httpfront.Config{Pipeline: pipeline{w}, Control: questions{w}, Log: slog.New(slog.DiscardHandler)})
	got := make(map[string]string)
	for _, ask := range []string{
		"POST /v2/models/%s/infer", "POST /v2/models/%s/versions/1/infer", "GET /v2/models/%s", "GET /v2/models/%s/versions/latest", "GET /v2/models/%s/config",
		"GET /v2/models/%s/stats", "GET /v2/models/%s/ready", "POST /v2/repository/models/%s/load", "POST /v2/repository/models/%s/unload", "POST /v1/predict",
	} {
		method, path, _ := strings.Cut(ask, " ")
		body := `{"inputs":[{"name":"X","shape":[1],"datatype":"FP32","data":[1]}]}`
		switch {
		case method == "GET", strings.Contains(path, "repository"):
			body = ""
		case path == "/v1/predict":
			body = `{"model_name":"` + model + `"}`
		}
		r := httptest.NewRequestWithContext(t.Context(), method, strings.Replace(path, "%s", model, 1), strings.NewReader(body))
		answer := httptest.NewRecorder()
		front.ServeHTTP(answer, r)
		var headers bytes.Buffer
		_ = answer.Result().Header.Write(&headers)
		text, _ := io.ReadAll(answer.Result().Body)
		got[ask] = fmt.Sprintf("%d %q %q", answer.Code, headers.String(), text)
	}
	return got
}

// A caller cannot tell a model that is hidden from it from one that does not exist: not by any answer's bytes, and not by
// what the gateway does before it answers.
func TestAHiddenModelAndOneThatIsNotThereAreAnsweredWithTheSameBytes(t *testing.T) {
	with, without := newWorld(t, true, "secret", "open-1"), newWorld(t, true, "open-1")
	for front, ask := range map[string]func(*world) map[string]string{
		"gRPC": func(w *world) map[string]string { return w.overGRPC(t, "secret") },
		"HTTP": func(w *world) map[string]string { return w.overHTTP(t, "secret") },
	} {
		there, notThere := ask(with), ask(without)
		if len(there) < 10 || !maps.Equal(there, notThere) {
			t.Errorf("%s:\n%v\n%v", front, there, notThere)
		}
		for what, answer := range there {
			// Control is refused by its kind, which says nothing about any model; readiness is a plain no.
			if want := "is not known here"; !strings.Contains(answer, want) && !strings.Contains(answer, "load any model") && !strings.HasSuffix(what, "ModelReady") && !strings.HasSuffix(what, "/ready") {
				t.Errorf("%s: %s has no %q", what, answer, want)
			}
		}
	}
	if a, b := with.upstream.asked.Load(), without.upstream.asked.Load(); a != 0 || b != 0 {
		t.Errorf("the upstream was asked %d times where the model is, %d times where it is not", a, b)
	}
}

// The answer is also that of an unknown model to a caller who may call anything.
func TestAHiddenModelIsAnsweredAsAnUnknownOneIsToWhoMayCallAnything(t *testing.T) {
	hidden, open := newWorld(t, true, "secret"), newWorld(t, true)
	open.policy = access.New(true, nil, true)
	open.stage.Access, open.control.Access = open.policy, open.policy
	for front, ask := range map[string]func(*world) map[string]string{
		"gRPC": func(w *world) map[string]string { return w.overGRPC(t, "secret") },
		"HTTP": func(w *world) map[string]string { return w.overHTTP(t, "secret") },
	} {
		if a, b := ask(hidden), ask(open); len(a) < 10 || !maps.Equal(a, b) {
			t.Errorf("%s:\n%v\n%v", front, a, b)
		}
	}
}

func TestAForbiddenModelThatIsNotHiddenIsForbiddenWhetherItIsThereOrNot(t *testing.T) {
	with, without := newWorld(t, false, "secret"), newWorld(t, false)
	a, b := with.overGRPC(t, "secret"), without.overGRPC(t, "secret")
	if !maps.Equal(a, b) {
		t.Errorf("%v\n%v", a, b)
	}
	for what, answer := range a {
		if !strings.Contains(answer, "ask the operator for a rule") {
			t.Errorf("%s: %s", what, answer)
		}
	}
	for what, answer := range with.overHTTP(t, "secret") {
		if !strings.HasPrefix(answer, fmt.Sprint(http.StatusForbidden)) {
			t.Errorf("%s: %s", what, answer)
		}
	}
	if with.upstream.asked.Load()+without.upstream.asked.Load() != 0 {
		t.Error("an upstream was asked about a model that the caller may not call")
	}
}
