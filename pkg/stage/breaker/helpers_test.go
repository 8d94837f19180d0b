package breaker

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// usual is the breaker of a file that says nothing.
var usual = inference.Breaker{
	Window: 10 * time.Second, MinCalls: 20, Failures: .5, Slow: .6,
	Open: 5 * time.Second, OpenMax: 300 * time.Second, Probes: 5,
}

// pool has endpoints in the state that it is told; a new one has some that are ready.
type pool struct {
	state atomic.Uint32
	picks atomic.Int64
}

func (p *pool) set(r inference.Readiness)      { p.state.Store(uint32(r)) }
func (p *pool) Readiness() inference.Readiness { return inference.Readiness(p.state.Load()) }
func (p *pool) Ready() bool                    { return p.Readiness() == inference.Ready }
func (p *pool) Pick(*inference.Call, []inference.Endpoint) (inference.Endpoint, error) {
	p.picks.Add(1)
	if p.Readiness() == inference.NotReady {
		return nil, fault.New(fault.ModelNotReady, "not ready")
	}
	return nil, nil
}

func target(name string) (*inference.Target, *pool) {
	p := &pool{}
	p.set(inference.Ready)
	return &inference.Target{Name: name, Model: "fraud", Version: "1", Upstream: "triton", Asked: "fraud", Pool: p}, p
}

// record is a Recorder that keeps what it is told.
type record struct {
	mu      sync.Mutex
	changes []string
	refused map[Reason]int
}

func (r *record) BreakerChanged(t *inference.Target, to State, why Reason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, t.Name+" "+to.String()+" "+string(why))
}

func (r *record) BreakerRefused(_ *inference.Target, why Reason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refused == nil {
		r.refused = make(map[Reason]int)
	}
	r.refused[why]++
}

func (r *record) said() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.changes...)
}

func stageOf(policy inference.Breaker) (*Stage, *record) {
	r := &record{}
	return New(Options{Policy: func(string) inference.Breaker { return policy }, Recorder: r}), r
}

// outcome is how a call ends: after some time upstream.
type outcome struct {
	err   error
	took  time.Duration
	after func(*inference.Call)
}

// do makes one call that ends so; sent tells whether it got to the target.
func do(s *Stage, t *inference.Target, o outcome) (sent bool, err error) {
	h := s.Wrap(func(_ context.Context, c *inference.Call) error {
		sent = true
		c.UpstreamIn += o.took
		if o.after != nil {
			o.after(c)
		}
		return o.err
	})
	err = h(context.Background(), &inference.Call{Target: t})
	return sent, err
}

func times(t *testing.T, s *Stage, to *inference.Target, n int, o outcome) {
	t.Helper()
	for range n {
		if sent, err := do(s, to, o); !sent {
			t.Fatalf("refused: %v", err)
		}
	}
}

func failing(k fault.Kind) outcome { return outcome{err: fault.New(k, "x")} }

var (
	fine   = outcome{}
	broken = failing(fault.UpstreamUnavailable)
)

// pass lets time pass.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the bubble's clock
}

func state(s *Stage, t *inference.Target) State { return s.Explain(t).State }

func wantState(t *testing.T, s *Stage, of *inference.Target, want State) {
	t.Helper()
	if got := s.Explain(of); got.State != want {
		t.Fatalf("%s is %s (%s), want %s", of.Name, got.State, got.Why, want)
	}
}

// toHalfOpen opens a breaker and waits until it lets probes through.
func toHalfOpen(t *testing.T, s *Stage, to *inference.Target) {
	t.Helper()
	times(t, s, to, usual.MinCalls, broken)
	wantState(t, s, to, Open)
	pass(usual.Open + time.Millisecond)
	wantState(t, s, to, HalfOpen)
}

func refusedBy(err error) fault.Kind { return fault.Of(err).Kind }
