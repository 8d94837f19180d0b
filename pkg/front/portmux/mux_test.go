package portmux

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// patience is how long a test waits for what comes at once where nothing is wrong.
const patience = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// onTCP starts a Mux on a port of its own.
func onTCP(t *testing.T, o Options) *Mux {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := New(l, o)
	t.Cleanup(func() { _ = m.Close() })
	return m
}

func dial(t *testing.T, m *Mux) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", m.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience)) // what never comes is not waited for
	return c
}

func send(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

func accept(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// wantBytes fails unless want is what c reads next.
func wantBytes(t *testing.T, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v; want %q", got, err, want)
	}
}

// wantClosed fails unless the other side closes c.
func wantClosed(t *testing.T, c net.Conn) {
	t.Helper()
	if n, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes from a connection that should be closed: %v", n, err)
	}
}

func TestEachProtocolGoesToItsListenerWithAllItsBytes(t *testing.T) {
	m := onTCP(t, Options{})
	for _, c := range []struct {
		name, first string
		to          net.Listener
	}{
		{"HTTP/2", preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00", m.HTTP2()},
		{"the bare preface", preface, m.HTTP2()},
		{"GET", "GET / HTTP/1.1\r\n\r\n", m.HTTP1()},
		{"a method that begins alike", "PRIZE / HTTP/1.1\r\n\r\n", m.HTTP1()},
		{"the preface with another version", "PRI * HTTP/3.0\r\n\r\nSM\r\n\r\n", m.HTTP1()},
		{"a single byte that cannot be the preface", "\x16", m.HTTP1()},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := dial(t, m)
			send(t, client, c.first)
			server := accept(t, c.to)
			wantBytes(t, server, c.first)
			send(t, client, "later")
			wantBytes(t, server, "later")
		})
	}
}

func TestATCPConnectionIsHandedOverUnwrapped(t *testing.T) {
	m := onTCP(t, Options{})
	client := dial(t, m)
	send(t, client, preface)
	server := accept(t, m.HTTP2())
	if _, ok := server.(*net.TCPConn); !ok {
		t.Fatalf("got a %T; the servers' fast paths need a *net.TCPConn", server)
	}
	// The deadline for the first bytes must be gone: a read that has to wait, waits.
	wantBytes(t, server, preface)
	go func() { _, _ = io.WriteString(client, "x") }()
	wantBytes(t, server, "x")
}

func TestOneByteAtATimeOnTCP(t *testing.T) {
	m := onTCP(t, Options{})
	client := dial(t, m)
	if err := client.(*net.TCPConn).SetNoDelay(true); err != nil {
		t.Fatal(err)
	}
	for _, b := range []byte(preface) {
		send(t, client, string(b))
	}
	wantBytes(t, accept(t, m.HTTP2()), preface)
}

func TestASilentConnectionIsClosedAfterTheTimeout(t *testing.T) {
	m := onTCP(t, Options{Timeout: 20 * time.Millisecond})
	client := dial(t, m)
	wantClosed(t, client)
	dribbling := dial(t, m)
	send(t, dribbling, "PRI")
	wantClosed(t, dribbling)
}

func TestAConnectionThatEndsUndecidedIsForgotten(t *testing.T) {
	m := onTCP(t, Options{})
	client := dial(t, m)
	if err := client.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	wantClosed(t, client)
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.undecided.Len(); n != 0 {
		t.Fatalf("%d connections are still waited for", n)
	}
}

func TestTheOldestUndecidedConnectionMakesRoom(t *testing.T) {
	m := onTCP(t, Options{MaxUndecided: 2})
	oldest := dial(t, m)
	second, third := dial(t, m), dial(t, m)
	wantClosed(t, oldest)
	for _, c := range []net.Conn{third, second} {
		send(t, c, "GET /")
		wantBytes(t, accept(t, m.HTTP1()), "GET /")
	}
}

func TestAServerThatDoesNotAcceptCannotPileUpConnections(t *testing.T) {
	m := onTCP(t, Options{Backlog: 1})
	first := dial(t, m)
	send(t, first, "GET /first")
	eventually(t, func() bool { return len(m.http1.waiting) == 1 })
	second := dial(t, m)
	send(t, second, "GET /second")
	wantClosed(t, second)
	wantBytes(t, accept(t, m.HTTP1()), "GET /first")
}

// eventually yields until ok holds.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for late := time.Now().Add(patience); !ok(); {
		if time.Now().After(late) {
			t.Fatal("it never happened")
		}
		runtime.Gosched() // the length of a channel cannot be waited for
	}
}

func TestCloseEndsBothListenersAndAllThatNobodyAccepted(t *testing.T) {
	m := onTCP(t, Options{})
	undecided, waiting, served := dial(t, m), dial(t, m), dial(t, m)
	send(t, served, "GET /served")
	server := accept(t, m.HTTP1())
	send(t, waiting, "GET /waiting")
	eventually(t, func() bool { return len(m.http1.waiting) == 1 })

	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	for _, l := range []net.Listener{m.HTTP1(), m.HTTP2()} {
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept after Close: %v", err)
		}
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("second Close of a listener: %v", err)
		}
	}
	wantClosed(t, undecided)
	wantClosed(t, waiting)
	wantBytes(t, server, "GET /served")
	send(t, server, "answer")
	wantBytes(t, served, "answer")
	if err := m.Close(); err != nil {
		t.Errorf("a second Close failed: %v", err)
	}
	if c, err := net.Dial("tcp", m.Addr().String()); err == nil {
		_ = c.Close()
		t.Error("the port is still open")
	}
}

func TestTheOtherProtocolGoesOnWhenOneListenerIsClosed(t *testing.T) {
	m := onTCP(t, Options{})
	if err := m.HTTP1().Close(); err != nil {
		t.Fatal(err)
	}
	refused := dial(t, m)
	send(t, refused, "GET /")
	wantClosed(t, refused)
	client := dial(t, m)
	send(t, client, preface)
	wantBytes(t, accept(t, m.HTTP2()), preface)

	if err := m.HTTP2().Close(); err != nil {
		t.Fatal(err)
	}
	m.running.Wait() // the port is closed with the second one
	if c, err := net.Dial("tcp", m.Addr().String()); err == nil {
		_ = c.Close()
		t.Error("the port is still open")
	}
}

func TestAWaitingAcceptEndsWithItsListener(t *testing.T) {
	m := onTCP(t, Options{})
	failed := make(chan error)
	go func() {
		_, err := m.HTTP2().Accept()
		failed <- err
	}()
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
}

// script is a listener that accepts what the test gives it: a net.Conn or an error.
type script struct {
	steps chan any
	quit  chan struct{}
	once  sync.Once
}

func newScript() *script { return &script{steps: make(chan any), quit: make(chan struct{})} }

func (s *script) Accept() (net.Conn, error) {
	select {
	case step := <-s.steps:
		if err, ok := step.(error); ok {
			return nil, err
		}
		return step.(net.Conn), nil
	case <-s.quit:
		return nil, net.ErrClosed
	}
}

func (s *script) Close() error   { s.once.Do(func() { close(s.quit) }); return nil }
func (s *script) Addr() net.Addr { return &net.TCPAddr{} }

// connect hands one end of a pipe to the Mux: a connection that cannot be peeked at.
func (s *script) connect() net.Conn {
	client, server := net.Pipe()
	s.steps <- server
	return client
}

func TestAcceptErrorsAreRetriedMoreAndMoreSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := newScript()
		m := New(root, Options{})
		defer m.Close()
		begin := time.Now()
		var pauses []time.Duration
		for range 10 {
			root.steps <- &net.OpError{Op: "accept", Err: syscall.EMFILE}
			pauses = append(pauses, time.Since(begin).Round(time.Millisecond))
			begin = time.Now()
		}
		want := []time.Duration{0, 5, 10, 20, 40, 80, 160, 320, 640, 1000}
		for i := range want {
			if pauses[i] != want[i]*time.Millisecond {
				t.Fatalf("pauses %v, want %v ms", pauses, want)
			}
		}
		client := root.connect()
		go func() { _, _ = io.WriteString(client, "GET /") }()
		wantBytes(t, accept(t, m.HTTP1()), "GET /")
	})
}

func TestCloseEndsABackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := newScript()
		m := New(root, Options{})
		root.steps <- errors.New("no more files")
		begin := time.Now()
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(begin); waited > 0 {
			t.Fatalf("Close waited %v for the back-off", waited)
		}
	})
}

func TestASlowLorisIsClosedHoweverItDribbles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := newScript()
		m := New(root, Options{})
		defer m.Close()
		client := root.connect()
		defer client.Close()
		begin := time.Now()
		for _, b := range []byte(preface) {
			if _, err := client.Write([]byte{b}); err != nil {
				break
			}
			synctest.Wait()
			timer := time.NewTimer(900 * time.Millisecond)
			<-timer.C
		}
		if took := time.Since(begin); took > 11*time.Second {
			t.Fatalf("it lived for %v", took)
		}
		wantClosed(t, client)
	})
}

func TestAConnectionThatCannotBePeekedAtIsReplayedByteByByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := newScript()
		m := New(root, Options{})
		defer m.Close()
		for _, c := range []struct {
			first string
			to    net.Listener
		}{{preface + "more", m.HTTP2()}, {"PRI * HTTP/1.1\r\n\r\n", m.HTTP1()}} {
			client := root.connect()
			go func() {
				for _, b := range []byte(c.first) {
					_, _ = client.Write([]byte{b})
				}
			}()
			server := accept(t, c.to)
			got := make([]byte, 0, len(c.first))
			one := make([]byte, 1)
			for range len(c.first) {
				if _, err := io.ReadFull(server, one); err != nil {
					t.Fatal(err)
				}
				got = append(got, one...)
			}
			if string(got) != c.first {
				t.Fatalf("got %q, want %q", got, c.first)
			}
			if server.(*conn).first != nil {
				t.Error("the first bytes are still held")
			}
			go func() { _, _ = io.Copy(io.Discard, client) }()
			if n, err := server.(io.ReaderFrom).ReadFrom(strings.NewReader("answer")); n != 6 || err != nil {
				t.Errorf("ReadFrom: %d, %v", n, err)
			}
			_ = client.Close()
		}
	})
}

func TestGRPCAndHTTPServersShareThePort(t *testing.T) {
	m := onTCP(t, Options{})
	gs := grpc.NewServer()
	healthpb.RegisterHealthServer(gs, health.NewServer())
	hs := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "over HTTP/1.1") })}
	var running sync.WaitGroup
	running.Go(func() { _ = gs.Serve(m.HTTP2()) })
	running.Go(func() { _ = hs.Serve(m.HTTP1()) })

	cc, err := grpc.NewClient(m.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || answer.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("gRPC: %v, %v", answer, err)
	}
	client := dial(t, m)
	send(t, client, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(resp.Body); string(body) != "over HTTP/1.1" {
		t.Errorf("HTTP: %q", body)
	}
	_ = resp.Body.Close()
	_ = cc.Close()
	gs.GracefulStop()
	if err := hs.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	running.Wait()
}

func FuzzVerdictOnFirstBytes(f *testing.F) {
	f.Add([]byte(preface), 3)
	f.Add([]byte("PRI * HTTP/1.1\r\n"), 10)
	f.Add([]byte{}, 0)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		whole := judge(b)
		if is := bytes.HasPrefix(b, []byte(preface)); is != (whole == http2) {
			t.Fatalf("%q: verdict %d", b, whole)
		}
		if cut < 0 || cut > len(b) {
			return
		}
		if part := judge(b[:cut]); part != more && part != whole {
			t.Fatalf("%q says %d, its first %d bytes say %d", b, whole, cut, part)
		}
	})
}
