package triton

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/tlsfiles"
	"github.com/model-gateway/model-gateway/pkg/tlsfiles/tlstest"
	"github.com/model-gateway/model-gateway/pkg/upstream/triton/tritontest"
	"github.com/model-gateway/model-gateway/proto/triton"
)

const restricted = "triton-grpc-protocol-infer"

// told keeps the values of one header that a server has been sent.
type told struct {
	mu     sync.Mutex
	values map[string]bool // by kind of RPC and value
}

func (s *told) hear(ctx context.Context, rpc string) {
	md, _ := metadata.FromIncomingContext(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values == nil {
		s.values = map[string]bool{}
	}
	s.values[rpc+" "+strings.Join(md.Get(restricted), ",")] = true
}

// take gives what was heard since, and forgets it.
func (s *told) take() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.values
	s.values = nil
	return v
}

func (s *told) server() *tritontest.Server {
	return &tritontest.Server{
		Infer: func(ctx context.Context, r *tritonpb.ModelInferRequest) (*tritonpb.ModelInferResponse, error) {
			s.hear(ctx, "infer")
			return tritontest.Response(r, 1), nil
		},
		Live: func(ctx context.Context) (bool, error) { s.hear(ctx, "live"); return true, nil },
		Stream: func(stream *tritontest.Stream) error {
			s.hear(stream.Context(), "stream")
			r, err := stream.Recv()
			if err != nil {
				return err
			}
			if err := stream.Send(tritontest.Answer(r, true, 1)); err != nil {
				return err
			}
			<-stream.Context().Done()
			return nil
		},
	}
}

func TestHeadersOfTheUpstreamAreOnEveryRPCAndFollowAReload(t *testing.T) {
	heard := &told{}
	servers := tritontest.Network{"a:1": heard.server()}
	u := upstream(t, servers, func(o *Options) { o.Headers = map[string]string{restricted: "one"} })
	ask := func() {
		t.Helper()
		call := kserve(t, u, request("risk"))
		call.Outgoing = map[string][]string{restricted: {"of the client"}, "x-request-id": {"r-1"}}
		if err := infer(t.Context(), call); err != nil {
			t.Fatal(err)
		}
		if got := call.Outgoing[restricted]; got[0] != "of the client" {
			t.Errorf("the call itself has %q: another upstream would be told", got)
		}
		message := newClient(t, u).message()
		if err := receive(t, run(t.Context(), message), "message"); err != nil {
			t.Fatal(err)
		}
		if failed := u.Each(t.Context(), func(_ string, conn grpc.ClientConnInterface) error {
			_, err := tritonpb.NewGRPCInferenceServiceClient(conn).ServerLive(t.Context(), &tritonpb.ServerLiveRequest{})
			return err
		}); len(failed) > 0 {
			t.Fatal(failed)
		}
	}
	want := func(value string) {
		t.Helper()
		got := heard.take()
		if len(got) != 3 || !got["infer "+value] || !got["stream "+value] || !got["live "+value] {
			t.Errorf("heard %v, want %q thrice", got, value)
		}
	}
	ask()
	want("one")
	kept := u.list()[0]
	o := Options{Name: "triton", Dial: servers.Dial, Version: "test", Endpoints: []string{"a:1"}, Headers: map[string]string{restricted: "two"}}
	if err := u.Update(o); err != nil {
		t.Fatal(err)
	}
	ask()
	want("two")
	if u.list()[0] != kept {
		t.Error("a header took a new connection")
	}
	o.Headers = nil
	if err := u.Update(o); err != nil {
		t.Fatal(err)
	}
	call := kserve(t, u, request("risk"))
	if err := infer(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	if got := heard.take(); !got["infer "] {
		t.Errorf("without headers %v was heard", got)
	}
}

func TestHeadersThatCannotBeSentAreNamedWithoutTheirValue(t *testing.T) {
	many := map[string]string{}
	for i := range maxHeaders + 1 {
		many[strings.Repeat("x", i+1)] = ""
	}
	for want, headers := range map[string]map[string]string{
		`header "X-A": a name has lower-case`: {"X-A": "secret"},
		`header "": a name`:                   {"": "secret"},
		`header "grpc-timeout" is gRPC's own`: {"grpc-timeout": "secret"},
		"is there a line break at its end?":   {"x-a": "secret\n"},
		"has 8193 bytes":                      {"x-a": "secret" + strings.Repeat("x", 8187)},
		"33 headers":                          many,
	} {
		_, err := New(Options{Name: "a", Endpoints: []string{"b:1"}, Headers: headers})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// overTLS serves a ModelInfer behind TLS that wants a certificate, and gives its address.
func overTLS(t *testing.T, ca, clients *tlstest.Authority, names ...string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{ca.Issue(t, names).Pair(t)}, MinVersion: tls.VersionTLS12,
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients.Pool(),
	})))
	tritonpb.RegisterGRPCInferenceServiceServer(s, inferOnly{})
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { s.Stop(); serving.Wait() })
	return l.Addr().String()
}

type inferOnly struct {
	tritonpb.UnimplementedGRPCInferenceServiceServer
}

func (inferOnly) ModelInfer(_ context.Context, r *tritonpb.ModelInferRequest) (*tritonpb.ModelInferResponse, error) {
	return tritontest.Response(r, 1), nil
}

func TestTLSTowardTheServerIsVerifiedBothWays(t *testing.T) {
	ca, clients := tlstest.NewAuthority(t, "ca"), tlstest.NewAuthority(t, "clients")
	dir := t.TempDir()
	cert, key := clients.Issue(t, []string{"gateway"}).Write(t, dir)
	good := tlsfiles.ClientFiles{CA: tlstest.File(t, dir, "ca.crt", ca.PEM), Cert: cert, Key: key, ServerName: "triton.internal"}
	address := overTLS(t, ca, clients, "triton.internal")
	ask := func(files *tlsfiles.ClientFiles) error {
		o := Options{Name: "triton", Version: "test", Endpoints: []string{address}}
		if files != nil {
			creds, err := tlsfiles.NewClient(*files, tlsfiles.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer creds.Close()
			o.Credentials = creds
		}
		u, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		return infer(t.Context(), kserve(t, u, request("risk")))
	}
	if err := ask(&good); err != nil {
		t.Errorf("all is well, and yet: %v", err)
	}
	for what, change := range map[string]func(*tlsfiles.ClientFiles){
		"another name":          func(f *tlsfiles.ClientFiles) { f.ServerName = "other.internal" },
		"the address as a name": func(f *tlsfiles.ClientFiles) { f.ServerName = "" },
		"another authority":     func(f *tlsfiles.ClientFiles) { f.CA = tlstest.File(t, dir, "other.crt", clients.PEM) },
		"no certificate":        func(f *tlsfiles.ClientFiles) { f.Cert, f.Key = "", "" },
	} {
		files := good
		change(&files)
		if err := ask(&files); fault.Of(err).Kind != fault.UpstreamUnavailable {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, service, _ := net.SplitHostPort(address)
	creds, err := tlsfiles.NewClient(tlsfiles.ClientFiles{CA: good.CA, Cert: cert, Key: key}, tlsfiles.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer creds.Close()
	byName, err := New(Options{
		Name: "triton", Version: "test", Endpoints: []string{"dns:///triton.internal:" + service}, Credentials: creds,
		Lookup: func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer byName.Close()
	if err := infer(t.Context(), kserve(t, byName, request("risk"))); err != nil {
		t.Errorf("the name that was resolved is not the one that is expected: %v", err)
	}
	if err := ask(nil); err == nil || status.Code(err) == codes.OK {
		t.Error("plaintext went through")
	}
}

func BenchmarkOutgoingWithoutHeaders(b *testing.B) {
	u := &Upstream{}
	md := map[string][]string{"x-request-id": {"r"}}
	plain := testing.AllocsPerRun(100, func() { _ = metadata.NewOutgoingContext(b.Context(), md) })
	if n := testing.AllocsPerRun(100, func() { _ = u.outgoing(b.Context(), md) }); n > plain {
		b.Errorf("%v allocations, %v without the feature", n, plain)
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = u.outgoing(b.Context(), md)
	}
}
