package grpcfront

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/model-gateway/model-gateway/pkg/fault"
)

const (
	// streamGrace is how much older than its connection may get a stream may be, before it has to end as well.
	streamGrace = 10 * time.Minute
	// noticed is how long streams are served on after their clients have been told to go away: one that ends before
	// its client knows that would be opened again on the same connection.
	noticed = 250 * time.Millisecond
	// parting is how long calls and streams have at the end of a drain to tell why they are cut.
	parting = 900 * time.Millisecond
)

// pending counts the messages of a stream that have come and are not answered yet. A stream that leaves ends when
// there are none; those that come meanwhile are refused, each with an answer of its own.
type pending struct {
	mu      sync.Mutex
	n       int
	leaving bool
	over    bool
	done    chan struct{} // closed when the stream leaves and nothing is pending
	under   sync.WaitGroup
}

// come notes a message. leaving: refuse it. Not ok: nobody answers any more, drop it.
func (p *pending) come() (leaving, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return false, false
	}
	p.n++
	p.under.Add(1)
	return p.leaving, true
}

// answered notes that a message has had its last answer.
func (p *pending) answered() {
	defer p.under.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n--
	p.settle()
}

// leave has the stream take no more messages.
func (p *pending) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaving = true
	p.settle()
}

// settle ends a stream that leaves once nothing is pending. p.mu is held.
func (p *pending) settle() {
	if p.leaving && p.n == 0 && !p.over {
		p.over = true
		close(p.done)
	}
}

// end drops whatever comes from now on. Wait for under after it.
func (p *pending) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
}

// age is a timer for the end of a stream that begins now, which fires never where streams may last for ever. No two
// streams that began together end together.
func (f *Front) age() *time.Timer {
	if f.opts.MaxAge <= 0 {
		return &time.Timer{}
	}
	most := f.opts.MaxAge + streamGrace
	return time.NewTimer(most - rand.N(most/10+1))
}

func stop(t *time.Timer) {
	if t.C != nil {
		t.Stop()
	}
}

func tooOld() *fault.Fault {
	return fault.New(fault.ShuttingDown, "the stream has lasted as long as listen.max_connection_age lets it; open another one")
}

func draining() *fault.Fault {
	return fault.New(fault.ShuttingDown, "the gateway is draining; reconnect")
}

// endless ends streams of health and reflection when the front drains, and when they are too old: a client that watches
// health would hold up the drain, or its old connection, for as long as it may last.
func (f *Front) endless(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if !strings.HasPrefix(info.FullMethod, "/grpc.") {
		return handler(srv, ss)
	}
	ctx, cancel := context.WithCancelCause(ss.Context())
	defer cancel(nil)
	go func() {
		age := f.age()
		defer stop(age)
		select {
		case <-f.serving.Done():
			cancel(draining())
		case <-age.C:
			cancel(tooOld())
		case <-ctx.Done():
		}
	}()
	err := handler(srv, endingStream{ss, ctx})
	if ss.Context().Err() == nil && ctx.Err() != nil {
		return toStatus(context.Cause(ctx))
	}
	return err
}

// endingStream is a stream with a context of its own.
type endingStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // what the interface asks for
}

func (s endingStream) Context() context.Context { return s.ctx }

// Leave says by grpc.health.v1 that the front serves no more, whatever SetServing says later. Calls are served on.
func (f *Front) Leave() { f.health.Shutdown() }

// Drain tells all clients to go away, idle ones too, lets calls under way finish, and returns when they have or ctx ends.
// Streams end with a status that says why as soon as nothing is pending on them; messages that come until then are
// refused one by one. When ctx ends, streams end with a status, calls have a moment to end by themselves, whoever sees to
// that, and what is left then is cut; false is returned.
func (f *Front) Drain(ctx context.Context) (finished bool) {
	done := make(chan struct{})
	go func() { f.server.GracefulStop(); close(done) }()
	told := time.AfterFunc(noticed, f.drain)
	defer told.Stop()
	select {
	case <-done:
		f.drain()
		return true
	case <-ctx.Done():
	}
	f.drain()
	f.cut()
	last := time.NewTimer(parting)
	defer last.Stop()
	select {
	case <-done:
	case <-last.C:
		f.server.Stop()
		<-done
	}
	return false
}
