package portmux

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
)

// preface is what every HTTP/2 client sends first.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// verdict on first bytes.
type verdict uint8

const (
	more verdict = iota // they could still become either
	http1
	http2
)

// judge decides by the first bytes of a connection.
func judge(first []byte) verdict {
	switch {
	case len(first) >= len(preface) && string(first[:len(preface)]) == preface:
		return http2
	case len(first) < len(preface) && bytes.HasPrefix([]byte(preface), first):
		return more
	}
	return http1
}

// sniff reads until it knows what c speaks. It returns a connection that still has all bytes in it: c itself where
// that can be.
func sniff(c net.Conn) (told net.Conn, isHTTP2 bool, err error) {
	if sc, ok := c.(syscall.Conn); ok && canPeek {
		v, err := peek(sc)
		if err == nil || !errors.Is(err, errors.ErrUnsupported) {
			return c, v == http2, err
		}
	}
	return replay(c)
}

// replay reads the first bytes and puts them back.
func replay(c net.Conn) (net.Conn, bool, error) {
	first := make([]byte, 0, len(preface))
	for {
		n, err := c.Read(first[len(first):cap(first)])
		first = first[:len(first)+n]
		switch v := judge(first); {
		case v != more:
			return &conn{Conn: c, first: first}, v == http2, nil
		case err != nil:
			return nil, false, err
		}
	}
}

// conn is a connection whose first bytes are read again. Once they are, Read is that of the connection.
type conn struct {
	net.Conn
	first []byte // owned by the reader
}

func (c *conn) Read(p []byte) (int, error) {
	if len(c.first) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.first)
	if c.first = c.first[n:]; len(c.first) == 0 {
		c.first = nil
	}
	return n, nil
}

// ReadFrom keeps the fast path of the connection, where it has one, for those who write large files.
func (c *conn) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(c.Conn, r)
}

// NetConn gives the connection underneath, for settings; its first bytes are missing.
func (c *conn) NetConn() net.Conn { return c.Conn }
