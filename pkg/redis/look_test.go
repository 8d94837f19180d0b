package redis

import (
	"net"
	"syscall"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/internal/socket"
)

// The library takes a connection for good when the function it gives is not called, as when that finds nothing to read.
func TestTheLibraryLooksOnlyAtConnectionsWithSomethingToSee(t *testing.T) {
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
	c := looked(socket.Quick(near))
	if _, ok := c.(*pooled); !ok {
		t.Skip("connections are not quick here")
	}
	looks := func() (n int) {
		t.Helper()
		raw, err := c.(syscall.Conn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Read(func(uintptr) bool { n++; return true }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := looks(); n != 0 {
		t.Errorf("%d looks at a connection on which nothing has come", n)
	}
	_ = far.Close()
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil { // waits for the end
		t.Fatal(n, err)
	}
	if n := looks(); n != 1 {
		t.Errorf("%d looks at a connection that has ended, want one", n)
	}
}
