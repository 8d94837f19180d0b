package breaker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// under is a call that is under way.
type under struct {
	end  chan outcome
	gone chan struct{}
}

// world plays events against one target, and knows what must hold whatever they are.
type world struct {
	t     *testing.T
	s     *Stage
	to    *inference.Target
	pool  *pool
	calls []under
}

// begin starts a call; it reports whether it got to the target.
func (w *world) begin(stream bool) bool {
	u := under{end: make(chan outcome, 1), gone: make(chan struct{})}
	sent := false
	h := w.s.Wrap(func(_ context.Context, c *inference.Call) error {
		sent = true
		o := <-u.end
		c.UpstreamIn += o.took
		if o.after != nil {
			o.after(c)
		}
		return o.err
	})
	go func() {
		defer close(u.gone)
		defer func() { _ = recover() }()
		c := &inference.Call{Target: w.to}
		if stream {
			c.Sink = func(inference.Frame) error { return nil }
		}
		_ = h(context.Background(), c)
	}()
	synctest.Wait()
	if sent {
		w.calls = append(w.calls, u)
	}
	return sent
}

// finish ends the call at i.
func (w *world) finish(i int, o outcome) {
	if len(w.calls) == 0 {
		return
	}
	i %= len(w.calls)
	w.calls[i].end <- o
	<-w.calls[i].gone
	w.calls = append(w.calls[:i], w.calls[i+1:]...)
}

func (w *world) finishAll(o outcome) {
	for len(w.calls) > 0 {
		w.finish(0, o)
	}
}

// holds checks what must hold at any time.
func (w *world) holds() {
	w.t.Helper()
	r := w.s.Explain(w.to)
	if r.State == Open && r.Force == nil && w.pool.Readiness() != inference.NotReady {
		if r.Until != nil && time.Until(*r.Until) > usual.OpenMax {
			w.t.Fatalf("it stays open until %s", r.Until)
		}
	}
	if w.pool.Readiness() == inference.NotReady && r.State != Open && r.Force == nil {
		w.t.Fatalf("%s without an endpoint", r.State)
	}
}

var endings = []outcome{
	fine, broken, failing(fault.Cancelled), failing(fault.UpstreamTimeout),
	{took: time.Minute},
	{after: func(*inference.Call) { panic("x") }},
	{after: func(c *inference.Call) { _ = c.Send(inference.Frame{}) }},
	{after: func(c *inference.Call) {
		c.InBand = fault.New(fault.UpstreamFailed, "x")
		_ = c.Send(inference.Frame{})
	}},
	failing(fault.UpstreamQueue), failing(fault.ModelNotReady),
}

func FuzzPlacesOfProbesAreNeverLostWhateverHappens(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 30, 31, 3, 90, 0, 0, 0, 0, 0, 0})
	f.Add([]byte("\x00\x0b\x00\x0b\x00\x0b\x00\x0b\x00\x0b\x00\x0b\x00\x0b\x00\x0b\x00\x0b\x00\x0b\x00\x0b\x00\x0b\x00\x0b\x00\x0b\x00\x0b\x00\x0b\x00\x0b\x00\x0b\x00\x0b\x00\x0b\x02\xf0\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, events []byte) {
		if len(events) <= 400 {
			play(t, events)
		}
	})
}

// play lets events happen, and at the end everything be well again.
func play(t *testing.T, events []byte) {
	synctest.Test(t, func(t *testing.T) {
		policy := usual
		policy.SlowAfter = time.Second
		s, _ := stageOf(policy)
		to, p := target("model_v1")
		w := &world{t: t, s: s, to: to, pool: p}
		defer w.finishAll(fine)
		for _, e := range events {
			arg := int(e) / 8
			switch e % 8 {
			case 0, 1:
				w.begin(e%2 == 1)
			case 2, 3:
				w.finish(arg, endings[arg%len(endings)])
			case 4:
				pass(time.Duration(arg*arg) * 50 * time.Millisecond)
			case 5:
				p.set(inference.Readiness(arg % 3))
			case 6:
				_, _ = s.Force(t.Context(), "fraud", "model_v1", []State{Auto, Auto, Open, Closed}[arg%4], "x")
			case 7:
				policy.Probes = 1 + arg%5
				s.opts.Policy = func(string) inference.Breaker { return policy }
				s.Reload()
			}
			w.holds()
		}
		// Once everything is well again, it closes: no place is lost. And until it does no more than the probes get through.
		p.set(inference.Ready)
		_, _ = s.Force(t.Context(), "fraud", "model_v1", Auto, "x")
		w.finishAll(failing(fault.Cancelled))
		pass(policy.OpenMax + time.Second)
		if state(s, to) == Closed {
			return
		}
		if w.begin(false) { // it finds out that an endpoint is back
			w.finishAll(failing(fault.Cancelled))
		}
		pass(2)
		through := 0
		for range 20 {
			if w.begin(false) {
				through++
			}
		}
		if through == 0 || through > 5 {
			t.Fatalf("%d probes got through at once", through)
		}
		w.finishAll(fine)
		for range 5 {
			if w.begin(false) {
				w.finishAll(fine)
			}
		}
		wantState(t, s, to, Closed)
	})
}
