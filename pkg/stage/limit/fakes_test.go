package limit

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
)

var errStore = errors.New("the store is broken")

// remote is a store that is far away: it can be slow, fail, or never answer.
type remote struct {
	Store
	latency time.Duration
	broken  atomic.Bool
	silent  atomic.Bool

	draws, leases, waiting, mostWaiting atomic.Int64

	mu   sync.Mutex
	keys map[string]bool
}

func newRemote() *remote {
	return &remote{Store: NewMemory(MemoryOptions{}), keys: make(map[string]bool)}
}

func (r *remote) travel(ctx context.Context, keys ...string) error {
	n := r.waiting.Add(1)
	defer r.waiting.Add(-1)
	for old := r.mostWaiting.Load(); n > old && !r.mostWaiting.CompareAndSwap(old, n); old = r.mostWaiting.Load() {
	}
	r.mu.Lock()
	for _, k := range keys {
		r.keys[k] = true
	}
	r.mu.Unlock()
	if r.broken.Load() {
		return errStore
	}
	var arrives <-chan time.Time
	if !r.silent.Load() {
		if r.latency == 0 {
			return ctx.Err()
		}
		t := time.NewTimer(r.latency)
		defer t.Stop()
		arrives = t.C
	}
	select {
	case <-arrives:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *remote) Draw(ctx context.Context, draws []Draw) (Verdict, error) {
	r.draws.Add(1)
	keys := make([]string, len(draws))
	for i := range draws {
		keys[i] = draws[i].Key
	}
	if err := r.travel(ctx, keys...); err != nil {
		return Verdict{}, err
	}
	return r.Store.Draw(ctx, draws)
}

func (r *remote) Lease(ctx context.Context, key string, rate inference.Rate, want float64) (Leased, error) {
	r.leases.Add(1)
	if err := r.travel(ctx, key); err != nil {
		return Leased{}, err
	}
	return r.Store.Lease(ctx, key, rate, want)
}

// has reports whether the store was ever asked for a bucket.
func (r *remote) has(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keys[key]
}

// rig is a stage and what it counts.
type rig struct {
	*Stage
	metrics *telemetry.Metrics
	next    atomic.Int64 // calls that came through
}

func newRig(t testing.TB, o Options) *rig {
	t.Helper()
	r := &rig{metrics: telemetry.New(telemetry.Build{})}
	o.Metrics = r.metrics
	r.Stage = New(o)
	t.Cleanup(r.Close)
	return r
}

func (r *rig) call(ctx context.Context, c *inference.Call) error {
	return r.Wrap(func(context.Context, *inference.Call) error { r.next.Add(1); return nil })(ctx, c)
}

// admitted makes n calls one after the other and gives how many were let through; other faults than RateLimited fail the test.
func (r *rig) admitted(t testing.TB, n int, c *inference.Call) int {
	t.Helper()
	in := 0
	for range n {
		if err := r.call(t.Context(), c); err == nil {
			in++
		} else if fault.Of(err).Kind != fault.RateLimited {
			t.Fatal(err)
		}
	}
	return in
}

// metric gives the value of a series, such as `gateway_limit_leases`; 0 if there is none.
func (r *rig) metric(t testing.TB, series string) float64 {
	t.Helper()
	w := httptest.NewRecorder()
	r.metrics.Handler(slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	body, _ := io.ReadAll(w.Body)
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (.*)$`).FindSubmatch(body)
	if m == nil {
		return 0
	}
	v, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (r *rig) source(t testing.TB, s telemetry.Source) float64 {
	t.Helper()
	return r.metric(t, `gateway_limit_source_total{source="`+s.String()+`"}`)
}

func perSecond(rate, burst float64) inference.Rate {
	return inference.Rate{PerSecond: rate, Burst: burst}
}

// callTo makes a call of ann through the caller svc to a model with these limits.
func callTo(limits ...*inference.Limit) *inference.Call {
	for _, l := range limits {
		if l.Name == "" {
			l.Name = "per-" + l.Per.String()
		}
	}
	return &inference.Call{
		Model:    &inference.Model{Name: "fraud", Limits: limits},
		Identity: inference.Identity{User: "ann", Caller: &inference.Caller{Name: "svc"}},
	}
}

func by(c *inference.Call, user string) *inference.Call {
	d := *c
	d.User = user
	return &d
}

func wantFault(t testing.TB, err error, kind fault.Kind) *fault.Fault {
	t.Helper()
	f := fault.Of(err)
	if f == nil || f.Kind != kind {
		t.Fatalf("got %v, want %s", err, kind.Reason())
	}
	return f
}

// pass lets time go by.
func pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // inside a synctest bubble it is the clock that moves
