package redis

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/internal/socket"
)

func TestAQuestionIsNotWrittenToAConnectionThatHasEnded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = near.Close() }()
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := check(socket.Quick(near))
	p := make([]byte, 1)
	write := func(c net.Conn) {
		t.Helper()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	read := func(c net.Conn) {
		t.Helper()
		if _, err := c.Read(p); err != nil {
			t.Fatal(err)
		}
	}
	// The first of an answer may be there before the last of a question is written.
	write(c)
	write(far)
	write(c)
	read(c)
	// One question later the other side ends.
	write(c)
	write(far)
	read(c)
	_ = far.Close()
	if n, err := near.Read(p); n != 0 || err == nil { // waits for the end
		t.Fatal(n, err)
	}
	if n, err := c.Write([]byte("x")); n != 0 || !errors.Is(err, errEnded) {
		t.Errorf("%d, %v; want %v", n, err, errEnded)
	}
}

// talking is a connection on which there is always something to read, after a while.
type talking struct {
	socket.Conn
	reads, says chan struct{}
	closed      bool
}

func (c *talking) Silent() bool                { return false }
func (c *talking) Write(p []byte) (int, error) { return len(p), nil }
func (c *talking) Read(p []byte) (int, error) {
	c.reads <- struct{}{}
	<-c.says
	return len(p), nil
}

func (c *talking) SetWriteDeadline(time.Time) error {
	if c.closed {
		return net.ErrClosed
	}
	return nil
}

// Run it with the race detector.
func TestWhoeverReadsAllTheTimeMayBeWrittenTo(t *testing.T) {
	plain := &talking{reads: make(chan struct{}), says: make(chan struct{})}
	c := check(plain)
	go func() {
		for range 2 {
			_, _ = c.Read(make([]byte, 1))
		}
	}()
	<-plain.reads
	plain.says <- struct{}{}
	<-plain.reads // again
	if _, err := c.Write([]byte("x")); err != nil {
		t.Errorf("while the other side was read: %v", err)
	}
	plain.says <- struct{}{}
}

func TestWhatTheLibraryHasClosedIsKnownBeforeAQuestionIsWritten(t *testing.T) {
	plain := &talking{}
	c := check(plain)
	if err := c.SetWriteDeadline(time.Now()); err != nil {
		t.Error(err)
	}
	plain.closed = true
	if err := c.SetWriteDeadline(time.Now()); !errors.Is(err, errEnded) {
		t.Errorf("%v; want %v", err, errEnded)
	}
}
