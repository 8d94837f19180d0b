package triton

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
)

// Eject says when an endpoint that keeps failing gets no calls for a while, although it says that it is ready. An
// endpoint whose failures are all of one model is out for that model alone.
type Eject struct {
	// Failures in a row that eject; 0 means DefaultEjectFailures, and less than 0 that nothing does.
	Failures int
	// For is how long it is out the first time; the n-th time it is n times as long, and maxEject at most. 0 means
	// DefaultEjectFor.
	For time.Duration
	// AtMost is the share of endpoints that may be out at once, 0 to 1; 0 means DefaultEjectAtMost.
	AtMost float64
}

// Defaults of Eject.
const (
	DefaultEjectFailures = 5
	DefaultEjectFor      = 30 * time.Second
	DefaultEjectAtMost   = .5

	maxEject = 300 * time.Second
	panicAt  = .5 // share of endpoints that must be ready and not ejected; under it nobody is taken to be ejected
)

func (j Eject) complete() Eject {
	if j.Failures == 0 {
		j.Failures = DefaultEjectFailures
	}
	if j.For == 0 {
		j.For = DefaultEjectFor
	}
	if j.AtMost == 0 {
		j.AtMost = DefaultEjectAtMost
	}
	return j
}

// outlier counts failures in a row: of one model on an endpoint, or of all of them. The zero value is that of one which
// has not failed.
type outlier struct {
	row   atomic.Int32
	until atomic.Int64 // it is out until then, unix ns

	mu    sync.Mutex
	of    *pool // that the row is of
	mixed bool  // the row is of several
	times int   // it has been out lately
}

// well ends a row. It costs a look when there is none.
func (o *outlier) well() {
	if o.row.Load() != 0 {
		o.row.Store(0)
	}
}

// failed counts a failure and reports whether the row is long enough.
func (o *outlier) failed(of *pool, enough int) (long, mixed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := o.row.Add(1); n == 1 {
		o.of, o.mixed = of, false
	}
	o.mixed = o.mixed || o.of != of
	return int(o.row.Load()) >= enough, o.mixed
}

// eject takes it out, and says how long; 0 when it is out already.
func (o *outlier) eject(now time.Time, first time.Duration) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.until.Load()
	if before > now.UnixNano() {
		return 0
	}
	if now.UnixNano()-before > int64(maxEject) {
		o.times = 0 // it has been well for long
	}
	o.times++
	d := min(first*time.Duration(o.times), maxEject)
	o.until.Store(now.Add(d).UnixNano())
	o.row.Store(0)
	return d
}

// end has it back now. How often it was out is remembered.
func (o *outlier) end(now int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.row.Store(0)
	if o.until.Load() > now {
		o.until.Store(now)
	}
}

// succeeded ends rows of failures.
func (s *seat) succeeded() {
	if o := s.faults.Load(); o != nil {
		o.well()
	}
	s.ep.faults.well()
}

// judge counts a failure where it is the endpoint's, or the model's on it. What Health knows of by itself is left to it,
// since a model that is not ready is not chosen anyway.
func (s *seat) judge(f *fault.Fault) {
	switch f.Kind {
	case fault.UpstreamFailed, fault.UpstreamTimeout, fault.EndpointLost, fault.UpstreamUnavailable:
	case fault.ModelNotReady, fault.Draining, fault.Cancelled, fault.Deadline:
		return
	default:
		if f.Upstream {
			s.succeeded() // whatever it says of the request, it works
		}
		return
	}
	j := s.pool.up.ejects.Load()
	if j.Failures < 0 {
		return
	}
	if out, _ := s.pool.up.health.Out(s.ep.name); out {
		return // that is known, and when it is back as well
	}
	now := time.Now()
	if long, mixed := s.ep.faults.failed(s.pool, j.Failures); long && mixed {
		s.pool.up.eject(s.ep, nil, &s.ep.faults, now, j, f)
	}
	o := s.faults.Load()
	if o == nil {
		o = s.pool.outlierOf(s.ep.name)
		s.faults.Store(o)
	}
	if long, _ := o.failed(s.pool, j.Failures); long {
		s.pool.up.eject(s.ep, s.pool, o, now, j, f)
	}
}

// eject takes an endpoint out, for a pool or for all, and has it back in time.
func (u *Upstream) eject(e *endpoint, p *pool, o *outlier, now time.Time, j *Eject, why *fault.Fault) {
	d := o.eject(now, j.For)
	if d == 0 {
		return
	}
	changed := u.allChanged
	log := u.log.With("upstream", u.name, "endpoint", e.name, "for", d.String(), "failures", j.Failures)
	if p != nil {
		changed = p.changed
		log = log.With("model", p.model, "version", p.version)
	}
	log.Warn("endpoint ejected: it says that it is ready and keeps failing", "error", why)
	changed()
	time.AfterFunc(d, func() {
		if p == nil {
			e.since.Store(time.Now().UnixNano())
		}
		changed()
		if u.life.Err() == nil {
			u.log.Info("endpoint no longer ejected", "upstream", u.name, "endpoint", e.name)
		}
	})
}

// without takes those that are ejected out of seats that are ready, of so many endpoints: no more than may be, never the
// last one, and none while so few are left that any of them is needed.
func without(ready []*seat, endpoints int, now int64, j *Eject) []*seat {
	var out []*seat
	kept := make([]*seat, 0, len(ready))
	for _, s := range ready {
		if s.ejectedUntil() > now {
			out = append(out, s)
		} else {
			kept = append(kept, s)
		}
	}
	spare := min(int(j.AtMost*float64(endpoints)), len(ready)-1)
	if len(out) > spare { // those that would be back soonest
		slices.SortFunc(out, func(a, b *seat) int { return cmp.Compare(a.ejectedUntil(), b.ejectedUntil()) })
		kept = append(kept, out[:len(out)-spare]...)
		slices.SortFunc(kept, func(a, b *seat) int { return strings.Compare(a.ep.name, b.ep.name) })
	}
	if float64(len(kept)) < panicAt*float64(endpoints) {
		return ready
	}
	return kept
}

func (s *seat) ejectedUntil() int64 {
	until := s.ep.faults.until.Load()
	if o := s.faults.Load(); o != nil {
		until = max(until, o.until.Load())
	}
	return until
}

// outlierOf gives what is known of failures of the pool's model on an endpoint, and makes it.
func (p *pool) outlierOf(endpoint string) *outlier {
	p.outliersMu.Lock()
	defer p.outliersMu.Unlock()
	o := p.outliers[endpoint]
	if o == nil {
		o = new(outlier)
		if p.outliers == nil {
			p.outliers = make(map[string]*outlier)
		}
		p.outliers[endpoint] = o
	}
	return o
}

// settle gives seats what is known of their failures, and forgets that of endpoints that are gone or well.
func (p *pool) settle(endpoints []*endpoint, seats []*seat, now int64) {
	p.outliersMu.Lock()
	defer p.outliersMu.Unlock()
	if len(p.outliers) == 0 {
		return
	}
	kept := make(map[string]*outlier)
	for _, e := range endpoints {
		if o := p.outliers[e.name]; o != nil && (o.row.Load() > 0 || now-o.until.Load() < int64(maxEject)) {
			kept[e.name] = o
		}
	}
	for _, s := range seats {
		s.faults.Store(kept[s.ep.name])
	}
	p.outliers = kept
}

// fresh ends ejections and rows of an endpoint that is back: what failed may have been another process.
func (e *endpoint) fresh(now int64) {
	e.faults.end(now)
	e.up.pools.Range(func(_, value any) bool {
		p := value.(*pool)
		p.outliersMu.Lock()
		defer p.outliersMu.Unlock()
		if o := p.outliers[e.name]; o != nil {
			o.end(now)
		}
		return true
	})
}

// Ejections lists the models that an endpoint is ejected for, by address; "*" stands for all of them.
func (u *Upstream) Ejections() map[string][]string {
	now := time.Now().UnixNano()
	all := make(map[string][]string)
	for _, e := range u.list() {
		if e.faults.until.Load() > now {
			all[e.name] = []string{"*"}
		}
	}
	u.pools.Range(func(_, value any) bool {
		p := value.(*pool)
		p.outliersMu.Lock()
		defer p.outliersMu.Unlock()
		for endpoint, o := range p.outliers {
			if o.until.Load() > now {
				all[endpoint] = append(all[endpoint], strings.TrimSuffix(p.model+"/"+p.version, "/"))
			}
		}
		return true
	})
	for _, models := range all {
		slices.Sort(models)
	}
	return all
}
