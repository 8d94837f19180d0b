package config

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// listenTLS compiles the section `listen.tls`; nil when there is none.
func (c *compiler) listenTLS(f *ListenTLSFile) *ListenTLS {
	if f == nil || c.mistaken("listen.tls") {
		return nil
	}
	t := &ListenTLS{}
	t.Cert, t.Key = c.pairNames("listen.tls", f.Cert, f.Key)
	if c.has("listen.tls.client_ca") {
		t.ClientCA = c.fileName("listen.tls.client_ca", f.ClientCA)
	}
	// A running gateway has loaded the files, and their own watchers tell of trouble: it is no reason to refuse the rest
	// of a reload, which may take a key away.
	loaded := c.before != nil && reflect.DeepEqual(c.before.Listen.TLS, t)
	c.pair("listen.tls", t.Cert, t.Key, loaded)
	c.authorities("listen.tls.client_ca", t.ClientCA, loaded)
	return t
}

// clientTLS compiles a section `tls` toward an upstream or Redis; nil when there is none. before is what it was.
func (c *compiler) clientTLS(path string, f *ClientTLSFile, before *ClientTLS) *ClientTLS {
	if f == nil || c.mistaken(path) {
		return nil
	}
	t := &ClientTLS{CA: cmp.Or(f.CA, CASystem), ServerName: f.ServerName}
	if t.CA != CASystem {
		t.CA = c.fileName(path+".ca", f.CA)
	}
	if c.has(path+".cert") || c.has(path+".key") {
		t.Cert, t.Key = c.pairNames(path, f.Cert, f.Key)
	}
	if c.has(path+".server_name") && !validHost(f.ServerName) {
		c.check(path+".server_name", fmt.Errorf("%q is no host name", clip(f.ServerName)))
	}
	loaded := before != nil && *before == *t
	if t.CA != CASystem {
		c.authorities(path+".ca", t.CA, loaded)
	}
	c.pair(path, t.Cert, t.Key, loaded)
	return t
}

// fileName gives the path of the file that a field names, "" with a mistake.
func (c *compiler) fileName(path, name string) string {
	if c.mistaken(path) {
		return ""
	}
	if err := checkPath(name); err != nil {
		c.wrong(path, "%s", err)
		return ""
	}
	return c.resolve(name)
}

// pairNames gives the files of a certificate and its key, of which each needs the other.
func (c *compiler) pairNames(path, cert, key string) (certFile, keyFile string) {
	for _, f := range []struct {
		field, name, what string
		to                *string
	}{
		{path + ".cert", cert, "certificate chain, PEM", &certFile}, {path + ".key", key, "private key, PEM", &keyFile},
	} {
		if !c.has(f.field) {
			c.check(f.field, fmt.Errorf("must be given: the file of the %s", f.what))
			continue
		}
		*f.to = c.fileName(f.field, f.name)
	}
	return certFile, keyFile
}

// trouble tells of a file that cannot be used: a mistake, unless it is loaded and in use already.
func (c *compiler) trouble(path string, loaded bool, format string, args ...any) {
	if text := fmt.Sprintf(format, args...); loaded {
		c.note("%s: %s; what was loaded before stays in use", path, text)
	} else {
		c.check(path, errors.New(text))
	}
}

// pair checks a certificate and its key, as far as their names are given.
func (c *compiler) pair(path, certFile, keyFile string, loaded bool) {
	cert, certOK := c.pem(path+".cert", certFile, loaded)
	key, keyOK := c.pem(path+".key", keyFile, loaded)
	if !certOK || !keyOK {
		return
	}
	both, err := tls.X509KeyPair(cert, key)
	if err != nil {
		c.trouble(path+".cert", loaded, "%s and %s are no certificate and its key: %s", clip(certFile), clip(keyFile), strings.TrimPrefix(err.Error(), "tls: "))
		return
	}
	if leaf := both.Leaf; leaf != nil && time.Now().After(leaf.NotAfter) {
		c.note("%s.cert: the certificate in %s ended on %s; clients will refuse it", path, clip(certFile), leaf.NotAfter.UTC().Format(time.DateOnly))
	}
}

// authorities checks a file of certificates, if its name is given.
func (c *compiler) authorities(path, name string, loaded bool) {
	if text, ok := c.pem(path, name, loaded); ok && !x509.NewCertPool().AppendCertsFromPEM(text) {
		c.trouble(path, loaded, "%s has no certificate in it; it must be PEM, with CERTIFICATE blocks", clip(name))
	}
}

// pem reads a file that must hold PEM; it is not there where its name is not given.
func (c *compiler) pem(path, name string, loaded bool) ([]byte, bool) {
	if name == "" {
		return nil, false
	}
	text, err := readFile(name)
	if err != nil {
		c.trouble(path, loaded, "%s; mount the file there, and let the gateway's user read it", cannotRead(name, err))
		return nil, false
	}
	if block, _ := pem.Decode(text); block == nil || len(text) > MaxFile {
		c.trouble(path, loaded, "%s is no PEM file: it has no -----BEGIN line with its end", clip(name))
		return nil, false
	}
	return text, true
}

// headers compiles the section `headers` of an upstream; nil when there is none.
func (c *compiler) headers(path string, file map[string]SecretFile) map[string]string {
	if len(file) == 0 {
		return nil
	}
	if len(file) > maxHeaders {
		c.check(path, fmt.Errorf("has %d entries; at most %d", len(file), maxHeaders))
		return nil
	}
	all := make(map[string]string, len(file))
	for _, name := range c.order[path] {
		at, f := join(path, name), file[name]
		if err := checkCredentialName(name); err != nil && !c.mistaken(at) {
			c.bad(c.at(at).key, at, "%s", err)
			continue
		}
		value, from := f.Value, at
		switch {
		case c.mistaken(at):
			continue
		case c.has(at + ".from_file"):
			from = at + ".from_file"
			var ok bool
			if value, ok = c.secret(from, f.FromFile); !ok {
				continue
			}
		case value == "":
			c.check(at, errors.New("must be a text, or {from_file: FILE}"))
			continue
		default:
			c.hide(value)
		}
		if len(value) > maxHeaderValue || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			c.check(from, fmt.Errorf("the value must be printable ASCII in one line, of at most %d bytes", maxHeaderValue))
		}
		all[name] = value
	}
	return all
}

// credentials are names that clients and models may not set toward an upstream, and whoever configures it may.
var credentials = set("authorization", "x-api-key", "proxy-authorization", "cookie")

func checkCredentialName(name string) error {
	if credentials[name] || strings.HasPrefix(name, "triton-grpc-protocol-") && checkHeaderName("x-"+name) == nil {
		return nil
	}
	if lower := strings.ToLower(name); lower != name && checkCredentialName(lower) == nil {
		return fmt.Errorf("must be in lower case: %s", lower)
	}
	return checkHeaderName(name)
}

// headersOnce refuses a header that a model sets and its upstream has already.
func (c *compiler) headersOnce(path string, m *Model) {
	names := []string{m.Upstream}
	for _, t := range m.Targets {
		names = append(names, t.Upstream)
	}
	for _, u := range c.cfg.Upstreams {
		if !slices.Contains(names, u.Name) {
			continue
		}
		for name := range u.Headers {
			if _, twice := m.SetHeaders[name]; twice {
				c.check(join(path, name), fmt.Errorf("is in %s.headers already; remove one of the two", join("upstreams", u.Name)))
			}
		}
	}
}
