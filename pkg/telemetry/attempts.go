package telemetry

import (
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/stats"
)

// Attempts records attempts at upstreams in both places where they count: the windows that the gateway decides by,
// and the metrics that people look at. Both see the same samples. Attempts for copies of calls go to the arm stats.Mirror and
// to metrics of their own, so that nothing that reads the usual ones sees them.
type Attempts struct {
	Stats   *stats.Registry
	Metrics *Metrics
	Arm     stats.Arm
}

// Attempt records one attempt at an endpoint of target on behalf of c, which ended after d.
func (a *Attempts) Attempt(_ *inference.Call, target *inference.Target, endpoint string, outcome stats.Outcome, d time.Duration) {
	a.Stats.Target(stats.KeyOf(target)).Record(endpoint, a.Arm, outcome, d)
	if a.Arm == stats.Mirror {
		a.Metrics.mirrorAttempt(target, outcome, d)
		return
	}
	a.Metrics.Attempt(target, outcome, d)
}
