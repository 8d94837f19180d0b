package socket

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// pair gives both ends of a connection of the network, near as it is made quick.
func pair(t testing.TB, network string) (near, far net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if far, err = net.Dial(network, l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	plain, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	near = Quick(plain)
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return near, far
}

// each runs a test on TCP and on a socket of Unix.
func each(t *testing.T, test func(t *testing.T, near, far net.Conn)) {
	t.Helper()
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			near, far := pair(t, network)
			test(t, near, far)
		})
	}
}

func TestWhatIsLargerThanTheBuffersOfTheSystemArrivesWhole(t *testing.T) {
	each(t, func(t *testing.T, near, far net.Conn) {
		sent := make([]byte, 20<<20+1)
		for i := range sent {
			sent[i] = byte(i * i >> 7)
		}
		var both sync.WaitGroup
		both.Go(func() { // there and back, both at once
			if n, err := near.Write(sent); n != len(sent) || err != nil {
				t.Errorf("wrote %d, %v", n, err)
			}
		})
		both.Go(func() {
			if _, err := io.CopyN(far, far, int64(len(sent))); err != nil {
				t.Error(err)
			}
		})
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(near, got); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("what came back is not what was sent, %v", err)
		}
		both.Wait()
	})
}

func TestReadingGivesWhatThereIsAndThenTheEnd(t *testing.T) {
	each(t, func(t *testing.T, near, far net.Conn) {
		if n, err := near.Read(nil); n != 0 || err != nil {
			t.Errorf("reading nothing: %d, %v", n, err)
		}
		if _, err := io.WriteString(far, "abc"); err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 10)
		if n, err := near.Read(p); string(p[:n]) != "abc" || err != nil {
			t.Errorf("%q, %v", p[:n], err)
		}
		_ = far.Close()
		for range 2 {
			if n, err := near.Read(p); n != 0 || err != io.EOF { //nolint:errorlint // readers compare it
				t.Errorf("after the end: %d, %v", n, err)
			}
		}
	})
}

func TestADeadlineEndsReadingAndWritingAsForAnyConnection(t *testing.T) {
	each(t, func(t *testing.T, near, _ net.Conn) {
		if err := near.SetDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		_, err := near.Read(make([]byte, 1))
		wantTimeout(t, "read", err)
		much := make([]byte, 64<<20) // more than fits
		n, err := near.Write(much)
		wantTimeout(t, "write", err)
		if n != 0 {
			t.Errorf("after the deadline, %d bytes were written", n)
		}
		for wait := 20 * time.Millisecond; n == 0; wait *= 2 { // a busy machine may need more for the first byte
			if wait > 10*time.Second {
				t.Fatal("of what was written before the deadline, none is said to be")
			}
			if err := near.SetDeadline(time.Now().Add(wait)); err != nil {
				t.Fatal(err)
			}
			n, err = near.Write(much)
			wantTimeout(t, "write", err)
		}
	})
}

func wantTimeout(t *testing.T, op string, err error) {
	t.Helper()
	var n *net.OpError
	if !errors.As(err, &n) || !n.Timeout() || n.Op != op || n.Net == "" || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: %v; want a timeout", op, err)
	}
}

func TestClosingEndsAReadThatWaits(t *testing.T) {
	each(t, func(t *testing.T, near, _ net.Conn) {
		ended := make(chan error)
		go func() {
			_, err := near.Read(make([]byte, 1))
			ended <- err
		}()
		_ = near.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if _, err := near.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

func TestABrokenConnectionSaysHow(t *testing.T) {
	near, far := pair(t, "tcp")
	if err := far.(*net.TCPConn).SetLinger(0); err != nil { // reset, not end
		t.Fatal(err)
	}
	_ = far.Close()
	_, err := near.Read(make([]byte, 1))
	var n *net.OpError
	if !errors.As(err, &n) || n.Op != "read" || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("reading: %v", err)
	}
	if _, err = near.Write([]byte("x")); !errors.As(err, &n) || n.Op != "write" || !errors.Is(err, syscall.EPIPE) {
		t.Errorf("writing: %v", err)
	}
}

func TestManyMayReadAndWriteAtOnce(t *testing.T) {
	each(t, func(t *testing.T, near, far net.Conn) {
		const writers, times = 8, 500
		var both sync.WaitGroup
		for i := range writers {
			both.Go(func() {
				for range times {
					if _, err := near.Write(bytes.Repeat([]byte{byte('a' + i)}, 100)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		got := make([]byte, 100)
		for range writers * times {
			if _, err := io.ReadFull(far, got); err != nil || bytes.Count(got, got[:1]) != len(got) {
				t.Fatalf("%s, %v: writes are mixed", got, err)
			}
		}
		both.Wait()
		var readers sync.WaitGroup
		for range writers {
			readers.Go(func() {
				if n, err := near.Read(make([]byte, 1)); n != 1 || err != nil {
					t.Error(n, err)
				}
			})
		}
		if _, err := far.Write(make([]byte, writers)); err != nil {
			t.Error(err)
		}
		readers.Wait()
	})
}

func TestAConnectionIsSilentUntilSomethingComesOrItEnds(t *testing.T) {
	each(t, func(t *testing.T, near, far net.Conn) {
		q := near.(Conn)
		if !q.Silent() {
			t.Error("nothing has come, and it is not silent")
		}
		if _, err := io.WriteString(far, "a"); err != nil {
			t.Fatal(err)
		}
		if q.Silent() {
			t.Error("something has come, and it is silent")
		}
		p := make([]byte, 2)
		if n, err := near.Read(p); n != 1 || err != nil || p[0] != 'a' {
			t.Errorf("looking took it away: %q, %v", p[:n], err)
		}
		if !q.Silent() {
			t.Error("all has been read, and it is not silent")
		}
		_ = far.Close()
		if n, err := near.Read(p); n != 0 || err != io.EOF { //nolint:errorlint // readers compare it
			t.Fatal(n, err) // waits for the end
		}
		if q.Silent() {
			t.Error("it has ended, and it is silent")
		}
		_ = near.Close()
		if q.Silent() {
			t.Error("it is closed, and it is silent")
		}
	})
}

func TestWhatIsNoPlainConnectionIsLeftAlone(t *testing.T) {
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	if Quick(a) != a {
		t.Error("a pipe was wrapped")
	}
}
