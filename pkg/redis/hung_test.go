package redis_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/redis"
)

// hung is an address where connections are taken and nothing is ever said, and what tells of those that have been ended. end
// ends them all, and takes no more.
func hung(t *testing.T) (addr string, ended <-chan struct{}, end func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gave, quit := make(chan struct{}, 100), make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				<-quit
				_ = c.Close()
			}()
			go func() {
				_, _ = io.Copy(io.Discard, c)
				gave <- struct{}{}
			}()
		}
	}()
	return l.Addr().String(), gave, func() {
		_ = l.Close()
		<-done
		close(quit)
	}
}

// Making a connection may take longer than a call waits for it.
func TestNobodyWaitsLongerForAConnectionThanThereIsTime(t *testing.T) {
	addr, ended, end := hung(t)
	c := open(t, redis.Options{Addresses: []string{addr}, Timeout: time.Minute, TLS: &tls.Config{MinVersion: tls.VersionTLS12, ServerName: "redis"}}, nil)
	defer end() // or closing would wait for the handshakes
	for name, ask := range map[string]func(context.Context) error{
		"draw": func(ctx context.Context) error { _, err := redis.NewLimits(c).Draw(ctx, one("m")); return err },
		"sequence": func(ctx context.Context) error {
			_, err := redis.NewSequences(c).Ask(ctx, "k", time.Minute)
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		if err := ask(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v; want that of the caller's context", name, err)
		}
		cancel()
		select {
		case <-ended:
			t.Fatalf("%s waited for a connection until making it ended", name)
		default:
		}
	}
}
