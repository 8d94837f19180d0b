package inference

import (
	"context"
	"io"
	"sync"
)

// Stream is what the messages of one client stream share: who sends them, and the upstream
// streams opened on their behalf.
type Stream struct {
	Identity
	// Context lives as long as the client stream. Upstream streams are opened under it, since they
	// outlive the message that caused them to be opened.
	Context context.Context

	mu     sync.Mutex
	kept   map[any]*kept
	lines  map[any]Turn
	closed bool
}

// kept is what is open under one key, or being opened.
type kept struct {
	done chan struct{} // closed when it has been opened, or could not be
	what io.Closer
	err  error
}

// Keep returns what is kept under key, opening it first where there is none or where stale says that the
// kept one is of no more use. An upstream keeps its stream to one endpoint here, so that all messages for it travel together.
//
// While one key is being opened, others are not held up. Who asks for the same key meanwhile waits for it, and opens it
// itself when that fails: the reason may be the end of the call that was opening.
func (s *Stream) Keep(key any, stale func(io.Closer) bool, open func() (io.Closer, error)) (io.Closer, error) {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return nil, context.Canceled
		}
		k := s.kept[key]
		if k == nil {
			k = &kept{done: make(chan struct{})}
			if s.kept == nil {
				s.kept = make(map[any]*kept)
			}
			s.kept[key] = k
			s.mu.Unlock()
			return s.open(key, k, open)
		}
		s.mu.Unlock()
		<-k.done
		if k.err == nil && !stale(k.what) {
			return k.what, nil
		}
		s.forget(key, k)
	}
}

// open opens k, which is in its place already. Where the stream has been closed meanwhile, it is closed again.
func (s *Stream) open(key any, k *kept, open func() (io.Closer, error)) (io.Closer, error) {
	opened := false
	defer func() { // also when open panics
		if !opened {
			k.err = context.Canceled
			s.forget(key, k)
		}
		close(k.done)
	}()
	what, err := open()
	if err != nil {
		s.forget(key, k)
	}
	k.what, k.err, opened = what, err, true
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed && err == nil {
		_ = what.Close()
		k.what, k.err = nil, context.Canceled
	}
	return k.what, k.err
}

func (s *Stream) forget(key any, k *kept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept[key] == k {
		delete(s.kept, key)
	}
}

// Line takes the next place in the line before what is kept under key. Messages that leave their Turn for a place in
// such a line stay in order among themselves, and those for elsewhere need not wait for them.
func (s *Stream) Line(key any) Turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lines == nil {
		s.lines = make(map[any]Turn)
	}
	place := s.lines[key].Next()
	s.lines[key] = place
	return place
}

// Close closes all that is kept. The front calls it once the last message has been answered.
func (s *Stream) Close() {
	s.mu.Lock()
	all := s.kept
	s.kept, s.closed = nil, true
	s.mu.Unlock()
	for _, k := range all {
		<-k.done
		if k.what != nil {
			_ = k.what.Close()
		}
	}
}

// Turn is a place in a line: it comes up when the place before it is done. Messages of a stream run
// through the pipeline side by side; a Turn makes them leave for the upstream in the order they came.
// The zero Turn is always up.
type Turn struct {
	before <-chan struct{}
	done   *place
}

type place struct {
	once sync.Once
	ch   chan struct{}
}

// Next makes a place right behind t.
func (t Turn) Next() Turn {
	n := Turn{done: &place{ch: make(chan struct{})}}
	if t.done != nil {
		n.before = t.done.ch
	}
	return n
}

// Wait blocks until the turn is up, or ctx ends.
func (t Turn) Wait(ctx context.Context) error {
	if t.before == nil {
		return nil
	}
	select {
	case <-t.before:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Done lets the next place have its turn. Only the first call counts. It does not imply that t itself has been
// up: whoever gives up waiting must still Wait for the place before, or order is lost; see Pass.
func (t Turn) Done() {
	if t.done != nil {
		t.done.once.Do(func() { close(t.done.ch) })
	}
}

// Pass ends a turn that may never have been up: the next place comes up when all before this one are done.
func (t Turn) Pass() {
	if t.done == nil {
		return
	}
	if t.before == nil {
		t.Done()
		return
	}
	select {
	case <-t.before:
		t.Done()
	default:
		go func() { <-t.before; t.Done() }()
	}
}
