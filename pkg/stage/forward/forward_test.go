package forward

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/stats"
)

// endpoint answers with what its errors say, one by one; then well.
type endpoint struct {
	name   string
	errs   []error
	asked  int
	answer bool // it has sent an answer before it fails
}

func (e *endpoint) Name() string { return e.name }

func (e *endpoint) Infer(_ context.Context, c *inference.Call) error {
	e.asked++
	if e.answer {
		_ = c.Send(inference.Frame{})
	}
	if len(e.errs) == 0 {
		return nil
	}
	err := e.errs[0]
	e.errs = e.errs[1:]
	return err
}

// pool gives its endpoints in order.
type pool struct{ endpoints []*endpoint }

func (p *pool) Ready() bool { return true }

func (p *pool) Pick(_ *inference.Call, not []inference.Endpoint) (inference.Endpoint, error) {
	for _, e := range p.endpoints {
		if !slices.Contains(not, inference.Endpoint(e)) {
			return e, nil
		}
	}
	return nil, fault.New(fault.NoEndpoint, "no other endpoint")
}

type records struct {
	outcomes []stats.Outcome
	retried  int
	refused  int
}

func (r *records) Attempt(_ *inference.Call, _ *inference.Target, _ string, o stats.Outcome, _ time.Duration) {
	r.outcomes = append(r.outcomes, o)
}
func (r *records) Retried(*inference.Target, fault.Kind)      { r.retried++ }
func (r *records) RetryRefused(*inference.Target, fault.Kind) { r.refused++ }

func callTo(p *pool) *inference.Call {
	return &inference.Call{
		Model:  &inference.Model{Retry: inference.Retry{Attempts: 2, Budget: .2}},
		Target: &inference.Target{Pool: p},
	}
}

func failing(name string, kinds ...fault.Kind) *endpoint {
	e := &endpoint{name: name}
	for _, k := range kinds {
		e.errs = append(e.errs, fault.New(k, "it failed"))
	}
	return e
}

// unreached fails as an endpoint does that nobody could connect to.
func unreached() error {
	f := fault.New(fault.UpstreamUnavailable, "nobody is there")
	f.Unsent = true
	return f
}

func TestACallThatOneEndpointLosesIsAnsweredByAnother(t *testing.T) {
	for _, kind := range []fault.Kind{fault.EndpointLost, fault.UpstreamUnavailable, fault.ModelNotReady, fault.Draining, fault.UpstreamQueue} {
		synctest.Test(t, func(t *testing.T) {
			r := &records{}
			s := &Stage{Attempts: r, Retries: r}
			first, second := failing("a", kind), failing("b")
			c := callTo(&pool{[]*endpoint{first, second}})
			begin := time.Now()
			if err := s.Handle(t.Context(), c); err != nil {
				t.Fatal(kind.Reason(), err)
			}
			if waited := time.Since(begin); waited < minWait || waited > maxWait {
				t.Errorf("%s: tried again after %s", kind.Reason(), waited)
			}
			if c.Endpoint != "b" || c.Attempts != 2 || r.retried != 1 || len(r.outcomes) != 2 || r.outcomes[1] != stats.OK {
				t.Errorf("%s: answered by %s after %d attempts, recorded %+v", kind.Reason(), c.Endpoint, c.Attempts, r)
			}
		})
	}
}

func TestTimeThatAnAnswerWaitsForTheClientIsNotTheTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Stage{Attempts: &records{}, Retries: &records{}}
		e := failing("a")
		e.answer = true
		c := callTo(&pool{[]*endpoint{e}})
		c.Sink = func(inference.Frame) error {
			<-time.After(time.Second)
			return nil
		}
		if err := s.Handle(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if c.UpstreamIn != 0 || c.SendIn != time.Second {
			t.Errorf("%v upstream, %v handing over", c.UpstreamIn, c.SendIn)
		}
	})
}

func TestWhatAnotherEndpointCannotMendIsNotTriedAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		first  *endpoint
		change func(*inference.Call)
	}{
		"the model failed":       {first: failing("a", fault.UpstreamFailed)},
		"the client's mistake":   {first: failing("a", fault.InvalidArgument)},
		"a timeout":              {first: failing("a", fault.UpstreamTimeout)},
		"a step of a sequence":   {first: failing("a", fault.EndpointLost), change: func(c *inference.Call) { c.Head.Sequence.ID = "7" }},
		"after the first answer": {first: &endpoint{name: "a", errs: []error{fault.New(fault.EndpointLost, "gone")}, answer: true}},
		"no retries":             {first: failing("a", fault.EndpointLost), change: func(c *inference.Call) { c.Model.Retry.Attempts = 1 }},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &Stage{Attempts: &records{}}
			second := failing("b")
			c := callTo(&pool{[]*endpoint{tt.first, second}})
			if tt.change != nil {
				tt.change(c)
			}
			if err := s.Handle(t.Context(), c); err == nil || second.asked != 0 {
				t.Errorf("%s: error %v, the other endpoint was asked %d times", name, err, second.asked)
			}
		})
	}
}

func TestTheLastFailureIsTheCallsWhenNoOtherEndpointIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Stage{Attempts: &records{}}
		begin := time.Now()
		err := s.Handle(t.Context(), callTo(&pool{[]*endpoint{failing("a", fault.Draining)}}))
		if fault.Of(err).Kind != fault.Draining || time.Since(begin) != 0 {
			t.Errorf("got %v after %s; with nowhere to go nothing is waited for", err, time.Since(begin))
		}
		both := &pool{[]*endpoint{failing("a", fault.Draining), failing("b", fault.ModelNotReady)}}
		if err := s.Handle(t.Context(), callTo(both)); fault.Of(err).Kind != fault.ModelNotReady {
			t.Errorf("got %v", err)
		}
	})
}

func TestAnUpstreamThatFailsIsAskedAFifthMoreAndNotTwice(t *testing.T) {
	// The last one is a server that says so itself, or a proxy before it: it was asked.
	for _, kind := range []fault.Kind{fault.UpstreamQueue, fault.ModelNotReady, fault.UpstreamUnavailable} {
		synctest.Test(t, func(t *testing.T) {
			r := &records{}
			s := &Stage{Attempts: r, Retries: r}
			p := &pool{[]*endpoint{{name: "a"}, {name: "b"}}}
			const calls = 2000
			begin := time.Now()
			for range calls {
				p.endpoints[0].errs = []error{fault.New(kind, "not now")}
				p.endpoints[1].errs = []error{fault.New(kind, "not now")}
				_ = s.Handle(t.Context(), callTo(p))
			}
			// Each further attempt takes a moment, and some a second are there beside the fifth.
			most := calls/5 + perSecond*int(1+time.Since(begin)/time.Second)
			if r.retried < calls/5 || r.retried > most || r.retried+r.refused != calls {
				t.Errorf("%s: %d of %d calls were tried again, at most %d may; %d were not", kind.Reason(), r.retried, calls, most, r.refused)
			}
		})
	}
}

func TestCallsOfALostEndpointAreAllTriedAgain(t *testing.T) {
	for name, err := range map[string]error{"lost": fault.New(fault.EndpointLost, "gone"), "unreached": unreached()} {
		synctest.Test(t, func(t *testing.T) {
			r := &records{}
			s := &Stage{Attempts: r, Retries: r}
			for range 500 {
				if err := s.Handle(t.Context(), callTo(&pool{[]*endpoint{{name: "a", errs: []error{err}}, {name: "b"}}})); err != nil {
					t.Fatal(err)
				}
			}
			if r.retried != 500 {
				t.Errorf("%s: %d of 500", name, r.retried)
			}
		})
	}
}

func TestACallIsOutsideTheBudgetOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Stage{Attempts: nobody{}}
		var answered atomic.Int64
		target := &inference.Target{Pool: losing{}}
		for range 100 {
			go func() {
				c := &inference.Call{Model: &inference.Model{Retry: inference.Retry{Attempts: 5}}, Target: target}
				if s.Handle(t.Context(), c) == nil {
					answered.Add(1)
				}
			}()
		}
		synctest.Wait()
		time.Sleep(time.Second) //nolint:forbidigo // in a synctest bubble
		synctest.Wait()
		if n := answered.Load(); n == 0 || n > 2*perSecond {
			t.Errorf("%d of 100 calls that lost two endpoints were tried a third time within a second", n)
		}
	})
}

// losing is a pool whose first two endpoints lose every call.
type losing struct{}

func (losing) Ready() bool { return true }

func (losing) Pick(_ *inference.Call, not []inference.Endpoint) (inference.Endpoint, error) {
	return place(len(not)), nil
}

type place int

func (p place) Name() string { return string(rune('a' + p)) }

func (p place) Infer(context.Context, *inference.Call) error {
	if p < 2 {
		return fault.New(fault.EndpointLost, "gone")
	}
	return nil
}

func TestAnAttemptThatIsNotMadeIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Stage{Attempts: &records{}}
		c := callTo(&pool{[]*endpoint{failing("a", fault.UpstreamQueue), {name: "b"}}})
		b := s.budgets.of(c.Target.Pool)
		b.put(1)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Handle(ctx, c) }()
		synctest.Wait()
		cancel()
		if err := <-done; err == nil || b.saved.Load() < one {
			t.Errorf("%v, and %d of an attempt is left", err, b.saved.Load())
		}
	})
}

func TestWaitingForAFurtherAttemptLeavesMostOfTheTimeToIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Stage{Attempts: &records{}}
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond)
		defer cancel()
		begin := time.Now()
		err := s.Handle(ctx, callTo(&pool{[]*endpoint{failing("a", fault.EndpointLost), {name: "b"}}}))
		if err != nil || time.Since(begin) > 10*time.Millisecond {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
	})
}

func TestAClientThatGoesAwayWhileACallWaitsEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Stage{Attempts: &records{}}
		ctx, cancel := context.WithCancel(t.Context())
		second := &endpoint{name: "b"}
		done := make(chan error, 1)
		go func() {
			done <- s.Handle(ctx, callTo(&pool{[]*endpoint{failing("a", fault.EndpointLost), second}}))
		}()
		synctest.Wait()
		cancel()
		if err := <-done; err == nil || second.asked != 0 {
			t.Errorf("%v, and the other endpoint was asked %d times", err, second.asked)
		}
	})
}

func TestCopiesOfCallsAreTriedOnce(t *testing.T) {
	s := &Stage{Attempts: &records{}, Once: true}
	lost := errors.New("lost")
	second := &endpoint{name: "b"}
	if err := s.Handle(t.Context(), callTo(&pool{[]*endpoint{{name: "a", errs: []error{lost}}, second}})); err == nil || second.asked != 0 {
		t.Error(err, second.asked)
	}
}

func BenchmarkForward(b *testing.B) {
	s := &Stage{Attempts: &records{}}
	c := callTo(&pool{[]*endpoint{{name: "a"}}})
	s.Attempts = nobody{}
	b.ReportAllocs()
	for b.Loop() {
		c.Attempts, c.Answers = 0, 0
		_ = s.Handle(b.Context(), c)
	}
}

type nobody struct{}

func (nobody) Attempt(*inference.Call, *inference.Target, string, stats.Outcome, time.Duration) {}
