package httpfront

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

func post1(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

const predictBody = `{"model_name":"a"}`

func TestAClientThatHangsUpCancelsItsCall(t *testing.T) { // O-07
	synctest.Test(t, func(t *testing.T) {
		cancelled := make(chan error, 1)
		p := &pipeline{do: func(ctx context.Context, _ *inference.Call) error {
			<-ctx.Done()
			cancelled <- ctx.Err()
			return ctx.Err()
		}}
		l, stop := serving(front(Config{Pipeline: p}))
		defer stop()
		c := l.dial()
		_, _ = c.Write([]byte(post1("/v1/predict", predictBody)))
		synctest.Wait() // the call is in the pipeline now
		select {
		case err := <-cancelled:
			t.Fatalf("cancelled too early: %v", err)
		default:
		}
		_ = c.Close()
		if err := <-cancelled; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestACallMayLastLongerThanItsBodyMayTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipeline{do: func(ctx context.Context, c *inference.Call) error {
			select {
			case <-time.After(time.Hour):
				return c.Send(inference.NewFrame([]byte{}))
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		l, stop := serving(front(Config{Pipeline: p}))
		defer stop()
		c := l.dial()
		defer c.Close()
		_, _ = c.Write([]byte(post1("/v1/predict", predictBody)))
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || r.StatusCode != 200 {
			t.Fatalf("%v, %v", r, err)
		}
	})
}

func TestAConnectionServesManyRequestsFarApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := serving(front(Config{AnswerTimeout: time.Second, IdleTimeout: time.Hour, Pipeline: &pipeline{do: echo}}))
		defer stop()
		c := l.dial()
		defer c.Close()
		in := bufio.NewReader(c)
		for range 3 {
			_, _ = c.Write([]byte(post1("/v2/models/m/infer", tensor("FP32", "[1]", "[1]"))))
			r, err := http.ReadResponse(in, nil)
			if err != nil || r.StatusCode != 200 {
				t.Fatalf("%v, %v", r, err)
			}
			readAllOf(r.Body)
			<-time.After(time.Minute) // of the bubble's clock: the last answer's deadline is over
		}
	})
}

func TestSlowHeadersEndTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := serving(front(Config{HeaderTimeout: 10 * time.Second}))
		defer stop()
		c := l.dial()
		defer c.Close()
		start := time.Now()
		go func() {
			for _, b := range []byte("GET /readyz HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("a", 100)) {
				<-time.After(time.Second) // of the bubble's clock
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
			}
		}()
		if got := readAllOf(c); strings.Contains(got, "200") {
			t.Error(got)
		}
		if took := time.Since(start); took > 11*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestASlowBodyIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := serving(front(Config{BodyTimeout: 5 * time.Second}))
		defer stop()
		c := l.dial()
		defer c.Close()
		go func() {
			_, _ = c.Write([]byte("POST /v1/predict HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n{"))
		}()
		start := time.Now()
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := readAllOf(r.Body); r.StatusCode != 400 || !strings.Contains(got, "did not arrive within 5s") || time.Since(start) > 6*time.Second {
			t.Errorf("%d %s after %v", r.StatusCode, got, time.Since(start))
		}
	})
}

func TestASlowBodyThatNobodyWantsEndsTheConnection(t *testing.T) {
	for _, head := range []string{"GET /nothing", "GET /v1/predict", "POST /v2/models/m/generate"} {
		synctest.Test(t, func(t *testing.T) {
			l, stop := serving(front(Config{BodyTimeout: 5 * time.Second}))
			defer stop()
			c := l.dial()
			defer c.Close()
			start := time.Now()
			go func() { _, _ = c.Write([]byte(head + " HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n{")) }()
			if got := readAllOf(c); !strings.HasPrefix(got, "HTTP/1.1 ") || time.Since(start) > 6*time.Second {
				t.Errorf("%s: %q after %v", head, got, time.Since(start))
			}
		})
	}
}

func TestAClientThatTakesNoAnswerIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan time.Time, 1)
		p := &pipeline{do: func(ctx context.Context, c *inference.Call) error {
			context.AfterFunc(ctx, func() { ended <- time.Now() })
			return echo(ctx, c)
		}}
		l, stop := serving(front(Config{Pipeline: p, AnswerTimeout: 30 * time.Second}))
		defer stop()
		c := l.dial()
		defer c.Close()
		start := time.Now()
		_, _ = c.Write([]byte(post1("/v2/models/m/infer", tensor("FP32", "[1]", "[1]"))))
		if took := (<-ended).Sub(start); took > 31*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestHugeHeadersAre431(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := serving(front(Config{}))
		defer stop()
		for size, want := range map[int]int{11 << 10: 200, 17 << 10: 431} {
			c := l.dial()
			go func() {
				_, _ = fmt.Fprintf(c, "GET /readyz HTTP/1.1\r\nHost: h\r\nX: %s\r\n\r\n", strings.Repeat("a", size))
			}()
			r, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || r.StatusCode != want {
				t.Errorf("%d bytes: %v, %v; want %d", size, r, err, want)
			}
			_ = c.Close()
		}
	})
}

func TestShutdownLetsCallsFinish(t *testing.T) { // O-30
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := &pipeline{do: func(_ context.Context, c *inference.Call) error {
			<-release
			return c.Send(inference.NewFrame([]byte{}))
		}}
		f := front(Config{Pipeline: p})
		l := newPipes()
		served := make(chan error, 1)
		go func() { served <- f.Serve(l) }()
		c := l.dial()
		defer c.Close()
		_, _ = c.Write([]byte(post1("/v1/predict", predictBody)))
		synctest.Wait()
		down := make(chan error, 1)
		go func() { down <- f.Shutdown(t.Context()) }()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		close(release)
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || r.StatusCode != 200 || !r.Close {
			t.Errorf("%v, %v; want the answer, and the end of the connection", r, err)
		}
		if err := <-down; err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
}

func TestShutdownCutsWhatDoesNotFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipeline{do: func(ctx context.Context, _ *inference.Call) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		f := front(Config{Pipeline: p})
		l := newPipes()
		served := make(chan error, 1)
		go func() { served <- f.Serve(l) }()
		c := l.dial()
		defer c.Close()
		_, _ = c.Write([]byte(post1("/v1/predict", predictBody)))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := f.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if got := readAllOf(c); strings.Contains(got, "200 OK") {
			t.Error(got)
		}
	})
}

func TestHeadHasNoBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := serving(front(Config{}))
		defer stop()
		c := l.dial()
		defer c.Close()
		_, _ = c.Write([]byte("HEAD /readyz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"))
		got := readAllOf(c)
		if !strings.HasPrefix(got, "HTTP/1.1 200") || !strings.HasSuffix(got, "\r\n\r\n") {
			t.Error(got)
		}
	})
}
