package telemetry

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

func TestTimeoutsAreShownByWhatTheyGoBy(t *testing.T) {
	m := New(Build{})
	m.ShowTimeouts(func() []TimeoutState {
		return []TimeoutState{
			{Model: "fraud", Target: "model_v1", Source: "prometheus", Timeout: 2500 * time.Millisecond, Max: time.Minute},
			{Model: "fraud", Target: "model_v1", Source: "stats", Timeout: time.Second, Max: time.Minute}, // of the same name, and gone
			{Model: "fraud", Target: "model_v2", Source: "stats", Timeout: 3 * time.Second, Max: time.Minute, Shadow: true},
			{Model: "rank", Target: "model_v1", Source: "max"},
		}
	})
	m.Doomed(&inference.Target{Asked: "fraud", Name: "model_v1", Version: "1"})
	m.PrometheusAsked(nil)
	m.PrometheusAsked(errors.New("gone"))
	_, text := scrape(t, m, "")
	for _, want := range []string{
		`gateway_timeout_seconds{model="fraud",source="prometheus",target="model_v1"} 2.5`,
		`gateway_timeout_seconds{model="fraud",source="shadow",target="model_v2"} 3`,
		`gateway_timeout_seconds{model="fraud",source="max",target="model_v2"} 60`,
		`gateway_calls_doomed_total{model="fraud",target="model_v1"} 1`,
		`gateway_prometheus_queries_total{result="ok"} 1`,
		`gateway_prometheus_queries_total{result="error"} 1`,
	} {
		if !strings.Contains(string(text), want+"\n") {
			t.Errorf("metrics lack %s", want)
		}
	}
	if n := strings.Count(string(text), "\ngateway_timeout_seconds{"); n != 3 {
		t.Errorf("%d timeouts are shown", n)
	}
}

func TestBucketsReachTheLongestTimeThatPrometheusCanTell(t *testing.T) {
	if last := buckets[len(buckets)-1]; last != LongestBucket.Seconds() {
		t.Errorf("the last bucket ends at %v s", last)
	}
}
