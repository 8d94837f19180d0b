package gateway

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/health"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/stage/inject"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
	"github.com/model-gateway/model-gateway/pkg/upstream/triton"
)

// upstream is an upstream as catalog, control and the rest of the gateway see it.
type upstream struct {
	*triton.Upstream
	prober *health.Prober
	trace  atomic.Uint32 // inject.TraceParent
}

func newUpstream(declared config.Upstream, maxMessage int, o Options) (*upstream, error) {
	opts := upstreamOptions(declared, maxMessage, o)
	prober := health.New(health.Options{Logger: o.Log.With("upstream", declared.Name)})
	opts.Health = prober
	t, err := triton.New(opts)
	if err != nil {
		return nil, err
	}
	return &upstream{Upstream: t, prober: prober}, nil
}

func upstreamOptions(declared config.Upstream, maxMessage int, o Options) triton.Options {
	return triton.Options{
		Name: declared.Name, Endpoints: declared.Addresses(), MaxMessage: maxMessage, Version: o.Version, Logger: o.Log,
	}
}

// update takes over what cfg says of the upstream.
func (u *upstream) update(declared config.Upstream, cfg *config.Config, o Options) error {
	if err := u.Update(upstreamOptions(declared, cfg.Listen.MaxMessage, o)); err != nil {
		return err
	}
	var targets []inference.Target
	for i := range cfg.Models {
		for _, t := range cfg.Models[i].Targets {
			if t.Upstream == declared.Name {
				targets = append(targets, inference.Target{Model: t.Model, Version: t.Version})
			}
		}
	}
	u.Declare(targets)
	policy := inject.Sampled
	switch declared.Traceparent {
	case config.TraceAlways:
		policy = inject.Always
	case config.TraceNever:
		policy = inject.Never
	}
	u.trace.Store(uint32(policy))
	return nil
}

func (u *upstream) traceParent() inject.TraceParent { return inject.TraceParent(u.trace.Load()) }

// Each runs ask on every endpoint at once and gives back what failed, by endpoint, as faults.
func (u *upstream) Each(ctx context.Context, ask func(ctx context.Context, endpoint string, conn grpc.ClientConnInterface) error) map[string]error {
	failed := make(map[string]error)
	for _, e := range u.Upstream.Each(ctx, func(endpoint string, conn grpc.ClientConnInterface) error { return ask(ctx, endpoint, conn) }) {
		failed[e.Endpoint] = triton.Classify(ctx, e.Err)
	}
	return failed
}

// Any runs ask on an endpoint that serves a version of a model; its error is a fault.
func (u *upstream) Any(ctx context.Context, model, version string, ask func(ctx context.Context, endpoint string, conn grpc.ClientConnInterface) error) error {
	return triton.Classify(ctx, u.Upstream.AnyReady(ctx, model, version, func(endpoint string, conn grpc.ClientConnInterface) error { return ask(ctx, endpoint, conn) }))
}

// serving reports whether any model is known to be ready.
func (u *upstream) serving() bool { return u.prober.Serving() }

func (u *upstream) states() []telemetry.EndpointState {
	var states []telemetry.EndpointState
	for _, e := range u.Endpoints() {
		states = append(states, telemetry.EndpointState{Upstream: u.Name(), Endpoint: e, Up: u.Up(e)})
	}
	return states
}
