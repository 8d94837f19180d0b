package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// SplitTotal is the name of the metric of choices.
const SplitTotal = "gateway_split_total"

// LabelBy is what decided; see inference.Choice.
const LabelBy = "by"

// Names of attributes of log lines.
const (
	AttrSplitBy     = "split_by"     // what decided, where it was a rule
	AttrSplitRule   = "split_rule"   // its name
	AttrSplitReason = "split_reason" // what a script said, or why no rule had an answer
)

type splitKey struct{ model, version, target, by string }

func newSplit() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: SplitTotal,
		Help: "Calls to models that have rules or a script, by the target they went to and what decided: a rule (header, metadata, user, caller, script, weights, always), stable where none had an answer, sequence or pinned.",
	}, []string{LabelModel, LabelTarget, LabelBy})
}

// SplitChose counts a call that rules sent to t, or left to it. by is inference.Choice.By.
func (m *Metrics) SplitChose(t *inference.Target, by string) {
	k := splitKey{t.Asked, t.Version, t.Name, by}
	c, ok := m.seenSplit.Get(k)
	if !ok {
		c = m.newSplitCount(k)
	}
	c.Inc()
}

func (m *Metrics) newSplitCount(k splitKey) prometheus.Counter {
	model, _, target, own := m.labels.of(k.model, k.version, k.target)
	c := m.split.WithLabelValues(model, target, k.by)
	return m.seenSplit.GetOrAdd(k, func(int) (prometheus.Counter, bool) { return c, own })
}
