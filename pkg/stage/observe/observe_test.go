package observe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
)

// recorder keeps what it is told.
type recorder struct {
	mu         sync.Mutex
	inFlight   int
	streams    int
	calls      []telemetry.Call
	errors     []int
	panics     int
	suppressed int
}

func (r *recorder) do(f func()) { r.mu.Lock(); defer r.mu.Unlock(); f() }

func (r *recorder) CallStarted(inference.Protocol) { r.do(func() { r.inFlight++ }) }
func (r *recorder) CallEnded(c telemetry.Call) {
	r.do(func() { r.inFlight--; r.calls = append(r.calls, c) })
}
func (r *recorder) StreamOpened()            { r.do(func() { r.streams++ }) }
func (r *recorder) StreamClosed()            { r.do(func() { r.streams-- }) }
func (r *recorder) Error(http int, _ bool)   { r.do(func() { r.errors = append(r.errors, http) }) }
func (r *recorder) Panicked()                { r.do(func() { r.panics++ }) }
func (r *recorder) Suppressed()              { r.do(func() { r.suppressed++ }) }
func (r *recorder) last() (c telemetry.Call) { return r.calls[len(r.calls)-1] }

var (
	_ Recorder = (*telemetry.Metrics)(nil)
	_ Recorder = (*recorder)(nil)
)

// rig is a stage with everything around it faked.
type rig struct {
	*Stage
	recorder
	log bytes.Buffer
	at  time.Time
}

func newRig(level slog.Level, o Options) *rig {
	r := &rig{at: time.Unix(1_700_000_000, 0)}
	o.Recorder = &r.recorder
	o.Log = slog.New(slog.NewJSONHandler(&r.log, &slog.HandlerOptions{Level: level}))
	o.Now = func() time.Time { return r.at }
	r.Stage = New(o)
	return r
}

// call runs one call through the stage, which takes d and ends with err.
func (r *rig) call(c *inference.Call, d time.Duration, err error) error {
	c.Start = r.at
	return r.Wrap(func(context.Context, *inference.Call) error {
		r.at = r.at.Add(d)
		return err
	})(context.Background(), c)
}

// lines gives what was logged, and forgets it.
func (r *rig) lines(t *testing.T) (lines []map[string]any) {
	t.Helper()
	for line := range strings.Lines(r.log.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, m)
	}
	r.log.Reset()
	return lines
}

func sample() *inference.Call {
	target := &inference.Target{Name: "model_v1", Asked: "fraud", Model: "fraud_internal", Version: "1", Upstream: "triton"}
	return &inference.Call{
		Protocol: inference.KServe, Method: "/inference.GRPCInferenceService/ModelInfer",
		Incoming: map[string][]string{"authorization": {"Bearer sesame"}, "x-api-key": {"sesame"}, "cookie": {"sesame"}},
		Identity: inference.Identity{RequestID: "r-1", TraceID: "t-1", User: "ann"},
		Head:     inference.Head{Model: "fraud", Metadata: map[string]string{"secret": "sesame"}},
		Request:  inference.NewFrame([]byte("sesame")),
		Model:    &inference.Model{Name: "fraud", Route: true},
		Target:   target, Endpoint: "10.0.0.1:8001", Attempts: 1,
	}
}

func TestACallIsTimedFromWhenItHadBeenRead(t *testing.T) {
	r := newRig(slog.LevelInfo, Options{})
	if err := r.call(sample(), 30*time.Millisecond, nil); err != nil {
		t.Fatal(err)
	}
	want := telemetry.Call{Model: "fraud", Version: "1", Target: "model_v1", Protocol: inference.KServe, HTTP: 200, Duration: 30 * time.Millisecond}
	if r.last() != want {
		t.Errorf("recorded %+v, want %+v", r.last(), want)
	}
	if lines := r.lines(t); len(lines) != 0 {
		t.Errorf("an ordinary call was logged: %v", lines)
	}
	if r.inFlight != 0 {
		t.Errorf("%d calls in flight", r.inFlight)
	}
}

func TestACallWithoutAStartIsTimedFromTheStage(t *testing.T) {
	r := newRig(slog.LevelInfo, Options{})
	c := sample()
	err := r.Wrap(func(context.Context, *inference.Call) error { r.at = r.at.Add(time.Second); return nil })(t.Context(), c)
	if err != nil || r.last().Duration != time.Second {
		t.Errorf("%v, %v", err, r.last().Duration)
	}
}

func TestEveryKindOfFaultIsRecordedUnderItsCodes(t *testing.T) {
	r := newRig(slog.LevelInfo, Options{})
	for _, k := range fault.Kinds() {
		in := fault.New(k, "it broke")
		if err := r.call(sample(), 0, in); !errors.Is(err, in) {
			t.Errorf("%s came out as %v", k.Reason(), err)
		}
		if got := r.last(); got.HTTP != k.Row().HTTP || got.GRPC != k.Row().GRPC {
			t.Errorf("%s recorded as %d, %v", k.Reason(), got.HTTP, got.GRPC)
		}
	}
	if err := r.call(sample(), 0, context.Canceled); !errors.Is(err, context.Canceled) || r.last().HTTP != 499 {
		t.Errorf("a caller that left is recorded as %d", r.last().HTTP)
	}
}

func TestAnInBandErrorCountsAsTheFailureItIs(t *testing.T) {
	r := newRig(slog.LevelInfo, Options{})
	c := sample()
	c.InBand = fault.New(fault.UpstreamFailed, "CUDA out of memory")
	if err := r.call(c, 0, nil); err != nil {
		t.Fatalf("what was sent as it came became an error: %v", err)
	}
	if r.last().HTTP != 500 || r.last().GRPC != codes.Internal {
		t.Errorf("recorded %+v", r.last())
	}
	if lines := r.lines(t); len(lines) != 1 || lines[0]["reason"] != "UPSTREAM_FAILED" {
		t.Errorf("logged %v", lines)
	}
}

func TestNamesThatClientsMakeUpNeverBecomeLabels(t *testing.T) {
	for name, c := range map[string]struct {
		model  *inference.Model
		target *inference.Target
		want   [3]string
	}{
		"no such model":             {},
		"passing through, unproven": {model: &inference.Model{Name: "made-up"}},
		"declared, no target yet":   {model: &inference.Model{Name: "fraud", Route: true}, want: [3]string{"fraud"}},
		"passing through, found": {
			model: &inference.Model{Name: "found"}, target: &inference.Target{Asked: "found", Name: "model_v2", Version: "2"},
			want: [3]string{"found", "2", "model_v2"},
		},
	} {
		r := newRig(slog.LevelInfo, Options{})
		call := sample()
		call.Head.Model, call.Model, call.Target = "made-up", c.model, c.target
		_ = r.call(call, 0, fault.New(fault.ModelNotFound, "no"))
		if got := r.last(); [3]string{got.Model, got.Version, got.Target} != c.want {
			t.Errorf("%s: labels %q %q %q, want %q", name, got.Model, got.Version, got.Target, c.want)
		}
		if lines := r.lines(t); len(lines) != 1 || lines[0]["model"] != "made-up" {
			t.Errorf("%s: the log does not say what was asked for: %v", name, lines)
		}
	}
}

func TestAPanicIsOneCallsFailure(t *testing.T) {
	r := newRig(slog.LevelInfo, Options{})
	h := r.Wrap(func(context.Context, *inference.Call) error { panic("index out of range") })
	err := h(t.Context(), sample())
	var f *fault.Fault
	if !errors.As(err, &f) || f.Kind != fault.Internal || strings.Contains(f.Msg, "index") || !strings.Contains(f.Msg, "r-1") {
		t.Errorf("the client is told %v", err)
	}
	if r.panics != 1 || r.inFlight != 0 || r.last().HTTP != 500 {
		t.Errorf("panics %d, in flight %d, recorded %+v", r.panics, r.inFlight, r.last())
	}
	lines := r.lines(t)
	if len(lines) != 2 || lines[0]["panic"] != "index out of range" || !strings.Contains(fmt.Sprint(lines[0]["stack"]), "observe_test.go") {
		t.Errorf("the log does not tell where it was: %v", lines)
	}
	if err := r.call(sample(), 0, nil); err != nil {
		t.Errorf("the next call suffers: %v", err)
	}
}

func TestAPanicOfAStreamIsOneStreamsFailure(t *testing.T) {
	r := newRig(slog.LevelInfo, Options{})
	err := r.Open(func(context.Context, *inference.Call) error {
		if r.streams != 1 {
			t.Errorf("%d streams open", r.streams)
		}
		panic(errors.New("boom"))
	})(t.Context(), sample())
	if fault.Of(err).Kind != fault.Internal || r.streams != 0 || len(r.errors) != 1 || r.errors[0] != 500 {
		t.Errorf("%v, %d streams open, errors %v", err, r.streams, r.errors)
	}
}

func TestAStreamIsAnErrorOnlyWhereItFailedAsAWhole(t *testing.T) {
	for _, c := range []struct {
		err  error
		want []int
	}{
		{nil, nil},
		{context.Canceled, nil},
		{context.DeadlineExceeded, nil},
		{fault.New(fault.ShuttingDown, "bye"), nil}, // planned, and the client opens another one elsewhere
		{fault.New(fault.NoEndpoint, "nobody there"), []int{503}},
	} {
		r := newRig(slog.LevelInfo, Options{})
		if err := r.Open(func(context.Context, *inference.Call) error { return c.err })(t.Context(), sample()); !errors.Is(err, c.err) {
			t.Errorf("%v came out as %v", c.err, err)
		}
		if fmt.Sprint(r.errors) != fmt.Sprint(c.want) || len(r.calls) != 0 {
			t.Errorf("%v: errors %v, want %v; %d calls", c.err, r.errors, c.want, len(r.calls))
		}
		if n := len(r.lines(t)); n != len(c.want) {
			t.Errorf("%v: %d lines", c.err, n)
		}
	}
}

func TestWhatIsLogged(t *testing.T) {
	for _, c := range []struct {
		name    string
		options Options
		level   slog.Level
		took    time.Duration
		err     error
		want    string // level of the line; "" is none
	}{
		{"an ordinary call", Options{}, slog.LevelInfo, time.Second, nil, ""},
		{"an ordinary call, debugging", Options{}, slog.LevelDebug, time.Second, nil, "DEBUG"},
		{"a slow call", Options{Slow: time.Second}, slog.LevelInfo, time.Second, nil, "WARN"},
		{"a call that is not slow", Options{Slow: time.Second}, slog.LevelInfo, time.Second - 1, nil, ""},
		{"a sampled call", Options{Sample: 1}, slog.LevelInfo, 0, nil, "INFO"},
		{"a client's fault", Options{}, slog.LevelInfo, 0, fault.New(fault.BadTensor, "x"), "INFO"},
		{"a client's fault, for those who only want trouble", Options{}, slog.LevelWarn, 0, fault.New(fault.BadTensor, "x"), ""},
		{"an upstream's fault", Options{}, slog.LevelInfo, 0, fault.New(fault.UpstreamFailed, "x"), "WARN"},
		{"our own", Options{}, slog.LevelInfo, 0, errors.New("x"), "ERROR"},
	} {
		r := newRig(c.level, c.options)
		_ = r.call(sample(), c.took, c.err)
		got := ""
		if lines := r.lines(t); len(lines) == 1 {
			got = fmt.Sprint(lines[0]["level"])
		} else if len(lines) > 1 {
			t.Errorf("%s: %d lines", c.name, len(lines))
		}
		if got != c.want {
			t.Errorf("%s: level %q, want %q", c.name, got, c.want)
		}
	}
}

func TestAFloodOfOneFailureDoesNotFloodTheLogNorHideAnother(t *testing.T) {
	r := newRig(slog.LevelInfo, Options{PerSecond: 5})
	for range 100 {
		_ = r.call(sample(), 0, fault.New(fault.NoEndpoint, "x"))
	}
	_ = r.call(sample(), 0, fault.New(fault.UpstreamFailed, "x"))
	lines := r.lines(t)
	if len(lines) != 6 || lines[5]["reason"] != "UPSTREAM_FAILED" || r.suppressed != 95 {
		t.Fatalf("%d lines, %d suppressed", len(lines), r.suppressed)
	}
	r.at = r.at.Add(time.Second)
	for range 2 {
		_ = r.call(sample(), 0, fault.New(fault.NoEndpoint, "x"))
	}
	lines = r.lines(t)
	if len(lines) != 2 || lines[0]["suppressed"] != 95. || lines[1]["suppressed"] != nil {
		t.Errorf("what was left out is not told once: %v", lines)
	}
	if len(r.calls) != 103 {
		t.Errorf("%d calls recorded, want 103: the limit is the log's only", len(r.calls))
	}
}

func TestDebuggingSeesEveryCall(t *testing.T) {
	r := newRig(slog.LevelDebug, Options{PerSecond: 1})
	for range 20 {
		_ = r.call(sample(), 0, fault.New(fault.NoEndpoint, "x"))
	}
	if n := len(r.lines(t)); n != 20 {
		t.Errorf("%d lines of 20", n)
	}
}

func TestLinesHaveNothingOfMetadataAndMessagesInThem(t *testing.T) {
	r := newRig(slog.LevelDebug, Options{})
	_ = r.call(sample(), time.Millisecond, fault.Wrap(fault.UpstreamFailed, errors.New("the whole text"), "short"))
	_ = r.Open(func(context.Context, *inference.Call) error { return nil })(t.Context(), sample())
	text := r.log.String()
	if strings.Contains(text, "sesame") {
		t.Errorf("a secret is in the log: %s", text)
	}
	line := r.lines(t)[0]
	for name, want := range map[string]any{
		"request_id": "r-1", "trace_id": "t-1", "user": "ann", "model": "fraud", "target": "model_v1", "version": "1", "upstream": "triton",
		"endpoint": "10.0.0.1:8001", "attempts": 1., "protocol": "v2_grpc", "kind": "infer", "code": 500., "reason": "UPSTREAM_FAILED",
		"error": "short", "cause": "the whole text", "bytes_in": 6., "bytes_out": 0., "duration_ms": 1.,
	} {
		if line[name] != want {
			t.Errorf("%s is %v, want %v", name, line[name], want)
		}
	}
}

func TestALineSaysWhichRuleChoseTheTargetWhereOneDid(t *testing.T) {
	for _, tt := range []struct {
		choice           inference.Choice
		by, rule, reason any
	}{
		{inference.Choice{By: inference.ByScript, Rule: "night", Reason: "after 22:00"}, "script", "night", "after 22:00"},
		{inference.Choice{By: inference.ByWeights, Rule: "weights"}, "weights", "weights", nil},
		{inference.Choice{By: inference.ByStable, Reason: "timeout"}, "stable", nil, "timeout"},
		{inference.Choice{By: inference.ByStable}, nil, nil, nil},
		{inference.Choice{By: inference.ByPinned}, nil, nil, nil},
	} {
		r, c := newRig(slog.LevelDebug, Options{}), sample()
		c.Choice = tt.choice
		_ = r.call(c, 0, nil)
		line := r.lines(t)[0]
		if line["split_by"] != tt.by || line["split_rule"] != tt.rule || line["split_reason"] != tt.reason {
			t.Errorf("%+v: %v", tt.choice, line)
		}
	}
}

func TestHugeNamesAreCutInTheLog(t *testing.T) {
	r := newRig(slog.LevelInfo, Options{})
	c := sample()
	c.Head.Model = strings.Repeat("m", 1<<20)
	_ = r.call(c, 0, fault.New(fault.ModelNotFound, "%s", c.Head.Model))
	if n := r.log.Len(); n > 4*maxText {
		t.Errorf("a line of %d bytes", n)
	}
}

func TestAnOrdinaryCallAllocatesNothing(t *testing.T) {
	s := New(Options{Recorder: telemetry.New(telemetry.Build{}), Log: slog.New(slog.DiscardHandler), Slow: time.Minute, Sample: 1e-9})
	h := s.Wrap(func(context.Context, *inference.Call) error { return nil })
	c := sample()
	c.Start = time.Now()
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _ = h(ctx, c) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCall(b *testing.B) {
	s := New(Options{Recorder: telemetry.New(telemetry.Build{}), Slow: time.Minute, Sample: .01})
	h := s.Wrap(func(context.Context, *inference.Call) error { return nil })
	c := sample()
	c.Start = time.Now()
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		_ = h(ctx, c)
	}
}
