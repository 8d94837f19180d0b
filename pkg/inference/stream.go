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
	kept   map[any]io.Closer
	closed bool
}

// Keep returns what is kept under key, opening it first where there is none or where stale says that the
// kept one is of no more use. An upstream keeps its stream to one endpoint here, so that all messages for it travel together.
func (s *Stream) Keep(key any, stale func(io.Closer) bool, open func() (io.Closer, error)) (io.Closer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, context.Canceled
	}
	if k, ok := s.kept[key]; ok && !stale(k) {
		return k, nil
	}
	k, err := open()
	if err != nil {
		return nil, err
	}
	if s.kept == nil {
		s.kept = make(map[any]io.Closer)
	}
	s.kept[key] = k
	return k, nil
}

// Close closes all that is kept. The front calls it once the last message has been answered.
func (s *Stream) Close() {
	s.mu.Lock()
	kept := s.kept
	s.kept, s.closed = nil, true
	s.mu.Unlock()
	for _, k := range kept {
		_ = k.Close()
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
