package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/access"
	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

var update = flag.Bool("update", false, "write the goldens")

// pool is a pool with an endpoint, or without.
type pool bool

func (p pool) Pick(*inference.Call, []inference.Endpoint) (inference.Endpoint, error) {
	if !p {
		return nil, fault.New(fault.NoEndpoint, "no endpoint serves it; try again shortly")
	}
	return nil, nil
}
func (p pool) Ready() bool { return bool(p) }

// buckets is what is left by name of limit.
type buckets map[string]float64

func (b buckets) Peek(_ context.Context, c *inference.Call, limits []*inference.Limit) ([]float64, error) {
	if b == nil {
		return nil, errors.New("the store does not answer")
	}
	var left []float64
	for _, l := range limits {
		switch n, ok := b[l.Name]; {
		case l.Per == inference.PerIP && !c.Address.IsValid(), !ok:
			left = append(left, math.NaN())
		default:
			left = append(left, n)
		}
	}
	return left, nil
}

// gateway is an explainer over the model fraud, with limits of every sort, and the model free, which has no targets.
type gateway struct {
	Explainer
	ready    pool
	required bool
}

func newGateway(required bool) *gateway {
	g := &gateway{ready: true, required: required}
	timeouts := inference.Timeouts{Max: time.Minute, FirstAnswer: 30 * time.Second, Idle: time.Minute}
	v1 := &inference.Target{Name: "model_v1", Model: "fraud", Version: "1", Upstream: "triton", Asked: "fraud"}
	v2 := &inference.Target{Name: "model_v2", Model: "fraud", Version: "2", Upstream: "triton", Asked: "fraud"}
	ruled := &inference.Model{
		Name: "ruled", Targets: map[string]*inference.Target{"model_v1": v1, "model_v2": v2}, Stable: v1, Timeouts: timeouts,
		Mirror: &inference.Mirror{To: v2, Percent: 12.5},
	}
	fraud := &inference.Model{
		Name: "fraud", Route: true, Targets: map[string]*inference.Target{"model_v1": v1, "model_v2": v2}, Stable: v1,
		Timeouts: inference.Timeouts{Max: 800 * time.Millisecond, Idle: time.Minute},
		Limits: []*inference.Limit{
			{Name: "fraud-1", Per: inference.PerModel, Rate: inference.Rate{PerSecond: 2000, Burst: 4000}},
			{
				Name: "fraud-2", Per: inference.PerUser, Rate: inference.Rate{PerSecond: 20, Burst: 40}, Cost: inference.CostRows,
				Draw: inference.DrawExact, Overrides: map[string]inference.Rate{"vip-7": {PerSecond: 200, Burst: 400}},
			},
			{Name: "fraud-3", Per: inference.PerModelCaller, Rate: inference.Rate{PerSecond: 1.0 / 6, Burst: 1}, Mode: inference.Shadow},
		},
	}
	free := &inference.Model{Name: "free", Timeouts: timeouts, Choose: func(context.Context) (*inference.Target, error) {
		return &inference.Target{Name: "model_v3", Model: "free", Version: "3", Upstream: "other", Pool: g.ready}, nil
	}}
	g.Explainer = Explainer{
		Hash: func() string { return "cafe" },
		Model: func(_ context.Context, name string) (*inference.Model, error) {
			v1.Pool, v2.Pool = g.ready, g.ready
			switch name {
			case "fraud":
				return fraud, nil
			case "free":
				return free, nil
			case "ruled":
				return ruled, nil
			}
			return nil, fault.UnknownModel(name)
		},
		Split: func(ctx context.Context, c *inference.Call) (rules []inference.Considered, err error) {
			c.Choice.By = inference.ByStable
			switch {
			case c.Head.Version == "2":
				c.Pinned, c.Target, c.Choice.By = true, v2, inference.ByPinned
			case c.Head.Version != "":
				return nil, fault.New(fault.ModelNotFound, "no version %s", c.Head.Version)
			case c.Model == ruled:
				tier := c.Incoming["x-user-type"]
				c.Target, c.Choice = v2, inference.Choice{By: inference.ByScript, Rule: "night", Reason: "after 22:00"}
				rules = []inference.Considered{
					{Rule: "header x-user-type", By: "header", Why: fmt.Sprintf("header x-user-type is %q", tier)},
					{Rule: "script night", By: "script", Target: "model_v2", Why: "the script says: after 22:00", Decides: true},
					{Rule: "weights", By: "weights", Target: "model_v1", Why: fmt.Sprintf("the user is %s of %s", c.User, c.Head.Metadata["region"])},
				}
			case c.Model.Stable != nil:
				c.Target = c.Model.Stable
			default:
				c.Target, err = c.Model.Choose(ctx)
			}
			return rules, err
		},
		Versions: func(string, string) []inference.VersionState {
			return []inference.VersionState{{Version: "10"}, {Version: "4", Anywhere: true}, {Version: "3", Everywhere: true}}
		},
		Caller: func(name string) *inference.Caller {
			switch name {
			case "recommend":
				return &inference.Caller{Name: name, MayNameUsers: true}
			case "batch":
				return &inference.Caller{Name: name}
			}
			return nil
		},
		Required: func() bool { return g.required },
		Policy: func() *access.Policy {
			return access.New(true, []access.Rule{
				{Callers: []string{"nobody"}, Allow: []inference.Kind{inference.Admin}},
				{Callers: []string{"recommend"}, Models: []string{"fr*"}, Allow: []inference.Kind{inference.Infer}},
			}, g.required)
		},
		Spanning: func() []*inference.Limit {
			return []*inference.Limit{
				{Name: "edge", Per: inference.PerIP, Rate: inference.Rate{PerSecond: 500.0 / 60, Burst: 500}},
				{Name: "everyone", Per: inference.PerGlobal, Rate: inference.Rate{PerSecond: 20000, Burst: 20000}, Mode: inference.Off},
			}
		},
		Limits:   buckets{"fraud-1": 3990.25, "fraud-2": 12, "fraud-3": 0.5, "edge": 499},
		Defaults: func() inference.Timeouts { return timeouts },
	}
	return g
}

func TestAReportReadsAsItIsWrittenDown(t *testing.T) {
	for name, c := range map[string]struct {
		g *gateway
		q Question
	}{
		"served":    {newGateway(true), Question{Model: "fraud", User: "vip-7", Caller: "recommend", Address: "192.0.2.7"}},
		"pinned":    {newGateway(false), Question{Model: "fraud", Version: "2"}},
		"held":      {newGateway(true), Question{Model: "free", Caller: "recommend"}},
		"hidden":    {newGateway(true), Question{Model: "fraud", Caller: "batch", User: "ann"}},
		"unknown":   {newGateway(false), Question{Model: "fr\x1b[2Jaud"}},
		"open":      {newGateway(true), Question{Model: "fraud", User: "ann"}},
		"noversion": {newGateway(false), Question{Model: "fraud", Version: "9"}},
		"split": {newGateway(false), Question{
			Model: "ruled", Headers: map[string][]string{"X-User-Type": {"free"}}, Metadata: map[string]string{"region": "eu", "user_id": "ann"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := c.g.Explain(t.Context(), c.q)
			if err != nil {
				t.Fatal(err)
			}
			var text bytes.Buffer
			if err := r.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			j, err := json.MarshalIndent(r, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".txt", text.Bytes())
			golden(t, name+".json", append(j, '\n'))
		})
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is otherwise now (go test -update writes it):\n%s", name, got)
	}
}

func TestALimitWithoutATokenRefusesOnlyWhereItIsEnforced(t *testing.T) {
	g := newGateway(false)
	g.Limits = buckets{"fraud-1": 0.9, "fraud-2": 3, "fraud-3": 0}
	r, err := g.Explain(t.Context(), Question{Model: "fraud"})
	if err != nil || r.Served || r.Refusal == nil || r.Refusal.Reason != "RATE_LIMITED" || !strings.Contains(r.Refusal.Message, "fraud-1") {
		t.Errorf("%+v %v", r.Refusal, err)
	}
	g.Limits = buckets{"fraud-1": 1, "fraud-2": 3, "fraud-3": 0}
	if r, err = g.Explain(t.Context(), Question{Model: "fraud"}); err != nil || !r.Served {
		t.Errorf("%+v %v: only a limit in the shadow has nothing left", r.Refusal, err)
	}
}

func TestAStoreThatDoesNotAnswerIsSaidAndRefusesNothing(t *testing.T) {
	g := newGateway(false)
	g.Limits = buckets(nil)
	r, err := g.Explain(t.Context(), Question{Model: "fraud"})
	if err != nil || !r.Served || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "does not answer") || r.Limits[0].Left != nil {
		t.Errorf("%+v %v", r, err)
	}
}

func TestAModelWithoutAnEndpointWouldBeRefusedThere(t *testing.T) {
	g := newGateway(false)
	g.ready = false
	r, err := g.Explain(t.Context(), Question{Model: "fraud"})
	if err != nil || r.Served || r.Target.Ready || r.Refusal.Stage != "forward" || r.Refusal.Reason != "NO_ENDPOINT" {
		t.Errorf("%+v %v", r, err)
	}
}

func TestAQuestionThatMakesNoSenseIsTheAskersFault(t *testing.T) {
	g := newGateway(true)
	for name, q := range map[string]Question{
		"no model":    {},
		"long model":  {Model: strings.Repeat("m", 300)},
		"no caller":   {Model: "fraud", Caller: "bob"},
		"no address":  {Model: "fraud", Address: "localhost"},
		"long user":   {Model: "fraud", User: strings.Repeat("u", 300)},
		"long caller": {Model: "fraud", Caller: strings.Repeat("c", 300)},
		"long header": {Model: "fraud", Headers: map[string][]string{"x-a": {strings.Repeat("a", 9<<10)}}},
		"no name":     {Model: "fraud", Headers: map[string][]string{"": {"a"}}},
		"long value":  {Model: "fraud", Metadata: map[string]string{"a": strings.Repeat("a", 9<<10)}},
		"too many":    {Model: "fraud", Metadata: many(65)},
	} {
		if r, err := g.Explain(t.Context(), q); r != nil || fault.Of(err).Kind != fault.InvalidArgument {
			t.Errorf("%s: %v %v", name, r, err)
		}
	}
}

func many(n int) map[string]string {
	m := make(map[string]string, n)
	for i := range n {
		m[fmt.Sprint(i)] = "a"
	}
	return m
}

func TestAUserInMetadataCountsOnlyWhereTheCallerMayNameUsers(t *testing.T) {
	for _, tt := range []struct{ caller, want string }{{"recommend", "ann"}, {"batch", "batch"}} {
		g := newGateway(true)
		split := g.Split
		g.Split = func(ctx context.Context, c *inference.Call) ([]inference.Considered, error) {
			if (c.Head.Metadata["user_id"] == "ann") != (tt.want == "ann") || (c.Incoming["x-user-id"] != nil) != (tt.want == "ann") {
				t.Errorf("caller %s: rules see %v and %v", tt.caller, c.Head.Metadata, c.Incoming)
			}
			return split(ctx, c)
		}
		r, err := g.Explain(t.Context(), Question{
			Model: "fraud", Caller: tt.caller, Metadata: map[string]string{"user_id": "ann"}, Headers: map[string][]string{"x-user-id": {"ann"}},
		})
		if err != nil || r.User.Name != tt.want {
			t.Errorf("caller %s: %+v, %v", tt.caller, r.User, err)
		}
	}
}

func TestWhyACallGoesWhereItGoesIsSaid(t *testing.T) {
	declared, open := &inference.Model{Stable: &inference.Target{}}, &inference.Model{}
	at := &inference.Target{Version: "1"}
	for want, tt := range map[string]struct {
		call  inference.Call
		split bool
	}{
		"the call names the version itself":           {inference.Call{Model: declared, Choice: inference.Choice{By: inference.ByPinned}}, false},
		"it is the model's stable target":             {inference.Call{Model: declared, Choice: inference.Choice{By: inference.ByStable}}, false},
		"it is the model's stable target; script off": {inference.Call{Model: declared, Choice: inference.Choice{By: inference.ByStable, Reason: "script off"}}, true},
		"it is the lowest version that the upstream has, which is stable where rules or a script split calls": {inference.Call{Model: open, Target: at, Choice: inference.Choice{By: inference.ByStable}}, true},
		"the upstream has no versions":                 {inference.Call{Model: open, Target: &inference.Target{}}, false},
		"script night chose it":                        {inference.Call{Model: open, Choice: inference.Choice{By: inference.ByScript, Rule: "night"}}, true},
		`rule "weights" of the model's split chose it`: {inference.Call{Model: open, Choice: inference.Choice{By: inference.ByWeights, Rule: "weights"}}, true},
	} {
		if got := why(&tt.call, tt.split); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestRatesAreWrittenAsTheFileWould(t *testing.T) {
	for perSecond, want := range map[float64]string{
		20: "20/s", 0.5: "30/min", 500.0 / 60: "500/min", 1.0 / 3600: "1/h", 7.0 / 3600: "7/h", 0.0001: "0.0001/s", 1e6: "1000000/s", math.Pi: "3.142/s",
	} {
		if got := rate(perSecond); got != want {
			t.Errorf("%v: %s, want %s", perSecond, got, want)
		}
	}
}
