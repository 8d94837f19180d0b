package callers

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// presents is a call over a connection with a client certificate.
func presents(verified bool, names ...string) *inference.Call {
	leaf := &x509.Certificate{Subject: pkix.Name{CommonName: "spiffe://prod/ns/a/sa/b"}}
	for _, n := range names {
		if strings.Contains(n, "://") {
			u, err := url.Parse(n)
			if err != nil {
				panic(err)
			}
			leaf.URIs = append(leaf.URIs, u)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, n)
		}
	}
	state := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
	if verified {
		state.VerifiedChains = [][]*x509.Certificate{{leaf}}
	}
	return &inference.Call{TLS: state}
}

func TestAVerifiedCertificateIsTheFirstCallersThatItsNamesFit(t *testing.T) {
	c := with(t,
		Entry{Name: "mesh", SANs: []string{"spiffe://prod/ns/*/sa/*"}},
		Entry{Name: "batch", SANs: []string{"*.batch.internal", "spiffe://prod/ns/z/sa/z"}},
	)
	wantCaller(t, c, presents(true, "spiffe://prod/ns/web/sa/front"), "mesh", "")
	wantCaller(t, c, presents(true, "other.example", "A.Batch.internal"), "batch", "")
	wantCaller(t, c, presents(true, "spiffe://prod/ns/z/sa/z"), "mesh", "")
	for _, names := range [][]string{
		nil, // the common name is not asked
		{"spiffe://prod/ns/web/sa/front/more"},
		{"spiffe://prod/ns//sa/front"},
		{"spiffe://test/ns/web/sa/front"},
		{"xspiffe://prod/ns/web/sa/front"},
		{"a.b.batch.internal"},
		{".batch.internal"},
		{"a.batch.internal.evil.example"},
		{"https://a.batch.internal"},
	} {
		wantRefused(t, c, presents(true, names...), fault.AuthInvalid, "none of its names is declared")
	}
}

func TestACertificateThatWasNotVerifiedIsNobodys(t *testing.T) {
	c := with(t, Entry{Name: "mesh", SANs: []string{"spiffe://prod/*"}})
	wantRefused(t, c, presents(false, "spiffe://prod/a"), fault.AuthInvalid, "client_ca")
	wantRefused(t, c, &inference.Call{TLS: &tls.ConnectionState{}}, fault.AuthMissing, "a client certificate over TLS")
}

func TestAKeyGoesBeforeTheCertificateAlsoWhenItIsWrong(t *testing.T) {
	c := with(t, Entry{Name: "mesh", SANs: []string{"spiffe://prod/*"}}, Entry{Name: "svc", Keys: []Hash{HashKey("k")}})
	call := presents(true, "spiffe://prod/a")
	call.Incoming = map[string][]string{"x-api-key": {"k"}}
	wantCaller(t, c, call, "svc", "")
	call.Incoming["x-api-key"] = []string{"wrong"}
	wantRefused(t, c, call, fault.AuthInvalid, "not one of any caller")
	delete(call.Incoming, "x-api-key")
	wantCaller(t, c, call, "mesh", "")
}

func FuzzGlobs(f *testing.F) {
	f.Add("spiffe://prod/ns/*/sa/*", "spiffe://prod/ns/a/sa/b")
	f.Add("*a*a", "aaaa")
	f.Add("**", "ab")
	f.Add("a*b*c/d*", "axbxbxc/dd")
	f.Fuzz(func(t *testing.T, glob, text string) {
		if len(glob) > 20 || len(text) > 40 {
			return
		}
		for _, r := range glob + text {
			if r >= 0x80 || r == '\n' {
				return // the regular expression counts letters, and we bytes
			}
		}
		re := regexp.MustCompile(`^` + strings.ReplaceAll(regexp.QuoteMeta(glob), `\*`, `[^/]+`) + `$`)
		if want := re.MatchString(text); matches(glob, text, "/") != want {
			t.Errorf("%q and %q: want %t", glob, text, want)
		}
	})
}

func BenchmarkAuthenticateCertificate(b *testing.B) {
	c := with(b, Entry{Name: "mesh", SANs: []string{"spiffe://prod/ns/*/sa/*"}})
	call := presents(true, "spiffe://prod/ns/web/sa/front")
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := c.Authenticate(b.Context(), call); err != nil {
			b.Fatal(err)
		}
	}
}
