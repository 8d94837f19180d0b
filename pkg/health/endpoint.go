package health

import (
	"container/heap"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/proto/triton"
)

// endpoint is what is known of one address. Its fields are guarded by the table's lock.
type endpoint struct {
	p      *Prober
	name   string
	client atomic.Pointer[tritonpb.GRPCInferenceServiceClient]
	calls  atomic.Pointer[Traffic]
	ctx    context.Context
	stop   context.CancelFunc

	live      inference.Readiness // of the server itself
	how       outage
	good, bad int                 // answers to ServerLive in a row
	indexed   bool                // its index has been read since it came up
	models    map[string][]*entry // by model
	inferred  map[*entry]*inferring
	queue     queue // of wanted entries that are not being probed

	askLife   chan struct{} // ask now
	readIndex chan struct{}
	newDue    chan struct{} // the front of the queue may have changed
}

func newEndpoint(p *Prober, name string) *endpoint {
	e := &endpoint{
		p: p, name: name, models: make(map[string][]*entry), inferred: make(map[*entry]*inferring),
		askLife: make(chan struct{}, 1), readIndex: make(chan struct{}, 1), newDue: make(chan struct{}, 1),
	}
	e.ctx, e.stop = context.WithCancel(p.ctx)
	return e
}

// Traffic is what a connection given to SetEndpoints may know besides.
type Traffic interface {
	// Answered reports whether the endpoint has answered a call since it was last asked.
	Answered() bool
}

// use has questions asked over conn.
func (e *endpoint) use(conn grpc.ClientConnInterface) {
	client := tritonpb.NewGRPCInferenceServiceClient(conn)
	e.client.Store(&client)
	t, _ := conn.(Traffic)
	e.calls.Store(&t)
}

// traffic is nil where nobody knows of any.
func (e *endpoint) traffic() Traffic { return *e.calls.Load() }

func (e *endpoint) server() tritonpb.GRPCInferenceServiceClient { return *e.client.Load() }

// known gives what is known of a version; nil when nothing is.
func (e *endpoint) known(model, version string) *entry {
	for _, n := range e.models[model] { // few, so that a list is smaller than a map and no slower
		if n.version == version {
			return n
		}
	}
	return nil
}

// entry gives the entry of k, and makes it.
func (e *endpoint) entry(k key) *entry {
	n := e.known(k.model, k.version)
	if n == nil {
		n = &entry{key: e.p.name(k), place: -1}
		e.models[k.model] = append(e.models[k.model], n)
	}
	return n
}

func (e *endpoint) drop(n *entry) {
	versions := slices.DeleteFunc(e.models[n.model], func(o *entry) bool { return o == n })
	if e.models[n.model] = versions; len(versions) == 0 {
		delete(e.models, n.model)
	}
	e.p.changed[n.model] = struct{}{}
}

// want has k probed from now on.
func (e *endpoint) want(k key, now time.Time) {
	n := e.entry(k)
	if n.wanted {
		return
	}
	n.wanted = true
	if !n.probing {
		n.due = e.p.at(now)
		heap.Push(&e.queue, n)
		wake(e.newDue)
	}
}

// unwant has k probed no longer; the index decides what is known of it.
func (e *endpoint) unwant(k key) {
	n := e.known(k.model, k.version)
	if n == nil {
		return
	}
	delete(e.inferred, n)
	n.wanted, n.probed = false, 0
	if n.place >= 0 {
		heap.Remove(&e.queue, int(n.place))
	}
	if !n.listed {
		e.drop(n)
		e.p.signal()
	}
}

// hurry makes an entry due now, before all that has been due for long.
func (e *endpoint) hurry(n *entry) {
	if n.place >= 0 {
		n.due = 0
		heap.Fix(&e.queue, int(n.place))
		wake(e.newDue)
	}
}

// setState notes a change.
func (e *endpoint) setState(n *entry, s inference.Readiness) {
	if n.state == s {
		return
	}
	n.state = s
	e.p.changed[n.model] = struct{}{}
	e.p.signal()
}

// liveLoop asks whether the server lives, start to start every Options.Every.
func (e *endpoint) liveLoop() {
	for {
		begin := time.Now()
		traffic := e.traffic()
		if traffic != nil {
			traffic.Answered() // what was answered before the question says nothing
		}
		ctx, cancel := context.WithTimeout(e.ctx, e.p.opts.Timeout)
		answer, err := e.server().ServerLive(ctx, &tritonpb.ServerLiveRequest{})
		cancel()
		if e.ctx.Err() != nil {
			return
		}
		took := time.Since(begin)
		busy := took > e.p.opts.Timeout+starved || traffic != nil && traffic.Answered()
		wait := e.lived(read(answer.GetLive(), err), err, busy)
		if !sleep(e.ctx, wait-time.Since(begin), e.askLife) {
			return
		}
	}
}

// starved is by how much a question may outlast its time before it says more about this process than about the server.
const starved = 500 * time.Millisecond

// life is what an answer to ServerLive, or the lack of one, says.
type life uint8

const (
	unknowable life = iota // the question never left
	lives
	refuses
	leaves
	broke  // the connection, under the question
	misses // no answer in time, or one that says no
)

func read(live bool, err error) life {
	if err == nil {
		if live {
			return lives
		}
		return misses
	}
	switch fault.Of(err).Kind {
	case fault.UpstreamUnavailable:
		return refuses
	case fault.Draining:
		return leaves
	case fault.EndpointLost:
		return broke
	case fault.UpstreamTimeout, fault.Deadline, fault.Cancelled:
		return misses
	case fault.Internal:
		return unknowable
	default:
		return lives // whatever it says, it answers
	}
}

// lived takes an answer to ServerLive and says when to ask next, counted from the question. busy says that calls were
// answered meanwhile, or that this process was too slow to tell: then a missing answer is no evidence.
func (e *endpoint) lived(l life, err error, busy bool) time.Duration {
	o := e.p.opts
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	switch {
	case l == unknowable, l == misses && busy && err != nil:
		return o.Every
	case l == lives:
		return e.livedOn()
	}
	e.good, e.bad = 0, e.bad+1
	switch {
	case l == refuses:
		e.setLive(inference.NotReady, byRefusal, err)
	case l == leaves:
		e.setLive(inference.NotReady, byLeaving, err)
	case e.bad >= o.DownAfter:
		if err == nil {
			err = errNotLive
		}
		e.setLive(inference.NotReady, bySilence, err)
	case l == broke:
		return 0 // a new connection tells
	default:
		return o.Timeout + o.Confirm
	}
	return o.Every
}

func (e *endpoint) livedOn() time.Duration {
	o := e.p.opts
	e.good, e.bad = e.good+1, 0
	if e.live == inference.Unknown || (e.live == inference.NotReady && e.good >= o.UpAfter) {
		e.setLive(inference.Ready, notOut, nil)
	}
	if e.live == inference.NotReady {
		return o.Confirm
	}
	return o.Every
}

var errNotLive = errors.New("it says that it is not live")

// outage is how an endpoint went out.
type outage uint8

const (
	notOut outage = iota
	byRefusal
	byLeaving
	bySilence
)

// setLive notes that the endpoint went out, and why, or came back. When it goes out, all that was known of its models is void:
// what comes back may be a new process that is still loading them.
func (e *endpoint) setLive(live inference.Readiness, how outage, why error) {
	if how == bySilence && e.how != bySilence {
		e.p.allChanged = true // calls that it was to finish are lost after all
		e.p.signal()
	}
	e.how = max(e.how, how)
	if live == inference.Ready {
		e.how = notOut
	}
	if e.live == live {
		return
	}
	before := e.live
	switch {
	case live == inference.NotReady:
		e.p.opts.Logger.Warn("endpoint out", "endpoint", e.name, "error", cause(why))
	case before == inference.NotReady:
		e.p.opts.Logger.Info("endpoint back", "endpoint", e.name)
	default:
		e.p.opts.Logger.Info("endpoint answers", "endpoint", e.name)
	}
	e.live = live
	e.p.allChanged = true
	switch {
	case live == inference.NotReady:
		e.indexed = false
		clear(e.inferred)
		for _, versions := range e.models {
			for _, n := range versions {
				n.state, n.probed, n.good, n.bad = inference.NotReady, 0, 0, 0
			}
		}
	case before == inference.NotReady:
		wake(e.readIndex)
		for _, n := range e.queue { // all alike, so that the heap stays one
			n.due = 0
		}
		wake(e.newDue)
	}
	e.p.signal()
}

// cause is the most that is known of err: a fault keeps for the log what the client is not shown.
func cause(err error) error {
	var f *fault.Fault
	if errors.As(err, &f) && f.Cause != nil {
		return f.Cause
	}
	return err
}

// sleep waits for d, or less when woken; false when ctx has ended.
func sleep(ctx context.Context, d time.Duration, woken <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-woken:
	case <-ctx.Done():
		return false
	}
	return true
}
