package redis

import (
	"errors"
	"net"
	"syscall"

	"github.com/model-gateway/model-gateway/pkg/internal/socket"
)

// errEnded is the error of a connection that Redis, or somebody in between, has ended since it was last used. Nothing was
// written to it: what was to be said can be said on another one.
var errEnded = errors.New("the connection has been ended")

// checked is a connection that is looked at before each new question on it.
type checked struct {
	net.Conn
	plain  socket.Conn
	answer bool // what was written last has been answered: what is written next is a new question
}

// check makes c one that is checked. It gives c itself when it cannot be.
func check(c net.Conn) net.Conn {
	plain, ok := c.(socket.Conn)
	if !ok {
		return c
	}
	return &checked{Conn: c, plain: plain}
}

// Read implements net.Conn.
func (c *checked) Read(p []byte) (int, error) {
	c.answer = true
	return c.Conn.Read(p)
}

// Write implements net.Conn.
func (c *checked) Write(p []byte) (int, error) {
	if c.answer {
		if !c.plain.Silent() {
			return 0, errEnded
		}
		c.answer = false
	}
	return c.Conn.Write(p)
}

// SyscallConn implements syscall.Conn: by it the library looks at connections that it takes out of its pool.
func (c *checked) SyscallConn() (syscall.RawConn, error) { return c.plain.SyscallConn() }
