package telemetry

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/readmap"
	"github.com/model-gateway/model-gateway/pkg/stats"
)

// Outcomes of mirrored calls, beside the names of inference.DifferenceKind.
const (
	MirrorFailed  = "error"   // the copy had no answer, or one that cannot be compared
	MirrorDropped = "dropped" // it was not sent: too many copies were held already, or the gateway was stopping
)

// differenceBuckets are made for scores between 0 and 1 and still tell something of logits.
var differenceBuckets = []float64{0, 1e-7, 1e-6, 1e-5, 1e-4, .001, .005, .01, .02, .05, .1, .2, .5, 1, 10, 100, 1000}

// maxDifference is what larger differences are recorded as, so that one absurd number does not spoil a sum for good.
const maxDifference = 1e9

// mirror is what is recorded of copies of calls. Nothing of them is in the metrics of calls that clients wait for.
type mirror struct {
	outcomes *prometheus.CounterVec
	maxAbs   *prometheus.HistogramVec
	score    *prometheus.HistogramVec
	duration *prometheus.HistogramVec
	held     prometheus.Gauge

	seenOutcomes readmap.Map[mirrorKey, prometheus.Counter]
	seenAttempts readmap.Map[attemptKey, prometheus.Observer]
	seenTargets  readmap.Map[targetKey, differences]
}

type mirrorKey struct{ model, version, target, outcome string }

type targetKey struct{ model, version, target string }

type differences struct{ maxAbs, score prometheus.Observer }

func newMirror() mirror {
	labels := []string{LabelModel, LabelTarget}
	difference := func(name, help string) *prometheus.HistogramVec {
		o := histogram(name, help)
		o.Buckets = differenceBuckets
		return prometheus.NewHistogramVec(o, labels)
	}
	return mirror{
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: MirrorTotal,
			Help: "Copies of calls for a mirror target, by how its answer compared with the one that the caller got: same, different, nan, shape, missing; error had no answer, dropped was not sent.",
		}, append(labels, LabelOutcome)),
		maxAbs: difference(MirrorMaxAbs, "Largest absolute difference between two numbers in the same place of the answers to a call and to its copy."),
		score:  difference(MirrorScore, "Absolute difference between the scores (confidence) of the answers to a call and to its copy."),
		duration: prometheus.NewHistogramVec(histogram(MirrorDuration,
			"Duration of single attempts at an upstream for copies of calls."),
			[]string{LabelModel, LabelVersion, LabelTarget, LabelOutcome}),
		held: prometheus.NewGauge(prometheus.GaugeOpts{Name: MirrorHeld, Help: "Copies of calls that wait or are under way now."}),
	}
}

func (r *mirror) register(to *prometheus.Registry) {
	to.MustRegister(r.outcomes, r.maxAbs, r.score, r.duration, r.held)
}

// Mirrored counts a copy for target t: a name of inference.DifferenceKind, MirrorFailed or MirrorDropped.
func (m *Metrics) Mirrored(t *inference.Target, outcome string) {
	k := mirrorKey{t.Asked, t.Version, t.Name, outcome}
	c, ok := m.mirror.seenOutcomes.Get(k)
	if !ok {
		model, _, target, own := m.labels.of(k.model, k.version, k.target)
		made := m.mirror.outcomes.WithLabelValues(model, target, outcome)
		c = m.mirror.seenOutcomes.GetOrAdd(k, func(int) (prometheus.Counter, bool) { return made, own })
	}
	c.Inc()
}

// MirrorDifference records how far the answer of t was from the caller's.
func (m *Metrics) MirrorDifference(t *inference.Target, d *inference.Difference) {
	k := targetKey{t.Asked, t.Version, t.Name}
	o, ok := m.mirror.seenTargets.Get(k)
	if !ok {
		model, _, target, own := m.labels.of(k.model, k.version, k.target)
		made := differences{m.mirror.maxAbs.WithLabelValues(model, target), m.mirror.score.WithLabelValues(model, target)}
		o = m.mirror.seenTargets.GetOrAdd(k, func(int) (differences, bool) { return made, own })
	}
	if d.Compared > 0 {
		o.maxAbs.Observe(min(d.MaxAbs, maxDifference))
	}
	if d.Scored {
		o.score.Observe(min(math.Abs(d.Score-d.MirroredScore), maxDifference))
	}
}

// MirrorHeld counts copies that are held: by 1 when they come, by -1 when they are gone.
func (m *Metrics) MirrorHeld(by int) { m.mirror.held.Add(float64(by)) }

// mirrorAttempt is Attempt for a copy.
func (m *Metrics) mirrorAttempt(t *inference.Target, outcome stats.Outcome, d time.Duration) {
	k := attemptKey{t.Asked, t.Version, t.Name, outcome}
	o, ok := m.mirror.seenAttempts.Get(k)
	if !ok {
		model, version, target, own := m.labels.of(k.model, k.version, k.target)
		made := m.mirror.duration.WithLabelValues(model, version, target, outcome.String())
		o = m.mirror.seenAttempts.GetOrAdd(k, func(int) (prometheus.Observer, bool) { return made, own })
	}
	o.Observe(d.Seconds())
}
