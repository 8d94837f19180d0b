package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/readmap"
)

// Names of metrics of breakers, and of what models promise.
const (
	BreakerStateNow    = "gateway_breaker_state"
	BreakerForced      = "gateway_breaker_forced"
	BreakerTransitions = "gateway_breaker_transitions_total"
	BreakerRejections  = "gateway_breaker_rejections_total"
	SLOSeconds         = "gateway_slo_seconds"
)

// LabelShare is the share of calls that a promise is about.
const LabelShare = "share"

// Values of BreakerStateNow.
const (
	BreakerClosed   = 0
	BreakerHalfOpen = 1
	BreakerOpen     = 2
)

// BreakerState is what the breaker of a target is now.
type BreakerState struct {
	Model, Version, Target string
	State                  int    // BreakerClosed, BreakerHalfOpen or BreakerOpen
	Forced                 string // by an operator: open | closed; "" when nothing is
}

// Promise is what a model promises: how long a share of its calls take at most.
type Promise struct {
	Model   string
	Share   string // "0.99"
	Seconds float64
}

// Breakers are the metrics of breakers.
type Breakers struct {
	labels      *guard
	transitions *prometheus.CounterVec
	rejections  *prometheus.CounterVec
	states      func() []BreakerState
	promises    func() []Promise

	seen readmap.Map[breakerKey, prometheus.Counter]
}

type breakerKey struct{ model, version, target, reason string }

var (
	breakerState  = prometheus.NewDesc(BreakerStateNow, "State of a target's breaker: 0 closed, 1 half-open, 2 open, also while no endpoint can serve the target.", []string{LabelModel, LabelTarget}, nil)
	breakerForced = prometheus.NewDesc(BreakerForced, "1 while an operator keeps a target's breaker in a state; to be alerted on, so that nobody forgets it.", []string{LabelModel, LabelTarget, LabelState}, nil)
	sloSeconds    = prometheus.NewDesc(SLOSeconds, "What a model promises (slo): the longest that this share of its calls take.", []string{LabelModel, LabelShare}, nil)
)

// NewBreakers makes the metrics of breakers, and of promises, part of what m shows; once for each m. Every scrape asks states
// and promises.
func NewBreakers(m *Metrics, states func() []BreakerState, promises func() []Promise) *Breakers {
	b := &Breakers{
		labels: &m.labels,
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: BreakerTransitions,
			Help: "Changes of breakers, by the state that came and why: failures, slow, no_endpoint, waited, back, probed, forced.",
		}, []string{LabelModel, LabelTarget, LabelState, LabelReason}),
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: BreakerRejections,
			Help: "Calls that were not sent to their target: failures and slow, while its breaker is open for them; probing, while others find out whether it is back; no_endpoint; forced.",
		}, []string{LabelModel, LabelTarget, LabelReason}),
		states: states, promises: promises,
	}
	m.registry.MustRegister(b.transitions, b.rejections, b)
	return b
}

// Describe implements prometheus.Collector.
func (b *Breakers) Describe(out chan<- *prometheus.Desc) {
	out <- breakerState
	out <- breakerForced
	out <- sloSeconds
}

// Collect implements prometheus.Collector. Of several breakers under one name the worst state is shown: two series of one
// name would fail the whole scrape.
func (b *Breakers) Collect(out chan<- prometheus.Metric) {
	type key struct{ model, target string }
	worst := make(map[key]BreakerState)
	for _, s := range b.states() {
		model, _, target, _ := b.labels.of(s.Model, s.Version, s.Target)
		k := key{model, target}
		if before, ok := worst[k]; !ok || s.State > before.State {
			worst[k] = s
		}
	}
	for k, s := range worst {
		out <- prometheus.MustNewConstMetric(breakerState, prometheus.GaugeValue, float64(s.State), k.model, k.target)
		if s.Forced != "" {
			out <- prometheus.MustNewConstMetric(breakerForced, prometheus.GaugeValue, 1, k.model, k.target, s.Forced)
		}
	}
	seen := make(map[[2]string]bool)
	for _, p := range b.promises() {
		model, _, _, _ := b.labels.of(p.Model, "", "")
		if k := [2]string{model, p.Share}; !seen[k] {
			seen[k] = true
			out <- prometheus.MustNewConstMetric(sloSeconds, prometheus.GaugeValue, p.Seconds, model, p.Share)
		}
	}
}

// Changed counts a change of the breaker of t: these are few, and labels are looked up each time.
func (b *Breakers) Changed(t *inference.Target, state, reason string) {
	model, _, target, _ := b.labels.of(t.Asked, t.Version, t.Name)
	b.transitions.WithLabelValues(model, target, state, reason).Inc()
}

// Rejected counts a call that did not get to t. Names of targets that are not known are no labels.
func (b *Breakers) Rejected(t *inference.Target, reason string) {
	k := breakerKey{t.Asked, t.Version, t.Name, reason}
	if t.Absent != nil {
		k = breakerKey{reason: reason}
	}
	n, ok := b.seen.Get(k)
	if !ok {
		model, _, target, own := b.labels.of(k.model, k.version, k.target)
		made := b.rejections.WithLabelValues(model, target, reason)
		n = b.seen.GetOrAdd(k, func(int) (prometheus.Counter, bool) { return made, own })
	}
	n.Inc()
}
