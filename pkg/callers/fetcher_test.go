package callers

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// fetcher is an issuer without a network, for tests whose clock is their own.
type fetcher struct {
	mu    sync.Mutex
	body  []byte // nil: nobody answers
	delay time.Duration
	reads int
}

func (f *fetcher) client() *http.Client { return &http.Client{Transport: f} }

func (f *fetcher) set(body []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.body = body
}

func (f *fetcher) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads
}

func (f *fetcher) RoundTrip(r *http.Request) (*http.Response, error) {
	pass(f.delay)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if f.body == nil {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(f.body)), Request: r}, nil
}

// pass lets time pass, which in a bubble takes none.
func pass(d time.Duration) { <-time.After(d) }
