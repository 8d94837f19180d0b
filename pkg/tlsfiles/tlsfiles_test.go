package tlsfiles

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/model-gateway/model-gateway/pkg/tlsfiles/tlstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logged is a log that tests wait on.
type logged struct {
	mu    sync.Mutex
	text  bytes.Buffer
	wrote chan struct{}
}

func newLogged() *logged { return &logged{wrote: make(chan struct{}, 1)} }

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.wrote <- struct{}{}:
	default:
	}
	return l.text.Write(p)
}

// wait waits until the log has words in it, and empties it.
func (l *logged) wait(t *testing.T, words string) string {
	t.Helper()
	late := time.After(time.Minute)
	for {
		l.mu.Lock()
		text := l.text.String()
		found := strings.Contains(text, words)
		if found {
			l.text.Reset()
		}
		l.mu.Unlock()
		if found {
			return text
		}
		select {
		case <-l.wrote:
		case <-late:
			t.Fatalf("the log never said %q but %s", words, text)
		}
	}
}

func (l *logged) options() Options {
	return Options{Log: slog.New(slog.NewTextHandler(l, nil)), Every: time.Millisecond}
}

const inForce, cannotUse = "are in force for new connections", "cannot be used"

// shake makes a handshake, and gives what each side saw.
func shake(t *testing.T, server, client *tls.Config) (srv, cli tls.ConnectionState, err error) {
	t.Helper()
	a, b := connected(t)
	defer a.Close()
	defer b.Close()
	c, s := tls.Client(b, client), tls.Server(a, server)
	served := make(chan error, 1)
	go func() {
		err := s.HandshakeContext(t.Context())
		if err != nil {
			_ = a.Close()
		}
		served <- err
	}()
	if err := c.HandshakeContext(t.Context()); err != nil {
		_ = b.Close()
		return srv, cli, errors.Join(err, <-served)
	}
	// In TLS 1.3 a client learns only by reading that its certificate was refused.
	if err := <-served; err != nil {
		return srv, cli, err
	}
	return s.ConnectionState(), c.ConnectionState(), nil
}

// connected gives both ends of a connection that holds what is written until it is read.
func connected(t *testing.T) (server, client net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return server, client
}

func TestACertificateThatChangesHoldsForNewConnections(t *testing.T) {
	dir, ca, log := t.TempDir(), tlstest.NewAuthority(t, "ca"), newLogged()
	cert, key := ca.Issue(t, []string{"one.example"}).Write(t, dir)
	options := log.options()
	type change struct {
		old, next string
		refused   bool
	}
	changes := make(chan change, 10)
	options.Changed = func(old, next string, err error) { changes <- change{old, next, err != nil} }
	s, err := NewServer(ServerFiles{Cert: cert, Key: key}, options)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	cfg := s.Config()
	try := func(name string) error {
		_, _, err := shake(t, cfg, &tls.Config{RootCAs: ca.Pool(), ServerName: name, MinVersion: tls.VersionTLS12})
		return err
	}
	if try("one.example") != nil || try("two.example") == nil {
		t.Fatal("the first certificate is not in force")
	}
	// First the certificate, then the key: between them they do not fit, and the old ones stay.
	next := ca.Issue(t, []string{"two.example"})
	tlstest.File(t, dir, "tls.crt", next.Cert)
	log.wait(t, cannotUse)
	if err := try("one.example"); err != nil {
		t.Errorf("half a change was taken over: %v", err)
	}
	tlstest.File(t, dir, "tls.key", next.Key)
	log.wait(t, inForce)
	if err := try("two.example"); err != nil {
		t.Error(err)
	}
	tlstest.File(t, dir, "tls.key", []byte("-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"))
	if text := log.wait(t, cannotUse); strings.Contains(text, "c2VjcmV0") {
		t.Errorf("the key is in the log: %s", text)
	}
	if err := try("two.example"); err != nil {
		t.Error(err)
	}
	half, whole, broken := <-changes, <-changes, <-changes
	if !half.refused || half.old != half.next || whole.refused || whole.old != half.old || whole.next == whole.old || !broken.refused || broken.next != whole.next {
		t.Errorf("for the record: %+v %+v %+v", half, whole, broken)
	}
}

func TestHTTP1IsPreferredToHTTP2AndOldTLSIsRefused(t *testing.T) {
	ca := tlstest.NewAuthority(t, "ca")
	cert, key := ca.Issue(t, []string{"a.example"}).Write(t, t.TempDir())
	s, err := NewServer(ServerFiles{Cert: cert, Key: key}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, w := range []struct {
		offered []string
		want    string
	}{
		{[]string{"h2"}, "h2"},
		{[]string{"h2", "http/1.1"}, "http/1.1"},
		{[]string{"grpc-exp", "h2"}, "h2"},
		{nil, ""},
	} {
		_, got, err := shake(t, s.Config(), &tls.Config{RootCAs: ca.Pool(), ServerName: "a.example", NextProtos: w.offered, MinVersion: tls.VersionTLS12})
		if err != nil || got.NegotiatedProtocol != w.want {
			t.Errorf("%v: got %q, %v", w.offered, got.NegotiatedProtocol, err)
		}
	}
	for _, bad := range []*tls.Config{
		{RootCAs: ca.Pool(), ServerName: "a.example", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11},
		{RootCAs: ca.Pool(), ServerName: "a.example", MinVersion: tls.VersionTLS12, NextProtos: []string{"h3"}},
	} {
		if _, _, err := shake(t, s.Config(), bad); err == nil {
			t.Errorf("a handshake of %+v was made", bad)
		}
	}
}

func TestAClientCertificateIsVerifiedIfGivenByTheAuthoritiesOfTheMoment(t *testing.T) {
	dir, ca, clients, others, log := t.TempDir(), tlstest.NewAuthority(t, "ca"), tlstest.NewAuthority(t, "clients"), tlstest.NewAuthority(t, "others"), newLogged()
	cert, key := ca.Issue(t, []string{"a.example"}).Write(t, dir)
	s, err := NewServer(ServerFiles{Cert: cert, Key: key, ClientCA: tlstest.File(t, dir, "ca.crt", clients.PEM)}, log.options())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	sessions := tls.NewLRUClientSessionCache(10)
	try := func(with ...tls.Certificate) (tls.ConnectionState, error) {
		state, _, err := shake(t, s.Config(), &tls.Config{
			RootCAs: ca.Pool(), ServerName: "a.example", MinVersion: tls.VersionTLS12, ClientSessionCache: sessions,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				if len(with) == 0 {
					return &tls.Certificate{}, nil
				}
				return &with[0], nil
			},
		})
		return state, err
	}
	good, bad := clients.Issue(t, []string{"spiffe://prod/a"}).Pair(t), others.Issue(t, []string{"spiffe://prod/a"}).Pair(t)
	if state, err := try(); err != nil || len(state.PeerCertificates) != 0 {
		t.Errorf("without a certificate: %v", err)
	}
	for range 2 {
		if state, err := try(good); err != nil || len(state.VerifiedChains) != 1 {
			t.Errorf("with a good one: %v", err)
		}
	}
	if _, err := try(bad); err == nil {
		t.Error("a certificate of others was taken")
	}
	expired := clients.Issue(t, []string{"spiffe://prod/a"}, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) })
	if _, err := try(expired.Pair(t)); err == nil {
		t.Error("an expired certificate was taken")
	}
	tlstest.File(t, dir, "ca.crt", others.PEM)
	log.wait(t, inForce)
	if _, err := try(good); err == nil {
		t.Error("the authority is gone, and its certificate still good")
	}
	if _, err := try(bad); err != nil {
		t.Errorf("the new authority is not in force: %v", err)
	}
}

func TestFilesThatCannotBeUsedAreNamed(t *testing.T) {
	dir, ca := t.TempDir(), tlstest.NewAuthority(t, "ca")
	cert, key := ca.Issue(t, []string{"a.example"}).Write(t, dir)
	empty := tlstest.File(t, dir, "empty.pem", nil)
	for want, files := range map[string]ServerFiles{
		"none.crt":         {Cert: filepath.Join(dir, "none.crt"), Key: key},
		"none.key":         {Cert: cert, Key: filepath.Join(dir, "none.key")},
		"tls.crt and":      {Cert: cert, Key: cert},
		"empty.pem has no": {Cert: cert, Key: key, ClientCA: empty},
	} {
		if _, err := NewServer(files, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	for want, files := range map[string]ClientFiles{
		"belong together":  {Cert: cert},
		"empty.pem has no": {CA: empty},
		"none.crt":         {CA: filepath.Join(dir, "none.crt")},
		"tls.key and":      {CA: System, Cert: key, Key: cert},
	} {
		if _, err := NewClient(files, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestTheLogSaysWhenACertificateEnds(t *testing.T) {
	ca, log := tlstest.NewAuthority(t, "ca"), newLogged()
	for words, left := range map[string]time.Duration{"expires soon": time.Minute, "has expired": -time.Minute} {
		cert, key := ca.Issue(t, []string{"a.example"}, func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(left)
		}).Write(t, t.TempDir())
		s, err := NewServer(ServerFiles{Cert: cert, Key: key}, log.options())
		if err != nil {
			t.Fatal(err)
		}
		log.wait(t, words)
		s.Close()
	}
	cert, key := ca.Issue(t, []string{"a.example"}).Write(t, t.TempDir())
	s, err := NewServer(ServerFiles{Cert: cert, Key: key}, log.options())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if text := log.wait(t, "expires="); strings.Contains(text, "WARN") {
		t.Errorf("a fresh certificate is warned of: %s", text)
	}
	s.warn(time.Now().Add(50 * time.Minute)) // of its hour a fifth is left
	log.wait(t, "expires soon")
}

func TestAClientFollowsItsFilesAndChecksTheServersName(t *testing.T) {
	dir, ca, others, log := t.TempDir(), tlstest.NewAuthority(t, "ca"), tlstest.NewAuthority(t, "others"), newLogged()
	own := others.Issue(t, []string{"spiffe://prod/gateway"})
	cert, key := own.Write(t, dir)
	files := ClientFiles{CA: tlstest.File(t, dir, "ca.crt", others.PEM), Cert: cert, Key: key, ServerName: "triton.internal"}
	c, err := NewClient(files, log.options())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Files() != files || c.Clone() != c || c.Info().SecurityProtocol != "tls" {
		t.Error("it is not what it was made of")
	}
	try := func(name string) (*x509.Certificate, error) {
		a, b := connected(t)
		defer a.Close()
		defer b.Close()
		server := tls.Server(a, &tls.Config{
			Certificates: []tls.Certificate{ca.Issue(t, []string{name}).Pair(t)}, NextProtos: []string{"h2"},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: others.Pool(), MinVersion: tls.VersionTLS12,
		})
		done := make(chan error, 1)
		go func() { done <- server.HandshakeContext(t.Context()) }()
		conn, info, err := c.ClientHandshake(context.Background(), "10.0.0.7:8001", b)
		if err != nil {
			_ = b.Close()
			return nil, errors.Join(err, <-done)
		}
		defer conn.Close()
		if info.AuthType() != "tls" {
			t.Errorf("got %s", info.AuthType())
		}
		if err := <-done; err != nil {
			return nil, err
		}
		return server.ConnectionState().PeerCertificates[0], nil
	}
	if _, err := try("triton.internal"); err == nil || !strings.Contains(err.Error(), "is tls.ca the right file?") {
		t.Errorf("got %v", err)
	}
	tlstest.File(t, dir, "ca.crt", ca.PEM)
	log.wait(t, inForce)
	leaf, err := try("triton.internal")
	if err != nil || leaf.URIs[0].String() != "spiffe://prod/gateway" {
		t.Errorf("%v, %v", leaf, err)
	}
	if _, err := try("other.internal"); err == nil {
		t.Error("a server of another name was believed")
	}
	if _, _, err := c.ServerHandshake(nil); err == nil {
		t.Error("it served")
	}
	if c.OverrideServerName("x") == nil {
		t.Error("the name was changed")
	}
	plain, err := NewClient(ClientFiles{CA: System}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	plain.Close()
}
