package gateway

import (
	"math"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/room"
	"github.com/model-gateway/model-gateway/pkg/stage/admit"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
)

// overload is what keeps the gateway and its models from being given more than they can do.
type overload struct {
	room     *room.Room
	admit    *admit.Stage
	refusals refusals
}

// newOverload makes it, and shows it in metrics.
func newOverload(cfg *config.Config, metrics *telemetry.Metrics) *overload {
	o := &overload{room: room.New(room.Options{Bytes: bytesHeld(cfg.Listen), Reads: cfg.Listen.MaxReads})}
	o.admit = admit.New(&o.refusals)
	o.refusals.to = telemetry.NewOverload(metrics, func() []telemetry.Admitted {
		var list []telemetry.Admitted
		for _, s := range o.admit.States() {
			list = append(list, telemetry.Admitted(s))
		}
		return list
	}, func() telemetry.Held { return telemetry.Held(o.room.State()) })
	return o
}

// refusals gives the stage, which the metrics ask, somebody to tell.
type refusals struct{ to *telemetry.Overload }

func (r *refusals) AdmitRefused(t *inference.Target, p inference.Priority, why string) {
	r.to.AdmitRefused(t, p, why)
}

// defaultBytesHeld is for when nothing says how much memory there is.
const defaultBytesHeld = 256 << 20

// bytesHeld is how much of messages may be held: as configured, else a quarter of the memory that the process may use, or that
// the machine has. One message always has room.
func bytesHeld(l config.Listen) int64 {
	if l.MaxBytesHeld > 0 {
		return l.MaxBytesHeld
	}
	quarter := int64(defaultBytesHeld)
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		quarter = limit / 4
	} else if ram, err := memlimit.FromSystem(); err == nil && ram < math.MaxInt64 {
		quarter = int64(ram / 4)
	}
	return max(quarter, int64(l.MaxMessage))
}
