package redis_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/internal/redistest"
	"github.com/model-gateway/model-gateway/pkg/redis"
)

func TestWrongOptionsAreRefusedWithWhatToDo(t *testing.T) {
	for want, o := range map[string]redis.Options{
		"name one":                     {},
		"sentinel or cluster":          {Addresses: []string{"a:1", "b:1"}},
		"set master":                   {Mode: redis.Sentinel, Addresses: []string{"a:1"}},
		"leave them out":               {Addresses: []string{"a:1"}, Prefix: "a{b}"},
		"it is more than 0":            {Addresses: []string{"a:1"}, Timeout: -1},
		"0 for the default, or more":   {Addresses: []string{"a:1"}, Connections: -1},
		"redis: no address; name one,": {Mode: redis.Cluster},
	} {
		c, err := redis.Open(o, nil)
		if err == nil {
			_ = c.Close()
			t.Errorf("%+v was taken", o)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

func TestACorrectedPasswordNeedsNoRestart(t *testing.T) {
	s := redistest.Start(t)
	s.Do("ACL", "SETUSER", "gateway", "on", ">secret", "resetkeys", "~mine:*", "resetchannels", "-@all",
		"+evalsha", "+eval", "+time", "+mget", "+set", "+zadd", "+zrem", "+zremrangebyscore", "+zcard", "+pexpire")
	s.Do("ACL", "SETUSER", "default", "off")
	var password atomic.Pointer[string]
	set := func(p string) { password.Store(&p) }
	set("wrong")
	w := watching()
	c := open(t, redis.Options{
		Addresses: []string{s.Addr}, Prefix: "mine",
		Credentials: func() (string, string) { return "gateway", *password.Load() },
	}, w)
	w.wait(t, false)
	set("secret")
	w.wait(t, true)
	limits := redis.NewLimits(c)
	if v, err := limits.Draw(context.Background(), one("m")); err != nil || !v.OK {
		t.Errorf("%+v, %v", v, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	peers := redis.NewPeers(c, "a", 5)
	var running sync.WaitGroup
	running.Go(func() { peers.Run(ctx) })
	redistest.Eventually(t, func() error {
		if w.count("heartbeat ok") == 0 {
			return context.DeadlineExceeded
		}
		return nil
	})
	cancel()
	running.Wait()
	if n := w.count("heartbeat error"); n > 0 {
		t.Errorf("%d heartbeats need more rights than are documented", n)
	}
}

func TestRedisBehindTLSIsTalkedToInTLS(t *testing.T) {
	s := redistest.Start(t)
	certificate, pool := selfSigned(t)
	front, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	t.Cleanup(func() { _ = front.Close() })
	all.Go(func() { forward(front, s.Addr, &all) })

	limits := redis.NewLimits(open(t, redis.Options{Addresses: []string{front.Addr().String()}, TLS: &tls.Config{RootCAs: pool}}, nil))
	if v, err := limits.Draw(context.Background(), one("m")); err != nil || !v.OK {
		t.Errorf("%+v, %v", v, err)
	}
	distrusting := redis.NewLimits(open(t, redis.Options{Addresses: []string{front.Addr().String()}, TLS: &tls.Config{RootCAs: x509.NewCertPool()}}, nil))
	if _, err := distrusting.Draw(context.Background(), one("m")); err == nil {
		t.Error("a certificate of nobody known was believed")
	}
}

// forward takes connections until front is closed.
func forward(front net.Listener, to string, all *sync.WaitGroup) {
	for {
		in, err := front.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", to)
		if err != nil {
			_ = in.Close()
			continue
		}
		for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
			all.Go(func() {
				_, _ = io.Copy(pair[0], pair[1])
				_, _ = pair[0].Close(), pair[1].Close()
			})
		}
	}
}

func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}
