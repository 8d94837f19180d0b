// Package room is the room that there is for messages of clients, which those that are read and not yet answered share. A
// message is read only while there is room; else its reader waits, so that the client is held back by the connection's
// windows, and is refused when that takes too long. What is held of messages can never be more than twice the bound, however
// many clients there are and however slow they or the models are.
//
// Answers that their clients have not taken are held as well, and keep larger messages from being read. Small ones are read
// beside them until twice the bound is held, so that a few clients that take nothing do not keep everybody out.
//
// Where there is room it costs two atomic additions each way.
package room

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Sizes in bytes.
const (
	// Large messages are read part by part: First bytes, which is what a connection's windows let a client send anyway, then
	// twice as much each time, and Chunk at most. There is room for all of one from the start; but what has not come when a
	// second is over may be had by others, and is then asked for part by part.
	First = 256 << 10
	Chunk = 1 << 20
	// Small messages are not counted among those being read: they are there, or nearly, when their reading begins.
	Small = 64 << 10
)

const (
	leastWaiting = 64
	defaultReads = 256
	defaultWait  = time.Second
)

// ErrFull says that there was no room in time.
var ErrFull = errors.New("no room for the message")

// Options of a Room.
type Options struct {
	// Bytes that may be held when the reading of a message begins. Above 0, and no message is larger.
	Bytes int64
	// Reads of messages that are not small which may be under way; 0 is 256. A read that takes longer than a second gives
	// its place to others: then only its bytes count.
	Reads int
	// Wait is how long a reader waits at most; 0 is 1 s.
	Wait time.Duration
}

// Room is shared by all fronts. A nil Room has room for everything. It is safe for concurrent use.
type Room struct {
	bytes, reads int64
	wait         time.Duration
	most         int // readers that may wait

	held    atomic.Int64
	answers atomic.Int64 // of held: answers on their way, and messages that have theirs
	reading atomic.Int64
	waits   atomic.Int64 // readers that wait, or are about to
	refused atomic.Int64

	mu      sync.Mutex
	waiting []*waiter // first come, first served
}

// want is the room that a reader asks for: bytes while less than limit are held, and places among the reads.
type want struct {
	bytes, limit, reads int64
	small               bool // answers do not stand in its way, unless twice the limit is held
}

// waiter is a reader that waits for room.
type waiter struct {
	want
	granted chan struct{} // closed once the room is the waiter's
}

// New makes a Room.
func New(o Options) *Room {
	r := &Room{bytes: o.Bytes, reads: int64(o.Reads), wait: o.Wait}
	if r.reads <= 0 {
		r.reads = defaultReads
	}
	if r.wait <= 0 {
		r.wait = defaultWait
	}
	r.most = int(max(leastWaiting, r.bytes/First))
	return r
}

// State is what a Room holds now.
type State struct {
	Bytes   int64 // held
	Reads   int64 // under way
	Waiting int64 // readers
	Refused int64 // since the start
}

// State tells what is held.
func (r *Room) State() State {
	return State{Bytes: r.held.Load(), Reads: r.reading.Load(), Waiting: r.waits.Load(), Refused: r.refused.Load()}
}

// try takes the room where there is any. Either all or nothing.
func (r *Room) try(w want) bool {
	held := r.held.Add(w.bytes) - w.bytes
	if held >= w.limit && !(w.small && held < 2*w.limit && held-r.answers.Load() < w.limit) {
		r.held.Add(-w.bytes)
		return false
	}
	if w.reads > 0 && r.reading.Add(w.reads) > r.reads {
		r.held.Add(-w.bytes)
		r.reading.Add(-w.reads)
		return false
	}
	return true
}

// crowded reports whether it is answers that fill the room. Larger messages that wait then would be no sooner read if small
// ones waited behind them.
func (r *Room) crowded() bool {
	held := r.held.Load()
	return held >= r.bytes && held-r.answers.Load() < r.bytes
}

// take takes room, and waits for it where there is none. Its error is ErrFull, or that of ctx.
func (r *Room) take(ctx context.Context, what want) error {
	if (r.waits.Load() == 0 || what.small && r.crowded()) && r.try(what) {
		return nil
	}
	w := &waiter{want: what, granted: make(chan struct{})}
	r.mu.Lock()
	if len(r.waiting) >= r.most {
		r.mu.Unlock()
		r.refused.Add(1)
		return ErrFull
	}
	r.waits.Add(1) // before room is looked for again: whoever gives some back from here on sees it
	r.waiting = append(r.waiting, w)
	r.grant()
	r.mu.Unlock()

	timer := time.NewTimer(r.wait)
	defer timer.Stop()
	var err error
	select {
	case <-w.granted:
		return nil
	case <-timer.C:
		err = ErrFull
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if !r.leave(w) {
		return nil // granted just now
	}
	if errors.Is(err, ErrFull) {
		r.refused.Add(1)
	}
	return err
}

// grant gives room to those that wait, as far as it goes. The lock is held. Who waits to go on with a message it has begun
// goes before those that wait to begin: only what ends gives room back.
func (r *Room) grant() {
	kept := r.waiting[:0]
	full := false
	for _, w := range r.waiting {
		begins := w.limit <= r.bytes
		if full && begins && !(w.small && r.crowded()) || !r.try(w.want) {
			full = full || begins
			kept = append(kept, w)
			continue
		}
		r.waits.Add(-1)
		close(w.granted)
	}
	clear(r.waiting[len(kept):])
	r.waiting = kept
}

// leave takes w out of the line; false when it has been granted.
func (r *Room) leave(w *waiter) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, o := range r.waiting {
		if o == w {
			r.waiting = append(r.waiting[:i], r.waiting[i+1:]...)
			r.waits.Add(-1)
			r.grant() // it may have stood before others
			return true
		}
	}
	return false
}

// give gives room back.
func (r *Room) give(bytes, reads int64) {
	if bytes != 0 {
		r.held.Add(-bytes)
	}
	if reads != 0 {
		r.reading.Add(-reads)
	}
	r.wake()
}

// wake gives room to those that wait, if any.
func (r *Room) wake() {
	if r.waits.Load() > 0 {
		r.mu.Lock()
		r.grant()
		r.mu.Unlock()
	}
}

// Charge counts the bytes of an answer, which are held whether there is room or not. Discharge ends it.
func (r *Room) Charge(bytes int) {
	if r != nil {
		r.held.Add(int64(bytes))
		r.answers.Add(int64(bytes))
	}
}

// Discharge gives back what Charge has counted.
func (r *Room) Discharge(bytes int) {
	if r != nil {
		r.answers.Add(-int64(bytes))
		r.give(int64(bytes), 0)
	}
}
