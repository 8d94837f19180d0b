package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/model-gateway/model-gateway/pkg/internal/readmap"
)

// redisMetrics is how the Redis that replicas share does; there is nothing of it where none is configured.
type redisMetrics struct {
	duration *prometheus.HistogramVec
	seen     readmap.Map[redisKey, prometheus.Observer] // those of duration, sooner
	up       prometheus.Gauge
}

type redisKey struct{ op, outcome string }

// redisBuckets, in seconds: a call waits for Redis 20 ms at most unless the configuration says otherwise.
var redisBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .02, .05, .25, 1}

func newRedisMetrics() *redisMetrics {
	return &redisMetrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: RedisDuration, Buckets: redisBuckets,
			Help: "Duration of calls to Redis, by what they were for and how they ended; skipped ones were not sent, since Redis is known to be down.",
		},
			[]string{LabelOp, LabelOutcome}),
		up: prometheus.NewGauge(prometheus.GaugeOpts{Name: RedisUp, Help: "1 while Redis answers, 0 while it is known not to and limits are decided without it."}),
	}
}

// ShowRedis makes the metrics of Redis part of what is scraped.
func (m *Metrics) ShowRedis() { m.registry.MustRegister(m.redis.duration, m.redis.up) }

// RedisCall records a call to Redis: what it was for, how it ended, and how long it took.
func (m *Metrics) RedisCall(op, outcome string, took time.Duration) {
	k := redisKey{op, outcome}
	o, ok := m.redis.seen.Get(k)
	if !ok {
		o = m.redis.seen.GetOrAdd(k, func(int) (prometheus.Observer, bool) { return m.redis.duration.WithLabelValues(op, outcome), true })
	}
	o.Observe(took.Seconds())
}

// RedisUp records that Redis has stopped answering, or is back.
func (m *Metrics) RedisUp(up bool) { m.redis.up.Set(number(up)) }
