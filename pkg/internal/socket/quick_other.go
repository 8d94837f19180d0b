//go:build !linux || race

package socket

import (
	"net"
	"syscall"
)

// conn is a connection that is no quicker than others: only Linux lets a program make system calls by itself, and the race detector
// has to be told, by the usual way, that a goroutine has read what another one wrote.
type conn struct {
	net.Conn
	raw syscall.RawConn
}

func newConn(c net.Conn, raw syscall.RawConn) *conn { return &conn{Conn: c, raw: raw} }

// SyscallConn implements syscall.Conn, for settings.
func (c *conn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }
