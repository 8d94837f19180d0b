package gateway

import (
	"context"
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/health"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/stage/inject"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
	"github.com/model-gateway/model-gateway/pkg/tlsfiles"
	"github.com/model-gateway/model-gateway/pkg/upstream/triton"
)

// upstream is an upstream as catalog, control and the rest of the gateway see it.
type upstream struct {
	*triton.Upstream
	prober *health.Prober
	trace  atomic.Uint32 // inject.TraceParent

	tls  atomic.Pointer[tlsfiles.Client] // nil: plaintext
	next **tlsfiles.Client               // what prepare has made for update; nil: no change

	resolver triton.Resolver // what prepare has made for update; nil: the addresses say it
}

func newUpstream(declared config.Upstream, maxMessage int, o Options) (*upstream, error) {
	resolver, err := resolverOf(declared, o)
	if err != nil {
		return nil, err
	}
	creds, err := credentialsOf(declared, o)
	if err != nil {
		return nil, err
	}
	opts := upstreamOptions(declared, maxMessage, creds, o)
	opts.Resolver = resolver
	prober := health.New(health.Options{Logger: o.Log.With("upstream", declared.Name)})
	opts.Health = prober
	t, err := triton.New(opts)
	if err != nil {
		if creds != nil {
			creds.Close()
		}
		return nil, err
	}
	u := &upstream{Upstream: t, prober: prober}
	u.tls.Store(creds)
	return u, nil
}

// credentialsOf is TLS toward an upstream; nil is plaintext.
func credentialsOf(declared config.Upstream, o Options) (*tlsfiles.Client, error) {
	if declared.TLS == nil {
		return nil, nil
	}
	c, err := tlsfiles.NewClient(clientFiles(declared.TLS), tlsfiles.Options{Log: o.Log.With("upstream", declared.Name), Changed: o.changed("upstreams." + declared.Name + ".tls")})
	if err != nil {
		return nil, fmt.Errorf("upstreams.%s.tls: %w", declared.Name, err)
	}
	return c, nil
}

func upstreamOptions(declared config.Upstream, maxMessage int, creds *tlsfiles.Client, o Options) triton.Options {
	t := triton.Options{
		Name: declared.Name, Endpoints: declared.Addresses(), MaxMessage: maxMessage, Version: o.Version, Logger: o.Log, Headers: declared.Headers,
		Metrics: declared.Metrics, Keepalive: declared.Keepalive.Time, KeepaliveTimeout: declared.Keepalive.Timeout,
		Eject:       triton.Eject{Failures: declared.Eject.Failures, For: declared.Eject.For, AtMost: declared.Eject.AtMost},
		MaxInFlight: declared.MaxInFlight,
	}
	if creds != nil {
		t.Credentials = creds
	}
	return t
}

// sameTLS reports whether the upstream's connections are made as declared says.
func (u *upstream) sameTLS(declared config.Upstream) bool {
	now := u.tls.Load()
	if now == nil || declared.TLS == nil {
		return now == nil && declared.TLS == nil
	}
	return now.Files() == clientFiles(declared.TLS)
}

// close ends what follows files, once connections are gone.
func (u *upstream) closeTLS() {
	if c := u.tls.Swap(nil); c != nil {
		c.Close()
	}
}

// prepare finds out where endpoints are found, and reads the files of TLS where they are others than before, which is what
// can go wrong, for update to use.
func (u *upstream) prepare(declared config.Upstream, o Options) (err error) {
	if u.resolver, err = resolverOf(declared, o); err != nil {
		return err
	}
	if u.next != nil && *u.next != nil {
		(*u.next).Close() // of a reload that came to nothing
	}
	u.next = nil
	if u.sameTLS(declared) {
		return nil
	}
	creds, err := credentialsOf(declared, o)
	if err != nil {
		return err
	}
	u.next = &creds
	return nil
}

// update takes over what cfg says of the upstream, after prepare.
func (u *upstream) update(declared config.Upstream, cfg *config.Config, o Options) error {
	creds := u.tls.Load()
	if u.next != nil {
		creds, u.next = *u.next, nil
	}
	opts := upstreamOptions(declared, cfg.Listen.MaxMessage, creds, o)
	opts.Resolver = u.resolver
	if err := u.Update(opts); err != nil {
		if creds != nil && creds != u.tls.Load() {
			creds.Close()
		}
		return err
	}
	if old := u.tls.Swap(creds); old != nil && old != creds {
		old.Close()
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
	u.prober.SetInfer(inferProbes(declared.Name, cfg))
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
	ejected := u.Ejections()
	for _, e := range u.Endpoints() {
		states = append(states, telemetry.EndpointState{Upstream: u.Name(), Endpoint: e, Up: u.Up(e), Ejected: ejected[e], InFlight: u.InFlight(e), MaxInFlight: u.MaxInFlight()})
	}
	return states
}
