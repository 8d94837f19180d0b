// Package telemetry has every name under which the gateway is observed, and its metrics. Labels are bounded whatever
// clients send: a model becomes a label only once it is confirmed, and only so many of them. Recording a call
// allocates nothing and takes well under a microsecond. Prometheus types stay in here.
package telemetry

import (
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc/codes"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/readmap"
	"github.com/model-gateway/model-gateway/pkg/stats"
)

// Build says which build this is.
type Build struct {
	Version  string // of the gateway
	Revision string // of the source
}

// buckets are the classic ones, in seconds: fine between 0.1 and 1, with the limits that alerts usually name
// (0.12, 0.15, 0.8) as edges, so that "P99 over 150 ms" is answered exactly.
var buckets = []float64{.001, .0025, .005, .01, .02, .035, .05, .075, .1, .12, .15, .2, .3, .5, .8, 1.2, 2, 5, 15, 60}

// Metrics are the metrics of one gateway, in a registry of their own. They are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	labels   guard

	requests *prometheus.HistogramVec
	upstream *prometheus.HistogramVec
	errors   *prometheus.CounterVec
	inFlight []prometheus.Gauge // by protocol
	streams  prometheus.Gauge
	panics   prometheus.Counter
	omitted  prometheus.Counter

	reloads    *prometheus.CounterVec
	successful prometheus.Gauge
	loadedAt   prometheus.Gauge
	config     *prometheus.GaugeVec
	configMu   sync.Mutex

	health    health
	deadlines *deadlines
	redis     *redisMetrics
	limits    limits
	mirror    mirror
	split     *prometheus.CounterVec
	retries   *prometheus.CounterVec
	full      *prometheus.CounterVec
	passed    *prometheus.CounterVec

	degraded *degraded

	// What recording looks up, so that it does not build labels each time.
	seenRequests readmap.Map[requestKey, prometheus.Observer]
	seenUpstream readmap.Map[attemptKey, prometheus.Observer]
	seenErrors   readmap.Map[errorKey, prometheus.Counter]
	seenSplit    readmap.Map[splitKey, prometheus.Counter]
}

// New makes the metrics of a gateway.
func New(b Build) *Metrics {
	m := &Metrics{
		registry:  prometheus.NewRegistry(),
		redis:     newRedisMetrics(),
		deadlines: newDeadlines(),
		mirror:    newMirror(),
		split:     newSplit(),
		retries:   newRetries(),
		full:      newEndpointsFull(),
		passed:    newPassedOver(),
		degraded:  newDegraded(),
		labels:    guard{maxModels: MaxModels, maxTargets: MaxTargets},
		requests: prometheus.NewHistogramVec(histogram(RequestDuration,
			"Time from a request having been read until its last answer had been handed over, as the client sees it; each message of a stream is a request."),
			[]string{LabelModel, LabelVersion, LabelTarget, LabelCode, LabelGRPCCode, LabelProtocol}),
		upstream: prometheus.NewHistogramVec(histogram(UpstreamDuration,
			"Duration of single attempts at an upstream."),
			[]string{LabelModel, LabelVersion, LabelTarget, LabelOutcome}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: RequestErrors,
			Help: "Requests that failed, by HTTP status (of gRPC calls too); degraded tells whether a prepared answer hid the failure from the client.",
		},
			[]string{LabelCode, LabelDegraded}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{Name: StreamsOpen, Help: "Client streams open now."}),
		panics:  prometheus.NewCounter(prometheus.CounterOpts{Name: Panics, Help: "Panics that were turned into INTERNAL errors; each is a bug, with its stack in the log."}),
		omitted: prometheus.NewCounter(prometheus.CounterOpts{Name: LogSuppressed, Help: "Lines left out of the access log because many alike were written in the same second."}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{Name: ConfigReloads, Help: "Times the configuration was read, by result."}, []string{LabelResult}),
		successful: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: ConfigSuccessful,
			Help: "1 when the newest configuration is the one that serves, 0 when it was refused and an older one serves.",
		}),
		loadedAt: prometheus.NewGauge(prometheus.GaugeOpts{Name: ConfigLoadedAt, Help: "When the configuration that serves was loaded, in seconds since 1970."}),
		config:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: ConfigInfo, Help: "1 for the hash of the configuration that serves."}, []string{LabelHash}),
	}
	m.labels.refused = prometheus.NewCounter(prometheus.CounterOpts{
		Name: LabelsRefused,
		Help: `Recordings counted under the label "other" because of the bound on distinct models and targets.`,
	})
	inFlight := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: RequestsInFlight, Help: "Requests being served now; each message of a stream is a request."}, []string{LabelProtocol})
	for _, p := range inference.Protocols() {
		m.inFlight = append(m.inFlight, inFlight.WithLabelValues(p.String()))
	}
	for _, result := range []string{resultOK, resultRefused} {
		m.reloads.WithLabelValues(result)
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: BuildInfo, Help: "1 for the build that runs."}, []string{LabelVersion, LabelRevision, LabelGo})
	build.WithLabelValues(b.Version, b.Revision, runtime.Version()).Set(1)
	m.registry.MustRegister(
		m.requests, m.upstream, m.errors, inFlight, m.streams, m.panics, m.omitted, m.labels.refused,
		m.reloads, m.successful, m.loadedAt, m.config, build, &m.health, m.split, m.retries, m.full, m.passed,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	m.limits.register(m.registry)
	m.deadlines.register(m.registry)
	m.mirror.register(m.registry)
	m.registry.MustRegister(m.degraded.total)
	return m
}

func histogram(name, help string) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  160,
		NativeHistogramMinResetDuration: time.Hour,
	}
}

// Call is what is recorded of a call that has ended.
type Call struct {
	Model, Version, Target string // empty where unknown; only names that are confirmed to exist
	Protocol               inference.Protocol
	HTTP                   int        // status, of gRPC calls too
	GRPC                   codes.Code // the client's; the code of the hidden fault when Degraded
	Degraded               bool       // a fallback's answer hid the fault
	Reason                 string     // of that fault
	Duration               time.Duration
}

type requestKey struct {
	model, version, target string
	protocol               inference.Protocol
	http                   uint16
	grpc                   uint8
	degraded               bool
}

type errorKey struct {
	http     uint16
	degraded bool
}

// CallStarted counts a call as in flight until CallEnded.
func (m *Metrics) CallStarted(p inference.Protocol) { m.inFlight[p].Inc() }

// CallEnded records a call that CallStarted had counted.
func (m *Metrics) CallEnded(c Call) {
	m.inFlight[c.Protocol].Dec()
	if c.HTTP >= 400 {
		m.Error(c.HTTP, c.Degraded)
	}
	if c.Degraded {
		m.degraded.count(&c, &m.labels)
	}
	k := requestKey{c.Model, c.Version, c.Target, c.Protocol, uint16(c.HTTP), uint8(c.GRPC), c.Degraded}
	o, ok := m.seenRequests.Get(k)
	if !ok {
		o = m.newRequest(k)
	}
	o.Observe(c.Duration.Seconds())
}

func (m *Metrics) newRequest(k requestKey) prometheus.Observer {
	model, version, target, own := m.labels.of(k.model, k.version, k.target)
	code, grpc := httpCode(int(k.http)), grpcCode(codes.Code(k.grpc))
	if k.degraded {
		code, grpc = CodeDegraded, grpcCode(codes.OK)
	}
	o := m.requests.WithLabelValues(model, version, target, code, grpc, k.protocol.String())
	return m.seenRequests.GetOrAdd(k, func(int) (prometheus.Observer, bool) { return o, own })
}

// Error counts a failed request. CallEnded does so by itself; this is for failures that are no call's, such as those of
// a stream as a whole and of requests that never became a call.
func (m *Metrics) Error(http int, degraded bool) {
	k := errorKey{uint16(http), degraded}
	c, ok := m.seenErrors.Get(k)
	if !ok {
		c = m.seenErrors.GetOrAdd(k, func(int) (prometheus.Counter, bool) {
			return m.errors.WithLabelValues(httpCode(http), boolName(degraded)), true
		})
	}
	c.Inc()
}

type attemptKey struct {
	model, version, target string
	outcome                stats.Outcome
}

// Attempt records one attempt at an upstream.
func (m *Metrics) Attempt(t *inference.Target, outcome stats.Outcome, d time.Duration) {
	k := attemptKey{t.Asked, t.Version, t.Name, outcome}
	o, ok := m.seenUpstream.Get(k)
	if !ok {
		o = m.newAttempt(k)
	}
	o.Observe(d.Seconds())
}

func (m *Metrics) newAttempt(k attemptKey) prometheus.Observer {
	model, version, target, own := m.labels.of(k.model, k.version, k.target)
	o := m.upstream.WithLabelValues(model, version, target, k.outcome.String())
	return m.seenUpstream.GetOrAdd(k, func(int) (prometheus.Observer, bool) { return o, own })
}

// StreamOpened counts a client stream as open until StreamClosed.
func (m *Metrics) StreamOpened() { m.streams.Inc() }

// StreamClosed ends what StreamOpened began.
func (m *Metrics) StreamClosed() { m.streams.Dec() }

// Panicked counts a panic that was caught.
func (m *Metrics) Panicked() { m.panics.Inc() }

// Suppressed counts lines left out of the access log.
func (m *Metrics) Suppressed() { m.omitted.Inc() }

const (
	resultOK      = "ok"
	resultRefused = "refused"
)

// Reloaded records that the configuration with that hash serves since at.
func (m *Metrics) Reloaded(hash string, at time.Time) {
	m.configMu.Lock()
	defer m.configMu.Unlock()
	m.reloads.WithLabelValues(resultOK).Inc()
	m.successful.Set(1)
	m.loadedAt.Set(float64(at.UnixMilli()) / 1000)
	m.config.Reset()
	m.config.WithLabelValues(hash).Set(1)
}

// ReloadRefused records that a configuration was refused and the one before serves on.
func (m *Metrics) ReloadRefused() {
	m.configMu.Lock()
	defer m.configMu.Unlock()
	m.reloads.WithLabelValues(resultRefused).Inc()
	m.successful.Set(0)
}
