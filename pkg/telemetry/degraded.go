package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/readmap"
)

// DegradedTotal is the name of the metric of degraded answers.
const DegradedTotal = "gateway_degraded_total"

// Names of attributes of log lines about degraded calls, beside AttrDegraded.
const (
	AttrFallbackScore = "fallback_score" // that was answered
	AttrDegradedFrom  = "degraded_from"  // the target in whose place another one answered, which is AttrTarget
)

// degraded counts the answers that fallbacks gave.
type degraded struct {
	total *prometheus.CounterVec
	seen  readmap.Map[degradedKey, prometheus.Counter]
}

type degradedKey struct{ model, version, target, reason string }

func newDegraded() *degraded {
	return &degraded{total: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: DegradedTotal,
		Help: "Calls that a fallback answered, by the target that could not and the reason of the fault that the answer hides.",
	}, []string{LabelModel, LabelTarget, LabelReason})}
}

func (d *degraded) count(c *Call, labels *guard) {
	k := degradedKey{c.Model, c.Version, c.Target, c.Reason}
	n, ok := d.seen.Get(k)
	if !ok {
		model, _, target, own := labels.of(k.model, k.version, k.target)
		made := d.total.WithLabelValues(model, target, k.reason)
		n = d.seen.GetOrAdd(k, func(int) (prometheus.Counter, bool) { return made, own })
	}
	n.Inc()
}

func newPassedOver() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: FallbackPassedOver,
		Help: "Calls that a target of the fallback (passed_over, as model/target) did not answer in place of this one because its tensors are others.",
	}, []string{LabelModel, LabelTarget, LabelPassedOver})
}

// PassedOver counts a call to from that to could not answer in its place.
func (m *Metrics) PassedOver(from, to *inference.Target) {
	model, _, target, _ := m.labels.of(from.Asked, from.Version, from.Name)
	otherModel, _, other, _ := m.labels.of(to.Asked, to.Version, to.Name)
	m.passed.WithLabelValues(model, target, otherModel+"/"+other).Inc()
}
