package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// RetriesTotal is the name of the metric of further attempts.
const RetriesTotal = "gateway_retries_total"

// Values of the label result.
const (
	retried       = "retried"
	retryNoBudget = "no_budget"
)

func newRetries() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: RetriesTotal,
		Help: "Further attempts on another endpoint, by the fault of the attempt before (reason); result no_budget counts those that were not made because the target's budget was spent.",
	}, []string{LabelModel, LabelTarget, LabelReason, LabelResult})
}

// Retried counts a further attempt at t, after a fault of kind.
func (m *Metrics) Retried(t *inference.Target, kind fault.Kind) { m.retry(t, kind, retried) }

// RetryRefused counts a further attempt that the budget of t did not allow.
func (m *Metrics) RetryRefused(t *inference.Target, kind fault.Kind) { m.retry(t, kind, retryNoBudget) }

// retry looks labels up each time: further attempts are few.
func (m *Metrics) retry(t *inference.Target, kind fault.Kind, result string) {
	model, _, target, _ := m.labels.of(t.Asked, t.Version, t.Name)
	m.retries.WithLabelValues(model, target, kind.Reason(), result).Inc()
}
