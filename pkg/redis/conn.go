package redis

import (
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/model-gateway/model-gateway/pkg/internal/socket"
)

// errEnded is the error of a connection that Redis, or somebody in between, has ended since it was last used. Nothing was
// written to it: what was to be said can be said on another one.
var errEnded = errors.New("the connection has been ended")

// checked is a connection that is looked at before each new question on it.
type checked struct {
	net.Conn
	plain  socket.Conn
	answer atomic.Bool // what was written last has been answered: what is written next is a new question
	// What the sentinels say by themselves is read all the time, also while something is written: that is no question,
	// and what has come is no reason not to write it.
	reading, duplex atomic.Bool
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
	c.reading.Store(true)
	n, err := c.Conn.Read(p)
	c.answer.Store(true)
	c.reading.Store(false)
	return n, err
}

// Write implements net.Conn.
func (c *checked) Write(p []byte) (int, error) {
	if c.reading.Load() {
		c.duplex.Store(true)
	}
	if c.answer.Load() && !c.duplex.Load() {
		if !c.plain.Silent() {
			return 0, errEnded
		}
		c.answer.Store(false)
	}
	return c.Conn.Write(p)
}

// SetWriteDeadline implements net.Conn. The library sets it before it writes, and closes what is kept when there is another
// master.
func (c *checked) SetWriteDeadline(t time.Time) error {
	if err := c.Conn.SetWriteDeadline(t); err != nil {
		return errEnded
	}
	return nil
}

// SyscallConn implements syscall.Conn: by it the library looks at connections that it takes out of its pool.
func (c *checked) SyscallConn() (syscall.RawConn, error) { return c.plain.SyscallConn() }
