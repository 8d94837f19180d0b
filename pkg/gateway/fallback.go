package gateway

import (
	"log/slog"

	"github.com/model-gateway/model-gateway/pkg/stage/fallback"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
	"github.com/model-gateway/model-gateway/pkg/wire"
)

// newFallback makes the stage that answers in place of outages.
func newFallback(log *slog.Logger, m *telemetry.Metrics) *fallback.Stage {
	return &fallback.Stage{Messages: fallback.Messages{Answer: wire.DegradedAnswer, Mark: wire.MarkDegraded}, Log: log, PassedOver: m.PassedOver}
}
