// Package portmux lets an HTTP/2 server and an HTTP/1.1 server share one port. It tells each connection by its first
// bytes: the HTTP/2 client preface, or anything else. It decides once per connection and is out of the way from then
// on: a TCP connection is handed over as it was accepted, since its first bytes were only looked at in the kernel's
// buffer; others get a wrapper around Read that puts the bytes back.
//
// A connection that sends nothing is closed after Options.Timeout. At most Options.MaxUndecided are being waited for;
// one more closes the oldest, so that idle connections cannot keep honest ones, which speak at once, from being served.
//
// With Options.TLS the handshake is made here, within the same bounds, and the protocol that it agrees on decides. The
// servers get a *tls.Conn whose handshake is done.
package portmux

import (
	"container/list"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"
)

// Options of a Mux; the zero Options are right for most.
type Options struct {
	Timeout      time.Duration // to send the first bytes; 0 is 10 s
	MaxUndecided int           // connections that have not sent them; 0 is 1,024
	// Backlog is how many decided connections may wait for each server to accept them; more are closed. 0 is 1,024.
	Backlog int
	// TLS makes the port one of TLS alone; nil is plaintext. Its NextProtos must have http/1.1 and h2.
	TLS *tls.Config
	Log *slog.Logger // of trouble with accepting; nil is none
}

// Mux accepts connections and hands them to two listeners.
type Mux struct {
	Options
	root         net.Listener
	http1, http2 *listener
	quit         chan struct{}
	running      sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	rootErr   error
	undecided list.List // of net.Conn, oldest first
}

// New starts accepting connections from root, which belongs to the Mux from here on.
func New(root net.Listener, o Options) *Mux {
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.MaxUndecided <= 0 {
		o.MaxUndecided = 1024
	}
	if o.Backlog <= 0 {
		o.Backlog = 1024
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m := &Mux{Options: o, root: root, quit: make(chan struct{})}
	m.http1, m.http2 = newListener(m), newListener(m)
	m.running.Go(m.accept)
	return m
}

// HTTP2 gives the listener of connections that begin with the HTTP/2 client preface.
func (m *Mux) HTTP2() net.Listener { return m.http2 }

// HTTP1 gives the listener of all other connections.
func (m *Mux) HTTP1() net.Listener { return m.http1 }

// Addr is the address that is listened on.
func (m *Mux) Addr() net.Addr { return m.root.Addr() }

// Close stops accepting: both listeners return net.ErrClosed, and connections that no server has accepted yet are
// closed. Those that were accepted live on. It returns once nothing of the Mux runs any more.
//
// The port is closed too once both listeners have been closed, as servers do that shut down.
func (m *Mux) Close() error {
	err := m.shut()
	m.running.Wait()
	return err
}

// shut is Close without waiting.
func (m *Mux) shut() error {
	m.mu.Lock()
	if m.closed {
		defer m.mu.Unlock()
		return m.rootErr
	}
	m.closed = true
	close(m.quit)
	m.rootErr = m.root.Close()
	err := m.rootErr
	for e := m.undecided.Front(); e != nil; e = e.Next() {
		_ = e.Value.(net.Conn).Close()
	}
	m.mu.Unlock()
	m.http1.shut()
	m.http2.shut()
	return err
}

// Back-off after a failed accept. EMFILE and the like last until some connection ends, and must neither end the
// gateway nor keep a core busy.
const (
	firstPause   = 5 * time.Millisecond
	longestPause = time.Second
)

func (m *Mux) accept() {
	pause := firstPause
	for {
		c, err := m.root.Accept()
		switch {
		case err == nil:
			pause = firstPause
			m.admit(c)
		case errors.Is(err, net.ErrClosed):
			_ = m.shut()
			return
		default:
			m.Log.Warn("a connection could not be accepted; trying again", "error", err, "pause", pause)
			if !m.wait(pause) {
				return
			}
			pause = min(2*pause, longestPause)
		}
	}
}

// wait waits for d, and reports false when the Mux is closed meanwhile.
func (m *Mux) wait(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-m.quit:
		return false
	}
}

// admit lets c be decided in a goroutine of its own, closing the oldest undecided connection when there are too many.
func (m *Mux) admit(c net.Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		_ = c.Close()
		return
	}
	if m.undecided.Len() >= m.MaxUndecided {
		oldest := m.undecided.Front()
		m.undecided.Remove(oldest)
		_ = oldest.Value.(net.Conn).Close()
		oldest.Value = nil // decide must not hand it over any more
	}
	e := m.undecided.PushBack(c)
	m.running.Go(func() { m.decide(c, e) })
}

// decide finds out what c speaks and hands it over.
func (m *Mux) decide(c net.Conn, e *list.Element) {
	_ = c.SetReadDeadline(time.Now().Add(m.Timeout))
	tell := sniff
	if m.TLS != nil {
		tell = m.shake
	}
	told, isHTTP2, err := tell(c)
	m.mu.Lock()
	dropped := e.Value == nil
	m.undecided.Remove(e) // does nothing when admit has removed it
	m.mu.Unlock()
	if err == nil {
		err = c.SetReadDeadline(time.Time{})
	}
	if err != nil || dropped {
		_ = c.Close() // silent, gone, or closed by admit or Close
		return
	}
	if isHTTP2 {
		m.http2.offer(told)
	} else {
		m.http1.offer(told)
	}
}

// oneClosed closes the port when neither listener is in use any more.
func (m *Mux) oneClosed() {
	if m.http1.isClosed() && m.http2.isClosed() {
		_ = m.shut()
	}
}
