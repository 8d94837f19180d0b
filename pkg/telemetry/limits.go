package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Decision is what a limit said to a call.
type Decision uint8

// The decisions. Those of fallback were made without the shared store, because it did not answer.
const (
	Allowed Decision = iota
	Refused
	ShadowRefused // would have been refused, were the limit not in shadow mode
	FallbackAllowed
	FallbackRefused
	decisions
)

func (d Decision) String() string {
	return [...]string{"allowed", "refused", "shadow_refused", "fallback_allowed", "fallback_refused"}[d]
}

// Source is where a limit's decision came from.
type Source uint8

// The sources.
const (
	SourceExact      Source = iota // the store was asked for this call
	SourceLeased                   // tokens that this replica had leased
	SourceLocal                    // this replica's share of the rate, or what the rule says for when the store is down
	SourceOverMemory               // the bucket was known to be empty until later
	sources
)

func (s Source) String() string { return [...]string{"exact", "leased", "local", "over_memory"}[s] }

// limits are the metrics of token buckets. No user, caller or address is ever a label.
type limits struct {
	decisions *prometheus.CounterVec
	sources   [sources]prometheus.Counter
	leases    prometheus.Gauge
	errors    prometheus.Counter
}

func (l *limits) register(r *prometheus.Registry) {
	l.decisions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: LimitDecisions,
		Help: "Decisions of limits; a call refused by one limit counts there alone. Fallback decisions were made while the shared store did not answer. The model is empty for limits that span models.",
	}, []string{LabelLimit, LabelModel, LabelDecision})
	from := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: LimitSource,
		Help: "Decisions of limits by where they came from: exact asked the store, leased and over_memory knew beforehand, local had to do without it.",
	}, []string{LabelSource})
	for s := range sources {
		l.sources[s] = from.WithLabelValues(s.String())
	}
	l.leases = prometheus.NewGauge(prometheus.GaugeOpts{Name: LimitLeases, Help: "Buckets of which this replica holds leased tokens now."})
	l.errors = prometheus.NewCounter(prometheus.CounterOpts{
		Name: LimitStoreErrors,
		Help: "Times the shared store of limits failed, was too slow, or was not asked because it is known to be down.",
	})
	r.MustRegister(l.decisions, from, l.leases, l.errors)
}

// LimitCounts counts what one limit decides for one model. It is safe for concurrent use.
type LimitCounts struct {
	of           *limits
	limit, model string
	made         [decisions]atomic.Pointer[prometheus.Counter]
}

// Limit gives the counts of a limit for a model, "" for one that spans models. Keep it: making it costs more than counting.
func (m *Metrics) Limit(limit, model string) *LimitCounts {
	if model != "" {
		model, _, _, _ = m.labels.of(model, "", "")
	}
	return &LimitCounts{of: &m.limits, limit: limit, model: model}
}

// Decided counts one decision.
func (c *LimitCounts) Decided(d Decision, s Source) {
	counter := c.made[d].Load()
	if counter == nil {
		made := c.of.decisions.WithLabelValues(c.limit, c.model, d.String())
		c.made[d].Store(&made)
		counter = &made
	}
	(*counter).Inc()
	c.of.sources[s].Inc()
}

// LimitLeases counts buckets of which tokens are held: by 1 when they come, by -1 when they are gone.
func (m *Metrics) LimitLeases(by int) { m.limits.leases.Add(float64(by)) }

// LimitStoreFailed counts a failure of the shared store.
func (m *Metrics) LimitStoreFailed() { m.limits.errors.Inc() }
