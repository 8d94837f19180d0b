package portmux

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/model-gateway/model-gateway/pkg/tlsfiles"
	"github.com/model-gateway/model-gateway/pkg/tlsfiles/tlstest"
)

// secured is a Mux with TLS, and what clients need for it.
func secured(t *testing.T, o Options) (*Mux, *tls.Config) {
	t.Helper()
	ca := tlstest.NewAuthority(t, "ca")
	cert, key := ca.Issue(t, []string{"127.0.0.1"}).Write(t, t.TempDir())
	files, err := tlsfiles.NewServer(tlsfiles.ServerFiles{Cert: cert, Key: key}, tlsfiles.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(files.Close)
	o.TLS = files.Config()
	return onTCP(t, o), &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
}

func TestUnderTLSTheProtocolAgreedOnDecides(t *testing.T) {
	m, client := secured(t, Options{})
	for _, w := range []struct {
		offered []string
		to      net.Listener
	}{{[]string{"h2"}, m.HTTP2()}, {[]string{"h2", "http/1.1"}, m.HTTP1()}, {[]string{"http/1.1"}, m.HTTP1()}, {nil, m.HTTP1()}} {
		cfg := client.Clone()
		cfg.NextProtos = w.offered
		c := tls.Client(dial(t, m), cfg)
		if err := c.Handshake(); err != nil {
			t.Fatalf("%v: %v", w.offered, err)
		}
		server := accept(t, w.to)
		if conn, ok := server.(*tls.Conn); !ok || !conn.ConnectionState().HandshakeComplete {
			t.Fatalf("%v: got a %T", w.offered, server)
		}
		send(t, c, "all bytes")
		wantBytes(t, server, "all bytes")
		// The bounds of the handshake are gone: what has to wait, waits.
		go func() { _, _ = io.WriteString(server, "answer") }()
		wantBytes(t, c, "answer")
	}
}

func TestAHandshakeThatDragsOnIsEnded(t *testing.T) {
	m, _ := secured(t, Options{Timeout: 20 * time.Millisecond})
	silent := dial(t, m)
	wantClosed(t, silent)
	begun := dial(t, m)
	send(t, begun, "\x16\x03\x01\x02\x00\x01") // a ClientHello's first bytes
	wantClosed(t, begun)
}

func TestHandshakesAreBoundedInNumber(t *testing.T) {
	m, client := secured(t, Options{MaxUndecided: 2})
	oldest := dial(t, m)
	second := dial(t, m)
	third := tls.Client(dial(t, m), client)
	if err := third.Handshake(); err != nil {
		t.Fatal(err)
	}
	accept(t, m.HTTP1())
	wantClosed(t, oldest)
	if err := tls.Client(second, client).Handshake(); err != nil {
		t.Errorf("one too many was closed: %v", err)
	}
}

func TestPlainHTTPOnATLSPortIsToldSo(t *testing.T) {
	m, _ := secured(t, Options{})
	c := dial(t, m)
	send(t, c, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || r.StatusCode != http.StatusBadRequest {
		t.Fatalf("%v, %v", r, err)
	}
	defer r.Body.Close()
	if b, _ := io.ReadAll(r.Body); !strings.Contains(string(b), "use https") {
		t.Errorf("got %q", b)
	}
	garbage := dial(t, m)
	send(t, garbage, preface)
	wantClosed(t, garbage)
}

func TestGRPCAndHTTPSShareThePort(t *testing.T) {
	m, client := secured(t, Options{})
	gs := grpc.NewServer(grpc.Creds(done{}))
	healthpb.RegisterHealthServer(gs, health.NewServer())
	hs := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto+" "+r.TLS.NegotiatedProtocol)
	}), ReadHeaderTimeout: time.Minute}
	var running sync.WaitGroup
	running.Go(func() { _ = gs.Serve(m.HTTP2()) })
	running.Go(func() { _ = hs.Serve(m.HTTP1()) })

	cc, err := grpc.NewClient(m.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(client)))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || answer.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("gRPC: %v, %v", answer, err)
	}
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: client, ForceAttemptHTTP2: true}} // offers h2 and http/1.1
	resp, err := web.Get("https://" + m.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(resp.Body); string(body) != "HTTP/1.1 http/1.1" {
		t.Errorf("HTTP: %q", body)
	}
	_ = resp.Body.Close()
	web.CloseIdleConnections()
	_ = cc.Close()
	gs.GracefulStop()
	if err := hs.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	running.Wait()
}

// done are credentials of a server whose handshakes have been made.
type done struct {
	credentials.TransportCredentials
}

func (done) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c, credentials.TLSInfo{State: c.(*tls.Conn).ConnectionState()}, nil
}
func (d done) Clone() credentials.TransportCredentials { return d }
func (done) Info() credentials.ProtocolInfo            { return credentials.ProtocolInfo{} }
