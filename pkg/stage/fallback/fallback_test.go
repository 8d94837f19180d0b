package fallback

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// pool knows tensors and nothing else.
type pool struct {
	inference.Pool
	tensors inference.Tensors
	asked   *int
}

func (p pool) Tensors() inference.Tensors {
	if p.asked != nil {
		*p.asked++
	}
	return p.tensors
}

func target(name string) *inference.Target {
	return &inference.Target{Name: name, Model: "fraud", Version: name, Upstream: "triton", Asked: "fraud", Pool: pool{}}
}

// messages are answers of text, for people to compare.
var messages = Messages{
	Answer: func(_ *inference.Call, t inference.Tensors, score float64) (inference.Frame, string, error) {
		if t.Output == "BAD" {
			return inference.Frame{}, "", fault.New(fault.BadTensor, "seven bytes")
		}
		if t.Output == "NONE" {
			return inference.Frame{}, "", fault.New(fault.Internal, "in shared memory")
		}
		return inference.NewFrame(fmt.Appendf(nil, "score %v as %s of %d outputs", score, t.Output, len(t.Outputs))), "FP32", nil
	},
	Mark: func(f *inference.Frame, p inference.Protocol) { f.Append([]byte(" marked " + p.String())) },
}

// upstream ends calls by target: with a fault, or an answer.
type upstream struct {
	faults map[string]error
	calls  []string // "target reserve request [incoming]"
	spoil  bool     // request and metadata are changed in place, as stages do
}

func (u *upstream) handle(ctx context.Context, c *inference.Call) error {
	u.calls = append(u.calls, fmt.Sprintf("%s %v %s %v", c.Target.Name, c.Reserve, c.Request.Buf.Materialize(), c.Incoming))
	if u.spoil {
		c.Request.Append([]byte("+" + c.Target.Name))
		c.Rewritten = c.Target
		if c.Stream == nil {
			clear(c.Incoming)
			c.Incoming["x-of"] = []string{c.Target.Name}
		}
	}
	if err := u.faults[c.Target.Name]; err != nil {
		if err := ctx.Err(); err != nil {
			return err
		}
		return err
	}
	return c.Send(inference.NewFrame([]byte("answer of " + c.Target.Name)))
}

func ready(f *inference.Fallback, p inference.Protocol) *inference.Call {
	m := &inference.Model{Name: "fraud", Fallback: f, Targets: map[string]*inference.Target{}}
	return &inference.Call{
		Protocol: p, Start: time.Now(), Model: m, Target: target("v1"), Request: inference.NewFrame([]byte("request")),
		Incoming: map[string][]string{"a": {"b"}}, Choice: inference.Choice{By: inference.ByWeights, SetHeaders: map[string]string{"x-arm": "v1"}},
	}
}

func scoreOf(v float64) *inference.Fallback {
	return &inference.Fallback{Score: &v, Predict: true, V2: true, Outage: true}
}

func chainOf(last *inference.Fallback, to ...*inference.Target) *inference.Fallback {
	f := last
	for i := len(to) - 1; i >= 0; i-- {
		f = &inference.Fallback{To: to[i], Else: f}
	}
	f.Predict, f.V2, f.Outage = true, true, true
	return f
}

func text(f inference.Frame) string { return string(f.Buf.Materialize()) }

func down(kinds ...string) map[string]error {
	m := make(map[string]error)
	for _, k := range kinds {
		m[k] = fault.New(fault.UpstreamUnavailable, "%s is down", k)
	}
	return m
}

func run(ctx context.Context, c *inference.Call, u *upstream) error {
	return (&Stage{Messages: messages}).Wrap(u.handle)(ctx, c)
}

func TestAScoreStandsInForOutagesOnly(t *testing.T) {
	for _, k := range fault.Kinds() {
		for _, overload := range []bool{false, true} {
			f := scoreOf(0.5)
			f.Overload = overload
			c := ready(f, inference.Predict)
			cause := fault.New(k, "it broke")
			err := run(t.Context(), c, &upstream{faults: map[string]error{"v1": cause}})
			row := k.Row()
			if row.Outage || (overload && row.Overload) {
				if err != nil || text(c.Answer) != "score 0.5 as  of 0 outputs" || c.AnswerType != "FP32" {
					t.Errorf("%s: %v, answered %q", k.Reason(), err, text(c.Answer))
				}
				if d := c.Degraded; d == nil || d.Cause != cause || d.From.Name != "v1" || d.Score != 0.5 || d.Target != nil { //nolint:errorlint // the very same
					t.Errorf("%s: degraded %+v", k.Reason(), d)
				}
				continue
			}
			if err != cause || c.Degraded != nil || c.Answers > 0 { //nolint:errorlint // the very same
				t.Errorf("%s: %v, degraded %+v", k.Reason(), err, c.Degraded)
			}
		}
	}
}

func TestTheKindsThatAFallbackIsForAreTheseAndNoOthers(t *testing.T) {
	outage := map[string]bool{
		"MODEL_NOT_READY": true, "NO_ENDPOINT": true, "ENDPOINT_LOST": true, "UPSTREAM_DRAINING": true, "UPSTREAM_UNAVAILABLE": true,
		"UPSTREAM_TIMEOUT": true, "DEADLINE": true, "BREAKER_OPEN": true,
	}
	for _, k := range fault.Kinds() {
		if row := k.Row(); row.Outage != outage[row.Reason] || row.Overload != (row.Reason == "OVERLOADED") {
			t.Errorf("%s: outage %v, overload %v", row.Reason, row.Outage, row.Overload)
		}
	}
}

func TestOnlyTheProtocolsThatAreNamedGetIt(t *testing.T) {
	for _, p := range inference.Protocols() {
		f := scoreOf(0.5)
		f.Predict, f.V2 = !p.SpeaksPredict(), p.SpeaksPredict()
		c := ready(f, p)
		if err := run(t.Context(), c, &upstream{faults: down("v1")}); err == nil || c.Degraded != nil {
			t.Errorf("%s: %v, %+v", p, err, c.Degraded)
		}
	}
}

func TestTheCallersOwnEndIsNoFallback(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := ready(scoreOf(0.5), inference.Predict)
	if err := run(ctx, c, &upstream{faults: down("v1")}); fault.Of(err).Kind != fault.Cancelled || c.Answers > 0 {
		t.Errorf("%v, %d answers", err, c.Answers)
	}
}

func TestACallThatHasHadAnAnswerGetsNoOther(t *testing.T) {
	c := ready(chainOf(scoreOf(0.5), target("v2")), inference.PredictStream)
	c.Stream = &inference.Stream{}
	var got []string
	c.Sink = func(f inference.Frame) error { got = append(got, text(f)); return nil }
	err := (&Stage{Messages: messages}).Wrap(func(_ context.Context, c *inference.Call) error {
		_ = c.Send(inference.NewFrame([]byte("first")))
		return fault.New(fault.EndpointLost, "it broke")
	})(t.Context(), c)
	if fault.Of(err).Kind != fault.EndpointLost || len(got) != 1 || c.Degraded != nil {
		t.Errorf("%v, answers %q, %+v", err, got, c.Degraded)
	}
}

func TestATargetThatNobodyCouldNameIsAnsweredForAndNothingFurtherInSeesIt(t *testing.T) {
	why := fault.New(fault.NoEndpoint, "nobody there")
	for _, p := range inference.Protocols() {
		f := scoreOf(0.5)
		f.V2 = false
		c := ready(f, p)
		c.Target = inference.Nowhere("", why)
		u := &upstream{}
		err := run(t.Context(), c, u)
		if p.SpeaksPredict() && (err != nil || c.Degraded == nil) || !p.SpeaksPredict() && err != why || len(u.calls) > 0 { //nolint:errorlint // the very same
			t.Errorf("%s: %v, calls %v", p, err, u.calls)
		}
	}
	c := ready(nil, inference.Predict)
	c.Target = inference.Nowhere("", why)
	if err := run(t.Context(), c, &upstream{}); err != why { //nolint:errorlint // the very same
		t.Errorf("without a fallback: %v", err)
	}
}

func TestAnotherTargetGetsTheCallAsItCame(t *testing.T) {
	c := ready(chainOf(scoreOf(0.5), target("v2"), target("v3")), inference.KServe)
	u := &upstream{faults: down("v1", "v2"), spoil: true}
	if err := run(t.Context(), c, u); err != nil {
		t.Fatal(err)
	}
	want := []string{"v1 0.3 request map[a:[b]]", "v2 0.3 request map[a:[b]]", "v3 0 request map[a:[b]]"}
	if fmt.Sprint(u.calls) != fmt.Sprint(want) {
		t.Errorf("calls %q, want %q", u.calls, want)
	}
	d := c.Degraded
	if text(c.Answer) != "answer of v3 marked v2_grpc" || d == nil || d.Target.Name != "v3" || d.From.Name != "v1" || fault.Of(d.Cause).Msg != "v1 is down" {
		t.Errorf("answered %q, degraded %+v", text(c.Answer), d)
	}
	if c.Target.Name != "v3" || c.Choice.By != inference.ByFallback || c.Choice.SetHeaders != nil || c.Reserve != 0 || c.Answers != 1 {
		t.Errorf("target %s, choice %+v, reserve %v", c.Target.Name, c.Choice, c.Reserve)
	}
}

func TestWhereNoneAnswersTheFirstFaultStandsOrTheScore(t *testing.T) {
	for _, score := range []bool{false, true} {
		f := chainOf(nil0(), target("v2"))
		if score {
			f = chainOf(scoreOf(0.5), target("v2"))
		}
		c := ready(f, inference.Predict)
		u := &upstream{faults: down("v1", "v2"), spoil: true}
		u.faults["v2"] = fault.New(fault.UpstreamFailed, "v2 throws") // whatever it is
		err := run(t.Context(), c, u)
		if c.Target.Name != "v1" || c.Choice.By != inference.ByWeights {
			t.Errorf("target %s, choice %+v", c.Target.Name, c.Choice)
		}
		if score && (err != nil || text(c.Answer) != "score 0.5 as  of 0 outputs" || c.Degraded.Target != nil) {
			t.Errorf("%v, %q, %+v", err, text(c.Answer), c.Degraded)
		}
		if !score && (fault.Of(err).Msg != "v1 is down" || c.Degraded != nil) {
			t.Errorf("%v, %+v", err, c.Degraded)
		}
	}
}

// nil0 is the end of a chain without a score: a target that is the call's own.
func nil0() *inference.Fallback { return &inference.Fallback{To: target("v1")} }

func TestPinnedCallsAndSequencesGetAScoreButNoOtherTarget(t *testing.T) {
	for name, change := range map[string]func(*inference.Call){
		"pinned":   func(c *inference.Call) { c.Pinned = true },
		"sequence": func(c *inference.Call) { c.Head.Sequence.ID = "7" },
	} {
		c := ready(chainOf(scoreOf(0.5), target("v2")), inference.Predict)
		change(c)
		u := &upstream{faults: down("v1")}
		if err := run(t.Context(), c, u); err != nil || len(u.calls) != 1 || c.Degraded.Score != 0.5 || !strings.HasPrefix(u.calls[0], "v1 0 ") {
			t.Errorf("%s: %v, calls %q", name, err, u.calls)
		}
	}
}

func TestAMistakeThatAnotherVersionFindsIsTheCallers(t *testing.T) {
	for _, other := range []bool{false, true} {
		f := chainOf(scoreOf(0.5), target("v2"))
		if other { // another model may well take other tensors
			f.Model, f.To = &inference.Model{Name: "small", Stable: target("v2")}, nil
		}
		c := ready(f, inference.Predict)
		u := &upstream{faults: down("v1")}
		u.faults["v2"] = fault.New(fault.InvalidArgument, "no such input")
		if err := run(t.Context(), c, u); other != (err == nil) || (err != nil && fault.Of(err).Kind != fault.InvalidArgument) {
			t.Errorf("another model %v: %v", other, err)
		}
	}
}

func TestAnotherModelIsAskedUnderItsOwnSettingsAndTheCallStaysThatOfItsModel(t *testing.T) {
	small := &inference.Model{Name: "small", Stable: target("s"), Timeouts: inference.Timeouts{Max: time.Second}}
	c := ready(&inference.Fallback{Model: small, Predict: true, Outage: true}, inference.Predict)
	var during *inference.Model
	err := (&Stage{Messages: messages}).Wrap(func(_ context.Context, c *inference.Call) error {
		if during = c.Model; c.Target.Name == "v1" {
			return fault.New(fault.NoEndpoint, "nobody there")
		}
		return c.Send(inference.NewFrame([]byte("small")))
	})(t.Context(), c)
	if err != nil || during != small || c.Model.Name != "fraud" || c.Target.Name != "s" {
		t.Errorf("%v, asked as %v, is %s", err, during, c.Model.Name)
	}
	small.Stable, small.Current = nil, func() *inference.Target { return nil } // of which nothing is known
	if err := run(t.Context(), ready(c.Model.Fallback, inference.Predict), &upstream{faults: down("v1")}); fault.Of(err).Msg != "v1 is down" {
		t.Error(err)
	}
}

func TestTheNextTargetHasWhatIsLeftOfTheModelsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := ready(chainOf(nil0(), target("v2")), inference.Predict)
		c.Model.Timeouts.Max = time.Second
		var left time.Duration
		err := (&Stage{Messages: messages}).Wrap(func(ctx context.Context, c *inference.Call) error {
			if c.Target.Name == "v1" {
				time.Sleep(700 * time.Millisecond) //nolint:forbidigo // the bubble's clock
				return fault.New(fault.UpstreamTimeout, "too slow")
			}
			if _, has := ctx.Deadline(); has {
				t.Error("it looks as if the caller had a deadline")
			}
			left = time.Until(c.Latest)
			return c.Send(inference.NewFrame(nil))
		})(t.Context(), c)
		if err != nil || left != 300*time.Millisecond || !c.Latest.IsZero() {
			t.Errorf("%v, it had %s; after it %s", err, left, c.Latest)
		}
	})
}

// talk is a message of a stream, and what its client gets.
func talk(f *inference.Fallback, p inference.Protocol) (*inference.Call, *[]string) {
	c := ready(f, p)
	c.Stream = &inference.Stream{}
	var got []string
	c.Sink = func(f inference.Frame) error { got = append(got, text(f)); return nil }
	return c, &got
}

func TestTheReportOfAnOutageInAStreamIsAnsweredFor(t *testing.T) {
	inBand := func(kind fault.Kind, more int) inference.Handler {
		return func(_ context.Context, c *inference.Call) error {
			if c.Target.Name != "v1" {
				return c.Send(inference.NewFrame([]byte("answer of " + c.Target.Name)))
			}
			c.InBand = fault.New(kind, "reported")
			for range 1 + more {
				_ = c.Send(inference.NewFrame([]byte("report")))
			}
			return nil
		}
	}
	for name, tt := range map[string]struct {
		handle   inference.Handler
		fallback *inference.Fallback
		want     []string
		degraded bool
		err      fault.Kind
	}{
		"a score":                 {inBand(fault.ModelNotReady, 0), scoreOf(0.5), []string{"score 0.5 as  of 0 outputs"}, true, 0},
		"with a final mark":       {inBand(fault.ModelNotReady, 1), scoreOf(0.5), []string{"score 0.5 as  of 0 outputs"}, true, 0},
		"another target":          {inBand(fault.ModelNotReady, 0), chainOf(scoreOf(0.5), target("v2")), []string{"answer of v2 marked v2_grpc_stream"}, true, 0},
		"the caller's mistake":    {inBand(fault.InvalidArgument, 0), scoreOf(0.5), []string{"report"}, false, 0},
		"where nothing stands in": {inBand(fault.ModelNotReady, 0), nil0In(), nil, false, fault.ModelNotReady},
	} {
		c, got := talk(tt.fallback, inference.KServeStream)
		err := (&Stage{Messages: messages}).Wrap(tt.handle)(t.Context(), c)
		if fmt.Sprint(*got) != fmt.Sprint(tt.want) || (c.Degraded != nil) != tt.degraded {
			t.Errorf("%s: %q, degraded %+v", name, *got, c.Degraded)
		}
		if tt.err != 0 && fault.Of(err).Kind != tt.err || tt.err == 0 && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if tt.degraded && (c.InBand != nil || c.Answers != 1) {
			t.Errorf("%s: in-band %v, %d answers", name, c.InBand, c.Answers)
		}
	}
}

func nil0In() *inference.Fallback {
	f := nil0()
	f.V2, f.Outage = true, true
	return f
}

func TestEveryAnswerOfAnotherTargetIsMarkedInAStream(t *testing.T) {
	c, got := talk(chainOf(scoreOf(0.5), target("v2")), inference.PredictStream)
	shared := c.Incoming
	err := (&Stage{Messages: messages}).Wrap(func(_ context.Context, c *inference.Call) error {
		if c.Target.Name == "v1" {
			return fault.New(fault.EndpointLost, "it broke")
		}
		_ = c.Send(inference.NewFrame([]byte("a")))
		return c.Send(inference.NewFrame([]byte("b")))
	})(t.Context(), c)
	if err != nil || fmt.Sprint(*got) != "[a marked predict_stream b marked predict_stream]" || !maps.EqualFunc(c.Incoming, shared, func(a, b []string) bool { return &a[0] == &b[0] }) {
		t.Errorf("%v, %q", err, *got)
	}
	_ = c.Sink(inference.NewFrame([]byte("c"))) // what fronts send by themselves goes out as it is
	if (*got)[2] != "c" {
		t.Errorf("%q", *got)
	}
}

func TestTheAnswerIsMadeOfWhatIsDeclaredAndWhatTheUpstreamHasSaid(t *testing.T) {
	known := inference.Tensors{Outputs: make([]inference.Tensor, 2)}
	for name, tt := range map[string]struct {
		declared *inference.Tensors
		want     string
		err      fault.Kind
	}{
		"the upstream's":       {nil, "score 0.5 as  of 2 outputs", 0},
		"an output by name":    {&inference.Tensors{Output: "S"}, "score 0.5 as S of 2 outputs", 0},
		"declared outputs":     {&inference.Tensors{Output: "S", Outputs: make([]inference.Tensor, 1)}, "score 0.5 as S of 1 outputs", 0},
		"bad input":            {&inference.Tensors{Output: "BAD"}, "", fault.BadTensor},
		"what no score can be": {&inference.Tensors{Output: "NONE"}, "", fault.UpstreamUnavailable},
	} {
		c := ready(scoreOf(0.5), inference.Predict)
		c.Target.Pool, c.Model.Tensors = pool{tensors: known}, tt.declared
		err := run(t.Context(), c, &upstream{faults: down("v1")})
		if text(c.Answer) != tt.want || tt.err != 0 && fault.Of(err).Kind != tt.err || (c.Degraded != nil) != (tt.err == 0) {
			t.Errorf("%s: %q, %v", name, text(c.Answer), err)
		}
	}
}

func TestTensorsAreAskedForBeforeTheyAreNeeded(t *testing.T) {
	c := ready(scoreOf(0.5), inference.KServe)
	asked := 0
	c.Target.Pool = pool{asked: &asked}
	if err := run(t.Context(), c, &upstream{}); err != nil || asked != 1 {
		t.Errorf("%v, asked %d times", err, asked)
	}
}

func TestACallThatGoesWellCostsNothing(t *testing.T) {
	u := func(context.Context, *inference.Call) error { return nil }
	h := (&Stage{Messages: messages}).Wrap(u)
	c := ready(scoreOf(0.5), inference.Predict)
	if n := testing.AllocsPerRun(100, func() { _ = h(t.Context(), c) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
