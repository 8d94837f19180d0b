package tlsfiles

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"time"
)

// keyPair makes a certificate of PEM. Neither the key nor any part of it gets into an error.
func keyPair(cert, key []byte, certPath, keyPath string) (tls.Certificate, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s and %s are not a certificate and its key, in PEM: %w", certPath, keyPath, err)
	}
	if pair.Leaf == nil { // with x509keypairleaf=0 in GODEBUG
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return tls.Certificate{}, fmt.Errorf("%s: %w", certPath, err)
		}
	}
	return pair, nil
}

// pool makes a pool of the authorities in PEM.
func pool(pem []byte, path string) (*x509.CertPool, error) {
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate of an authority in it, in PEM", path)
	}
	return p, nil
}

// watchExpiry has the log say when the certificate ends, now and while that is near.
func (f *follower) watchExpiry(log *slog.Logger, leaf *x509.Certificate) {
	f.mu.Lock()
	f.leaf, f.log = leaf, log
	f.mu.Unlock()
	log.Info("certificate", "names", leaf.DNSNames, "expires", leaf.NotAfter)
	f.warn(time.Now())
}

// warn says that the certificate has expired or is about to.
func (f *follower) warn(now time.Time) {
	f.mu.Lock()
	leaf, log := f.leaf, f.log
	f.mu.Unlock()
	switch {
	case leaf == nil:
	case now.After(leaf.NotAfter):
		log.Error("the certificate has expired; put a new one in its file", "expired", leaf.NotAfter)
	case now.Add(near(leaf)).After(leaf.NotAfter):
		log.Warn("the certificate expires soon; put a new one in its file", "expires", leaf.NotAfter)
	}
}

// near is how long before its end a certificate is spoken of: a week, or a fifth of its life, when that is less.
func near(leaf *x509.Certificate) time.Duration {
	return min(expiryNear, leaf.NotAfter.Sub(leaf.NotBefore)/5)
}

func (f *follower) remind(ctx context.Context) {
	tick := time.NewTicker(expiryRemind)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			f.warn(now)
		}
	}
}
