package grpcfront

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/peer"
)

// link is a client's connection, and the large answers that wait on it to be taken. When it ends gRPC drops some of them
// without a word, so what they count for is given back here.
type link struct {
	net.Conn
	front *Front

	mu    sync.Mutex
	held  int // bytes of answers
	ended bool
}

// linkOf is the link that a call came by; nil where gRPC's own transport is not used.
func linkOf(ctx context.Context) *link {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(*linked); ok {
			return info.link
		}
	}
	return nil
}

// charge counts an answer as held. false: the connection has ended, and nothing can be held on it.
func (l *link) charge(bytes int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.held += bytes
	l.front.opts.Room.Charge(bytes)
	return true
}

// discharge gives back what charge has counted, if the end of the connection has not.
func (l *link) discharge(t *taken) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.done = true
	t.timer.Stop()
	if !l.ended {
		l.held -= t.size
		l.front.opts.Room.Discharge(t.size)
	}
}

// Close ends the connection.
func (l *link) Close() error {
	l.mu.Lock()
	if !l.ended {
		l.ended = true
		l.front.opts.Room.Discharge(l.held)
	}
	l.mu.Unlock()
	return l.Conn.Close()
}

// late ends a connection on which an answer has waited for too long. Nothing less makes gRPC let go of what it has taken.
func (l *link) late() {
	l.mu.Lock()
	ended := l.ended
	l.mu.Unlock()
	if ended {
		return
	}
	if log := l.front.opts.Log; log != nil {
		log.Info("a client did not take its answer in time, and was cut off", "peer", l.RemoteAddr().String(), "timeout", l.front.answerTimeout)
	}
	_ = l.Close()
}
