package telemetry

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc/codes"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/stats"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// filled gives metrics in which every metric has been used.
func filled() *Metrics {
	m := New(Build{Version: "1.2.3", Revision: "abcdef"})
	m.CallStarted(inference.Predict)
	m.CallStarted(inference.KServe)
	m.CallEnded(ok("fraud", "1", "model_v1", 120*time.Millisecond))
	m.CallStarted(inference.KServe)
	m.CallEnded(Call{Protocol: inference.KServe, HTTP: 404, GRPC: codes.NotFound, Duration: time.Millisecond})
	m.CallStarted(inference.HTTPPredict)
	m.CallEnded(Call{
		Model: "fraud", Version: "1", Target: "model_v1", Protocol: inference.HTTPPredict,
		HTTP: 503, GRPC: codes.Unavailable, Degraded: true, Reason: "NO_ENDPOINT", Duration: time.Second,
	})
	m.Attempt(&inference.Target{Asked: "fraud", Version: "1", Name: "model_v1"}, stats.OK, 100*time.Millisecond)
	m.StreamOpened()
	m.Panicked()
	m.Suppressed()
	m.Reloaded("9f86d081", time.Unix(1_700_000_000, 0))
	m.ReloadRefused()
	perUser := m.Limit("per-user", "fraud")
	perUser.Decided(Allowed, SourceExact)
	perUser.Decided(Refused, SourceOverMemory)
	perUser.Decided(FallbackRefused, SourceLocal)
	m.Limit("everyone", "").Decided(ShadowRefused, SourceLeased)
	m.LimitLeases(2)
	m.LimitLeases(-1)
	m.LimitStoreFailed()
	shadow := &inference.Target{Asked: "fraud", Version: "2", Name: "model_v2"}
	m.Mirrored(shadow, inference.ValuesDiffer.String())
	m.Mirrored(shadow, MirrorDropped)
	m.MirrorDifference(shadow, &inference.Difference{Kind: inference.ValuesDiffer, Compared: 1, MaxAbs: 0.25, Scored: true, Score: 0.5, MirroredScore: 0.75})
	m.MirrorHeld(1)
	m.SplitChose(shadow, inference.ByWeights)
	m.Retried(shadow, fault.EndpointLost)
	m.EndpointsFull(shadow)
	m.PassedOver(shadow, &inference.Target{Asked: "small", Version: "1", Name: "model_v1"})
	m.RetryRefused(shadow, fault.UpstreamQueue)
	(&Attempts{Stats: stats.NewRegistry(nil), Metrics: m, Arm: stats.Mirror}).Attempt(nil, shadow, "10.0.0.1:8001", stats.OK, 100*time.Millisecond)
	m.ShowEndpoints(func() []EndpointState {
		return []EndpointState{{"triton", "10.0.0.1:8001", true, nil, 7, 200}, {"triton", "10.0.0.2:8001", false, []string{"fraud/1"}, 0, 0}, {"triton", "10.0.0.1:8001", false, nil, 8, 200}}
	})
	m.ShowTargets(func() []TargetState {
		return []TargetState{{"fraud", "1", "model_v1", true}, {"fraud", "1", "model_v1", false}}
	})
	return m
}

func ok(model, version, target string, d time.Duration) Call {
	return Call{Model: model, Version: version, Target: target, Protocol: inference.Predict, HTTP: 200, Duration: d}
}

func scrape(t *testing.T, m *Metrics, accept string) (contentType, body string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	m.Handler(slog.New(slog.DiscardHandler)).ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("scrape answered %d: %s", w.Code, w.Body)
	}
	b, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Header().Get("Content-Type"), string(b)
}

func own(t *testing.T, m *Metrics) []*dto.MetricFamily {
	t.Helper()
	all, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool { return !strings.HasPrefix(f.GetName(), "gateway_") })
}

func TestMetricsReadAsPeopleKnowThem(t *testing.T) {
	_, page := scrape(t, filled(), "text/plain")
	var got bytes.Buffer
	for line := range strings.Lines(page) {
		if strings.Contains(line, "gateway_") {
			got.WriteString(line)
		}
	}
	text := regexp.MustCompile(`goversion="[^"]*"`).ReplaceAllString(got.String(), `goversion="…"`)
	golden := filepath.Join("testdata", "metrics.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), text); d != "" {
		t.Errorf("the page changed (-update rewrites it; alerts and panels depend on these names):\n%s", d)
	}
}

func TestMetricsAreAsPrometheusWantsThem(t *testing.T) {
	m := filled()
	problems, err := promlint.NewWithMetricFamilies(own(t, m)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestScrapersGetTheFormatTheyAskFor(t *testing.T) {
	m := filled()
	kind, page := scrape(t, m, "application/openmetrics-text;version=1.0.0")
	if !strings.HasPrefix(kind, "application/openmetrics-text") || !strings.HasSuffix(page, "# EOF\n") {
		t.Errorf("asked for OpenMetrics, got %s", kind)
	}
	kind, page = scrape(t, m, "*/*")
	if !strings.HasPrefix(kind, "text/plain") {
		t.Errorf("asked for nothing in particular, got %s", kind)
	}
	for _, name := range []string{"go_goroutines", "process_resident_memory_bytes"} {
		if !strings.Contains(page, "\n"+name+" ") {
			t.Errorf("%s is missing", name)
		}
	}
	kind, _ = scrape(t, m, "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	if !strings.HasPrefix(kind, "application/vnd.google.protobuf") {
		t.Errorf("asked for protobuf, which native histograms need, got %s", kind)
	}
}

func TestHistogramsHaveFewClassicBucketsAndNativeOnes(t *testing.T) {
	if len(buckets) > 20 || !slices.IsSorted(buckets) || buckets[0] != .001 || buckets[len(buckets)-1] != 60 {
		t.Errorf("buckets %v", buckets)
	}
	for _, alert := range []float64{.12, .15, .8} {
		if !slices.Contains(buckets, alert) {
			t.Errorf("no bucket ends at %v, where an alert does", alert)
		}
	}
	for _, f := range own(t, filled()) {
		if f.GetType() != dto.MetricType_HISTOGRAM {
			continue
		}
		for _, m := range f.GetMetric() {
			if len(m.GetHistogram().GetPositiveSpan()) == 0 {
				t.Errorf("%s has no native buckets", f.GetName())
			}
		}
	}
}

// series counts the series of a metric, and gives the values of one of its labels.
func series(t *testing.T, m *Metrics, name, label string) (n int, values []string) {
	t.Helper()
	for _, f := range own(t, m) {
		if f.GetName() != name {
			continue
		}
		for _, s := range f.GetMetric() {
			n++
			for _, l := range s.GetLabel() {
				if l.GetName() == label && !slices.Contains(values, l.GetValue()) {
					values = append(values, l.GetValue())
				}
			}
		}
	}
	slices.Sort(values)
	return n, values
}

func end(m *Metrics, c Call) {
	m.CallStarted(c.Protocol)
	m.CallEnded(c)
}

func TestModelsBeyondTheBoundShareALabel(t *testing.T) {
	m := New(Build{})
	m.labels.maxModels, m.labels.maxTargets = 3, 4
	for i := range 50 {
		end(m, ok(fmt.Sprint("m", i), "1", "model_v1", time.Millisecond))
		m.Attempt(&inference.Target{Asked: fmt.Sprint("m", i), Version: "1", Name: "model_v1"}, stats.OK, time.Millisecond)
	}
	want := []string{"m0", "m1", "m2", LabelOther}
	for _, name := range []string{RequestDuration, UpstreamDuration} {
		if n, got := series(t, m, name, LabelModel); n != 4 || !slices.Equal(got, want) {
			t.Errorf("%s has %d series for models %v, want %v", name, n, got, want)
		}
	}
	if n := m.seenRequests.Len(); n != 3 {
		t.Errorf("%d names are remembered, want 3", n)
	}
	// And so do targets beyond theirs.
	for i := range 50 {
		end(m, ok("m0", fmt.Sprint(i), fmt.Sprint("t", i), time.Millisecond))
	}
	if n, got := series(t, m, RequestDuration, LabelTarget); n != 6 || !slices.Equal(got, []string{"model_v1", LabelOther, "t0"}) {
		t.Errorf("%d series for targets %v", n, got)
	}
	_, page := scrape(t, m, "")
	if !strings.Contains(page, LabelsRefused+" ") || strings.Contains(page, LabelsRefused+" 0\n") {
		t.Error("nothing tells that labels were refused")
	}
}

func TestCallsOfUnknownModelsShareALabel(t *testing.T) {
	m := New(Build{})
	for range 3 {
		end(m, Call{Protocol: inference.KServe, HTTP: 404, GRPC: codes.NotFound})
	}
	end(m, Call{Model: "declared", Protocol: inference.KServe, HTTP: 503, GRPC: codes.Unavailable}) // no target was chosen
	if n, got := series(t, m, RequestDuration, LabelModel); n != 2 || !slices.Equal(got, []string{"declared", LabelUnknown}) {
		t.Errorf("%d series for models %v", n, got)
	}
}

func TestOnlyFailuresAreErrorsAndDegradedOnesAreMarked(t *testing.T) {
	m := New(Build{})
	end(m, ok("m", "1", "t", 0))
	end(m, Call{HTTP: 499, GRPC: codes.Canceled})
	end(m, Call{HTTP: 503, GRPC: codes.Unavailable})
	end(m, Call{HTTP: 503, GRPC: codes.Unavailable, Degraded: true, Reason: "NO_ENDPOINT"})
	end(m, Call{Model: "m", Version: "1", Target: "t", HTTP: 504, GRPC: codes.DeadlineExceeded, Degraded: true, Reason: "UPSTREAM_TIMEOUT"})
	m.Error(503, false)
	_, page := scrape(t, m, "")
	for _, want := range []string{
		`gateway_request_errors_total{code="499",degraded="false"} 1`,
		`gateway_request_errors_total{code="503",degraded="false"} 2`,
		`gateway_request_errors_total{code="503",degraded="true"} 1`,
		`gateway_request_errors_total{code="504",degraded="true"} 1`,
		`gateway_degraded_total{model="unknown",reason="NO_ENDPOINT",target="unknown"} 1`,
		`gateway_degraded_total{model="m",reason="UPSTREAM_TIMEOUT",target="t"} 1`,
		`gateway_request_duration_seconds_count{code="degraded",grpc_code="OK",model="unknown",protocol="predict",target="unknown",version="unknown"} 1`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("missing: %s", want)
		}
	}
	if strings.Contains(page, `gateway_request_errors_total{code="200"`) {
		t.Error("a success counts as an error")
	}
}

func TestCodesThatAreNoneDoNotBecomeLabels(t *testing.T) {
	m := New(Build{})
	for i := range 100 {
		end(m, Call{HTTP: 1000 + i, GRPC: codes.Code(20 + i)})
	}
	if n, got := series(t, m, RequestDuration, LabelGRPCCode); n != 1 || got[0] != "UNKNOWN" {
		t.Errorf("%d series for codes %v", n, got)
	}
	if n, got := series(t, m, RequestErrors, LabelCode); n != 1 || got[0] != "500" {
		t.Errorf("%d series for codes %v", n, got)
	}
}

func TestInFlightCallsGoUpAndDown(t *testing.T) {
	m := New(Build{})
	var g sync.WaitGroup
	for range 8 {
		g.Go(func() {
			for range 100 {
				end(m, ok("m", "1", "t", time.Millisecond))
				m.StreamOpened()
				m.StreamClosed()
			}
		})
	}
	g.Wait()
	m.CallStarted(inference.PredictStream)
	_, page := scrape(t, m, "")
	for _, want := range []string{
		`gateway_requests_in_flight{protocol="predict"} 0`, `gateway_requests_in_flight{protocol="predict_stream"} 1`, `gateway_streams_open 0`,
		`gateway_request_duration_seconds_count{code="200",grpc_code="OK",model="m",protocol="predict",target="t",version="1"} 800`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("missing: %s", want)
		}
	}
}

func TestOnlyTheConfigurationThatServesHasAHash(t *testing.T) {
	m := New(Build{})
	m.Reloaded("one", time.Unix(1, 0))
	m.Reloaded("two", time.Unix(2, 500e6))
	if n, got := series(t, m, ConfigInfo, LabelHash); n != 1 || got[0] != "two" {
		t.Errorf("hashes %v", got)
	}
	m.ReloadRefused()
	_, page := scrape(t, m, "")
	for _, want := range []string{
		"gateway_config_last_reload_successful 0", "gateway_config_last_success_timestamp_seconds 2.5",
		`gateway_config_reloads_total{result="ok"} 2`, `gateway_config_reloads_total{result="refused"} 1`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("missing: %s", want)
		}
	}
}

func TestAttemptsAreTheSameSamplesInStatsAndMetrics(t *testing.T) {
	m := New(Build{})
	a := &Attempts{Stats: stats.NewRegistry(nil), Metrics: m}
	target := &inference.Target{Asked: "fraud", Name: "model_v1", Version: "1", Upstream: "triton"}
	for range 3 {
		a.Attempt(nil, target, "a:1", stats.OK, 10*time.Millisecond)
	}
	a.Attempt(nil, target, "b:1", stats.Timeout, time.Second)
	s := a.Stats.Target(stats.KeyOf(target)).Window(stats.W1m)
	_, page := scrape(t, m, "")
	for _, o := range []stats.Outcome{stats.OK, stats.Timeout} {
		want := fmt.Sprintf(`gateway_upstream_duration_seconds_count{model="fraud",outcome="%s",target="model_v1",version="1"} %d`, o, s.Count(stats.Of(o)))
		if !strings.Contains(page, want+"\n") {
			t.Errorf("missing: %s", want)
		}
	}
}

func TestRecordingACallAllocatesNothing(t *testing.T) {
	m := New(Build{})
	a := &Attempts{Stats: stats.NewRegistry(nil), Metrics: m}
	target := &inference.Target{Asked: "fraud", Name: "model_v1", Version: "1", Upstream: "triton"}
	failed := Call{Model: "fraud", Version: "1", Target: "model_v1", HTTP: 503, GRPC: codes.Unavailable, Duration: time.Millisecond}
	for what, f := range map[string]func(){
		"a call":        func() { end(m, ok("fraud", "1", "model_v1", time.Millisecond)) },
		"a failed call": func() { end(m, failed) },
		"a choice":      func() { m.SplitChose(target, inference.ByWeights) },
		"an attempt":    func() { a.Attempt(nil, target, "a:1", stats.OK, time.Millisecond) },
	} {
		if n := testing.AllocsPerRun(100, f); n > 0 {
			t.Errorf("%s costs %v allocations", what, n)
		}
	}
}

func BenchmarkCall(b *testing.B) {
	m := New(Build{})
	c := ok("fraud", "1", "model_v1", 12*time.Millisecond)
	b.ReportAllocs()
	for b.Loop() {
		end(m, c)
	}
}

func BenchmarkAttempt(b *testing.B) {
	a := &Attempts{Stats: stats.NewRegistry(nil), Metrics: New(Build{})}
	target := &inference.Target{Asked: "fraud", Name: "model_v1", Version: "1", Upstream: "triton"}
	b.ReportAllocs()
	for b.Loop() {
		a.Attempt(nil, target, "10.0.0.1:8001", stats.OK, 12*time.Millisecond)
	}
}

// BenchmarkCallAmongModels shows that a call does not cost more where there are more models.
func BenchmarkCallAmongModels(b *testing.B) {
	for _, n := range []int{1, 100, 5_000} {
		b.Run(fmt.Sprintf("models=%d", n), func(b *testing.B) {
			m := New(Build{})
			calls := make([]Call, n)
			for range 2 {
				for i := range calls {
					calls[i] = ok(fmt.Sprint("model", i), "1", "model_v1", 12*time.Millisecond)
					end(m, calls[i])
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				end(m, calls[0])
			}
		})
	}
}
