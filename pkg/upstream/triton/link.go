package triton

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/wire"
	"github.com/model-gateway/model-gateway/proto/triton"
)

const (
	mailbox    = 8                // answers of one call that wait for its client; more of them hold up the stream
	stuckGrace = time.Second      // how long a send may go on once its call has ended
	stuckAfter = 60 * time.Second // how long a send may take when the model has no first-answer timeout
)

// link is one ModelStreamInfer to an endpoint, opened for one client stream. Messages of many calls travel on it,
// each under an id that no other call of this gateway has, and answers are brought to their calls by that id.
//
// The end of a call ends nothing but the call: answers that come later are dropped. Only when the upstream no longer
// takes the message that a call has begun to send does the link end with it.
type link struct {
	ep     *endpoint
	conn   *conn
	stream grpc.ClientStream
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed when reading has ended

	sending chan struct{} // holds one token: a stream takes one message at a time
	sends   atomic.Uint64 // odd while a message is being sent

	held atomic.Int64 // when a full mailbox last stopped holding up the reader, unix ns; heldNow while one does

	mu      sync.Mutex
	pending map[string]*reply
	broken  error // why nothing comes any more
}

const heldNow = 1<<63 - 1

// reply is where a call waits for its answers. Its fields are guarded by the link's mu.
type reply struct {
	link    *link
	id      string
	letters []letter
	left    bool
	come    chan struct{} // a letter has come, or the link has broken
	taken   chan struct{} // a letter has been taken, or the call has left
}

// letter is an answer as it came, and what it says of itself.
type letter struct {
	frame inference.Frame
	head  wire.StreamAnswer
}

var (
	// idPrefix keeps ids of this process apart from those of others, in logs and traces of the upstream.
	idPrefix = func() string {
		var b [4]byte
		_, _ = rand.Read(b[:])
		return "gw-" + hex.EncodeToString(b[:]) + "-"
	}()
	idCount atomic.Uint64
)

func newID() string {
	return string(strconv.AppendUint(append(make([]byte, 0, 24), idPrefix...), idCount.Add(1), 36))
}

// openLink opens a stream under the client stream's context, with the metadata of the call that needs it first.
// The end of ctx gives up opening; it does not end the stream once it is open.
func (s *seat) openLink(ctx context.Context, c *inference.Call) (*link, error) {
	conn, err := s.ep.conn(c.Head.Sequence.ID != "")
	if err != nil {
		return nil, err
	}
	l := &link{
		ep: s.ep, conn: conn, done: make(chan struct{}),
		sending: make(chan struct{}, 1), pending: make(map[string]*reply),
	}
	l.ctx, l.cancel = context.WithCancel(c.Stream.Context)
	opened := context.AfterFunc(ctx, l.cancel)
	//nolint:contextcheck // the stream outlives the call that opens it
	l.stream, err = conn.cc.NewStream(s.pool.up.outgoing(l.ctx, c.Outgoing), &streamDesc,
		tritonpb.GRPCInferenceService_ModelStreamInfer_FullMethodName)
	if !opened() && err == nil {
		err = context.Cause(ctx) // the stream has been cancelled with the call
	}
	if err != nil {
		l.cancel()
		conn.release()
		return nil, s.explain(ctx, err)
	}
	go l.read()
	return l, nil
}

// Close ends the stream and waits until nothing is left of it. Calls on it get a fault.
func (l *link) Close() error {
	l.breakUp(fault.New(fault.Cancelled, "the client's stream has ended"))
	<-l.done
	return nil
}

// breakUp ends the stream; err is what its calls get, if the stream was still good.
func (l *link) breakUp(err error) {
	l.mu.Lock()
	if l.broken == nil {
		l.broken = err
	}
	for _, r := range l.pending {
		notify(r.come)
	}
	l.mu.Unlock()
	l.cancel()
}

func (l *link) isBroken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken != nil
}

// read brings answers to their calls until the stream ends.
func (l *link) read() {
	defer close(l.done)
	defer l.conn.release()
	gone := context.AfterFunc(l.ep.gone, l.leaveIfIdle)
	defer gone()
	for {
		var f inference.Frame
		err := l.stream.RecvMsg(&f)
		if err != nil {
			l.breakUp(l.ending(err))
			return
		}
		head, err := wire.PeekStreamAnswer(f)
		if err == nil {
			err = l.deliver(letter{f, head})
		} else {
			f.Free()
		}
		if err != nil {
			l.breakUp(err)
			return
		}
	}
}

// ending says why a stream came to its end.
func (l *link) ending(err error) error {
	if errors.Is(err, io.EOF) {
		return &fault.Fault{Kind: fault.EndpointLost, Upstream: true, Msg: "the model server ended the stream before it had answered; send the message again"}
	}
	return Classify(l.ctx, err)
}

// deliver puts an answer into the mailbox of its call, and waits for room there. An answer nobody waits for is dropped.
// An error is returned for an answer that may have been anybody's.
func (l *link) deliver(a letter) error {
	r, err := l.addressee(a)
	for r != nil {
		l.mu.Lock()
		if r.left {
			l.mu.Unlock()
			break
		}
		if len(r.letters) < mailbox {
			r.letters = append(r.letters, a)
			l.mu.Unlock()
			notify(r.come)
			return nil
		}
		l.mu.Unlock()
		l.held.Store(heldNow)
		select {
		case <-r.taken:
		case <-l.ctx.Done():
			r = nil
		}
		l.held.Store(time.Now().UnixNano())
	}
	a.frame.Free()
	return err
}

func (l *link) addressee(a letter) (*reply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.pending[a.head.ID]; r != nil || a.head.ID != "" || a.head.Error == "" {
		return r, nil
	}
	// An error without an id: it is the call's, if there is but one.
	if len(l.pending) == 1 {
		for _, r := range l.pending {
			return r, nil
		}
	}
	return nil, inBand(a.head.Error)
}

// enter makes a place for a call's answers; nil when the link has broken.
func (l *link) enter() *reply {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil {
		return nil
	}
	r := &reply{link: l, id: newID(), come: make(chan struct{}, 1), taken: make(chan struct{}, 1)}
	l.pending[r.id] = r
	return r
}

// leave gives the place up, and frees what has come and not been taken.
func (r *reply) leave() {
	l := r.link
	l.mu.Lock()
	delete(l.pending, r.id)
	letters := r.letters
	r.letters, r.left = nil, true
	l.mu.Unlock()
	for i := range letters {
		letters[i].frame.Free()
	}
	notify(r.taken)
	if l.ep.gone.Err() != nil {
		l.leaveIfIdle()
	}
}

// leaveIfIdle ends the link to an endpoint that has been taken out, once no call is on it.
func (l *link) leaveIfIdle() {
	l.mu.Lock()
	idle := len(l.pending) == 0
	if idle && l.broken == nil {
		l.broken = fault.New(fault.EndpointLost, "endpoint %s has been taken out", l.ep.name)
	}
	l.mu.Unlock()
	if idle {
		l.cancel()
	}
}

// send puts the request on the stream. When it returns with nil the message may be on its way, or the link is about to
// break; either shows in the replies.
func (l *link) send(ctx context.Context, c *inference.Call) error {
	select {
	case l.sending <- struct{}{}:
		defer func() { <-l.sending }()
	case <-ctx.Done():
		return fault.Of(context.Cause(ctx))
	}
	this := l.sends.Add(1)
	stuck := func() {
		if l.sends.Load() == this && !l.heldUpSince(time.Now()) {
			l.breakUp(&fault.Fault{Kind: fault.UpstreamTimeout, Msg: "the model server has stopped reading its stream"})
		}
	}
	limit := stuckAfter
	if t := c.Model.Timeouts.FirstAnswer; t > 0 {
		limit = max(t, stuckGrace) // a large message takes its time
	}
	timer := time.AfterFunc(limit, stuck)
	ended := context.AfterFunc(ctx, func() { time.AfterFunc(stuckGrace, stuck) })
	err := l.stream.SendMsg(&c.Request)
	l.sends.Add(1)
	timer.Stop()
	ended()
	if err != nil && !errors.Is(err, io.EOF) { // EOF: the reader knows more
		return Classify(ctx, err)
	}
	return nil
}

// heldUpSince reports whether a slow client has held up the reader at any time after at; then silence
// is not the upstream's.
func (l *link) heldUpSince(at time.Time) bool { return l.held.Load() > at.UnixNano() }

// next waits for the next answer, which the caller owns, at most for limit if that is above 0.
func (r *reply) next(ctx context.Context, limit time.Duration) (letter, error) {
	var silent <-chan time.Time
	armed := time.Now()
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		silent = timer.C
	}
	for {
		if ctx.Err() != nil {
			return letter{}, fault.Of(context.Cause(ctx))
		}
		if a, ok, err := r.take(); ok || err != nil {
			return a, err
		}
		select {
		case <-r.come:
		case <-ctx.Done():
			return letter{}, fault.Of(context.Cause(ctx))
		case <-silent:
			if !r.link.heldUpSince(armed) {
				return letter{}, errSilent
			}
			armed = time.Now()
			silent = time.After(limit)
		}
	}
}

var errSilent = errors.New("no answer in time")

// take gives the oldest letter; without one, the reason why there will be none.
func (r *reply) take() (letter, bool, error) {
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	if len(r.letters) > 0 {
		a := r.letters[0]
		r.letters[0] = letter{}
		r.letters = r.letters[1:]
		notify(r.taken)
		return a, true, nil
	}
	return letter{}, false, r.link.broken
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
