package sandbox

import (
	"errors"
	"net"
	"sync"
	"time"
)

// conns are the listeners and connections of a server, so that faults can be played on them.
type conns struct {
	mu        sync.Mutex
	open      map[*conn]bool
	listeners map[*listener]bool
	down      bool
	frozen    chan struct{} // closed when the freeze ends; nil when there is none
	closed    bool
}

func newConns() *conns {
	return &conns{open: map[*conn]bool{}, listeners: map[*listener]bool{}}
}

// listener accepts connections. While the server is down, its port is closed.
type listener struct {
	conns   *conns
	network string
	address string
	addr    net.Addr

	mu     sync.Mutex
	inner  net.Listener
	up     chan struct{} // closed when inner may accept
	closed bool
}

// listener takes a listener in; nil when the server has been stopped.
func (c *conns) listener(inner net.Listener) *listener {
	l := &listener{conns: c, inner: inner, addr: inner.Addr(), network: inner.Addr().Network(), address: inner.Addr().String(), up: make(chan struct{})}
	close(l.up)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.listeners[l] = true
	if c.down {
		l.shut()
	}
	return l
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		l.mu.Lock()
		up := l.up
		l.mu.Unlock()
		<-up
		l.mu.Lock()
		inner := l.inner
		l.mu.Unlock()
		raw, err := inner.Accept()
		if err == nil {
			if c := l.conns.add(raw); c != nil {
				return c, nil
			}
			continue
		}
		l.mu.Lock()
		again := !l.closed && (inner != l.inner || l.isDown())
		l.mu.Unlock()
		if !again {
			return nil, err
		}
	}
}

func (l *listener) isDown() bool {
	select {
	case <-l.up:
		return false
	default:
		return true
	}
}

// shut closes the port, so that connecting is refused.
func (l *listener) shut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.isDown() || l.network != "tcp" {
		return // what cannot be opened again stays open, and whoever connects is thrown out
	}
	l.up = make(chan struct{})
	_ = l.inner.Close()
}

// A port that was given up may be somebody else's for a moment, most often the far end of a connection.
const (
	reopenWithin = 10 * time.Second
	reopenEvery  = 20 * time.Millisecond
)

// reopen listens on the same port again, as soon as it can be had.
func (l *listener) reopen() error {
	err := l.listenAgain()
	for late := time.Now().Add(reopenWithin); err != nil && time.Now().Before(late); err = l.listenAgain() {
		<-time.After(reopenEvery)
	}
	return err
}

func (l *listener) listenAgain() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || !l.isDown() {
		return nil
	}
	inner, err := net.Listen(l.network, l.address)
	if err != nil {
		return err
	}
	l.inner = inner
	close(l.up)
	return nil
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	err := l.inner.Close()
	if l.isDown() {
		close(l.up)
		err = nil
	}
	return err
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.addr }

// add takes a new connection in; nil when the server does not want it.
func (c *conns) add(raw net.Conn) *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := &conn{Conn: raw, conns: c, gone: make(chan struct{})}
	if c.closed || c.down {
		_ = raw.Close()
		return nil
	}
	c.open[n] = true
	return n
}

// setDown closes everything abruptly, or opens the ports again.
func (c *conns) setDown(down bool) error {
	c.mu.Lock()
	was := c.down
	c.down = down
	var ls []*listener
	for l := range c.listeners {
		ls = append(ls, l)
	}
	c.mu.Unlock()
	if was == down {
		return nil
	}
	var errs []error
	for _, l := range ls {
		if down {
			l.shut()
		} else {
			errs = append(errs, l.reopen())
		}
	}
	if down {
		c.killAll()
	}
	return errors.Join(errs...)
}

func (c *conns) killAll() {
	c.mu.Lock()
	var all []*conn
	for n := range c.open {
		all = append(all, n)
	}
	c.mu.Unlock()
	for _, n := range all {
		n.kill()
	}
}

// freeze stops all bytes in both directions, as a network that loses every packet does.
func (c *conns) freeze(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case on && c.frozen == nil:
		c.frozen = make(chan struct{})
	case !on && c.frozen != nil:
		close(c.frozen)
		c.frozen = nil
	}
}

// close ends all for good.
func (c *conns) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.freeze(false)
	c.killAll()
}

// conn is a connection that can be frozen or killed.
type conn struct {
	net.Conn
	conns *conns
	once  sync.Once
	gone  chan struct{}

	mu     sync.Mutex
	cut    bool // the connection breaks after budget more bytes
	budget int
}

// connAddr is how a handler finds the connection of its caller.
type connAddr struct {
	net.Addr
	conn *conn
}

// RemoteAddr implements net.Conn.
func (n *conn) RemoteAddr() net.Addr { return connAddr{n.Conn.RemoteAddr(), n} }

// thaw waits while the server is frozen.
func (n *conn) thaw() {
	n.conns.mu.Lock()
	frozen := n.conns.frozen
	n.conns.mu.Unlock()
	if frozen == nil {
		return
	}
	select {
	case <-frozen:
	case <-n.gone:
	}
}

// Read implements net.Conn.
func (n *conn) Read(b []byte) (int, error) {
	k, err := n.Conn.Read(b)
	n.thaw()
	return k, err
}

// Write implements net.Conn.
func (n *conn) Write(b []byte) (int, error) {
	n.thaw()
	n.mu.Lock()
	cut, left := n.cut, n.budget
	n.budget -= len(b)
	n.mu.Unlock()
	if !cut || len(b) <= left {
		return n.Conn.Write(b)
	}
	k, _ := n.Conn.Write(b[:max(left, 0)])
	_ = n.Close() // no reset: what was written shall arrive
	return k, net.ErrClosed
}

// cutAfter breaks the connection after so many more bytes were written.
func (n *conn) cutAfter(bytes int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut, n.budget = true, bytes
}

// Close implements net.Conn.
func (n *conn) Close() error {
	n.once.Do(func() {
		close(n.gone)
		n.conns.mu.Lock()
		delete(n.conns.open, n)
		n.conns.mu.Unlock()
	})
	return n.Conn.Close()
}

// kill closes the connection so that the peer sees a reset where the network has one.
func (n *conn) kill() {
	if t, ok := n.Conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = n.Conn.SetDeadline(time.Now())
	_ = n.Close()
}
