package triton

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/calm"
	"github.com/model-gateway/model-gateway/pkg/upstream/triton/tritontest"
	"github.com/model-gateway/model-gateway/proto/triton"
)

// bounded lets so many calls at once go to each endpoint.
func bounded(n int) func(*Options) { return func(o *Options) { o.MaxInFlight = n } }

// TestAnEndpointNeverHasMoreCallsThanItMay has many calls, and messages of streams, come at the same time.
func TestAnEndpointNeverHasMoreCallsThanItMay(t *testing.T) {
	for _, how := range []inference.Pick{inference.LeastLoaded, inference.RoundRobin, inference.HashUser, inference.QueueDepth} {
		t.Run(how.String(), func(t *testing.T) {
			calm.Moment(t, func() error { return crowd(t, how) })
		})
	}
}

// A machine that stalls while it connects makes calls reach nobody: that is the error.
func crowd(t *testing.T, how inference.Pick) error {
	const limit, callers, each = 3, 32, 40
	servers := tritontest.Network{}
	var above atomic.Int64
	for _, address := range []string{"a:1", "b:1"} {
		var now atomic.Int64
		work := func() {
			if now.Add(1) > limit {
				above.Add(1)
			}
			now.Add(-1)
		}
		servers[address] = &tritontest.Server{
			Infer: func(_ context.Context, r *tritonpb.ModelInferRequest) (*tritonpb.ModelInferResponse, error) {
				work()
				return tritontest.Response(r, 1), nil
			},
			Stream: serve(func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error {
				work()
				return s.Send(tritontest.Answer(r, true, 1))
			}),
		}
	}
	u := upstream(t, servers, bounded(limit))
	var all sync.WaitGroup
	var served, refused, unreached atomic.Int64
	for i := range callers {
		var stream *client
		if i%2 == 0 {
			stream = newClient(t, u)
		}
		all.Go(func() {
			for range each {
				c := kserve(t, u, request("risk"))
				if stream != nil {
					c = stream.message()
				}
				c.Model = &inference.Model{Name: "risk", Pick: how}
				c.User = fmt.Sprint(i)
				err := infer(t.Context(), c)
				c.Turn.Pass()
				c.Free()
				switch {
				case err == nil:
					served.Add(1)
				case fault.Of(err).Kind == fault.Overloaded:
					refused.Add(1)
				case fault.Of(err).Kind == fault.UpstreamUnavailable: // a machine that stalled while it connected
					unreached.Add(1)
				default:
					t.Error(err)
				}
				for _, e := range u.list() {
					if n := e.inflight.Load(); n < 0 || n > limit {
						t.Errorf("%d calls are under way at %s", n, e.name)
					}
				}
			}
		})
	}
	all.Wait()
	if above.Load() > 0 || served.Load() == 0 || served.Load()+refused.Load()+unreached.Load() != callers*each {
		t.Errorf("%d served, %d refused, %d reached nobody, %d times too many at once", served.Load(), refused.Load(), unreached.Load(), above.Load())
	}
	for _, e := range u.list() {
		if n := e.inflight.Load(); n != 0 {
			t.Errorf("%d places at %s were not given back", n, e.name)
		}
	}
	if n := unreached.Load(); n > 0 {
		return fmt.Errorf("%d of %d calls reached nobody", n, callers*each)
	}
	return nil
}

// TestPlacesAreTakenInOneStepWithTheLook has many take the places of one endpoint at once, without anything in between.
func TestPlacesAreTakenInOneStepWithTheLook(t *testing.T) {
	u := still(1, ignorance{}, Eject{})
	defer u.end()
	const limit = 2
	u.maxInFlight.Store(limit)
	e := u.list()[0]
	var inside, above, entered atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 5000 {
				if !e.enter() {
					continue
				}
				entered.Add(1)
				if inside.Add(1) > limit {
					above.Add(1)
				}
				inside.Add(-1)
				e.exit()
			}
		})
	}
	all.Wait()
	if above.Load() > 0 || entered.Load() == 0 || e.inflight.Load() != 0 {
		t.Errorf("%d entered, %d of them when there was no place; %d are left", entered.Load(), above.Load(), e.inflight.Load())
	}
}

func TestEveryWayToChoosePassesOverEndpointsThatAreFull(t *testing.T) {
	for _, how := range []inference.Pick{inference.LeastLoaded, inference.RoundRobin, inference.HashUser, inference.QueueDepth} {
		t.Run(how.String(), func(t *testing.T) {
			u := still(3, ignorance{}, Eject{})
			defer u.end()
			u.maxInFlight.Store(2)
			p, all := u.pool("fraud", "1"), u.list()
			c := &inference.Call{Start: time.Now(), Model: &inference.Model{Pick: how}}
			fill := func(e *endpoint) {
				for e.enter() { //nolint:revive // until it is full
				}
			}
			picked := func(not ...inference.Endpoint) map[string]bool {
				names := map[string]bool{}
				for i := range 300 {
					c.User = fmt.Sprint(i)
					e, err := p.Pick(c, not)
					if err != nil {
						t.Fatal(err)
					}
					names[e.Name()] = true
				}
				return names
			}
			if got := picked(); len(got) != 3 {
				t.Errorf("while all have room: %v", got)
			}
			fill(all[0])
			if got := picked(); len(got) != 2 || got["h0:1"] {
				t.Errorf("while h0 is full: %v", got)
			}
			if got := picked(p.current().ready[1]); len(got) != 1 || !got["h2:1"] {
				t.Errorf("in place of h1, while h0 is full: %v", got)
			}
			if limit, n, full := p.Room(); limit != 2 || n != 3 || full != 1 {
				t.Errorf("it tells of %d, %d, %d", limit, n, full)
			}
			fill(all[1])
			if got := picked(); len(got) != 1 || !got["h2:1"] {
				t.Errorf("while only h2 has room: %v", got)
			}
			fill(all[2])
			_, err := p.Pick(c, nil)
			f := wantKind(t, err, fault.Overloaded)
			if want := `each of the endpoints that can serve model "fraud" has as many calls under way as it may (upstreams.triton.max_in_flight is 2); try again in a moment`; f.Msg != want || f.Retry() == 0 {
				t.Errorf("refused with %q, to come back after %s", f.Msg, f.Retry())
			}
			_, err = p.Pick(c, []inference.Endpoint{p.current().ready[0]})
			wantKind(t, err, fault.Overloaded)
			_, err = p.Pick(c, []inference.Endpoint{p.current().ready[0], p.current().ready[1], p.current().ready[2]})
			wantKind(t, err, fault.NoEndpoint)
			all[1].exit()
			if got := picked(); len(got) != 1 || !got["h1:1"] {
				t.Errorf("once h1 has room: %v", got)
			}
		})
	}
}

// held is a server that answers once gate lets it, and tells of what arrives.
func held(gate <-chan struct{}) (s *tritontest.Server, arrived chan struct{}) {
	arrived = make(chan struct{}, 100)
	return &tritontest.Server{
		Infer: func(_ context.Context, r *tritonpb.ModelInferRequest) (*tritonpb.ModelInferResponse, error) {
			arrived <- struct{}{}
			<-gate
			return tritontest.Response(r, 1), nil
		},
		Stream: serve(func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error {
			arrived <- struct{}{}
			<-gate
			return s.Send(tritontest.Answer(r, true, 1))
		}),
	}, arrived
}

func TestAStepOfASequenceWhoseHomeIsFullIsRefusedAndMayBeSentAgain(t *testing.T) {
	for _, streamed := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%t", streamed), func(t *testing.T) {
			u := upstream(t, counters("a:1", "b:1"), bounded(1))
			c := newClient(t, u)
			next := func(i int) *inference.Call {
				call := kserve(t, u, request("risk"))
				if streamed {
					call = c.message()
				}
				return step(call, "s", i, 3)
			}
			home := where(t, next(0))
			at := u.list()[0]
			if at.name != home {
				at = u.list()[1]
			}
			if !at.enter() {
				t.Fatal("the home is full by itself")
			}
			refused := next(1)
			f := wantKind(t, infer(t.Context(), refused), fault.Overloaded)
			refused.Turn.Pass()
			if !strings.Contains(f.Msg, "was not sent: send it again") || f.Retry() == 0 {
				t.Errorf("refused with %q, to come back after %s", f.Msg, f.Retry())
			}
			at.exit()
			for i := 1; i < 3; i++ {
				if got := where(t, next(i)); got != home {
					t.Errorf("step %d was on %s, the one before on %s", i, got, home)
				}
			}
			if n := remembered(u.pool("fraud", "3")); n != 0 {
				t.Errorf("%d sequences are remembered", n)
			}
		})
	}
}

func TestEachMessageOfAStreamTakesAPlaceUntilItIsAnswered(t *testing.T) {
	gate := make(chan struct{})
	s, arrived := held(gate)
	u := one(t, s, bounded(2))
	c, other := newClient(t, u), newClient(t, u)
	var under []<-chan error
	for _, call := range []*inference.Call{c.message(), other.message()} {
		under = append(under, run(t.Context(), call))
		receive(t, arrived, "message")
	}
	third := c.message()
	wantKind(t, infer(t.Context(), third), fault.Overloaded)
	third.Turn.Pass()
	wantKind(t, infer(t.Context(), kserve(t, u, request("risk"))), fault.Overloaded)
	close(gate)
	for _, done := range under {
		if err := receive(t, done, "answer"); err != nil {
			t.Error(err)
		}
	}
	for range 3 { // the stream lives on, and one message after the other always finds room
		if err := receive(t, run(t.Context(), c.message()), "answer"); err != nil {
			t.Error(err)
		}
	}
}

func TestAMessageThatWaitsForThoseBeforeItTakesNoPlace(t *testing.T) {
	s := counters("a:1")["a:1"]
	s.Config = decoupledConfig // of such a model a message is sent once the one before it has been answered
	u := one(t, s, bounded(1))
	c := newClient(t, u)
	first, second := c.predict(1), c.predict(2)
	e, err := second.Target.Pool.Pick(second, nil)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		defer second.Turn.Pass()
		done <- e.Infer(t.Context(), second) // it waits for its turn
	}()
	if err := infer(t.Context(), first); err != nil {
		t.Error(err)
	}
	first.Turn.Pass()
	if err := receive(t, done, "answer"); err != nil {
		t.Error(err)
	}
}

// TestABoundChangesUnderCallsWithoutForgettingThem lowers and raises it, and makes other connections, while calls are under way.
func TestABoundChangesUnderCallsWithoutForgettingThem(t *testing.T) {
	gate := make(chan struct{})
	s, arrived := held(gate)
	o := Options{}
	u := one(t, s, bounded(2), func(made *Options) { o = *made })
	update := func(change func(*Options)) {
		change(&o)
		if err := u.Update(o); err != nil {
			t.Fatal(err)
		}
	}
	var under []<-chan error
	send := func() {
		under = append(under, run(t.Context(), kserve(t, u, request("risk"))))
		receive(t, arrived, "call")
	}
	refuses := func(when string) {
		t.Helper()
		if err := infer(t.Context(), kserve(t, u, request("risk"))); err == nil || fault.Of(err).Kind != fault.Overloaded {
			t.Errorf("%s: %v", when, err)
		}
	}
	send()
	send()
	refuses("two of two are under way")
	update(bounded(1))
	refuses("the bound is lower than what is under way")
	update(bounded(3))
	send()
	refuses("three of three are under way")
	before := u.list()[0]
	update(func(o *Options) { o.Keepalive = time.Hour }) // takes other connections
	if u.list()[0] == before || u.InFlight("a:1") != 3 {
		t.Errorf("other connections: %d calls are known", u.InFlight("a:1"))
	}
	refuses("three of three are under way, on connections that were there before")
	update(bounded(0))
	send()
	update(bounded(4))
	refuses("calls that came while there was no bound count too")
	close(gate)
	for _, done := range under {
		if err := receive(t, done, "answer"); err != nil {
			t.Error(err)
		}
	}
	if n := u.InFlight("a:1"); n != 0 {
		t.Errorf("%d are left", n)
	}
}
