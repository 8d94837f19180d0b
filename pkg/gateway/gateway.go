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
	"github.com/model-gateway/model-gateway/pkg/callers"
	"github.com/model-gateway/model-gateway/pkg/catalog"
	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/control"
	"github.com/model-gateway/model-gateway/pkg/explain"
	"github.com/model-gateway/model-gateway/pkg/front/grpcfront"
	"github.com/model-gateway/model-gateway/pkg/front/httpfront"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/scripts"
	"github.com/model-gateway/model-gateway/pkg/stage/authorize"
	"github.com/model-gateway/model-gateway/pkg/stage/deadline"
	"github.com/model-gateway/model-gateway/pkg/stage/forward"
	"github.com/model-gateway/model-gateway/pkg/stage/identify"
	"github.com/model-gateway/model-gateway/pkg/stage/inject"
	"github.com/model-gateway/model-gateway/pkg/stage/mirror"
	"github.com/model-gateway/model-gateway/pkg/stage/observe"
	"github.com/model-gateway/model-gateway/pkg/stage/resolve"
	"github.com/model-gateway/model-gateway/pkg/stage/split"
	"github.com/model-gateway/model-gateway/pkg/stats"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
	"github.com/model-gateway/model-gateway/pkg/tlsfiles"
)

// Options of a gateway.
type Options struct {
	Log     *slog.Logger
	Version string
	// Profile opens the runtime's profiles on the operators' port.
	Profile bool
	// Audit keeps the record of changes; nil keeps none.
	Audit *admin.Audit
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

	// The stages, in the order in which pipeline.go lists them; those of protection are among them.
	*protection
	*overload
	observe   *observe.Stage
	identify  identify.Stage
	authorize authorize.Stage
	resolve   resolve.Stage
	split     split.Stage
	mirror    *mirror.Stage
	breaker   breakers
	deadline  deadline.Stage
	deadlines deadlines
	inject    inject.Stage
	forward   forward.Stage
	primer    *primer

	scripts    *scripts.Store
	scriptsFor atomic.Pointer[config.Config] // that scripts are held against
	endWatch   context.CancelFunc
	watching   sync.WaitGroup

	pipeline *pipeline
	grpc     *grpcfront.Front
	http     *httpfront.Front
	admin    *http.Server

	changing  sync.Mutex                           // held while a configuration is put to use
	upstreams atomic.Pointer[map[string]*upstream] // by name

	retiring sync.WaitGroup // upstreams that finish what they have
	closing  chan struct{}
	closed   sync.Once

	tls      *tlsfiles.Server // of the data port; nil: plaintext
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
	g.closing = make(chan struct{})
	var err error
	if g.protection, err = newProtection(cfg, g.metrics, opts, g.redisPassword(cfg)); err != nil {
		return nil, err
	}
	g.overload = newOverload(cfg, g.metrics)
	g.observe = observe.New(observe.Options{Recorder: g.metrics, Log: g.log})
	g.identify = identify.Stage{Auth: g.callers}
	g.authorize = authorize.Stage{Access: &g.access, Declared: g.catalog.Declared}
	g.resolve = resolve.Stage{Catalog: g.catalog}
	g.openScripts(cfg)
	g.inject = inject.Stage{TraceParent: g.traceParent}
	g.forward = forward.Stage{Attempts: &telemetry.Attempts{Stats: g.stats, Metrics: g.metrics}, Retries: g.metrics, Full: g.metrics.EndpointsFull}
	g.mirror = g.newMirror()
	g.deadline = g.newDeadlines()
	g.openBreakers()
	g.primer = startPrimer(g.routes)
	if t := cfg.Listen.TLS; t != nil {
		if g.tls, err = tlsfiles.NewServer(tlsfiles.ServerFiles{Cert: t.Cert, Key: t.Key, ClientCA: t.ClientCA}, tlsfiles.Options{Log: g.log, Changed: opts.changed("listen.tls")}); err != nil {
			return nil, errors.Join(fmt.Errorf("listen.tls: %w", err), g.Close())
		}
	}
	if g.pipeline, err = compile(g.stages(), g.forward.Handle); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	if err := g.use(cfg); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	g.metrics.ShowEndpoints(g.endpointStates)
	g.metrics.ShowTargets(g.targetStates)
	g.deadlines.start()
	g.buildFronts(cfg)
	return g, nil
}

func (g *Gateway) buildFronts(cfg *config.Config) {
	questions := &questions{stages: g.questionStages(), health: g.healthStages(), service: &control.Service{View: view{g}, Access: &g.access, Version: g.opts.Version, Changed: g.changed}}
	metrics := g.metrics.Handler(g.log)
	g.grpc = grpcfront.New(grpcfront.Options{Pipeline: g.pipeline, Control: questions, MaxMessage: cfg.Listen.MaxMessage, Room: g.room, MaxAge: cfg.Listen.MaxAge, Log: g.log})
	o := httpfront.Config{Pipeline: g.pipeline, Control: questions, Ready: g.Ready, MaxMessage: cfg.Listen.MaxMessage, Room: g.room, MaxAge: cfg.Listen.MaxAge, Log: g.log}
	if cfg.Listen.Metrics == config.MetricsBoth {
		o.Metrics = metrics
	}
	g.http = httpfront.New(o)
	if cfg.Listen.Admin != "" {
		g.admin = admin.Server(admin.Options{
			Gateway: view{g}, Metrics: metrics, Loopback: loopback(cfg.Listen.Admin), Profile: g.opts.Profile,
			Callers: g.callers, Access: &g.access, Audit: g.opts.Audit, Explainer: g.explainer(), Breakers: breakerPort{g}, Scripts: scripts.Port{Store: g.scripts},
		})
	}
}

// Reload puts cfg to use. It changes everything or, when it returns an error, nothing.
func (g *Gateway) Reload(cfg *config.Config) error {
	old := g.catalog.Snapshot().Config
	if old.Same(cfg) {
		g.metrics.Reloaded(cfg.Hash, time.Now()) // what serves is what the file says, again
		return nil
	}
	if config.AuthLoosened(old, cfg) {
		return errors.New("the new configuration has no callers, and would let everybody in; say auth: none if that is meant. Nothing was changed")
	}
	if config.AccessLoosened(old, cfg) {
		return errors.New("the new configuration has no access rules, and would let every caller use every model; keep the section, as access: {hide_forbidden: false}, if that is meant. Nothing was changed")
	}
	if fields := config.NeedsRestart(old, cfg); len(fields) > 0 {
		return fmt.Errorf("%s changed, which takes a restart; nothing was changed", strings.Join(fields, ", "))
	}
	return g.use(cfg)
}

// ConfigHash tells one state of the configuration in force from another, the files with keys and passwords included.
func (g *Gateway) ConfigHash() string { return g.catalog.Snapshot().Config.Fingerprint() }

// StateDir is where state is kept, as the configuration in force says.
func (g *Gateway) StateDir() string { return g.catalog.Snapshot().Config.StateDir }

// ReloadRefused notes, for metrics, that the newest configuration could not be put to use, wherever that was found.
func (g *Gateway) ReloadRefused() { g.metrics.ReloadRefused() }

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
			u.closeTLS()
		}
	}
	// What can be wrong is looked at before anything that serves is touched.
	if err := callers.Check(callerEntries(cfg)); err != nil {
		return err
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
			u.Watch(g.primer.changed)
		}
		after[declared.Name], sources[declared.Name] = u, u
	}
	snapshot, err := g.catalog.Build(cfg, sources)
	if err != nil {
		undo()
		return err
	}
	for _, declared := range cfg.Upstreams {
		if err := after[declared.Name].prepare(declared, g.opts); err != nil {
			undo()
			return err
		}
	}
	for _, declared := range cfg.Upstreams {
		if err := after[declared.Name].update(declared, cfg, g.opts); err != nil {
			undo()
			return err
		}
	}
	if err := g.protection.use(cfg); err != nil {
		undo()
		return err
	}
	g.upstreams.Store(&after)
	g.catalog.Use(snapshot)
	g.breaker.Reload()
	g.reloadScripts(cfg)
	g.forward.Forget()
	g.deadlines.use(cfg)
	g.primer.changed("")
	g.metrics.Reloaded(cfg.Hash, time.Now())
	for name, u := range before {
		if after[name] == nil {
			g.retire(u, cfg.Listen.DrainGrace)
		}
	}
	return nil
}

// retire lets an upstream that is no longer configured finish what it has.
func (g *Gateway) retire(u *upstream, grace time.Duration) {
	gone := u.Retire(grace)
	g.retiring.Go(func() {
		select {
		case <-gone:
		case <-g.closing:
			u.Close()
		}
		u.closeTLS()
	})
}

// Close frees the upstreams and all that runs in the background. Run does it by itself.
func (g *Gateway) Close() error {
	g.mirror.Close() // its copies use the upstreams
	g.primer.close()
	g.breaker.close()
	g.closeScripts()
	g.deadlines.close()
	for _, u := range *g.upstreams.Load() {
		u.Close()
		u.closeTLS()
	}
	g.closed.Do(func() { close(g.closing) })
	g.retiring.Wait()
	if g.tls != nil {
		g.tls.Close()
	}
	return g.protection.close()
}

// redisPassword gives the password in force, so that a changed one needs no restart.
func (g *Gateway) redisPassword(first *config.Config) func() string {
	return func() string {
		cfg := first
		if s := g.catalog.Snapshot(); s != nil {
			cfg = s.Config
		}
		if cfg.Redis == nil {
			return ""
		}
		return cfg.Redis.Password
	}
}

// changed keeps the record of files besides the configuration's that were replaced. of is the section that names them.
func (o Options) changed(of string) func(old, next string, err error) {
	return func(old, next string, err error) {
		e := admin.Entry{Who: admin.ByFile, What: "files of " + of, Scope: admin.ThisReplica, OldHash: old, NewHash: next, Result: admin.Done}
		if err != nil {
			e.Result = "refused: " + err.Error()
		}
		o.Audit.Append(e)
	}
}

// keysChanged keeps the record of issuers of tokens whose keys have become others.
func (o Options) keysChanged(where, old, next string) {
	o.Audit.Append(admin.Entry{Who: admin.ByIssuer, What: "keys of tokens at " + where, Scope: admin.ThisReplica, OldHash: old, NewHash: next, Result: admin.Done})
}

// changed keeps the record of what a client has had changed on model servers.
func (g *Gateway) changed(c *inference.Call, what control.Change, err error) {
	hash := g.ConfigHash()
	e := admin.Entry{
		Who: c.CallerName(), What: strings.TrimSpace(what.Method + " " + what.Object), Scope: "upstream " + what.Upstream,
		OldHash: hash, NewHash: hash, Result: admin.Done, Address: c.Address.String(),
	}
	if err != nil {
		e.Result = "refused: " + err.Error()
	}
	g.opts.Audit.Append(e)
}

// explainer answers what would happen to a call, from what is in force when it is asked.
func (g *Gateway) explainer() *explain.Explainer {
	cfg := func() *config.Config { return g.catalog.Snapshot().Config }
	return &explain.Explainer{
		Hash:  func() string { return cfg().Hash },
		Model: g.catalog.Model,
		Split: g.split.Explain, Breaker: g.explainBreaker,
		Versions: func(upstream, model string) []inference.VersionState {
			if u := (*g.upstreams.Load())[upstream]; u != nil {
				return u.Versions(model)
			}
			return nil
		},
		Caller:   func(name string) *inference.Caller { return callerOf(cfg(), name) },
		Required: g.callers.Required,
		Policy:   g.access.Policy,
		Spanning: func() []*inference.Limit { return cfg().Limits },
		Limits:   explainLimits{g.limit},
		Defaults: func() inference.Timeouts { return cfg().Defaults },
		Dynamic:  g.deadlines.explain,
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
	health  []inference.Stage // of ServerLive and ServerReady
	service *control.Service
}

// Do answers one RPC of inference.GRPCInferenceService by its short name.
func (q *questions) Do(ctx context.Context, c *inference.Call, method string, request proto.Message) (answer proto.Message, err error) {
	stages := q.stages
	if method == "ServerLive" || method == "ServerReady" {
		stages = q.health
	}
	err = fold(stages, func(ctx context.Context, c *inference.Call) (err error) {
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
			shown.Targets = append(shown.Targets, shownTarget(t))
		}
		models = append(models, withCurrent(shown, m))
	}
	for _, m := range v.g.catalog.Known() {
		models = append(models, withCurrent(admin.Model{Name: m.Name, Targets: []admin.Target{}}, m))
	}
	return models
}

func shownTarget(t *inference.Target) admin.Target {
	return admin.Target{Name: t.Name, Upstream: t.Upstream, Model: t.Model, Version: t.Version, Ready: t.Pool.Ready()}
}

// withCurrent adds the target that unpinned calls go to, of a model without declared ones.
func withCurrent(shown admin.Model, m *inference.Model) admin.Model {
	if m.Current == nil {
		return shown
	}
	if t := m.Current(); t != nil {
		shown.Stable = t.Name
		shown.Targets = append(shown.Targets, shownTarget(t))
	}
	return shown
}

func (v view) Endpoints() []admin.Endpoint {
	list := []admin.Endpoint{}
	for _, e := range v.g.endpointStates() {
		list = append(list, admin.Endpoint{Upstream: e.Upstream, Address: e.Endpoint, Up: e.Up, Ejected: e.Ejected, InFlight: e.InFlight, MaxInFlight: e.MaxInFlight})
	}
	return list
}

func (v view) Config() ([]byte, string) {
	cfg := v.g.catalog.Snapshot().Config
	return cfg.Masked(), cfg.Fingerprint()
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
	add := func(m *inference.Model, t *inference.Target) {
		states = append(states, telemetry.TargetState{Model: m.Name, Version: t.Version, Target: t.Name, Ready: t.Pool.Ready()})
	}
	for _, m := range slices.Concat(g.catalog.Snapshot().Routes(), g.catalog.Known()) {
		for _, t := range m.Targets {
			add(m, t)
		}
		if m.Current != nil {
			if t := m.Current(); t != nil {
				add(m, t)
			}
		}
	}
	return states
}
