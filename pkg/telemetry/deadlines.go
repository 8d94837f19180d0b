package telemetry

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Names of the metrics of timeouts.
const (
	TimeoutSeconds    = "gateway_timeout_seconds"
	DoomedTotal       = "gateway_calls_doomed_total"
	PrometheusQueries = "gateway_prometheus_queries_total"
)

// LongestBucket is the edge of the last bucket of durations: of what took longer, Prometheus can say no more than that.
const LongestBucket = 60 * time.Second

// shadow is the value of the label source of a timeout by which no call ends.
const shadow = "shadow"

// TimeoutState is how long a unary call to a target may take now.
type TimeoutState struct {
	Model, Target string
	Source        string        // what it goes by: max, prometheus, stale or stats
	Timeout       time.Duration // 0: no limit
	Shadow        bool          // no call ends by it
	Max           time.Duration // the model's, by which calls end then
}

// deadlines are the metrics of timeouts. Those of targets are asked for at each scrape, so that targets that went away leave
// no series behind.
type deadlines struct {
	states  atomic.Pointer[func() []TimeoutState]
	doomed  *prometheus.CounterVec
	queries *prometheus.CounterVec
}

var timeoutSeconds = prometheus.NewDesc(TimeoutSeconds,
	"How long a unary call to the target may take upstream, in seconds, by what that goes by (source): the model's own timeout (max), the latencies that Prometheus has now (prometheus) or had within the last minute (stale), those that this gateway has seen (stats). Source shadow is what it would be where the model's dynamic timeout is only looked at.",
	[]string{LabelModel, LabelTarget, LabelSource}, nil)

func newDeadlines() *deadlines {
	d := &deadlines{
		doomed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: DoomedTotal,
			Help: "Calls that were not sent because their callers had left less time than the target's quickest answers take.",
		}, []string{LabelModel, LabelTarget}),
		queries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: PrometheusQueries, Help: "Questions to Prometheus about latencies, by result: ok or error."}, []string{LabelResult}),
	}
	return d
}

func (d *deadlines) register(r *prometheus.Registry) { r.MustRegister(d, d.doomed, d.queries) }

// ShowTimeouts makes every scrape ask states for the timeouts of targets, of which it shows MaxTargets.
func (m *Metrics) ShowTimeouts(states func() []TimeoutState) { m.deadlines.states.Store(&states) }

// Doomed counts a call that t could not have answered in time. It looks labels up each time: such calls are refused anyway.
func (m *Metrics) Doomed(t *inference.Target) {
	model, _, target, _ := m.labels.of(t.Asked, t.Version, t.Name)
	m.deadlines.doomed.WithLabelValues(model, target).Inc()
}

// PrometheusAsked counts a question to Prometheus, which failed with err or was answered.
func (m *Metrics) PrometheusAsked(err error) {
	result := resultOK
	if err != nil {
		result = resultError
	}
	m.deadlines.queries.WithLabelValues(result).Inc()
}

const resultError = "error"

// Describe implements prometheus.Collector.
func (d *deadlines) Describe(out chan<- *prometheus.Desc) { out <- timeoutSeconds }

// Collect implements prometheus.Collector. Of two targets of one name the first is shown.
func (d *deadlines) Collect(out chan<- prometheus.Metric) {
	states := d.states.Load()
	if states == nil {
		return
	}
	seen := make(map[[2]string]struct{})
	for _, s := range (*states)() {
		k := [2]string{s.Model, s.Target}
		if _, ok := seen[k]; ok || len(seen) == MaxTargets {
			continue
		}
		seen[k] = struct{}{}
		if s.Shadow {
			out <- prometheus.MustNewConstMetric(timeoutSeconds, prometheus.GaugeValue, s.Timeout.Seconds(), s.Model, s.Target, shadow)
			s.Timeout, s.Source = s.Max, "max"
		}
		if s.Timeout > 0 {
			out <- prometheus.MustNewConstMetric(timeoutSeconds, prometheus.GaugeValue, s.Timeout.Seconds(), s.Model, s.Target, s.Source)
		}
	}
}
