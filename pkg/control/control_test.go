package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// conn answers RPCs of one endpoint by their short name.
type conn func(method string, request proto.Message) (proto.Message, error)

func (c conn) Invoke(_ context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	answer, err := c(method[strings.LastIndex(method, "/")+1:], args.(proto.Message))
	if err == nil {
		proto.Merge(reply.(proto.Message), answer)
	}
	return err
}

func (conn) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("no streams")
}

// up is an upstream of endpoints.
type up struct {
	name      string
	endpoints []conn
	refreshed int
}

func (u *up) Name() string { return u.name }
func (u *up) Refresh()     { u.refreshed++ }
func (u *up) Each(ctx context.Context, ask func(context.Context, string, grpc.ClientConnInterface) error) map[string]error {
	failed := map[string]error{}
	for i, c := range u.endpoints {
		if err := ask(ctx, fmt.Sprint("e", i), c); err != nil {
			failed[fmt.Sprint("e", i)] = err
		}
	}
	return failed
}

func (u *up) Any(ctx context.Context, _, _ string, ask func(context.Context, string, grpc.ClientConnInterface) error) error {
	return ask(ctx, "e0", u.endpoints[0])
}

type pool bool

func (pool) Pick(*inference.Call, []inference.Endpoint) (inference.Endpoint, error) { return nil, nil }

func (p pool) Ready() bool { return bool(p) }

// view has the route risk to fraud on upstream a, everything else under its own name.
type view struct {
	ups  []Upstream
	open []inference.Kind
}

func (v view) Model(_ context.Context, name string) (*inference.Model, error) {
	if name != "risk" {
		return nil, fault.New(fault.ModelNotFound, "no %s", name)
	}
	t := &inference.Target{Name: "v1", Model: "fraud", Version: "1", Upstream: "a", Pool: pool(false)}
	return &inference.Model{Name: "risk", Route: true, Targets: map[string]*inference.Target{"v1": t}, Stable: t, Pin: func(_ context.Context, version string) (*inference.Target, error) {
		if version == "1" {
			return t, nil
		}
		return nil, fault.New(fault.ModelNotFound, "no version %s", version)
	}}, nil
}
func (v view) Upstreams() []Upstream         { return v.ups }
func (v view) Open(kind inference.Kind) bool { return slices.Contains(v.open, kind) }
func (v view) Ready() bool                   { return true }
func (v view) NamesOf(_, model string) []string {
	switch model {
	case "fraud":
		return []string{"risk"}
	case "hidden":
		return nil
	}
	return []string{model}
}

func ask[A proto.Message](t *testing.T, v view, c *inference.Call, method string, request proto.Message) (A, error) {
	t.Helper()
	if c == nil {
		c = &inference.Call{Kind: inference.Metadata}
	}
	answer, err := (&Service{View: v, Version: "1"}).Do(t.Context(), c, method, request)
	a, _ := answer.(A)
	return a, err
}

func index(states ...string) conn {
	return func(string, proto.Message) (proto.Message, error) {
		r := &tritonpb.RepositoryIndexResponse{}
		for i := 0; i < len(states); i += 3 {
			r.Models = append(r.Models, &tritonpb.RepositoryIndexResponse_ModelIndex{Name: states[i], Version: states[i+1], State: states[i+2]})
		}
		return r, nil
	}
}

func TestTheIndexIsTheUnionUnderTheNamesClientsKnow(t *testing.T) {
	v := view{ups: []Upstream{
		&up{name: "a", endpoints: []conn{index("fraud", "1", "LOADING", "fraud", "10", "READY", "hidden", "1", "READY"), index("fraud", "1", "READY", "fraud", "2", "READY")}},
		&up{name: "b", endpoints: []conn{index("cnn", "1", "READY"), func(string, proto.Message) (proto.Message, error) { return nil, errors.New("down") }}},
	}}
	r, err := ask[*tritonpb.RepositoryIndexResponse](t, v, nil, "RepositoryIndex", &tritonpb.RepositoryIndexRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range r.Models {
		got = append(got, m.Name+"/"+m.Version+" "+m.State)
	}
	if want := "cnn/1 READY, risk/1 READY, risk/2 READY, risk/10 READY"; strings.Join(got, ", ") != want {
		t.Errorf("got %s, want %s", strings.Join(got, ", "), want)
	}
}

func TestTheIndexFailsOnlyWhenNobodyAnswers(t *testing.T) {
	down := conn(func(string, proto.Message) (proto.Message, error) { return nil, fault.New(fault.NoEndpoint, "down") })
	if _, err := ask[*tritonpb.RepositoryIndexResponse](t, view{ups: []Upstream{&up{name: "a", endpoints: []conn{down, down}}}}, nil, "RepositoryIndex", &tritonpb.RepositoryIndexRequest{}); fault.Of(err).Kind != fault.NoEndpoint {
		t.Errorf("got %v", err)
	}
}

func TestStatisticsAddUpDownToTheBatchSizes(t *testing.T) {
	count := func(n uint64, sizes ...uint64) conn {
		return func(string, proto.Message) (proto.Message, error) {
			m := &tritonpb.ModelStatistics{
				Name: "fraud", Version: "1", LastInference: 100 * n, InferenceCount: n,
				InferenceStats: &tritonpb.InferStatistics{Success: &tritonpb.StatisticDuration{Count: n, Ns: 10 * n}},
				ResponseStats:  map[string]*tritonpb.InferResponseStatistics{"0": {Success: &tritonpb.StatisticDuration{Count: n}}},
			}
			for _, s := range sizes {
				m.BatchStats = append(m.BatchStats, &tritonpb.InferBatchStatistics{BatchSize: s, ComputeInfer: &tritonpb.StatisticDuration{Count: n}})
			}
			return &tritonpb.ModelStatisticsResponse{ModelStats: []*tritonpb.ModelStatistics{m}}, nil
		}
	}
	v := view{ups: []Upstream{&up{name: "a", endpoints: []conn{count(2, 1, 4), count(5, 4, 8)}}}}
	r, err := ask[*tritonpb.ModelStatisticsResponse](t, v, nil, "ModelStatistics", &tritonpb.ModelStatisticsRequest{Name: "risk"})
	if err != nil || len(r.ModelStats) != 1 {
		t.Fatalf("%v %v", r, err)
	}
	s := r.ModelStats[0]
	if s.Name != "risk" || s.InferenceCount != 7 || s.LastInference != 500 || s.InferenceStats.Success.Ns != 70 || s.ResponseStats["0"].Success.Count != 7 {
		t.Errorf("got %v", s)
	}
	var batches []string
	for _, b := range s.BatchStats {
		batches = append(batches, fmt.Sprintf("%d:%d", b.BatchSize, b.ComputeInfer.Count))
	}
	if strings.Join(batches, " ") != "1:2 4:7 8:5" {
		t.Errorf("batches %v", batches)
	}
}

func TestAnUnknownModelIsNotReadyWhichIsNoError(t *testing.T) {
	v := view{ups: []Upstream{&up{name: "a", endpoints: []conn{func(_ string, r proto.Message) (proto.Message, error) {
		return &tritonpb.ModelReadyResponse{Ready: r.(*tritonpb.ModelReadyRequest).Name == "fraud"}, nil
	}}}}}
	if r, err := ask[*tritonpb.ModelReadyResponse](t, v, nil, "ModelReady", &tritonpb.ModelReadyRequest{Name: "nobody"}); err != nil || r.Ready {
		t.Errorf("nobody: %v %v", r, err)
	}
	if r, err := ask[*tritonpb.ModelReadyResponse](t, v, nil, "ModelReady", &tritonpb.ModelReadyRequest{Name: "risk"}); err != nil || !r.Ready {
		t.Errorf("risk, which nobody has probed yet: %v %v", r, err)
	}
	if _, err := ask[*tritonpb.ModelReadyResponse](t, v, nil, "ModelReady", &tritonpb.ModelReadyRequest{Name: "risk", Version: "latest"}); fault.Of(err).Kind != fault.BadVersion {
		t.Errorf("version latest: %v", err)
	}
}

func TestMetadataAndConfigSpeakOfTheModelByItsRoute(t *testing.T) {
	v := view{ups: []Upstream{&up{name: "a", endpoints: []conn{func(method string, r proto.Message) (proto.Message, error) {
		if method == "ModelConfig" {
			return &tritonpb.ModelConfigResponse{Config: &tritonpb.ModelConfig{Name: r.(*tritonpb.ModelConfigRequest).Name}}, nil
		}
		return &tritonpb.ModelMetadataResponse{Name: r.(*tritonpb.ModelMetadataRequest).Name, Versions: []string{r.(*tritonpb.ModelMetadataRequest).Version}}, nil
	}}}}}
	md, err := ask[*tritonpb.ModelMetadataResponse](t, v, nil, "ModelMetadata", &tritonpb.ModelMetadataRequest{Name: "risk"})
	if err != nil || md.Name != "risk" || md.Versions[0] != "1" {
		t.Errorf("%v %v", md, err)
	}
	cfg, err := ask[*tritonpb.ModelConfigResponse](t, v, nil, "ModelConfig", &tritonpb.ModelConfigRequest{Name: "risk", Version: "1"})
	if err != nil || cfg.Config.Name != "risk" {
		t.Errorf("%v %v", cfg, err)
	}
	if _, err := ask[*tritonpb.ModelMetadataResponse](t, v, nil, "ModelMetadata", &tritonpb.ModelMetadataRequest{Name: "risk", Version: "7"}); fault.Of(err).Kind != fault.ModelNotFound {
		t.Errorf("version 7: %v", err)
	}
}

func TestControlGoesToEveryEndpointAndNamesThoseThatRefuse(t *testing.T) {
	told := 0
	ok := conn(func(string, proto.Message) (proto.Message, error) {
		told++
		return &tritonpb.RepositoryModelLoadResponse{}, nil
	})
	no := conn(func(string, proto.Message) (proto.Message, error) {
		return nil, fault.New(fault.UpstreamFailed, "broken file")
	})
	load := &tritonpb.RepositoryModelLoadRequest{ModelName: "fraud"}
	call := func() *inference.Call { return &inference.Call{Kind: inference.Repository} }

	good := &up{name: "a", endpoints: []conn{ok, ok}}
	if _, err := ask[*tritonpb.RepositoryModelLoadResponse](t, view{ups: []Upstream{good}, open: []inference.Kind{inference.Repository}}, call(), "RepositoryModelLoad", load); err != nil || told != 2 || good.refreshed != 1 {
		t.Errorf("%v, %d told, refreshed %d times", err, told, good.refreshed)
	}
	_, err := ask[*tritonpb.RepositoryModelLoadResponse](t, view{ups: []Upstream{&up{name: "a", endpoints: []conn{ok, no}}}, open: []inference.Kind{inference.Repository}}, call(), "RepositoryModelLoad", load)
	if f := fault.Of(err); f.Kind != fault.UpstreamFailed || !strings.Contains(f.Msg, "e1: broken file") || strings.Contains(f.Msg, "e0") || !strings.Contains(f.Msg, "have done it") {
		t.Errorf("got %v", err)
	}
	if _, err := ask[*tritonpb.RepositoryModelLoadResponse](t, view{ups: []Upstream{good}}, call(), "RepositoryModelLoad", load); fault.Of(err).Kind != fault.ControlOff {
		t.Errorf("closed: %v", err)
	}
}

func TestWithSeveralUpstreamsControlHasToNameOne(t *testing.T) {
	ok := conn(func(string, proto.Message) (proto.Message, error) { return &tritonpb.LogSettingsResponse{}, nil })
	v := view{ups: []Upstream{&up{name: "a", endpoints: []conn{ok}}, &up{name: "b", endpoints: []conn{ok}}}, open: []inference.Kind{inference.Log}}
	for header, want := range map[string]bool{"": false, "a": true, "c": false} {
		c := &inference.Call{Kind: inference.Log}
		if header != "" {
			c.Incoming = map[string][]string{"x-gateway-upstream": {header}}
		}
		_, err := ask[*tritonpb.LogSettingsResponse](t, v, c, "LogSettings", &tritonpb.LogSettingsRequest{})
		if (err == nil) != want || (err != nil && !strings.Contains(err.Error(), "a, b")) {
			t.Errorf("x-gateway-upstream %q: %v", header, err)
		}
	}
}

// silent is an upstream whose endpoints take questions and never answer.
type silent struct{ up }

func (*silent) Each(ctx context.Context, _ func(context.Context, string, grpc.ClientConnInterface) error) map[string]error {
	<-ctx.Done()
	return map[string]error{"e0": context.Cause(ctx)}
}

func (*silent) Any(ctx context.Context, _, _ string, _ func(context.Context, string, grpc.ClientConnInterface) error) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestASilentModelServerHoldsUpAQuestionForSecondsAtMost(t *testing.T) {
	for method, request := range map[string]proto.Message{
		"ModelMetadata": &tritonpb.ModelMetadataRequest{Name: "risk"}, "ModelConfig": &tritonpb.ModelConfigRequest{Name: "risk"},
		"RepositoryIndex": &tritonpb.RepositoryIndexRequest{}, "ModelStatistics": &tritonpb.ModelStatisticsRequest{Name: "risk"},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			_, err := ask[proto.Message](t, view{ups: []Upstream{&silent{up{name: "a"}}}}, nil, method, request)
			if f := fault.Of(err); f == nil || f.Kind != fault.UpstreamTimeout || time.Since(begin) != questionTimeout {
				t.Errorf("%s: %v after %s", method, err, time.Since(begin))
			}
		})
	}
}
