// Package tlstest makes authorities and certificates for tests.
package tlstest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	PEM  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, SerialNumber: serial(t), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	a := &Authority{key: newKey(t)}
	a.PEM, a.cert = create(t, template, template, a.key, a.key)
	return a
}

// Pool has the authority alone in it.
func (a *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// Certificate is a certificate with its key.
type Certificate struct {
	Cert, Key []byte // PEM
}

// Issue makes a certificate for names: URIs, IP addresses and DNS names, good for server and client. It is valid for an
// hour, or as change says.
func (a *Authority) Issue(t testing.TB, names []string, change ...func(*x509.Certificate)) Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: serial(t), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore:   time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
	}
	for _, n := range names {
		if u, err := url.Parse(n); err == nil && u.Scheme != "" && u.Host != "" {
			template.URIs = append(template.URIs, u)
		} else if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	for _, c := range change {
		c(template)
	}
	key := newKey(t)
	cert, _ := create(t, template, a.cert, key, a.key)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return Certificate{Cert: cert, Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})}
}

// Pair is the certificate as crypto/tls has it.
func (c Certificate) Pair(t testing.TB) tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(c.Cert, c.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// Write puts the certificate and its key into dir, each file at once, and gives their paths.
func (c Certificate) Write(t testing.TB, dir string) (cert, key string) {
	t.Helper()
	return File(t, dir, "tls.crt", c.Cert), File(t, dir, "tls.key", c.Key)
}

// File puts a file into dir so that nobody sees half of it, and gives its path.
func File(t testing.TB, dir, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func serial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func create(t testing.TB, template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) ([]byte, *x509.Certificate) {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), cert
}
