package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/callers"
	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/tlsfiles/tlstest"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// behindTLS puts TLS that wants a client certificate before a model server, and gives its address.
func behindTLS(t *testing.T, server string, ca, clients *tlstest.Authority, name string) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{ca.Issue(t, []string{name}).Pair(t)}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12,
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients.Pool(),
	})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				s, err := net.Dial("tcp", server)
				if err != nil {
					return
				}
				defer s.Close()
				running.Go(func() { _, _ = io.Copy(s, c); _ = s.Close() })
				_, _ = io.Copy(c, s)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); running.Wait() })
	return l.Addr().String()
}

func TestTLSFromTheClientToTheModelServerAndKeysThatAreReplaced(t *testing.T) {
	_, triton := model(t)
	dir, ca, clients, ours := t.TempDir(), tlstest.NewAuthority(t, "ca"), tlstest.NewAuthority(t, "clients"), tlstest.NewAuthority(t, "ours")
	cert, key := ca.Issue(t, []string{"127.0.0.1"}).Write(t, t.TempDir())
	ourCert, ourKey := ours.Issue(t, []string{"spiffe://prod/gateway"}).Write(t, t.TempDir())
	yaml := func(keys ...string) string {
		var hashes []string
		for _, k := range keys {
			hashes = append(hashes, callers.HashKey(k).String())
		}
		return fmt.Sprintf(`
version: 1
passthrough: true
listen: {tls: {cert: %s, key: %s, client_ca: %s}}
callers:
  - {name: svc, keys: ["%s"]}
  - {name: mesh, mtls: {san: "spiffe://prod/ns/*/sa/*"}}
upstreams:
  triton:
    endpoints: "%s"
    tls: {ca: %s, cert: %s, key: %s, server_name: triton.internal}
    headers: {triton-grpc-protocol-infer: secret}
`, cert, key, tlstest.File(t, dir, "clients.crt", clients.PEM), strings.Join(hashes, `", "`),
			behindTLS(t, triton, ca, ours, "triton.internal"), tlstest.File(t, dir, "ca.crt", ca.PEM), ourCert, ourKey)
	}
	before, after := callers.NewKey(), callers.NewKey()
	text := yaml(before)
	r := gatewayOf(t, text, nil)
	roots := &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
	dial := func(cfg *tls.Config) tritonpb.GRPCInferenceServiceClient {
		conn, err := grpc.NewClient("passthrough:///"+r.address, grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return tritonpb.NewGRPCInferenceServiceClient(conn)
	}
	member := roots.Clone()
	member.Certificates = []tls.Certificate{clients.Issue(t, []string{"spiffe://prod/ns/a/sa/b"}).Pair(t)}
	bare, mesh := dial(roots), dial(member)
	with := func(key string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "x-api-key", key)
	}
	want := func(what string, err error, code codes.Code) {
		t.Helper()
		if status.Code(err) != code {
			t.Errorf("%s: %v", what, err)
		}
	}
	infer := func(c tritonpb.GRPCInferenceServiceClient, ctx context.Context) error {
		_, err := c.ModelInfer(ctx, fraudRequest())
		return err
	}
	want("a certificate", infer(mesh, t.Context()), codes.OK)
	want("no credential", infer(bare, t.Context()), codes.Unauthenticated)
	want("the key", infer(bare, with(before)), codes.OK)
	want("the key to come", infer(bare, with(after)), codes.Unauthenticated)
	reload := func(from, to string) {
		t.Helper()
		text = strings.Replace(text, from, to, 1)
		cfg, err := config.Parse("test.yaml", []byte(text), func(name string) string {
			return map[string]string{"GATEWAY_DATA": "127.0.0.1:0", "GATEWAY_ADMIN": "127.0.0.1:0", "GATEWAY_DRAIN_BEFORE": "0s"}[name]
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.gateway.Reload(cfg); err != nil {
			t.Fatal(err)
		}
	}
	old, fresh := callers.HashKey(before).String(), callers.HashKey(after).String()
	reload(old, old+`", "`+fresh)
	want("the old key beside the new one", infer(bare, with(before)), codes.OK)
	want("the new key", infer(bare, with(after)), codes.OK)
	reload(old+`", "`, "")
	want("the key that was taken back", infer(bare, with(before)), codes.Unauthenticated)
	want("the new key alone", infer(bare, with(after)), codes.OK)

	web := &http.Client{Transport: &http.Transport{TLSClientConfig: member, ForceAttemptHTTP2: true}}
	defer web.CloseIdleConnections()
	answer, err := web.Get("https://" + r.address + "/v2/models/fraud")
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK || answer.Proto != "HTTP/1.1" {
		t.Errorf("HTTP: %s %s", answer.Proto, answer.Status)
	}
}
