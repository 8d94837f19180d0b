package triton

import "time"

// watchOut acts on endpoints that went out or came back since it last looked.
func (u *Upstream) watchOut() {
	now := time.Now()
	for _, e := range u.list() {
		e.watchOut(now)
	}
}

func (e *endpoint) watchOut(now time.Time) {
	e.state.Lock()
	defer e.state.Unlock()
	out, silent := e.up.health.Out(e.name)
	switch {
	case out && !e.out:
		e.cut(silent)
	case out && silent && !e.silent:
		e.cut(true)
	case !out && !e.seen && e.up.health.Up(e.name):
		e.seen = true
		e.warm(now)
	}
	if out {
		e.seen = false
	}
	e.out, e.silent = out, silent
}

// cut ends what is under way on an endpoint that is out, sequences excepted: they have nowhere else to go, and their state
// may yet be there. Calls get a fault EndpointLost and can be tried elsewhere at once, in place of waiting for answers
// that will not come.
//
// Unless all is said, what is on a connection that the server has taken leave of is left alone: it is being finished.
func (e *endpoint) cut(all bool) {
	e.grow.Lock()
	defer e.grow.Unlock()
	if e.gone.Err() != nil || !all && e.up.health.Draining(e.name) {
		return
	}
	conns := *e.conns.Load()
	first := conns[0]
	for _, c := range conns[1:] {
		if c.sequences || !all && !c.inUse() {
			c.retire() // whoever comes back finds a new connection, and not what is known of the old one
		} else {
			c.cut()
		}
	}
	if all || first.inUse() {
		fresh, err := dial(e.options(), e.name)
		if err != nil {
			e.up.log.Error("no connection can be made to an endpoint", "upstream", e.up.name, "endpoint", e.name, "error", err)
			return
		}
		first.cut()
		first = fresh
	}
	e.conns.Store(&[]*conn{first})
}

// slowStart is how long an endpoint that is new, or back, gets less than its share, so that it is not met by all at once
// with its caches cold.
const slowStart = 10 * time.Second

// leastWeight is the share of its share that it gets at first.
const leastWeight = .1

// warm begins a slow start.
func (e *endpoint) warm(now time.Time) {
	e.since.Store(now.UnixNano())
	e.fresh(now.UnixNano())
	e.up.allChanged()
	time.AfterFunc(slowStart, e.up.allChanged) // it has its whole share then, and nobody needs to look
}

// weight is the share of its share that an endpoint gets, leastWeight to 1.
func (e *endpoint) weight(now int64) float64 {
	age := now - e.since.Load()
	if age >= int64(slowStart) {
		return 1
	}
	return max(leastWeight, float64(age)/float64(slowStart))
}

// options are those that new connections are made with.
func (e *endpoint) options() *Options {
	o := e.opts
	if k := e.keepalive.Load(); k > 0 {
		o.Keepalive = time.Duration(k)
	}
	return &o
}

// pingLess doubles the time between pings of new connections; grpc-go does likewise with the one that was told off.
func (e *endpoint) pingLess() {
	now := max(time.Duration(e.keepalive.Load()), e.opts.Keepalive)
	next := min(2*now, DefaultKeepalive)
	if next <= now {
		return
	}
	e.keepalive.Store(int64(next))
	e.up.log.Warn("the model server closed a connection because of too many pings: it permits fewer than upstreams.NAME.keepalive says. "+permitHint,
		"upstream", e.up.name, "endpoint", e.name, "keepalive", now, "from_now_on", next)
}

const permitHint = "Start Triton with --grpc-http2-min-recv-ping-interval-without-data and --grpc-http2-max-ping-strikes, or leave keepalive out"
