package portmux

import (
	"net"
	"sync"
)

// listener hands the connections of one protocol to its server.
type listener struct {
	mux     *Mux
	waiting chan net.Conn
	quit    chan struct{}

	mu     sync.Mutex // held while waiting is written, so that nothing is written after shut has emptied it
	closed bool
}

func newListener(m *Mux) *listener {
	return &listener{mux: m, waiting: make(chan net.Conn, m.Backlog), quit: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.quit: // first, for a server that has closed it must not get another connection
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-l.waiting:
		return c, nil
	case <-l.quit:
		return nil, net.ErrClosed
	}
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.mux.Addr() }

// Close implements net.Listener. Connections of this protocol are closed as they come from then on.
func (l *listener) Close() error {
	if !l.shut() {
		return net.ErrClosed
	}
	l.mux.oneClosed()
	return nil
}

// shut reports false when the listener was closed already.
func (l *listener) shut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.closed = true
	close(l.quit)
	for {
		select {
		case c := <-l.waiting:
			_ = c.Close()
		default:
			return true
		}
	}
}

func (l *listener) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// offer hands c to the server, or closes it when that is gone or does not keep up.
func (l *listener) offer(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		select {
		case l.waiting <- c:
			return
		default:
		}
	}
	_ = c.Close()
}
