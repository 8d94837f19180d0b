package triton

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/model-gateway/model-gateway/pkg/fault"
)

// endpoint is one address with its connections. It is shared by all pools.
type endpoint struct {
	up       *Upstream
	name     string
	hash     uint64 // of name
	opts     Options
	inflight *underWay

	conns atomic.Pointer[[]*conn] // never empty; the first one stays
	grow  sync.Mutex              // held to change conns
	gone  context.Context         // ends when the endpoint is no longer one of the upstream's
	leave context.CancelFunc

	answered  atomic.Bool  // a call, since Health last asked
	keepalive atomic.Int64 // at which new connections ping; 0: as opts say
	since     atomic.Int64 // when it came, or came back, unix ns
	faults    outlier      // of calls of all models
	pending   atomic.Pointer[pending]

	state             sync.Mutex
	out, silent, seen bool // as watchOut last saw it
}

// newEndpoint makes one; inflight counts the calls that are under way at the address already.
func newEndpoint(up *Upstream, name string, inflight *underWay, o Options) (*endpoint, error) {
	first, err := dial(&o, name)
	if err != nil {
		return nil, err
	}
	e := &endpoint{up: up, name: name, hash: hashOf(name), opts: o, inflight: inflight}
	e.gone, e.leave = context.WithCancel(context.Background())
	e.conns.Store(&[]*conn{first})
	return e, nil
}

// conn gives a connection with a place for one more stream, which the caller must release. Steps of sequences have
// connections of their own.
func (e *endpoint) conn(sequences bool) (*conn, error) {
	for _, c := range *e.conns.Load() {
		if c.sequences == sequences && c.acquire(streamsPerConn) {
			return c, nil
		}
	}
	return e.another(sequences)
}

// another makes a further connection, or, when there are enough of them, shares the first one that is open.
func (e *endpoint) another(sequences bool) (*conn, error) {
	e.grow.Lock()
	defer e.grow.Unlock()
	conns := *e.conns.Load()
	for _, c := range conns {
		if c.sequences == sequences && c.acquire(streamsPerConn) {
			return c, nil
		}
	}
	if e.gone.Err() == nil && len(conns) < maxConns {
		c, err := dial(e.options(), e.name)
		if err != nil {
			return nil, fault.Wrap(fault.Internal, err, "cannot make a connection to endpoint %s", e.name)
		}
		c.sequences = sequences
		c.open.Add(1)
		grown := append(slices.Clone(conns), c)
		e.conns.Store(&grown)
		return c, nil
	}
	for _, c := range conns {
		if c.acquire(math.MaxInt32) {
			return c, nil
		}
	}
	return nil, fault.New(fault.EndpointLost, "endpoint %s has been taken out of upstream %s; try again", e.name, e.up.name)
}

// trim retires connections beyond the first that have nothing on them.
func (e *endpoint) trim() {
	e.grow.Lock()
	defer e.grow.Unlock()
	conns := *e.conns.Load()
	kept := conns[:1:1]
	for _, c := range conns[1:] {
		if c.open.Load() == 0 {
			c.retire()
			continue
		}
		kept = append(kept, c)
	}
	if len(kept) < len(conns) {
		e.conns.Store(&kept)
	}
}

// retire lets calls that are under way finish and then closes the connections.
func (e *endpoint) retire() {
	e.leave()
	e.grow.Lock()
	defer e.grow.Unlock()
	for _, c := range *e.conns.Load() {
		c.retire()
	}
}

// empty reports whether the last call has left a retired endpoint.
func (e *endpoint) empty() bool {
	for _, c := range *e.conns.Load() {
		if c.open.Load() > 0 {
			return false
		}
	}
	return true
}

// shut closes the connections now.
func (e *endpoint) shut() {
	e.leave()
	e.grow.Lock()
	defer e.grow.Unlock()
	for _, c := range *e.conns.Load() {
		_ = c.cc.Close()
	}
}

// line is the endpoint as a connection for questions and control: every RPC takes a place on a
// connection of its own accord.
type line struct{ e *endpoint }

var _ grpc.ClientConnInterface = line{}

// Invoke sends one unary RPC; its error is gRPC's own.
func (l line) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	c, err := l.e.conn(false)
	if err != nil {
		return err
	}
	defer c.release()
	if l.e.up.headers.Load() != nil {
		md, _ := metadata.FromOutgoingContext(ctx)
		ctx = l.e.up.outgoing(ctx, md)
	}
	return c.cc.Invoke(ctx, method, args, reply, opts...)
}

// NewStream is refused: nothing that is asked of a single endpoint is a stream.
func (l line) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, fault.New(fault.Internal, "no streams on this connection")
}

// probe is a line whose errors are faults that say what they are evidence of. It does not wait for connections that
// failed to be tried again.
type probe struct{ line }

// Invoke sends one unary RPC; its error is a fault.
func (p probe) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	(*p.e.conns.Load())[0].renew(ctx)
	return readProbe(Classify(ctx, p.line.Invoke(ctx, method, args, reply, opts...)))
}

// Answered reports whether the endpoint has answered a call since it was last asked.
func (p probe) Answered() bool { return p.e.answered.Swap(false) }
