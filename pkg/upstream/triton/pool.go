package triton

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// recent is how long after its last call a model is still probed.
const recent = time.Minute

// pool is the endpoints that can serve one version of a model. It is made once and stays, whatever happens
// to endpoints and configuration, so everything that is known of the version is kept with it.
type pool struct {
	up       *Upstream
	model    string
	version  string
	declared atomic.Bool  // the configuration names it; it is probed without traffic too
	used     atomic.Int64 // when it was last asked for an endpoint, unix seconds
	info     infoCache
	homes    homes // of sequences

	gen    atomic.Uint64 // counts what may have changed the choice
	choice atomic.Pointer[choice]
	mu     sync.Mutex // held to make a choice

	turns      atomic.Uint64 // of round robin
	outliersMu sync.Mutex
	outliers   map[string]*outlier // by endpoint, of those that failed lately
}

// choice is what Pick chooses from, as of generation gen. It is never written again.
type choice struct {
	gen    uint64
	ready  []*seat
	maybe  []*seat // nobody knows yet whether they can
	absent error   // the fault when both are empty
	eased  bool    // some of them are in their slow start
}

// seat is one endpoint as one pool sees it.
type seat struct {
	pool   *pool
	ep     *endpoint
	faults atomic.Pointer[outlier] // of the pool's model here; nil while there were none
}

var (
	_ inference.Pool      = (*pool)(nil)
	_ inference.Describer = (*pool)(nil)
	_ inference.Roomy     = (*pool)(nil)
	_ inference.Endpoint  = (*seat)(nil)
)

// Name is the address, host:port.
func (s *seat) Name() string { return s.ep.name }

// Pick chooses as the call's model says from the endpoints that are ready, or, when none is, from those of which nothing
// is known. By default that is the less busy one of two drawn at random, which costs the same however many endpoints and
// pools there are. No way takes a lock. Endpoints that are full are passed over, and when all are the call is refused as
// OVERLOADED. A step of a sequence goes to the sequence's home, or nowhere; whether there is room shows when it is sent.
func (p *pool) Pick(c *inference.Call, not []inference.Endpoint) (inference.Endpoint, error) {
	p.touch(c.Start)
	ch := p.current()
	if c.Head.Sequence.ID != "" {
		s, err := p.pickSequence(c, ch, not)
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	if len(not) > 0 {
		s, err := p.any(c, ch, not)
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	seats := ch.ready
	if len(seats) == 0 {
		if seats = ch.maybe; len(seats) == 0 {
			p.up.health.Kick(p.model, p.version) // what is known may be seconds old
			return nil, ch.absent
		}
	}
	s := p.of(c, seats, ch.eased)
	if s.ep.full() {
		var err error
		if s, err = p.withRoom(c, seats, ch.eased); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Ready reports whether an endpoint is known to serve the version. A pool that is not Ready may have an endpoint to Pick
// all the same, if nobody has asked yet.
func (p *pool) Ready() bool { return len(p.current().ready) > 0 }

// any draws an endpoint with room that is not in not. It looks at every endpoint, which a second attempt may well cost.
func (p *pool) any(c *inference.Call, ch *choice, not []inference.Endpoint) (*seat, error) {
	for _, seats := range [][]*seat{ch.ready, ch.maybe} {
		left := slices.DeleteFunc(slices.Clone(seats), func(s *seat) bool { return isOneOf(s, not) })
		if len(left) > 0 {
			return p.withRoom(c, left, ch.eased)
		}
	}
	if len(ch.ready)+len(ch.maybe) > 0 {
		return nil, fault.New(fault.NoEndpoint, "no other endpoint is left to try; try again shortly")
	}
	return nil, ch.absent
}

// touch notes that the version has traffic. Its first call in a while has it probed at once.
func (p *pool) touch(at time.Time) {
	now, before := at.Unix(), p.used.Load()
	if now <= before {
		return
	}
	p.used.Store(now)
	if now-before > int64(recent/time.Second) && !p.declared.Load() {
		p.up.health.Kick(p.model, p.version)
	}
}

// wanted reports whether the version is worth probing.
func (p *pool) wanted(now time.Time) bool {
	return p.declared.Load() || now.Unix()-p.used.Load() <= int64(recent/time.Second)
}

// changed makes the next Pick choose anew.
func (p *pool) changed() { p.gen.Add(1) }

func (p *pool) current() *choice {
	if ch := p.choice.Load(); ch != nil && ch.gen == p.gen.Load() {
		return ch
	}
	return p.choose()
}

func (p *pool) choose() *choice {
	p.mu.Lock()
	defer p.mu.Unlock()
	gen := p.gen.Load() // before anything is looked at: what changes from now on makes a further choice
	if old := p.choice.Load(); old != nil && old.gen == gen {
		return old
	}
	ch := &choice{gen: gen}
	endpoints := p.up.list()
	now := time.Now().UnixNano()
	up := 0
	for _, e := range endpoints {
		ch.eased = ch.eased || e.weight(now) < 1
		if p.up.health.Up(e.name) {
			up++
		}
		switch p.up.health.State(e.name, p.model, p.version) {
		case inference.Ready:
			ch.ready = append(ch.ready, &seat{pool: p, ep: e})
		case inference.Unknown:
			ch.maybe = append(ch.maybe, &seat{pool: p, ep: e})
		case inference.NotReady:
		}
	}
	if len(ch.ready)+len(ch.maybe) == 0 {
		ch.absent = p.absent(len(endpoints), up)
	}
	p.settle(endpoints, ch.ready, now)
	if len(ch.ready) > 1 {
		ch.ready = without(ch.ready, len(endpoints), now, p.up.ejects.Load())
	}
	p.choice.Store(ch)
	return ch
}

func (p *pool) absent(endpoints, up int) *fault.Fault {
	switch {
	case endpoints == 0:
		return p.up.noEndpoints()
	case up == 0:
		return fault.New(fault.NoEndpoint, "none of the %d endpoints of upstream %s answers; try again shortly", endpoints, p.up.name)
	case p.version == "":
		return fault.New(fault.ModelNotReady, "model %q is not ready on upstream %s; try again shortly", p.model, p.up.name)
	}
	return fault.New(fault.ModelNotReady, "model %q version %s is not ready on upstream %s; try again shortly", p.model, p.version, p.up.name)
}
