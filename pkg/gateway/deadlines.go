package gateway

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/explain"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/promquery"
	"github.com/model-gateway/model-gateway/pkg/stage/deadline"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
)

// deadlines is what dynamic timeouts are moved with.
type deadlines struct {
	table      *deadline.Table
	prometheus atomic.Pointer[prometheusAt] // nil: none

	end    context.CancelFunc // nil until they move
	moving sync.WaitGroup
}

// prometheusAt is a Prometheus, and where it is.
type prometheusAt struct {
	*promquery.Client
	url string
}

// newDeadlines makes the stage that bounds calls, with timeouts that do not move yet.
func (g *Gateway) newDeadlines() deadline.Stage {
	d := &g.deadlines
	d.table = deadline.NewTable(deadline.Options{
		Stats: g.stats, Timeouts: g.timeouts, Targets: g.liveTargets, Asked: g.metrics.PrometheusAsked, Log: g.log,
		Prometheus: func() deadline.Prometheus {
			if p := d.prometheus.Load(); p != nil {
				return p
			}
			return nil
		},
	})
	g.metrics.ShowTimeouts(d.states)
	return deadline.Stage{Table: d.table, Calls: g.metrics}
}

// use asks the Prometheus that cfg names from now on.
func (d *deadlines) use(cfg *config.Config) {
	old := d.prometheus.Load()
	switch {
	case cfg.Prometheus == "":
		d.prometheus.Store(nil)
	case old == nil || old.url != cfg.Prometheus:
		d.prometheus.Store(&prometheusAt{promquery.New(cfg.Prometheus), cfg.Prometheus})
	default:
		return
	}
	if old != nil {
		old.Close()
	}
}

// start lets the timeouts move.
func (d *deadlines) start() {
	ctx, end := context.WithCancel(context.Background())
	d.end = end
	d.moving.Go(func() { d.table.Run(ctx) })
}

// close ends that.
func (d *deadlines) close() {
	if d.end != nil {
		d.end()
	}
	d.moving.Wait()
	if p := d.prometheus.Swap(nil); p != nil {
		p.Close()
	}
}

// states shows the timeouts to metrics.
func (d *deadlines) states() []telemetry.TimeoutState {
	known := d.table.States()
	all := make([]telemetry.TimeoutState, len(known))
	for i, s := range known {
		all[i] = telemetry.TimeoutState{Model: s.Key.Model, Target: s.Key.Target, Source: s.Source.String(), Timeout: s.Timeout, Shadow: s.Shadow, Max: s.Max}
	}
	return all
}

// explain shows the timeout of a model's target to those who ask about a call.
func (d *deadlines) explain(m *inference.Model, t *inference.Target) *explain.Dynamic {
	s, ok := d.table.State(t)
	if !ok {
		s.Timeout = m.Timeouts.Max
	}
	shown := &explain.Dynamic{
		Timeout: explain.Duration(min(s.Timeout, m.Timeouts.Max)), Source: s.Source.String(), P999: explain.Duration(s.P999), Beyond: s.Beyond,
		Samples: s.Samples, Needs: deadline.MinSamples, Asks: d.prometheus.Load() != nil,
	}
	if ok {
		shown.Age = explain.Duration(time.Since(s.At).Round(time.Second))
	}
	return shown
}

// timeouts are those of a model, by the name that clients know.
func (g *Gateway) timeouts(model string) inference.Timeouts {
	if m := g.catalog.Declared(model); m != nil {
		return m.Timeouts
	}
	return g.catalog.Snapshot().Config.Defaults
}

// liveTargets lists the targets that calls go to, as far as they are known without asking anybody.
func (g *Gateway) liveTargets() []*inference.Target {
	var all []*inference.Target
	for _, m := range slices.Concat(g.catalog.Snapshot().Routes(), g.catalog.Known()) {
		for _, t := range m.Targets {
			all = append(all, t)
		}
		if m.Current != nil {
			if t := m.Current(); t != nil {
				all = append(all, t)
			}
		}
	}
	return all
}
