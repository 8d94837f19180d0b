package triton

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/upstream/triton/tritontest"
	"github.com/model-gateway/model-gateway/proto/triton"
)

// still is an upstream without connections, whose endpoints are h0:1, h1:1, …, for choices under a clock that is moved.
func still(n int, states Health, eject Eject) *Upstream {
	u := &Upstream{name: "triton", log: slog.New(slog.DiscardHandler), health: states, watched: true, byModel: make(map[string][]*pool), again: make(chan struct{}, 1)}
	eject = eject.complete()
	u.ejects.Store(&eject)
	u.life, u.end = context.WithCancel(context.Background())
	var all []*endpoint
	for i := range n {
		name := fmt.Sprintf("h%d:1", i)
		all = append(all, &endpoint{up: u, name: name, hash: hashOf(name), inflight: new(underWay)})
	}
	u.endpoints.Store(&all)
	return u
}

func (u *Upstream) chosen(p *pool) []string {
	var names []string
	for _, s := range p.current().ready {
		names = append(names, s.ep.name)
	}
	return names
}

func fails(u *Upstream, p *pool, endpoint string, kind fault.Kind, times int) {
	for range times {
		for _, s := range p.current().ready {
			if s.ep.name == endpoint {
				s.learn(&fault.Fault{Kind: kind, Upstream: true})
			}
		}
	}
}

func TestAnEndpointThatFailsFiveTimesInARowIsOutForLongerEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := still(3, ignorance{}, Eject{})
		defer u.end()
		p, other := u.pool("fraud", "1"), u.pool("other", "1")
		after(time.Hour)
		all := []string{"h0:1", "h1:1", "h2:1"}
		for _, long := range []time.Duration{30 * time.Second, 60 * time.Second, 90 * time.Second} {
			fails(u, p, "h0:1", fault.UpstreamFailed, 4)
			p.current().ready[0].learn(nil) // one good answer
			fails(u, p, "h0:1", fault.UpstreamFailed, 4)
			if got := u.chosen(p); !slices.Equal(got, all) {
				t.Fatalf("after rows of four: %v", got)
			}
			fails(u, p, "h0:1", fault.UpstreamTimeout, 1)
			if got := u.chosen(p); !slices.Equal(got, all[1:]) {
				t.Fatalf("after five: %v", got)
			}
			if got := u.chosen(other); !slices.Equal(got, all) {
				t.Fatalf("another model: %v", got)
			}
			if got := u.Ejections(); !slices.Equal(got["h0:1"], []string{"fraud/1"}) || len(got) != 1 {
				t.Errorf("shown as %v", got)
			}
			after(long - time.Millisecond)
			synctest.Wait()
			if got := u.chosen(p); len(got) != 2 {
				t.Errorf("before %s: %v", long, got)
			}
			after(2 * time.Millisecond)
			synctest.Wait()
			if got := u.chosen(p); !slices.Equal(got, all) || len(u.Ejections()) != 0 {
				t.Errorf("after %s: %v", long, got)
			}
		}
		after(6 * time.Minute)
		fails(u, p, "h0:1", fault.UpstreamFailed, 5)
		after(31 * time.Second)
		synctest.Wait()
		if got := u.chosen(p); !slices.Equal(got, all) {
			t.Errorf("what was long ago still counts: %v", got)
		}
	})
}

func TestAnEndpointThatFailsForSeveralModelsIsOutForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := still(3, ignorance{}, Eject{Failures: 4})
		defer u.end()
		p, other, third := u.pool("fraud", "1"), u.pool("other", "1"), u.pool("third", "1")
		after(time.Hour)
		fails(u, p, "h0:1", fault.UpstreamFailed, 2)
		fails(u, other, "h0:1", fault.EndpointLost, 2)
		for _, p := range []*pool{p, other, third} {
			if got := u.chosen(p); !slices.Equal(got, []string{"h1:1", "h2:1"}) {
				t.Errorf("%s: %v", p.model, got)
			}
		}
		if got := u.Ejections(); !slices.Equal(got["h0:1"], []string{"*"}) {
			t.Errorf("shown as %v", got)
		}
		after(time.Minute)
		synctest.Wait()
	})
}

func TestWhatIsNotTheEndpointsFailureEjectsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := still(2, ignorance{}, Eject{})
		defer u.end()
		p := u.pool("fraud", "1")
		after(time.Hour)
		for _, kind := range []fault.Kind{
			fault.InvalidArgument, fault.UpstreamQueue, fault.ModelNotFound, fault.Cancelled, fault.Deadline, fault.ModelNotReady, fault.Draining,
			fault.UpstreamRefused, fault.TooLarge,
		} {
			fails(u, p, "h0:1", kind, 20)
			if got := u.chosen(p); len(got) != 2 {
				t.Errorf("%s ejects", kind.Reason())
			}
		}
		never := still(2, ignorance{}, Eject{Failures: -1})
		defer never.end()
		q := never.pool("fraud", "1")
		fails(never, q, "h0:1", fault.UpstreamFailed, 100)
		if got := never.chosen(q); len(got) != 2 {
			t.Error("ejected although nothing should be")
		}
	})
}

func TestNoMoreThanHalfOfTheEndpointsAreEjectedAndNeverTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for n, left := range map[int]int{1: 1, 2: 1, 3: 2, 4: 2, 5: 3, 10: 5} {
			u := still(n, ignorance{}, Eject{})
			p := u.pool("fraud", "1")
			after(time.Hour)
			for range 3 {
				for i := range n {
					fails(u, p, fmt.Sprintf("h%d:1", i), fault.UpstreamFailed, 5)
				}
			}
			if got := u.chosen(p); len(got) != left {
				t.Errorf("%d of %d are left: %v", len(got), n, got)
			}
			u.end()
		}
		all := still(3, ignorance{}, Eject{AtMost: 1})
		defer all.end()
		p := all.pool("fraud", "1")
		after(time.Hour)
		for i := range 3 {
			fails(all, p, fmt.Sprintf("h%d:1", i), fault.UpstreamFailed, 5)
		}
		if got := all.chosen(p); len(got) == 0 {
			t.Error("nobody is left")
		}
		after(time.Hour)
		synctest.Wait()
	})
}

func TestWhereMostEndpointsAreNotReadyNoneIsEjectedAndThoseNotReadyStayOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &known{states: map[string]inference.Readiness{"h0:1": inference.Ready, "h1:1": inference.Ready, "h2:1": inference.NotReady, "h3:1": inference.NotReady}}
		u := still(4, k, Eject{})
		defer u.end()
		p := u.pool("fraud", "1")
		after(time.Hour)
		fails(u, p, "h0:1", fault.UpstreamFailed, 5)
		if got := u.chosen(p); !slices.Equal(got, []string{"h0:1", "h1:1"}) {
			t.Errorf("chosen from %v", got)
		}
		k.mu.Lock()
		k.states["h2:1"] = inference.Ready
		k.mu.Unlock()
		u.changed("fraud")
		if got := u.chosen(p); !slices.Equal(got, []string{"h1:1", "h2:1"}) {
			t.Errorf("chosen from %v", got)
		}
		after(time.Minute)
		synctest.Wait()
	})
}

func TestAnEndpointThatWentOutAndIsBackIsNotEjectedForWhatItsPredecessorDid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := map[string]inference.Readiness{"h0:1": inference.Ready, "h1:1": inference.Ready}
		k := &known{states: up}
		u := still(2, k, Eject{})
		defer u.end()
		p := u.pool("fraud", "1")
		u.changed("")
		after(time.Hour)
		s := p.current().ready[0]
		for range 3 {
			s.learn(&fault.Fault{Kind: fault.EndpointLost}) // of the process that died
		}
		k.mu.Lock()
		k.states, k.out = map[string]inference.Readiness{"h1:1": inference.Ready}, map[string]bool{"h0:1": true}
		k.mu.Unlock()
		u.list()[0].out, u.list()[0].silent = true, true // as if its connections had been cut
		u.changed("")
		for range 20 {
			s.learn(&fault.Fault{Kind: fault.EndpointLost})
		}
		if got := u.Ejections(); len(got) != 0 {
			t.Errorf("ejected although it is out: %v", got)
		}
		after(4 * time.Second)
		k.mu.Lock()
		k.states, k.out = up, nil
		k.mu.Unlock()
		u.changed("")
		for range 4 {
			p.current().ready[0].learn(&fault.Fault{Kind: fault.UpstreamFailed, Upstream: true})
		}
		if got := u.chosen(p); len(got) != 2 {
			t.Errorf("a new process answers for its predecessor: %v", got)
		}
		after(time.Minute)
		synctest.Wait()
	})
}

func TestAnEjectedEndpointThatIsRestartedIsBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &known{states: map[string]inference.Readiness{"h0:1": inference.Ready, "h1:1": inference.Ready}}
		u := still(2, k, Eject{})
		defer u.end()
		p := u.pool("fraud", "1")
		after(time.Hour)
		fails(u, p, "h0:1", fault.UpstreamFailed, 5)
		if got := u.chosen(p); len(got) != 1 {
			t.Fatalf("not ejected: %v", got)
		}
		u.list()[0].seen = false // it went out meanwhile
		u.changed("")
		if got := u.chosen(p); len(got) != 2 || len(u.Ejections()) != 0 {
			t.Errorf("still ejected: %v", got)
		}
		after(time.Minute)
		synctest.Wait()
	})
}

func TestCallsThatFailOverTheWireEjectAndTheLogSaysWhy(t *testing.T) {
	text := &lockedText{}
	servers := tritontest.Network{
		"a:1": {Infer: func(context.Context, *tritonpb.ModelInferRequest) (*tritonpb.ModelInferResponse, error) {
			return nil, status.Error(codes.Internal, "Stub process 'fraud_0_0' is not healthy.")
		}},
		"b:1": {},
	}
	u := upstream(t, servers, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(text, nil)) })
	for n, until := 0, time.Now().Add(patience); len(u.Ejections()) == 0; {
		if err := infer(t.Context(), kserve(t, u, request("risk"))); err != nil {
			n++
		}
		if n > 5 || time.Now().After(until) {
			t.Fatalf("%d failures and no ejection", n)
		}
	}
	for range 50 {
		if err := infer(t.Context(), kserve(t, u, request("risk"))); err != nil {
			t.Fatal(err)
		}
	}
	if got := text.String(); !strings.Contains(got, "endpoint ejected") || !strings.Contains(got, "endpoint=a:1") || !strings.Contains(got, "model=fraud") || !strings.Contains(got, "not healthy") {
		t.Errorf("the log says %s", got)
	}
}

type lockedText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestTooManyPingsAreHalvedAndToldOnce(t *testing.T) {
	text := &lockedText{}
	u := one(t, &tritontest.Server{}, func(o *Options) {
		o.Keepalive = 100 * time.Second
		o.Logger = slog.New(slog.NewTextHandler(text, nil))
	})
	e := u.list()[0]
	s := &seat{pool: u.pool("fraud", "3"), ep: e}
	if e.options().Keepalive != 100*time.Second {
		t.Errorf("pings every %s", e.options().Keepalive)
	}
	for _, want := range []time.Duration{200 * time.Second, DefaultKeepalive, DefaultKeepalive} {
		err := Classify(t.Context(), status.Error(codes.Unavailable, `closing transport due to: connection error: desc = "error reading from server: EOF", received prior goaway: code: ENHANCE_YOUR_CALM, debug data: "too_many_pings"`))
		s.learn(wantKind(t, err, fault.EndpointLost))
		if got := e.options().Keepalive; got != want {
			t.Errorf("pings every %s, want %s", got, want)
		}
	}
	if got := strings.Count(text.String(), "too many pings"); got != 2 {
		t.Errorf("told %d times: %s", got, text)
	}
	s.learn(wantKind(t, Classify(t.Context(), status.Error(codes.Unavailable, "Too many pings")), fault.EndpointLost))
}

func TestRoundRobinTakesOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := still(3, ignorance{}, Eject{})
		defer u.end()
		after(time.Hour)
		p, c := u.pool("fraud", "1"), &inference.Call{Start: time.Now(), Model: &inference.Model{Pick: inference.RoundRobin}}
		counts := map[string]int{}
		var before string
		for range 30 {
			e, err := p.Pick(c, nil)
			if err != nil || e.Name() == before {
				t.Fatalf("%v twice, %v", e, err)
			}
			before = e.Name()
			counts[before]++
		}
		if counts["h0:1"] != 10 || counts["h1:1"] != 10 || counts["h2:1"] != 10 {
			t.Errorf("got %v", counts)
		}
	})
}

func TestAUsersCallsMeetOneEndpointAndFewMoveWhenAnotherComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, more := still(4, ignorance{}, Eject{}), still(5, ignorance{}, Eject{})
		defer u.end()
		defer more.end()
		after(time.Hour)
		pick := func(u *Upstream, user string) *seat {
			c := &inference.Call{Start: time.Now(), Model: &inference.Model{Pick: inference.HashUser}, Identity: inference.Identity{User: user}}
			e, err := u.pool("fraud", "1").Pick(c, nil)
			if err != nil {
				t.Fatal(err)
			}
			return e.(*seat)
		}
		counts, moved := map[string]int{}, 0
		for i := range 2000 {
			user := fmt.Sprintf("user-%d", i)
			home := pick(u, user).ep.name
			for range 3 {
				if again := pick(u, user).ep.name; again != home {
					t.Fatalf("%s went to %s and %s", user, home, again)
				}
			}
			counts[home]++
			if next := pick(more, user).ep.name; next != home {
				if next != "h4:1" {
					t.Fatalf("%s moved between endpoints that were there", user)
				}
				moved++
			}
		}
		if moved < 300 || moved > 500 {
			t.Errorf("%d of 2000 moved, want about 400", moved)
		}
		for e, n := range counts {
			if n < 400 || n > 600 {
				t.Errorf("%s has %d of 2000", e, n)
			}
		}
		// One user's calls that pile up spill over, each endpoint staying within a quarter above the average.
		var most int64
		for range 400 {
			s := pick(u, "one user")
			most = max(most, s.ep.inflight.Add(1))
		}
		if most > 126 {
			t.Errorf("an endpoint has %d of 400 calls of four endpoints", most)
		}
		if c := pick(u, ""); c == nil {
			t.Error("a call without a user has nowhere to go")
		}
	})
}

func TestPicksOfUsersAndTurnsCostNoAllocations(t *testing.T) {
	u := still(10, ignorance{}, Eject{})
	defer u.end()
	p := u.pool("fraud", "1")
	for _, how := range []inference.Pick{inference.LeastLoaded, inference.RoundRobin, inference.HashUser} {
		c := &inference.Call{Start: time.Now(), Model: &inference.Model{Pick: how}, Identity: inference.Identity{User: "ann"}}
		if n := testing.AllocsPerRun(100, func() { _, _ = p.Pick(c, nil) }); n != 0 {
			t.Errorf("%s: %v allocations", how, n)
		}
	}
}

func TestAnErrorFromBeforeTheModelSawTheMessageMayBeTriedElsewhere(t *testing.T) {
	var text atomic.Value
	u := one(t, &tritontest.Server{Stream: serve(func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error {
		return s.Send(tritontest.Failure(r, text.Load().(string), false))
	})})
	c := newClient(t, u)
	for said, kind := range map[string]fault.Kind{
		"Request for unknown model: 'fraud' version 3 is not at ready state":       fault.ModelNotReady,
		"[request id: <id_unknown>] Exceeds maximum queue size":                    fault.UpstreamQueue,
		"Server is stopping, scheduler for model has stopped accepting new infer…": fault.Draining,
	} {
		text.Store(said)
		call := c.message()
		f := wantKind(t, receive(t, run(t.Context(), call), "end"), kind)
		if call.Answers != 0 || call.InBand != nil || f.Msg != said || !f.Kind.Row().Elsewhere {
			t.Errorf("%d answers, %q", call.Answers, f.Msg)
		}
		step := c.message() // goes nowhere else, so its caller gets what was said
		step.Head.Sequence.ID = "7"
		step.Head.Sequence.Start = true
		if err := receive(t, run(t.Context(), step), "end"); err != nil || step.Answers != 1 || step.InBand == nil {
			t.Errorf("a step: %d answers, %v", step.Answers, err)
		}
		step.Free()
	}
	text.Store("unexpected inference input 'X' for model 'fraud'")
	call := c.message()
	if err := receive(t, run(t.Context(), call), "end"); err != nil || call.Answers != 1 || call.InBand == nil {
		t.Errorf("the caller's mistake: %d answers, %v", call.Answers, err)
	}
	call.Free()
}
