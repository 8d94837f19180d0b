package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Names of metrics of admission, and of the messages that are held.
const (
	AdmitInFlight = "gateway_admit_in_flight"
	AdmitLimit    = "gateway_admit_limit"
	AdmitWaiting  = "gateway_admit_waiting"
	AdmitRefused  = "gateway_admit_refused_total"
	BytesHeld     = "gateway_bytes_held"
	ReadsInFlight = "gateway_reads_in_flight"
	ReadsWaiting  = "gateway_reads_waiting"
	ReadsRefused  = "gateway_reads_refused_total"
)

// LabelPriority is the priority of a call.
const LabelPriority = "priority"

// Admitted is what is under way to a target whose calls are bounded.
type Admitted struct {
	Model, Version, Target   string
	InFlight, Waiting, Limit int
}

// Held is what is held of clients' messages.
type Held struct {
	Bytes   int64 // of messages that were read and not yet answered, and of large answers not yet taken
	Reads   int64 // large messages being read
	Waiting int64 // messages that wait to be read
	Refused int64 // messages that were not read, since the start
}

// Overload are the metrics of admission, and of the messages that are held.
type Overload struct {
	labels   *guard
	refused  *prometheus.CounterVec
	admitted func() []Admitted
	held     func() Held
}

var (
	admitInFlight = prometheus.NewDesc(AdmitInFlight, "Calls under way to a target whose concurrency is bounded.", []string{LabelModel, LabelVersion, LabelTarget}, nil)
	admitLimit    = prometheus.NewDesc(AdmitLimit, "Calls that may be under way to the target at once, as configured or found by itself.", []string{LabelModel, LabelVersion, LabelTarget}, nil)
	admitWaiting  = prometheus.NewDesc(AdmitWaiting, "Calls that wait for one of those to end.", []string{LabelModel, LabelVersion, LabelTarget}, nil)
	bytesHeld     = prometheus.NewDesc(BytesHeld, "Bytes of messages that were read and not yet answered, and of large answers that clients have not taken yet; bounded by listen.max_bytes_held.", nil, nil)
	readsInFlight = prometheus.NewDesc(ReadsInFlight, "Messages of more than 64 KiB being read for less than a second; bounded by listen.max_reads.", nil, nil)
	readsWaiting  = prometheus.NewDesc(ReadsWaiting, "Messages that wait to be read, for want of room.", nil, nil)
	readsRefused  = prometheus.NewDesc(ReadsRefused, "Messages that were not read, for want of room.", nil, nil)
)

// NewOverload makes these metrics part of what m shows; once for each m. Every scrape asks admitted and held.
func NewOverload(m *Metrics, admitted func() []Admitted, held func() Held) *Overload {
	o := &Overload{
		labels: &m.labels, admitted: admitted, held: held,
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: AdmitRefused,
			Help: "Calls that were not admitted: shed, sheddable ones while it is busy; full, there was no place to wait in; pushed, others took its place; timeout, it waited in vain.",
		}, []string{LabelModel, LabelTarget, LabelPriority, LabelReason}),
	}
	m.registry.MustRegister(o.refused, o)
	return o
}

// AdmitRefused counts a call of priority p that t took no more of.
func (o *Overload) AdmitRefused(t *inference.Target, p inference.Priority, why string) {
	model, _, target, _ := o.labels.of(t.Asked, t.Version, t.Name)
	o.refused.WithLabelValues(model, target, p.String(), why).Inc()
}

// Describe implements prometheus.Collector.
func (o *Overload) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{admitInFlight, admitLimit, admitWaiting, bytesHeld, readsInFlight, readsWaiting, readsRefused} {
		out <- d
	}
}

// Collect implements prometheus.Collector. Of targets that are alike in their labels the first is shown, and of all MaxTargets.
func (o *Overload) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	seen := make(map[[3]string]struct{})
	for _, s := range o.admitted() {
		k := [3]string{s.Model, s.Version, s.Target}
		if _, ok := seen[k]; ok || len(seen) == MaxTargets {
			continue
		}
		seen[k] = struct{}{}
		gauge(admitInFlight, float64(s.InFlight), k[:]...)
		gauge(admitLimit, float64(s.Limit), k[:]...)
		gauge(admitWaiting, float64(s.Waiting), k[:]...)
	}
	h := o.held()
	gauge(bytesHeld, float64(h.Bytes))
	gauge(readsInFlight, float64(h.Reads))
	gauge(readsWaiting, float64(h.Waiting))
	out <- prometheus.MustNewConstMetric(readsRefused, prometheus.CounterValue, float64(h.Refused))
}
