//go:build linux && !race

package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// most is how many bytes one system call moves: the garbage collector, which waits for one, waits some microseconds.
const most = 256 << 10

// conn is a connection with its descriptor.
type conn struct {
	net.Conn
	raw     syscall.RawConn
	in, out transfer
	glance  glance
}

func newConn(c net.Conn, raw syscall.RawConn) *conn {
	q := &conn{Conn: c, raw: raw}
	q.in.step, q.out.step, q.glance.step = q.in.read, q.out.write, q.glance.peek
	return q
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.in.begin(p)
	n, err := c.in.end(c.raw.Read(c.in.step))
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	return n, c.wrapped("read", err)
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	c.out.begin(p)
	n, err := c.out.end(c.raw.Write(c.out.step))
	return n, c.wrapped("write", err)
}

// Silent implements Conn.
func (c *conn) Silent() bool {
	g := &c.glance
	g.mu.Lock()
	defer g.mu.Unlock()
	g.silent = false
	return c.raw.Control(g.step) == nil && g.silent
}

// SyscallConn implements syscall.Conn, for settings.
func (c *conn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }

// wrapped gives err as connections do: with what was done, and between whom.
func (c *conn) wrapped(op string, err error) error {
	if err == nil {
		return nil
	}
	var raw *net.OpError // of waiting: a deadline that has passed, or a connection that was closed
	if errors.As(err, &raw) {
		err = raw.Err
	}
	return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// transfer is reading or writing under way; one at a time in each direction, as for any connection.
type transfer struct {
	mu   sync.Mutex
	step func(fd uintptr) bool // one of those below, made once: made for each call it would be garbage
	buf  []byte                // what is left to fill or to send
	done int                   // bytes
	err  error
}

// begin begins to move the bytes of p, by step, which is called now and again whenever more can be moved until it reports true.
func (t *transfer) begin(p []byte) {
	t.mu.Lock()
	t.buf = p
}

// end says how many bytes were moved. failed is how waiting failed.
func (t *transfer) end(failed error) (int, error) {
	n, err := t.done, t.err
	if failed != nil {
		err = failed
	}
	t.buf, t.done, t.err = nil, 0, nil
	t.mu.Unlock()
	return n, err
}

// read reads what there is.
func (t *transfer) read(fd uintptr) bool {
	n, errno := move(syscall.SYS_READ, fd, t.buf, 0)
	if errno == syscall.EAGAIN {
		return false
	}
	if errno != 0 {
		t.err = os.NewSyscallError("read", errno)
		return true
	}
	t.done = n
	return true
}

// write writes until all is written.
func (t *transfer) write(fd uintptr) bool {
	for len(t.buf) > 0 {
		n, errno := move(syscall.SYS_WRITE, fd, t.buf, 0)
		if errno == syscall.EAGAIN {
			return false
		}
		if errno != 0 {
			t.err = os.NewSyscallError("write", errno)
			return true
		}
		t.buf, t.done = t.buf[n:], t.done+n
	}
	return true
}

// glance is a look at what there is to read.
type glance struct {
	mu     sync.Mutex
	step   func(fd uintptr) // peek, made once
	buf    [1]byte
	silent bool
}

func (g *glance) peek(fd uintptr) {
	_, errno := move(syscall.SYS_RECVFROM, fd, g.buf[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	g.silent = errno == syscall.EAGAIN
}

// move makes one system call on a descriptor that does not block.
func move(call, fd uintptr, p []byte, flags uintptr) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall6(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(min(len(p), most)), flags, 0, 0)
		if errno == 0 {
			return int(n), 0
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}
