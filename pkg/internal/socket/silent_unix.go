//go:build unix && (!linux || race)

package socket

import (
	"errors"
	"syscall"
)

// Silent implements Conn.
func (c *conn) Silent() (silent bool) {
	err := c.raw.Control(func(fd uintptr) {
		var p [1]byte
		_, _, err := syscall.Recvfrom(int(fd), p[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		silent = errors.Is(err, syscall.EAGAIN)
	})
	return err == nil && silent
}
