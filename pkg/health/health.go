// Package health knows which endpoint of an upstream can serve which version of which model. It asks every endpoint
// whether it lives (ServerLive), what its repository holds (RepositoryIndex), and of the versions that matter whether they
// are ready (ModelReady). One model's failure says nothing of another. Not being able to ask changes nothing either: only
// an endpoint that refuses connections, or leaves three questions after its life unanswered, is out for all models.
// Questions are bounded per endpoint and second; with many models each is asked more rarely.
package health

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Options are the thresholds. Zero values mean the defaults, which are named beside them.
type Options struct {
	Every       time.Duration // between two probes of a version, and between two of an endpoint's life: 2 s
	Timeout     time.Duration // of one probe: 1 s
	Confirm     time.Duration // until the next probe when an answer has changed: 500 ms
	DownAfter   int           // bad answers in a row: 3
	UpAfter     int           // good ones: 2
	PerSecond   int           // ModelReady probes of an endpoint: 50
	IndexEvery  time.Duration // between two readings of the index: 10 s
	ForgetAfter time.Duration // how long a version that is nowhere any more is remembered: 10 min

	Logger *slog.Logger // nil drops what it would be told
}

const (
	planEvery   = time.Second // between two looks at which versions matter
	reviewEvery = time.Minute // between two looks for what may be forgotten
	parallel    = 16          // probes under way on an endpoint
	indexFactor = 5           // the index may take so many times Timeout
)

func (o Options) complete() Options {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&o.Every, 2*time.Second)
	def(&o.Timeout, time.Second)
	def(&o.Confirm, 500*time.Millisecond)
	def(&o.IndexEvery, 10*time.Second)
	def(&o.ForgetAfter, 10*time.Minute)
	if o.DownAfter <= 0 {
		o.DownAfter = 3
	}
	if o.UpAfter <= 0 {
		o.UpAfter = 2
	}
	if o.PerSecond <= 0 {
		o.PerSecond = 50
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Prober watches the endpoints of one upstream.
type Prober struct {
	opts Options
	ctx  context.Context
	stop context.CancelFunc
	done sync.WaitGroup

	wanted func(yield func(model, version string) bool)
	tell   func(model string)

	news  chan struct{} // wakes the notifier
	began time.Time     // instants count from here
	infer atomic.Pointer[func(model string) bool]
	zeros zeros

	table // what is known, and its lock
}

// New makes a Prober that does nothing until Begin.
func New(o Options) *Prober {
	p := &Prober{opts: o.complete(), news: make(chan struct{}, 1), began: time.Now()}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.table.init()
	return p
}

// Begin starts watching; it is called once, before SetEndpoints. wanted lists the versions worth probing. changed is
// called, from one goroutine at a time, with the name of each model whose readiness has changed, and with "" when an
// endpoint went out or came back, which may concern any model.
func (p *Prober) Begin(wanted func(yield func(model, version string) bool), changed func(model string)) {
	p.wanted, p.tell = wanted, changed
	p.done.Go(p.notifyLoop)
	p.done.Go(p.planLoop)
}

// SetEndpoints replaces the endpoints that are watched. What is known of those that stay is kept. Errors of the
// connections have to be faults.
func (p *Prober) SetEndpoints(conns map[string]grpc.ClientConnInterface) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return
	}
	for name, e := range p.endpoints {
		if _, stays := conns[name]; !stays {
			e.stop()
			delete(p.endpoints, name)
			p.allChanged = true
		}
	}
	for name, conn := range conns {
		if e := p.endpoints[name]; e != nil {
			e.use(conn)
			continue
		}
		p.allChanged = true
		e := newEndpoint(p, name)
		e.use(conn)
		p.endpoints[name] = e
		for key := range p.plan {
			e.want(key, time.Now())
		}
		p.done.Go(e.liveLoop)
		p.done.Go(e.indexLoop)
		p.done.Go(e.probeLoop)
	}
	p.signal()
}

// Close stops watching and waits for what is under way.
func (p *Prober) Close() {
	p.mu.Lock() // after this nothing starts any more
	p.stop()
	p.mu.Unlock()
	p.done.Wait()
}

// Refresh has the index of every endpoint read at once.
func (p *Prober) Refresh() {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, e := range p.endpoints {
		wake(e.readIndex)
	}
}

// Kick has a version of a model probed at once on every endpoint, unless that has just been done.
func (p *Prober) Kick(model, version string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key, now := key{model, version}, time.Now()
	if now.Sub(p.kicked[key]) < p.opts.Confirm {
		return
	}
	p.kicked[key] = now
	p.plan[key] = struct{}{} // until the next plan says otherwise
	for _, e := range p.endpoints {
		e.want(key, now)
		e.hurry(e.entry(key))
	}
}

// planLoop looks again and again at which versions matter.
func (p *Prober) planLoop() {
	tick, review := time.NewTicker(planEvery), time.NewTicker(reviewEvery)
	defer tick.Stop()
	defer review.Stop()
	for {
		p.replan()
		select {
		case <-tick.C:
		case <-review.C:
			p.forgetNames()
			for _, m := range p.knownModels() {
				p.review(m)
			}
		case <-p.ctx.Done():
			return
		}
	}
}

func (p *Prober) replan() {
	next := make(map[key]struct{})
	p.wanted(func(model, version string) bool {
		next[key{model, version}] = struct{}{}
		return true
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for k, at := range p.kicked {
		if now.Sub(at) > max(planEvery, p.opts.Confirm) {
			delete(p.kicked, k)
		} else {
			next[k] = struct{}{} // kicked while we were looking
		}
	}
	for k := range p.plan {
		if _, stays := next[k]; !stays {
			for _, e := range p.endpoints {
				e.unwant(k)
			}
		}
	}
	for k := range next {
		if _, there := p.plan[k]; !there {
			for _, e := range p.endpoints {
				e.want(k, now)
			}
		}
	}
	p.plan = next
}

// notifyLoop tells of changes, without holding the table.
func (p *Prober) notifyLoop() {
	for {
		select {
		case <-p.news:
		case <-p.ctx.Done():
			return
		}
		all, models := p.takeChanges()
		if all {
			p.tell("") // at once: calls must not go on to an endpoint that is out
			for _, m := range p.knownModels() {
				p.review(m)
			}
			p.tell("")
		}
		for _, m := range models {
			p.review(m)
			p.tell(m)
		}
	}
}

// signal wakes the notifier.
func (t *Prober) signal() { wake(t.news) }

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// State of one version of a model on one endpoint.
func (p *Prober) State(endpoint, model, version string) inference.Readiness {
	p.mu.RLock()
	defer p.mu.RUnlock()
	e := p.endpoints[endpoint]
	switch {
	case e == nil, e.live == inference.NotReady:
		return inference.NotReady
	}
	if entry := e.known(model, version); entry != nil {
		return entry.state
	}
	return inference.Unknown
}

// Up reports whether the endpoint has answered and still does.
func (p *Prober) Up(endpoint string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	e := p.endpoints[endpoint]
	return e != nil && e.live == inference.Ready
}

// Serving reports whether any endpoint that answers is known to serve any model.
func (p *Prober) Serving() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, e := range p.endpoints {
		if e.live != inference.Ready {
			continue
		}
		for _, versions := range e.models {
			for _, entry := range versions {
				if entry.state == inference.Ready {
					return true
				}
			}
		}
	}
	return false
}

// Listed reports whether any endpoint lists the model in its repository.
func (p *Prober) Listed(model string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, e := range p.endpoints {
		for _, entry := range e.models[model] {
			if entry.listed {
				return true
			}
		}
	}
	return false
}
