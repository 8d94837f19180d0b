//go:build unix

package portmux

import (
	"errors"
	"io"
	"syscall"
)

const canPeek = true

// peek looks at the first bytes in the kernel's buffer and leaves them there, waiting for more as long as they do not
// tell. It fails with errors.ErrUnsupported where c is not a socket.
func peek(c syscall.Conn) (verdict, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return more, errors.ErrUnsupported
	}
	var (
		buf     [len(preface)]byte
		v       verdict
		peekErr error
	)
	err = raw.Read(func(fd uintptr) bool {
		n, err := recvPeek(int(fd), buf[:])
		switch {
		case errors.Is(err, syscall.EAGAIN):
			return false // wait until there is something
		case errors.Is(err, syscall.ENOTSOCK):
			peekErr = errors.ErrUnsupported
			return true
		case err != nil:
			peekErr = err
			return true
		case n == 0:
			peekErr = io.EOF
			return true
		}
		v = judge(buf[:n])
		return v != more // bytes that come later wake us again, those that are here do not
	})
	if err != nil {
		return more, err
	}
	return v, peekErr
}

func recvPeek(fd int, p []byte) (int, error) {
	for {
		n, _, err := syscall.Recvfrom(fd, p, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		if !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}
