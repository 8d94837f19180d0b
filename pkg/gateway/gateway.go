// Package gateway joins everything: it builds upstreams, catalog, pipeline and fronts from a configuration, serves
// until it is told to stop, and takes a new configuration while it runs, as a whole or not at all.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/admin"
	"github.com/model-gateway/model-gateway/pkg/catalog"
	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/control"
	"github.com/model-gateway/model-gateway/pkg/front/grpcfront"
	"github.com/model-gateway/model-gateway/pkg/front/httpfront"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/stage/deadline"
	"github.com/model-gateway/model-gateway/pkg/stage/forward"
	"github.com/model-gateway/model-gateway/pkg/stage/identify"
	"github.com/model-gateway/model-gateway/pkg/stage/inject"
	"github.com/model-gateway/model-gateway/pkg/stage/observe"
	"github.com/model-gateway/model-gateway/pkg/stage/resolve"
	"github.com/model-gateway/model-gateway/pkg/stage/split"
	"github.com/model-gateway/model-gateway/pkg/stats"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
)

// Options of a gateway.
type Options struct {
	Log     *slog.Logger
	Version string
	// Profile opens the runtime's profiles on the operators' port.
	Profile bool
	// Reload reads the configuration again, when the admin port is asked to; nil refuses.
	Reload func() error
}

// Gateway is one running gateway.
type Gateway struct {
	opts    Options
	log     *slog.Logger
	catalog *catalog.Catalog
	metrics *telemetry.Metrics
	stats   *stats.Registry

	// The stages, in the order in which pipeline.go lists them.
	observe  *observe.Stage
	identify identify.Stage
	resolve  resolve.Stage
	split    split.Stage
	deadline deadline.Stage
	inject   inject.Stage
	forward  forward.Stage

	pipeline *pipeline
	grpc     *grpcfront.Front
	http     *httpfront.Front
	admin    *http.Server

	changing  sync.Mutex                           // held while a configuration is put to use
	upstreams atomic.Pointer[map[string]*upstream] // by name

	ready    atomic.Bool
	draining atomic.Bool
}

// New builds a gateway that serves cfg once Run is called. Close frees it when Run is not.
func New(cfg *config.Config, opts Options) (*Gateway, error) {
	g := &Gateway{
		opts: opts, log: opts.Log, catalog: catalog.New(),
		metrics: telemetry.New(telemetry.Build{Version: opts.Version}), stats: stats.NewRegistry(nil),
	}
	g.upstreams.Store(&map[string]*upstream{})
	g.observe = observe.New(observe.Options{Recorder: g.metrics, Log: g.log})
	g.resolve = resolve.Stage{Catalog: g.catalog}
	g.inject = inject.Stage{TraceParent: g.traceParent}
	g.forward = forward.Stage{Attempts: &telemetry.Attempts{Stats: g.stats, Metrics: g.metrics}}
	p, err := compile(g.stages(), g.forward.Handle)
	if err != nil {
		return nil, err
	}
	g.pipeline = p
	if err := g.use(cfg); err != nil {
		g.Close()
		return nil, err
	}
	g.metrics.ShowEndpoints(g.endpointStates)
	g.metrics.ShowTargets(g.targetStates)
	g.buildFronts(cfg)
	return g, nil
}

func (g *Gateway) buildFronts(cfg *config.Config) {
	questions := &questions{stages: g.questionStages(), service: &control.Service{View: view{g}, Version: g.opts.Version}}
	metrics := g.metrics.Handler(g.log)
	g.grpc = grpcfront.New(grpcfront.Options{Pipeline: g.pipeline, Control: questions, MaxMessage: cfg.Listen.MaxMessage, Log: g.log})
	o := httpfront.Config{Pipeline: g.pipeline, Control: questions, Ready: g.Ready, MaxMessage: cfg.Listen.MaxMessage, Log: g.log}
	if cfg.Listen.Metrics == config.MetricsBoth {
		o.Metrics = metrics
	}
	g.http = httpfront.New(o)
	if cfg.Listen.Admin != "" {
		g.admin = admin.Server(admin.Options{Gateway: view{g}, Metrics: metrics, Loopback: loopback(cfg.Listen.Admin), Profile: g.opts.Profile})
	}
}

// Reload puts cfg to use. It changes everything or, when it returns an error, nothing.
func (g *Gateway) Reload(cfg *config.Config) error {
	old := g.catalog.Snapshot().Config
	if old.Hash == cfg.Hash {
		return nil
	}
	if fields := config.NeedsRestart(old, cfg); len(fields) > 0 {
		g.metrics.ReloadRefused()
		return fmt.Errorf("%s changed, which takes a restart; nothing was changed", strings.Join(fields, ", "))
	}
	if err := g.use(cfg); err != nil {
		g.metrics.ReloadRefused()
		return err
	}
	return nil
}

// use makes cfg the configuration. Upstreams are kept by name, with all they know; those that are new are built before
// anything changes, and those that cfg no longer has are closed after.
func (g *Gateway) use(cfg *config.Config) error {
	g.changing.Lock()
	defer g.changing.Unlock()
	before := *g.upstreams.Load()
	after := make(map[string]*upstream, len(cfg.Upstreams))
	sources := make(map[string]catalog.Source, len(cfg.Upstreams))
	var made []*upstream
	undo := func() {
		for _, u := range made {
			u.Close()
		}
	}
	for _, declared := range cfg.Upstreams {
		u := before[declared.Name]
		if u == nil {
			var err error
			if u, err = newUpstream(declared, cfg.Listen.MaxMessage, g.opts); err != nil {
				undo()
				return err
			}
			made = append(made, u)
		}
		after[declared.Name], sources[declared.Name] = u, u
	}
	snapshot, err := catalog.Build(cfg, sources)
	if err != nil {
		undo()
		return err
	}
	for _, declared := range cfg.Upstreams {
		if err := after[declared.Name].update(declared, cfg, g.opts); err != nil {
			undo()
			return err
		}
	}
	g.upstreams.Store(&after)
	g.catalog.Use(snapshot)
	g.metrics.Reloaded(cfg.Hash, time.Now())
	for name, u := range before {
		if after[name] == nil {
			u.Close()
		}
	}
	return nil
}

// Close frees the upstreams. Run does it by itself.
func (g *Gateway) Close() {
	for _, u := range *g.upstreams.Load() {
		u.Close()
	}
}

// Ready reports whether the gateway takes calls: a route can serve, or has had ten seconds to; then for good, until
// it drains. An outage further on does not change it, since the answer that says so must come from here.
func (g *Gateway) Ready() bool { return g.ready.Load() && !g.draining.Load() }

// traceParent is the policy of an upstream.
func (g *Gateway) traceParent(name string) inject.TraceParent {
	if u := (*g.upstreams.Load())[name]; u != nil {
		return u.traceParent()
	}
	return inject.Sampled
}

// questions takes calls that are not inferences through their stages.
type questions struct {
	stages  []inference.Stage
	service *control.Service
}

// Do answers one RPC of inference.GRPCInferenceService by its short name.
func (q *questions) Do(ctx context.Context, c *inference.Call, method string, request proto.Message) (answer proto.Message, err error) {
	err = fold(q.stages, func(ctx context.Context, c *inference.Call) (err error) {
		answer, err = q.service.Do(ctx, c, method, request)
		return err
	})(ctx, c)
	return answer, err
}

func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// view shows the gateway to control and to the admin port.
type view struct{ g *Gateway }

func (v view) Model(ctx context.Context, name string) (*inference.Model, error) {
	return v.g.catalog.Model(ctx, name)
}

func (v view) NamesOf(upstream, model string) []string {
	return v.g.catalog.Snapshot().NamesOf(upstream, model)
}

func (v view) Open(kind inference.Kind) bool {
	return slices.Contains(v.g.catalog.Snapshot().Config.Control, kind.String())
}

func (v view) Ready() bool { return v.g.Ready() }

func (v view) Upstreams() []control.Upstream {
	all := *v.g.upstreams.Load()
	list := make([]control.Upstream, 0, len(all))
	for _, declared := range v.g.catalog.Snapshot().Config.Upstreams {
		if u := all[declared.Name]; u != nil {
			list = append(list, u)
		}
	}
	return list
}

func (v view) Stages() []string {
	var names []string
	for _, s := range v.g.stages() {
		names = append(names, s.Name)
	}
	return append(names, "forward")
}

func (v view) Catalog() []admin.Model {
	models := []admin.Model{}
	for _, m := range v.g.catalog.Snapshot().Routes() {
		shown := admin.Model{Name: m.Name, Targets: []admin.Target{}}
		if m.Stable != nil {
			shown.Stable = m.Stable.Name
		}
		for _, name := range slices.Sorted(maps.Keys(m.Targets)) {
			t := m.Targets[name]
			shown.Targets = append(shown.Targets, admin.Target{Name: t.Name, Upstream: t.Upstream, Model: t.Model, Version: t.Version, Ready: t.Pool.Ready()})
		}
		models = append(models, shown)
	}
	return models
}

func (v view) Endpoints() []admin.Endpoint {
	list := []admin.Endpoint{}
	for _, e := range v.g.endpointStates() {
		list = append(list, admin.Endpoint{Upstream: e.Upstream, Address: e.Endpoint, Up: e.Up})
	}
	return list
}

func (v view) Config() ([]byte, string) {
	cfg := v.g.catalog.Snapshot().Config
	return cfg.Source, cfg.Hash
}

func (v view) Reload() error {
	if v.g.opts.Reload == nil {
		return errors.New("there is no configuration file to read again")
	}
	return v.g.opts.Reload()
}

func (g *Gateway) endpointStates() []telemetry.EndpointState {
	all := *g.upstreams.Load()
	var states []telemetry.EndpointState
	for _, name := range slices.Sorted(maps.Keys(all)) {
		states = append(states, all[name].states()...)
	}
	return states
}

func (g *Gateway) targetStates() []telemetry.TargetState {
	var states []telemetry.TargetState
	for _, m := range g.catalog.Snapshot().Routes() {
		for _, t := range m.Targets {
			states = append(states, telemetry.TargetState{Model: m.Name, Version: t.Version, Target: t.Name, Ready: t.Pool.Ready()})
		}
	}
	return states
}
