package gateway

import (
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/stage/forward"
	"github.com/model-gateway/model-gateway/pkg/stage/mirror"
	"github.com/model-gateway/model-gateway/pkg/stats"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
	"github.com/model-gateway/model-gateway/pkg/wire"
)

// newMirror makes the stage that mirrors calls. Copies take the way that calls take behind all that limits them, and are
// recorded apart from calls that somebody waits for.
func (g *Gateway) newMirror() *mirror.Stage {
	sent := &forward.Stage{Once: true, Attempts: &telemetry.Attempts{Stats: g.stats, Metrics: g.metrics, Arm: stats.Mirror}}
	return mirror.New(mirror.Options{
		Send:     fold([]inference.Stage{{Name: "inject", Wrap: g.inject.Wrap}, {Name: "mark", Wrap: mirror.Mark}}, sent.Handle),
		Recorder: g.metrics,
		Log:      g.log,
		Messages: mirror.Messages{
			CompareInfer: wire.CompareInfer, ComparePredict: wire.ComparePredict,
			Unwrap: wire.UnwrapStreamAnswer, SharedMemory: wire.UsesSharedMemory,
		},
	})
}
