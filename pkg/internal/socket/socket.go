// Package socket reads and writes connections without a word to the scheduler.
//
// Around each system call Go's runtime gets ready to hand its processor to other goroutines, and wakes the thread that would
// do so when the program was idle. A call to a gateway that is not busy finds it idle each time: that thread is woken
// on the way in and again on the way out, and for each of them then looks round every 20 µs until all is idle once more. It
// was a tenth of the CPU of a small call at 2,000 calls a second, and some microseconds of its latency.
//
// A socket that does not block has no need of it: reading and writing it take as long as copying the bytes, and what waits
// for more bytes is parked before and after, as for any connection.
package socket

import (
	"net"
	"syscall"
)

// Conn is a connection that can also tell whether there is something to read.
type Conn interface {
	net.Conn
	syscall.Conn
	// Silent reports whether there is nothing to read, not even that the other side has ended or broken the connection.
	Silent() bool
}

// Quick gives c as a Conn whose Read and Write are quicker, where c is a plain connection of the system, and c itself where it
// is anything else, as one of TLS. The connection is used as before, through what is returned alone.
func Quick(c net.Conn) net.Conn {
	var s syscall.Conn
	switch c := c.(type) {
	case *net.TCPConn:
		s = c
	case *net.UnixConn:
		s = c
	default:
		return c
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return c // closed: it says so itself
	}
	return newConn(c, raw)
}
