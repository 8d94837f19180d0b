// Package triton is the way to servers that speak inference.GRPCInferenceService: Triton, and other KServe v2 servers.
// An Upstream has endpoints, each with connections of its own, and gives every version of a model a pool that chooses
// among those that can serve it. A call leaves as the bytes it came as, with a few fields behind them; its answer
// comes back the same way. Whatever goes wrong there is a fault that says whose it is. Probes, metadata and control
// of single endpoints go over the same connections.
package triton

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

const (
	firstAddresses = time.Second      // how long New waits for a name to be resolved
	trimEvery      = 30 * time.Second // idle connections beyond the first of an endpoint go
)

// Upstream is a set of endpoints that serve the same models.
type Upstream struct {
	name    string
	health  Health
	watched bool // health is more than ignorance
	log     *slog.Logger

	endpoints   atomic.Pointer[[]*endpoint] // in order of name
	source      atomic.Pointer[string]      // what the endpoints are found by, for messages
	headers     atomic.Pointer[metadata.MD] // of every RPC; nil when there are none
	ejects      atomic.Pointer[Eject]
	maxInFlight atomic.Int64 // calls at each endpoint; 0: any number

	cut atomic.Bool // Cut has been called

	pools    sync.Map   // poolKey → *pool
	poolsMu  sync.Mutex // held to add a pool or change what is declared
	byModel  map[string][]*pool
	declared map[poolKey]bool

	watchersMu sync.Mutex
	watchers   []func(model string)

	again   chan struct{} // asks the resolver to look now
	scrapes scrapes

	mu      sync.Mutex // held to change all below
	opts    Options
	stop    context.CancelFunc // of the resolver
	retired []*endpoint
	leaving chan struct{} // not nil once Retire has been called; closed when everything has ended
	shut    bool

	life    context.Context // ends with Close
	end     context.CancelFunc
	closing sync.Once
	tasks   sync.WaitGroup // all goroutines but one; see run
	retire  sync.WaitGroup // that one is Retire's, which ends the others
}

type poolKey struct{ model, version string }

// New makes an upstream and starts to connect to its endpoints. Where their addresses have to be looked up it
// waits a moment for them, but not being able to is no error: they may come later.
func New(o Options) (*Upstream, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	u := &Upstream{name: o.Name, log: o.Logger, health: o.Health, again: make(chan struct{}, 1), byModel: make(map[string][]*pool)}
	if u.watched = u.health != nil; !u.watched {
		u.health = ignorance{}
	}
	u.endpoints.Store(&[]*endpoint{})
	u.setHeaders(o.Headers)
	u.scrapes.url.Store(&o.Metrics)
	u.ejects.Store(&o.Eject)
	u.maxInFlight.Store(int64(o.MaxInFlight))
	u.health.Begin(u.wanted, u.changed)
	u.life, u.end = context.WithCancel(context.Background())
	u.mu.Lock()
	first := u.resolve(o)
	u.tasks.Go(u.trimLoop)
	u.tasks.Go(u.scrapeLoop)
	u.mu.Unlock()
	wait := time.NewTimer(firstAddresses)
	defer wait.Stop()
	select {
	case <-first:
	case <-wait.C:
		u.log.Warn("no address of the upstream is known yet", "upstream", u.name, "endpoints", o.Resolver.String())
	}
	return u, nil
}

// Name is the upstream's name in the configuration.
func (u *Upstream) Name() string { return u.name }

// Update takes over new options. Endpoints that stay keep their connections and calls, unless the options of connections
// have changed; those that go finish the calls they have. The name, Health, and the logger stay.
func (u *Upstream) Update(o Options) error {
	o.Logger = u.log
	o, err := o.complete()
	if err != nil {
		return err
	}
	if o.Name != u.name {
		return fmt.Errorf("upstream %s cannot become %s; it is another one", u.name, o.Name)
	}
	u.mu.Lock()
	if u.shut || u.leaving != nil {
		u.mu.Unlock()
		return fmt.Errorf("upstream %s has been closed", u.name)
	}
	u.setHeaders(o.Headers)
	u.scrapes.url.Store(&o.Metrics)
	u.maxInFlight.Store(int64(o.MaxInFlight))
	if eject := o.Eject; eject != *u.ejects.Swap(&eject) {
		u.allChanged()
	}
	if o.Resolver.String() == u.opts.Resolver.String() && o.sameConnections(u.opts) {
		u.mu.Unlock()
		return nil
	}
	u.stop()
	first := u.resolve(o)
	u.mu.Unlock()
	wait := time.NewTimer(firstAddresses)
	defer wait.Stop()
	select {
	case <-first:
	case <-wait.C: // the old endpoints go on until there are new ones
	}
	return nil
}

// resolve starts to find endpoints under o; the channel is closed once it has found some. u.mu is held.
func (u *Upstream) resolve(o Options) <-chan struct{} {
	ctx, cancel := context.WithCancel(u.life)
	source := o.Resolver.String()
	u.opts, u.stop = o, cancel
	u.source.Store(&source)
	first := make(chan struct{})
	var once sync.Once
	u.tasks.Go(func() {
		o.Resolver.Watch(ctx, u.again, func(addresses []string) {
			u.setEndpoints(ctx, o, addresses)
			once.Do(func() { close(first) })
		})
	})
	return first
}

// setEndpoints makes the endpoints those at addresses, keeping those that are there already.
func (u *Upstream) setEndpoints(ctx context.Context, o Options, addresses []string) {
	if u.swapEndpoints(ctx, o, normal(addresses)) {
		u.changed("")
	}
}

func (u *Upstream) swapEndpoints(ctx context.Context, o Options, addresses []string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.shut || ctx.Err() != nil {
		return false
	}
	old := u.list()
	next := make([]*endpoint, 0, len(addresses))
	conns := make(map[string]grpc.ClientConnInterface, len(addresses))
	for _, a := range addresses {
		i := slices.IndexFunc(old, func(e *endpoint) bool { return e.name == a && e.opts.sameConnections(o) })
		if i >= 0 {
			next = append(next, old[i])
		} else if e, err := newEndpoint(u, a, u.underWay(a), o); err == nil {
			next = append(next, e)
		} else {
			u.log.Error("an endpoint cannot be used", "upstream", u.name, "endpoint", a, "error", err)
			continue
		}
		conns[a] = probe{line{next[len(next)-1]}}
	}
	u.endpoints.Store(&next)
	u.health.SetEndpoints(conns)
	for _, e := range old {
		if !slices.Contains(next, e) {
			e.retire()
			u.retired = append(u.retired, e)
		}
	}
	u.log.Info("endpoints of the upstream", "upstream", u.name, "endpoints", strings.Join(addresses, " "))
	return true
}

// underWay gives the count of calls that are under way at an address, for one more endpoint there. u.mu is held.
func (u *Upstream) underWay(address string) *underWay {
	for _, e := range append(slices.Clone(u.list()), u.retired...) {
		if e.name == address {
			return e.inflight
		}
	}
	return new(underWay)
}

// run starts a goroutine that Close waits for; f must end with u.life. It reports false once u has been closed.
func (u *Upstream) run(f func()) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.shut {
		return false
	}
	u.tasks.Go(f)
	return true
}

func (u *Upstream) trimLoop() {
	tick := time.NewTicker(trimEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-u.life.Done():
			return
		}
		for _, e := range u.list() {
			e.trim()
		}
		u.forgetSequences()
		u.mu.Lock()
		u.retired = slices.DeleteFunc(u.retired, func(e *endpoint) bool { return e.empty() })
		u.mu.Unlock()
	}
}

// list gives the endpoints; nobody may change it.
func (u *Upstream) list() []*endpoint { return *u.endpoints.Load() }

// Endpoints lists the addresses, in order.
func (u *Upstream) Endpoints() []string {
	var names []string
	for _, e := range u.list() {
		names = append(names, e.name)
	}
	return names
}

// InFlight is how many calls are under way on an endpoint; 0 for one that there is not.
func (u *Upstream) InFlight(endpoint string) int {
	for _, e := range u.list() {
		if e.name == endpoint {
			return int(e.inflight.Load())
		}
	}
	return 0
}

// MaxInFlight is how many calls may be under way at each endpoint at once; 0: any number.
func (u *Upstream) MaxInFlight() int { return int(u.maxInFlight.Load()) }

// Up reports whether an endpoint has answered and still does.
func (u *Upstream) Up(endpoint string) bool { return u.health.Up(endpoint) }

// Answers reports whether any endpoint is up.
func (u *Upstream) Answers() bool {
	return slices.ContainsFunc(u.list(), func(e *endpoint) bool { return u.health.Up(e.name) })
}

// lookAgain has names resolved anew, since a connection has failed.
func (u *Upstream) lookAgain() {
	select {
	case u.again <- struct{}{}:
	default:
	}
}

// Pool gives the pool of a version of a model as the upstream knows it; version "" is for upstreams without
// versions. It is always the same pool for the same names, over reloads too.
func (u *Upstream) Pool(model, version string) inference.Pool { return u.pool(model, version) }

func (u *Upstream) pool(model, version string) *pool {
	key := poolKey{model, version}
	if p, ok := u.pools.Load(key); ok {
		return p.(*pool)
	}
	u.poolsMu.Lock()
	defer u.poolsMu.Unlock()
	fresh := &pool{up: u, model: model, version: version}
	fresh.declared.Store(u.declared[key])
	p, loaded := u.pools.LoadOrStore(key, fresh)
	if !loaded {
		u.byModel[model] = append(u.byModel[model], fresh)
	}
	return p.(*pool)
}

// Declare says which targets the configuration names on this upstream; they are probed without traffic as well.
// It replaces what was declared before.
func (u *Upstream) Declare(targets []inference.Target) {
	declared := make(map[poolKey]bool, len(targets))
	for _, t := range targets {
		declared[poolKey{t.Model, t.Version}] = true
	}
	u.poolsMu.Lock()
	u.declared = declared
	u.pools.Range(func(key, value any) bool {
		value.(*pool).declared.Store(declared[key.(poolKey)])
		return true
	})
	u.poolsMu.Unlock()
	for key := range declared {
		u.pool(key.model, key.version)
		u.health.Kick(key.model, key.version)
	}
}

// Watch calls changed with the name of each model whose readiness has changed, and with "" when an endpoint went out
// or came back. It is called from one goroutine at a time and must not block.
func (u *Upstream) Watch(changed func(model string)) {
	u.watchersMu.Lock()
	defer u.watchersMu.Unlock()
	u.watchers = append(u.watchers, changed)
}

// Versions says what is known of the versions of a model, without asking anybody.
func (u *Upstream) Versions(model string) []inference.VersionState { return u.health.Versions(model) }

// Listed reports whether any endpoint lists the model in its repository.
func (u *Upstream) Listed(model string) bool { return u.health.Listed(model) }

// Refresh has repositories read again at once, because a model has been loaded or unloaded.
func (u *Upstream) Refresh() { u.health.Refresh() }

// wanted lists the versions of models worth probing.
func (u *Upstream) wanted(yield func(model, version string) bool) {
	now := time.Now()
	u.pools.Range(func(_, value any) bool {
		p := value.(*pool)
		return !p.wanted(now) || yield(p.model, p.version)
	})
}

// allChanged makes every pool choose anew.
func (u *Upstream) allChanged() {
	u.pools.Range(func(_, value any) bool {
		value.(*pool).changed()
		return true
	})
}

// changed is told by Health what has changed, and tells on.
func (u *Upstream) changed(model string) {
	if model == "" {
		u.allChanged()
		u.watchOut() // now that nobody chooses what is out any more
	} else {
		u.poolsMu.Lock()
		pools := u.byModel[model] // only ever appended to
		u.poolsMu.Unlock()
		for _, p := range pools {
			p.changed()
			p.info.suspect()
		}
	}
	u.watchersMu.Lock()
	watchers := u.watchers
	u.watchersMu.Unlock()
	for _, w := range watchers {
		w(model)
	}
}

// ignorance is the Health of an upstream that nobody watches: every endpoint is taken to serve everything.
type ignorance struct{}

func (ignorance) Begin(func(func(model, version string) bool), func(string)) {}
func (ignorance) SetEndpoints(map[string]grpc.ClientConnInterface)           {}
func (ignorance) State(string, string, string) inference.Readiness           { return inference.Ready }
func (ignorance) Up(string) bool                                             { return true }
func (ignorance) Versions(string) []inference.VersionState                   { return nil }
func (ignorance) Listed(string) bool                                         { return false }
func (ignorance) Kick(string, string)                                        {}
func (ignorance) Out(string) (out, silent bool)                              { return false, false }
func (ignorance) Draining(string) bool                                       { return false }
func (ignorance) Refused(string, error)                                      {}
func (ignorance) Leaving(string, error)                                      {}
func (ignorance) Doubt(string)                                               {}
func (ignorance) NotReady(string, string, string)                            {}
func (ignorance) Refresh()                                                   {}
func (ignorance) Close()                                                     {}
