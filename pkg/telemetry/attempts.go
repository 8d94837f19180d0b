package telemetry

import (
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/stats"
)

// Attempts records attempts at upstreams in both places where they count: the windows that the gateway decides by,
// and the metrics that people look at. Both see the same samples.
type Attempts struct {
	Stats   *stats.Registry
	Metrics *Metrics
}

// Attempt records one attempt at an endpoint of target on behalf of c, which ended after d.
func (a *Attempts) Attempt(_ *inference.Call, target *inference.Target, endpoint string, outcome stats.Outcome, d time.Duration) {
	a.Stats.Target(stats.KeyOf(target)).Record(endpoint, stats.Live, outcome, d)
	a.Metrics.Attempt(target, outcome, d)
}
