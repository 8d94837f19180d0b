package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/access"
	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// askAs asks as a caller under rules.
func askAs[A proto.Message](t *testing.T, v View, p *access.Policy, caller string, kind inference.Kind, method string, request proto.Message) (A, error) {
	t.Helper()
	c := &inference.Call{Kind: kind, Identity: inference.Identity{Caller: &inference.Caller{Name: caller}}}
	answer, err := (&Service{View: v, Access: p, Version: "1"}).Do(t.Context(), c, method, request)
	a, _ := answer.(A)
	return a, err
}

func rules(hide bool, models ...string) *access.Policy {
	return access.New(hide, []access.Rule{
		{Callers: []string{"bob"}, Models: models, Allow: []inference.Kind{inference.Metadata, inference.Repository}},
		{Callers: []string{"idle"}, Models: []string{"*"}, Allow: []inference.Kind{inference.Infer}},
	}, true)
}

func TestIndexAndStatisticsListOnlyWhatTheCallerMaySee(t *testing.T) {
	serve := conn(func(method string, r proto.Message) (proto.Message, error) {
		if method == "ModelStatistics" {
			all := &tritonpb.ModelStatisticsResponse{}
			for _, name := range []string{"fraud", "hidden", "cnn", "rank-1"} {
				all.ModelStats = append(all.ModelStats, &tritonpb.ModelStatistics{Name: name, Version: "1"})
			}
			return all, nil
		}
		return index("fraud", "1", "READY", "hidden", "1", "READY", "cnn", "1", "READY", "rank-1", "1", "LOADING")(method, r)
	})
	v := view{ups: []Upstream{&up{name: "a", endpoints: []conn{serve, serve}}}}
	for _, c := range []struct {
		caller string
		models []string
		want   string
	}{
		{"bob", []string{"*"}, "cnn rank-1 risk"},
		{"bob", []string{"risk", "rank-*"}, "rank-1 risk"},
		{"bob", []string{"fraud"}, ""}, // its name on the upstream, which is no name here
		{"idle", []string{"*"}, ""},    // may infer everything and see nothing
		{"stranger", []string{"*"}, ""},
	} {
		for _, hide := range []bool{false, true} {
			p := rules(hide, c.models...)
			listed, err := askAs[*tritonpb.RepositoryIndexResponse](t, v, p, c.caller, inference.Metadata, "RepositoryIndex", &tritonpb.RepositoryIndexRequest{})
			if err != nil {
				t.Fatal(err)
			}
			counted, err := askAs[*tritonpb.ModelStatisticsResponse](t, v, p, c.caller, inference.Metadata, "ModelStatistics", &tritonpb.ModelStatisticsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			var names, stats []string
			for _, m := range listed.Models {
				names = append(names, m.Name)
			}
			for _, m := range counted.ModelStats {
				stats = append(stats, m.Name)
			}
			if strings.Join(names, " ") != c.want || !slices.Equal(names, stats) {
				t.Errorf("%s with %v: listed %v, counted %v, want %s", c.caller, c.models, names, stats, c.want)
			}
		}
	}
}

func TestAQuestionAboutAModelTakesAccessToItsMetadata(t *testing.T) {
	asked := 0
	serve := conn(func(method string, _ proto.Message) (proto.Message, error) {
		asked++
		switch method {
		case "ModelConfig":
			return &tritonpb.ModelConfigResponse{}, nil
		case "ModelStatistics":
			return &tritonpb.ModelStatisticsResponse{}, nil
		case "ModelReady":
			return &tritonpb.ModelReadyResponse{Ready: true}, nil
		}
		return &tritonpb.ModelMetadataResponse{}, nil
	})
	v := view{ups: []Upstream{&up{name: "a", endpoints: []conn{serve}}}}
	for method, request := range map[string]proto.Message{
		"ModelMetadata":   &tritonpb.ModelMetadataRequest{Name: "risk"},
		"ModelConfig":     &tritonpb.ModelConfigRequest{Name: "risk"},
		"ModelStatistics": &tritonpb.ModelStatisticsRequest{Name: "risk"},
		"ModelReady":      &tritonpb.ModelReadyRequest{Name: "risk"},
	} {
		if _, err := askAs[proto.Message](t, v, rules(true, "risk"), "bob", inference.Metadata, method, request); err != nil {
			t.Errorf("%s by who may: %v", method, err)
		}
		before := asked
		_, err := askAs[proto.Message](t, v, rules(false, "other"), "bob", inference.Metadata, method, request)
		if f := fault.Of(err); f == nil || f.Kind != fault.Forbidden || !strings.Contains(f.Msg, `may not see model "risk"`) {
			t.Errorf("%s by who may not: %v", method, err)
		}
		answer, err := askAs[proto.Message](t, v, rules(true, "other"), "bob", inference.Metadata, method, request)
		switch ready, ok := answer.(*tritonpb.ModelReadyResponse); {
		case ok && (err != nil || ready.Ready):
			t.Errorf("a hidden model's readiness: %v %v", ready, err)
		case !ok && *fault.Of(err) != *fault.UnknownModel("risk"):
			t.Errorf("%s of a hidden model: %v", method, err)
		}
		if asked != before {
			t.Errorf("%s asked the upstream on behalf of who may not know", method)
		}
	}
}

func TestTheServerTellsEverybodyWhatItIs(t *testing.T) {
	v := view{}
	for method, request := range map[string]proto.Message{
		"ServerLive": &tritonpb.ServerLiveRequest{}, "ServerReady": &tritonpb.ServerReadyRequest{}, "ServerMetadata": &tritonpb.ServerMetadataRequest{},
	} {
		if _, err := askAs[proto.Message](t, v, rules(true), "stranger", inference.Metadata, method, request); err != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
}

// names is a view in which models of the upstream have several names, one or none.
type names struct {
	view
	of map[string][]string
}

func (n names) NamesOf(_, model string) []string { return n.of[model] }

func TestLoadingTakesAccessToEveryNameOfTheModel(t *testing.T) {
	told := 0
	ok := conn(func(method string, _ proto.Message) (proto.Message, error) {
		told++
		if method == "RepositoryModelLoad" {
			return &tritonpb.RepositoryModelLoadResponse{}, nil
		}
		return &tritonpb.RepositoryModelUnloadResponse{}, nil
	})
	v := names{
		view{ups: []Upstream{&up{name: "a", endpoints: []conn{ok}}}, open: []inference.Kind{inference.Repository}},
		map[string][]string{"fraud": {"risk", "risk-eu"}, "cnn": {"cnn"}},
	}
	dependents := map[string]*tritonpb.ModelRepositoryParameter{
		"unload_dependents": {ParameterChoice: &tritonpb.ModelRepositoryParameter_BoolParam{BoolParam: true}},
	}
	for _, c := range []struct {
		models  []string
		model   string
		along   bool // unload dependents too
		allowed bool
	}{
		{[]string{"risk", "risk-eu"}, "fraud", false, true},
		{[]string{"risk"}, "fraud", false, false}, // risk-eu would go with it
		{[]string{"risk*"}, "fraud", false, true},
		{[]string{"fraud"}, "fraud", false, false}, // clients know no model of that name
		{[]string{"risk", "risk-eu"}, "risk", false, false},
		{[]string{"cnn"}, "cnn", false, true},
		{[]string{"cnn"}, "cnn", true, false},
		{[]string{"n*"}, "nobodys", false, false}, // has no name here
		{[]string{"*"}, "nobodys", false, true},
		{[]string{"*"}, "fraud", true, true},
		{[]string{"**"}, "nobodys", false, true},
	} {
		for _, hide := range []bool{false, true} {
			for _, load := range []bool{false, true} {
				method, request := "RepositoryModelUnload", proto.Message(&tritonpb.RepositoryModelUnloadRequest{ModelName: c.model})
				switch {
				case load && c.along:
					continue
				case load:
					method, request = "RepositoryModelLoad", &tritonpb.RepositoryModelLoadRequest{ModelName: c.model}
				case c.along:
					request.(*tritonpb.RepositoryModelUnloadRequest).Parameters = dependents
				}
				told = 0
				_, err := askAs[proto.Message](t, v, rules(hide, c.models...), "bob", inference.Repository, method, request)
				if (err == nil) != c.allowed || (told > 0) != c.allowed {
					t.Errorf("%s %s with %v: %v, told %d", method, c.model, c.models, err, told)
				}
				if want := map[bool]fault.Kind{false: fault.Forbidden, true: fault.ModelNotFound}[hide]; err != nil && fault.Of(err).Kind != want {
					t.Errorf("%s %s with %v, hide %v: %v", method, c.model, c.models, hide, err)
				}
			}
		}
	}
}

// parameters makes parameters of a load: files and a configuration.
func parameters(list ...string) map[string]*tritonpb.ModelRepositoryParameter {
	all := make(map[string]*tritonpb.ModelRepositoryParameter, len(list))
	for _, name := range list {
		all[name] = &tritonpb.ModelRepositoryParameter{ParameterChoice: &tritonpb.ModelRepositoryParameter_BytesParam{BytesParam: []byte("x")}}
	}
	return all
}

func TestLoadingFilesOrAConfigurationOfOnesOwnTakesAccessToEverything(t *testing.T) {
	told := 0
	ok := conn(func(string, proto.Message) (proto.Message, error) {
		told++
		return &tritonpb.RepositoryModelLoadResponse{}, nil
	})
	v := names{
		view{ups: []Upstream{&up{name: "a", endpoints: []conn{ok}}}, open: []inference.Kind{inference.Repository}},
		map[string][]string{"fraud": {"fraud"}},
	}
	for _, sent := range [][]string{{"config"}, {"file:1/model.onnx"}, {"config", "file:1/model.py"}, {"max_queue"}} {
		request := &tritonpb.RepositoryModelLoadRequest{ModelName: "fraud", Parameters: parameters(sent...)}
		for _, hide := range []bool{false, true} {
			told = 0
			_, err := askAs[proto.Message](t, v, rules(hide, "fraud"), "bob", inference.Repository, "RepositoryModelLoad", request)
			if f := fault.Of(err); f == nil || f.Kind != fault.Forbidden || !strings.Contains(f.Msg, "configuration of its own") || told != 0 {
				t.Errorf("%v: %v, told %d", sent, err, told)
			}
			if _, err := askAs[proto.Message](t, v, rules(hide, "*"), "bob", inference.Repository, "RepositoryModelLoad", request); err != nil || told != 1 {
				t.Errorf("%v by who may load everything: %v, told %d", sent, err, told)
			}
		}
	}
}

func TestNothingIsLoadedThatLeadsOutOfItsFolderWhoeverAsks(t *testing.T) {
	told := 0
	ok := conn(func(string, proto.Message) (proto.Message, error) {
		told++
		return &tritonpb.RepositoryModelLoadResponse{}, nil
	})
	v := view{ups: []Upstream{&up{name: "a", endpoints: []conn{ok}}}, open: []inference.Kind{inference.Repository}}
	for _, r := range []*tritonpb.RepositoryModelLoadRequest{
		{ModelName: "fraud", Parameters: parameters("file:../../etc/cron.d/x")},
		{ModelName: "fraud", Parameters: parameters("config", "file:1/../../x")},
		{ModelName: "fraud", Parameters: parameters("file:/etc/passwd")},
		{ModelName: "fraud", Parameters: parameters(`file:1\..\x`)},
		{ModelName: "fraud", Parameters: parameters("file:")},
		{ModelName: "fraud", Parameters: parameters("file:1/m\x00.onnx")},
		{ModelName: "../fraud"},
		{ModelName: "/fraud"},
		{ModelName: ".."},
		{ModelName: "a/../../b"},
	} {
		for who, p := range map[string]*access.Policy{"with every right": rules(true, "*"), "on a trusted network": access.New(false, nil, false)} {
			if _, err := askAs[proto.Message](t, v, p, "bob", inference.Repository, "RepositoryModelLoad", r); fault.Of(err) == nil || fault.Of(err).Kind != fault.InvalidArgument || told != 0 {
				t.Errorf("%s, %v: %v, told %d", who, r, err, told)
			}
		}
	}
	for _, r := range []*tritonpb.RepositoryModelLoadRequest{
		{ModelName: "team/bert", Parameters: parameters("config", "file:1/model.onnx", "file:1/a/..b")}, {ModelName: "fraud"}, {},
	} {
		told = 0
		if _, err := askAs[proto.Message](t, v, rules(true, "*"), "bob", inference.Repository, "RepositoryModelLoad", r); err != nil || told != 1 {
			t.Errorf("%v: %v, told %d", r, err, told)
		}
	}
}

func TestControlStaysClosedToWhoHasTheKindUntilTheConfigurationOpensIt(t *testing.T) {
	v := view{ups: []Upstream{&up{name: "a", endpoints: []conn{func(string, proto.Message) (proto.Message, error) { t.Error("told"); return nil, nil }}}}}
	p := access.New(false, []access.Rule{{Callers: []string{"sre"}, Models: []string{"*"}, Allow: []inference.Kind{inference.Repository, inference.Trace}}}, true)
	for kind, request := range map[inference.Kind]proto.Message{
		inference.Repository: &tritonpb.RepositoryModelLoadRequest{ModelName: "fraud"},
		inference.Trace:      &tritonpb.TraceSettingRequest{},
	} {
		if _, err := askAs[proto.Message](t, v, p, "sre", kind, fmt.Sprint(kind), request); fault.Of(err).Kind != fault.ControlOff {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
