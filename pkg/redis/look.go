package redis

import (
	"net"
	"syscall"
)

// Each time the library takes a connection out of its pool, it looks whether there is something to read, which on one that
// is idle means that Redis has ended it. It does so by a system call that the scheduler is told of, which would undo what
// socket.Quick gains. On connections of looked it does so only when there is something to see.

// looked gives c such that the library looks at it like that; c itself where it is not quick.
func looked(c net.Conn) net.Conn {
	q, ok := c.(quick)
	if !ok {
		return c
	}
	s, ok := q.NetConn().(syscall.Conn)
	if !ok {
		return c
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return c
	}
	return &pooled{Conn: c, look: look{raw, q}}
}

// quick is what connections of socket.Quick can do besides.
type quick interface {
	Silent() bool
	NetConn() net.Conn
}

// pooled is a connection of the library's pool.
type pooled struct {
	net.Conn
	look look
}

// SyscallConn implements syscall.Conn, for looking alone.
func (p *pooled) SyscallConn() (syscall.RawConn, error) { return &p.look, nil }

type look struct {
	syscall.RawConn
	quick quick
}

// Read has see look at the connection, unless there is nothing to see.
func (l *look) Read(see func(fd uintptr) bool) error {
	if l.quick.Silent() {
		return nil
	}
	return l.RawConn.Read(see)
}
