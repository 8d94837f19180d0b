package callers

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/front/grpcfront"
	"github.com/model-gateway/model-gateway/pkg/front/httpfront"
	"github.com/model-gateway/model-gateway/pkg/front/portmux"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/stage/identify"
	"github.com/model-gateway/model-gateway/pkg/tlsfiles"
	"github.com/model-gateway/model-gateway/pkg/tlsfiles/tlstest"
	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
)

// names is a pipeline that identifies calls and answers who they are of, as "caller/user".
type names struct{ identify identify.Stage }

func (n names) answer(_ context.Context, c *inference.Call) error {
	b, err := proto.Marshal(&inferencepb.PredictionResponse{Status: c.CallerName() + "/" + c.User})
	if err != nil {
		return err
	}
	return c.Send(inference.NewFrame(b))
}

func (n names) Do(ctx context.Context, c *inference.Call) error {
	return n.identify.Wrap(identify.Message{}.Wrap(n.answer))(ctx, c)
}
func (n names) Message(ctx context.Context, c *inference.Call) error { return n.Do(ctx, c) }
func (n names) Open(ctx context.Context, c *inference.Call, body inference.Handler) error {
	return n.identify.Open(body)(ctx, c)
}
func (n names) Refuse(_ context.Context, _ *inference.Call, err error) error { return err }

type nothing struct{}

func (nothing) Do(context.Context, *inference.Call, string, proto.Message) (proto.Message, error) {
	return nil, fault.New(fault.NotServed, "no")
}

// port is the data port as clients see it: TLS, both fronts, callers.
type port struct {
	address string
	roots   *tls.Config // trusts the port's certificate, and has none of its own
}

func openPort(t *testing.T, c *Callers, files tlsfiles.ServerFiles, roots *tlstest.Authority) port {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, err := tlsfiles.NewServer(files, tlsfiles.Options{Every: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	mux := portmux.New(l, portmux.Options{TLS: server.Config()})
	pipeline := names{identify.Stage{Auth: c}}
	quiet := slog.New(slog.DiscardHandler)
	g := grpcfront.New(grpcfront.Options{Pipeline: pipeline, Control: nothing{}, MaxMessage: 1 << 20, Log: quiet})
	h := httpfront.New(httpfront.Config{Pipeline: pipeline, Control: nothing{}, Log: quiet})
	var serving sync.WaitGroup
	serving.Go(func() { _ = g.Serve(mux.HTTP2()) })
	serving.Go(func() { _ = h.Serve(mux.HTTP1()) })
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		g.Drain(ctx)
		_ = h.Shutdown(ctx)
		_ = mux.Close()
		serving.Wait()
		server.Close()
	})
	return port{l.Addr().String(), &tls.Config{RootCAs: roots.Pool(), ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}}
}

func (p port) with(certs ...tls.Certificate) *tls.Config {
	cfg := p.roots.Clone()
	if len(certs) > 0 { // sent whatever the server would like
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certs[0], nil }
	}
	return cfg
}

// grpc asks over a connection of its own who the port takes us for.
func (p port) grpc(ctx context.Context, t *testing.T, cfg *tls.Config, md ...string) (string, error) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+p.address, grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r, err := inferencepb.NewInferenceServiceClient(conn).Predict(metadata.AppendToOutgoingContext(ctx, md...), &inferencepb.PredictionRequest{ModelName: "m"})
	return r.GetStatus(), err
}

// stream is grpc over a stream with one message.
func (p port) stream(ctx context.Context, t *testing.T, cfg *tls.Config, md ...string) (string, error) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+p.address, grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s, err := inferencepb.NewInferenceServiceClient(conn).PredictStream(metadata.AppendToOutgoingContext(ctx, md...))
	if err != nil {
		return "", err
	}
	if err := s.Send(&inferencepb.PredictionRequest{ModelName: "m"}); err != nil && err != io.EOF { //nolint:errorlint // as gRPC documents it
		return "", err
	}
	r, err := s.Recv()
	return r.GetStatus(), err
}

// https is grpc over HTTP/1.1; the text is the body.
func (p port) https(t *testing.T, cfg *tls.Config, header ...string) (int, string, http.Header) {
	t.Helper()
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}}
	defer web.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+p.address+"/v1/predict", strings.NewReader(`{"model_name":"m"}`))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := web.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil || answer.Proto != "HTTP/1.1" {
		t.Fatalf("%s, %v", answer.Proto, err)
	}
	return answer.StatusCode, string(b), answer.Header
}

func TestEveryWayInWorksOverEveryProtocol(t *testing.T) {
	dir, ca, clients, others := t.TempDir(), tlstest.NewAuthority(t, "ca"), tlstest.NewAuthority(t, "clients"), tlstest.NewAuthority(t, "others")
	cert, key := ca.Issue(t, []string{"127.0.0.1"}).Write(t, dir)
	path := tlstest.File(t, dir, "jwks.json", jwks(t, ecPair()))
	c := with(t,
		Entry{Name: "svc", Keys: []Hash{HashKey("the-key-of-svc")}, MayNameUsers: true},
		batch(path),
		Entry{Name: "mesh", SANs: []string{"spiffe://prod/ns/*/sa/*"}},
	)
	p := openPort(t, c, tlsfiles.ServerFiles{Cert: cert, Key: key, ClientCA: tlstest.File(t, dir, "ca.crt", clients.PEM)}, ca)
	token := "Bearer " + sign(t, ecPair(), goodClaims())
	member := clients.Issue(t, []string{"spiffe://prod/ns/web/sa/front"}).Pair(t)
	stranger := clients.Issue(t, []string{"spiffe://test/ns/web/sa/front"}).Pair(t)
	for _, w := range []struct {
		what  string
		certs []tls.Certificate
		md    []string
		want  string // caller/user, or words of the refusal
	}{
		{"a key", nil, []string{"x-api-key", "the-key-of-svc"}, "svc/svc"},
		{"a key that names a user", nil, []string{"authorization", "Bearer the-key-of-svc", "x-user-id", "ann"}, "svc/ann"},
		{"a token", nil, []string{"authorization", token, "x-user-id", "alice"}, "batch/ann"},
		{"a certificate", []tls.Certificate{member}, []string{"x-user-id", "alice"}, "mesh/mesh"},
		{"a certificate and a key", []tls.Certificate{member}, []string{"x-api-key", "the-key-of-svc"}, "svc/svc"},
		{"nothing", nil, []string{"x-user-id", "alice"}, "needs a credential"},
		{"a wrong key", nil, []string{"x-api-key", "wrong-key-of-svc"}, "not one of any caller"},
		{"a wrong key and a certificate", []tls.Certificate{member}, []string{"x-api-key", "wrong-key-of-svc"}, "not one of any caller"},
		{"a stranger's certificate", []tls.Certificate{stranger}, nil, "none of its names is declared"},
	} {
		t.Run(w.what, func(t *testing.T) {
			cfg := p.with(w.certs...)
			good := strings.Contains(w.want, "/")
			for way, ask := range map[string]func(context.Context, *testing.T, *tls.Config, ...string) (string, error){"unary": p.grpc, "stream": p.stream} {
				got, err := ask(t.Context(), t, cfg, w.md...)
				if good && (err != nil || got != w.want) {
					t.Errorf("%s: got %q, %v", way, got, err)
				}
				if !good && (status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), w.want)) {
					t.Errorf("%s: got %v", way, err)
				}
			}
			code, body, header := p.https(t, cfg, w.md...)
			if good && (code != 200 || !strings.Contains(body, `"`+w.want+`"`)) {
				t.Errorf("HTTP: got %d %s", code, body)
			}
			if !good && (code != http.StatusUnauthorized || !strings.Contains(body, w.want) || !strings.Contains(body, "AUTH_")) {
				t.Errorf("HTTP: got %d %s", code, body)
			}
			if !good && header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("HTTP: no word of what to send: %v", header)
			}
			if header.Get("X-Request-Id") == "" {
				t.Error("HTTP: no request id")
			}
		})
	}
	if _, err := p.grpc(t.Context(), t, p.with(others.Issue(t, []string{"spiffe://prod/ns/web/sa/front"}).Pair(t))); status.Code(err) != codes.Unavailable {
		t.Errorf("a certificate of others: %v", err)
	}
}

func TestCertificatesChangeUnderTraffic(t *testing.T) {
	dir, ca := t.TempDir(), tlstest.NewAuthority(t, "ca")
	cert, key := ca.Issue(t, []string{"127.0.0.1"}).Write(t, dir)
	c := with(t, Entry{Name: "svc", Keys: []Hash{HashKey("k")}})
	p := openPort(t, c, tlsfiles.ServerFiles{Cert: cert, Key: key}, ca)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var mu sync.Mutex
	seen := map[string]bool{}
	changed := make(chan struct{}, 1)
	cfg := p.with()
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		mu.Lock()
		defer mu.Unlock()
		if serial := s.PeerCertificates[0].SerialNumber.String(); !seen[serial] {
			seen[serial] = true
			changed <- struct{}{}
		}
		return nil
	}
	done := make(chan struct{})
	var traffic sync.WaitGroup
	for range 3 {
		traffic.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if got, err := p.grpc(ctx, t, cfg, "x-api-key", "k"); err != nil || got != "svc/svc" {
					t.Errorf("got %q, %v", got, err)
					return
				}
			}
		})
	}
	await := func() {
		select {
		case <-changed:
		case <-ctx.Done():
			t.Error("the new certificate was never seen")
		}
	}
	await()
	for range 3 {
		ca.Issue(t, []string{"127.0.0.1"}).Write(t, dir)
		await()
	}
	close(done)
	traffic.Wait()
}
