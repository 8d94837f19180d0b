package triton

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/upstream/triton/tritontest"
	"github.com/model-gateway/model-gateway/proto/triton"
)

// counters is so many servers, in unary calls and on streams alike.
func counters(addresses ...string) tritontest.Network {
	servers := tritontest.Network{}
	for _, a := range addresses {
		servers[a] = &tritontest.Server{Stream: serve(func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error {
			return s.Send(tritontest.Answer(r, true, 1))
		})}
	}
	return servers
}

// step is the i-th of so many steps of a sequence.
func step(c *inference.Call, id string, i, of int) *inference.Call {
	c.Head.Sequence = inference.Sequence{ID: id, Start: i == 0, End: i == of-1}
	return c
}

// where runs a call and says which endpoint had it.
func where(t testing.TB, c *inference.Call) string {
	t.Helper()
	e, err := c.Target.Pool.Pick(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Infer(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	c.Turn.Pass()
	c.Free()
	return e.Name()
}

// remembered is how many homes a pool knows.
func remembered(p *pool) int {
	p.homes.mu.Lock()
	defer p.homes.mu.Unlock()
	return max(len(p.homes.byKey), p.homes.order.Len())
}

func TestAllStepsOfASequenceMeetOneEndpoint(t *testing.T) {
	for _, streamed := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%t", streamed), func(t *testing.T) {
			servers := counters("a:1", "b:1")
			u := upstream(t, servers)
			c := newClient(t, u)
			homes := map[string]bool{}
			for _, id := range []string{"77", "s-77", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"} {
				var had []string
				for i := range 10 {
					call := kserve(t, u, request("risk"))
					if streamed {
						call = c.message()
					}
					had = append(had, where(t, step(call, id, i, 10)))
				}
				if had = slices.Compact(had); len(had) != 1 {
					t.Errorf("sequence %s was at %v", id, had)
				}
				homes[had[0]] = true
			}
			if len(homes) != 2 {
				t.Errorf("all sequences are at %v", homes)
			}
			if n := servers["a:1"].Streams.Load() + servers["b:1"].Streams.Load(); streamed && n != 2 {
				t.Errorf("%d upstream streams", n)
			}
			if n := remembered(u.pool("fraud", "3")); n != 0 {
				t.Errorf("%d homes of sequences that have ended", n)
			}
		})
	}
}

func TestSequencesOfTwoCallersOrModelsAreTwo(t *testing.T) {
	c := func(model, caller, id string) sequenceKey {
		call := &inference.Call{Head: inference.Head{Model: model, Sequence: inference.Sequence{ID: id}}}
		if caller != "" {
			call.Caller = &inference.Caller{Name: caller}
		}
		return sequenceOf(call)
	}
	all := []sequenceKey{
		c("m", "", "1"), c("m", "ann", "1"), c("n", "ann", "1"), c("m", "ann", "2"), c("m", "an", "n1"), c("ma", "nn", "1"), c("m1", "", ""),
	}
	slices.SortFunc(all, func(a, b sequenceKey) int { return slices.Compare(a[:], b[:]) })
	if len(slices.Compact(all)) != 7 {
		t.Error("different sequences have one key")
	}
}

// ready is what a Health knows when these endpoints serve.
func ready(addresses ...string) map[string]inference.Readiness {
	states := map[string]inference.Readiness{}
	for _, a := range []string{"a:1", "b:1", "c:1"} {
		states[a] = inference.NotReady
		if slices.Contains(addresses, a) {
			states[a] = inference.Ready
		}
	}
	return states
}

func TestAnEndpointThatJoinsMovesNoSequenceThatRuns(t *testing.T) {
	k := &known{states: ready("a:1", "b:1")}
	u := upstream(t, counters("a:1", "b:1", "c:1"), func(o *Options) { o.Health = k })
	homes := map[string]string{}
	for i := range 100 {
		id := fmt.Sprint(i)
		homes[id] = where(t, step(kserve(t, u, request("risk")), id, 0, 10))
	}
	k.set("fraud", ready("a:1", "b:1", "c:1"))
	elsewhere := 0
	for id, home := range homes {
		for i := 1; i < 10; i++ {
			if at := where(t, step(kserve(t, u, request("risk")), id, i, 10)); at != home {
				t.Fatalf("sequence %s has gone from %s to %s", id, home, at)
			}
		}
		switch at := where(t, step(kserve(t, u, request("risk")), id, 0, 10)); at {
		case home:
		case "c:1":
			elsewhere++
		default:
			t.Errorf("a new endpoint moved a sequence from %s to %s", home, at)
		}
	}
	if elsewhere < 15 || elsewhere > 55 {
		t.Errorf("%d of 100 new sequences go to the new one of three endpoints", elsewhere)
	}
}

func TestASequenceWhoseHomeIsGoneIsLostUntilItStartsAnew(t *testing.T) {
	k := &known{states: ready("a:1", "b:1")}
	servers := counters("a:1", "b:1")
	u := upstream(t, servers, func(o *Options) { o.Health = k })
	next := func(i int) *inference.Call { return step(kserve(t, u, request("risk")), "77", i, 10) }
	home := where(t, next(0))
	other := map[string]string{"a:1": "b:1", "b:1": "a:1"}[home]

	k.set("fraud", ready(other))
	f := wantKind(t, infer(t.Context(), next(1)), fault.SequenceLost)
	if f.Msg != "the model server that held the sequence is gone, and the state of the sequence with it; start the sequence anew" {
		t.Errorf("got %q", f.Msg)
	}
	k.set("fraud", ready("a:1", "b:1"))
	wantKind(t, infer(t.Context(), next(2)), fault.SequenceLost) // a step is missing, whatever is there now
	k.set("fraud", ready(other))
	if at := where(t, next(0)); at != other {
		t.Errorf("it started at %s", at)
	}
	k.set("fraud", ready("a:1", "b:1"))
	if at := where(t, next(1)); at != other {
		t.Errorf("it went on at %s", at)
	}

	// The next one finds out by the call itself.
	servers[other].Stop()
	wantKind(t, infer(t.Context(), next(2)), fault.SequenceLost)
	c := newClient(t, u)
	call := step(c.message(), "77", 3, 10)
	wantKind(t, receive(t, run(t.Context(), call), "end"), fault.SequenceLost)
	if n := servers[home].Calls.Load(); n != 1 {
		t.Errorf("%d calls at the other endpoint", n)
	}
}

func TestASequenceThatCouldNotStartIsNotCalledLost(t *testing.T) {
	k := &known{states: ready("a:1")}
	servers := counters("a:1")
	u := upstream(t, servers, func(o *Options) { o.Health = k })
	servers["a:1"].Stop()
	err := infer(t.Context(), step(kserve(t, u, request("risk")), "77", 0, 10))
	if kind := fault.Of(err).Kind; kind != fault.UpstreamUnavailable && kind != fault.EndpointLost {
		t.Errorf("got %v", err)
	}
	if n := remembered(u.pool("fraud", "3")); n != 0 {
		t.Errorf("%d homes", n)
	}
	k.set("fraud", ready())
	wantKind(t, infer(t.Context(), step(kserve(t, u, request("risk")), "77", 0, 10)), fault.NoEndpoint)
}

func TestAStepOfASequenceIsNotTriedElsewhere(t *testing.T) {
	u := upstream(t, counters("a:1", "b:1"))
	pool := u.Pool("fraud", "3")
	for i := range 3 {
		c := step(&inference.Call{Start: time.Now()}, "77", i, 10)
		first, err := pool.Pick(c, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = pool.Pick(c, []inference.Endpoint{first})
		wantKind(t, err, fault.NoEndpoint)
		if again, err := pool.Pick(c, nil); err != nil || again.Name() != first.Name() {
			t.Errorf("%v, %v", again, err)
		}
	}
}

func TestASequenceThatStartsAgainTakesItsOwnPlace(t *testing.T) {
	k := &known{states: ready("a:1")}
	u := upstream(t, counters("a:1", "b:1", "c:1"), func(o *Options) { o.Health = k })
	pool := u.pool("fraud", "3")
	for i := range 20 {
		id := fmt.Sprint(i)
		where(t, step(kserve(t, u, request("risk")), id, 0, 10))
	}
	k.set("fraud", ready("a:1", "b:1", "c:1"))
	for i := range 20 {
		id := fmt.Sprint(i)
		where(t, step(kserve(t, u, request("risk")), id, 0, 10))
		where(t, step(kserve(t, u, request("risk")), id, 9, 10)) // the end of the first, which was slower
		if at := where(t, step(kserve(t, u, request("risk")), id, 1, 10)); at != "a:1" {
			t.Errorf("sequence %s has gone to %s", id, at)
		}
		where(t, step(kserve(t, u, request("risk")), id, 9, 10))
	}
	if n := remembered(pool); n != 0 {
		t.Errorf("%d homes", n)
	}
}

func TestHomesAreForgottenWhenIdleAndNeverTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, err := New(Options{Name: "triton", Dial: tritontest.Network{}.Dial, Endpoints: []string{"a:1", "b:1"}})
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		p := u.pool("fraud", "3")
		pick := func(id string) string {
			e, err := p.Pick(step(&inference.Call{Start: time.Now()}, id, 1, 10), nil)
			if err != nil {
				t.Fatal(err)
			}
			return e.Name()
		}
		for i := range maxSequences + 10 {
			pick(fmt.Sprint(i))
		}
		if n := remembered(p); n != maxSequences {
			t.Errorf("%d homes", n)
		}
		over := fmt.Sprint(maxSequences + 5)
		if first, again := pick(over), pick(over); first != again {
			t.Error("a sequence that is not remembered has no home")
		}
		after := func(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // the bubble's clock
		after(sequenceIdle - time.Second)
		pick("5")
		after(2 * time.Second)
		pick("6")
		if n := remembered(p); n != 2 {
			t.Errorf("%d homes after a minute", n)
		}
		after(sequenceIdle + trimEvery + time.Second)
		if n := remembered(p); n != 0 {
			t.Errorf("%d homes that nobody asks for", n)
		}
	})
}

func TestHomesAreTheSameInEveryReplica(t *testing.T) {
	u, v := upstream(t, counters("a:1", "b:1", "c:1")), upstream(t, counters("c:1", "b:1", "a:1"))
	for i := range 50 {
		id := fmt.Sprint(i)
		if x, y := where(t, step(kserve(t, u, request("risk")), id, 0, 10)), where(t, step(kserve(t, v, request("risk")), id, 1, 10)); x != y {
			t.Errorf("sequence %s is at %s and %s", id, x, y)
		}
	}
}

// known to all replicas: a Home that says where, and notes what it is told.
type register struct{ settled, lost int }

func (r *register) home(endpoint, mark string) *inference.Home {
	h := &inference.Home{Endpoint: endpoint, Mark: mark, New: endpoint == "", Lose: func() { r.lost++ }}
	h.Settle = func(at string) { r.settled++; h.New, h.Endpoint, h.Mark = false, at, "settled" }
	return h
}

func TestASequenceIsWhereAllReplicasKnowIt(t *testing.T) {
	k := &known{states: ready("a:1", "b:1")}
	u := upstream(t, counters("a:1", "b:1"), func(o *Options) { o.Health = k })
	var all register
	next := func(i int, h *inference.Home) *inference.Call {
		c := step(kserve(t, u, request("risk")), "77", i, 10)
		c.Home = h
		return c
	}
	home := where(t, next(0, all.home("", "")))
	other := map[string]string{"a:1": "b:1", "b:1": "a:1"}[home]
	if all.settled != 1 {
		t.Errorf("its start was settled %d times", all.settled)
	}
	if at := where(t, next(1, all.home(home, "settled"))); at != home || all.settled != 1 {
		t.Errorf("it went on at %s, settled %d times", at, all.settled)
	}
	// Another replica has begun the id anew, elsewhere.
	if at := where(t, next(1, all.home(other, "anew"))); at != other {
		t.Errorf("the one that began anew went on at %s", at)
	}
	// This replica alone knows while the others cannot be asked.
	if at := where(t, next(2, &inference.Home{})); at != other {
		t.Errorf("it went on at %s", at)
	}
	// Another replica was quicker.
	h := all.home("", "")
	h.Settle = func(string) { h.New, h.Endpoint, h.Mark = false, home, "quicker" }
	if at := where(t, next(2, h)); at != home {
		t.Errorf("it went on at %s", at)
	}
	// Another replica was quicker, and has it at another target of the same endpoint.
	h = all.home("", "")
	h.Settle = func(at string) { h.New, h.Endpoint, h.Mark, h.Lost = false, at, "other target", true }
	wantKind(t, infer(t.Context(), next(2, h)), fault.SequenceLost)
	if at := where(t, next(2, all.home(home, "quicker"))); at != home {
		t.Errorf("it went on at %s", at)
	}
	// The store of replicas is gone.
	h = all.home("", "")
	h.Settle = func(string) { h.New = false }
	if at := where(t, next(3, h)); at != home {
		t.Errorf("it went on at %s", at)
	}
	if all.lost != 0 {
		t.Errorf("it was lost %d times", all.lost)
	}

	k.set("fraud", ready(other))
	wantKind(t, infer(t.Context(), next(4, all.home(home, "quicker"))), fault.SequenceLost)
	if all.lost != 1 {
		t.Error("the loss was not told")
	}
	k.set("fraud", ready("a:1", "b:1"))
	wantKind(t, infer(t.Context(), next(5, all.home(home, "quicker"))), fault.SequenceLost) // however the record is
	if at := where(t, next(5, all.home(home, "next"))); at != home {
		t.Errorf("a later one went on at %s", at)
	}
	lost := all.home(home, "next")
	lost.Lost = true
	wantKind(t, infer(t.Context(), next(6, lost)), fault.SequenceLost)
}

func TestAStepThatFindsItsHomeGoneTellsAllReplicas(t *testing.T) {
	servers := counters("a:1")
	u := upstream(t, servers)
	var all register
	c := step(kserve(t, u, request("risk")), "77", 0, 10)
	c.Home = all.home("", "")
	home := where(t, c)
	servers[home].Stop()
	for i, start := range []int{1, 0} { // a start that failed leaves nothing behind either
		c = step(kserve(t, u, request("risk")), "77", start, 10)
		c.Home = all.home(home, "settled")
		if err := infer(t.Context(), c); err == nil || all.lost != i+1 {
			t.Errorf("%v, told %d times", err, all.lost)
		}
	}
}

func TestAnEndpointThatIsNotKnownHereYetLosesNoSequenceUntilItShouldBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &known{states: ready("a:1")}
		u, err := New(Options{Name: "triton", Dial: tritontest.Network{}.Dial, Endpoints: []string{"a:1", "b:1"}, Health: k})
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		var all register
		pick := func() (inference.Endpoint, error) {
			c := step(&inference.Call{Start: time.Now()}, "77", 1, 10)
			c.Home = all.home("b:1", "x")
			return u.pool("fraud", "3").Pick(c, nil)
		}
		_, err = pick()
		wantKind(t, err, fault.NoEndpoint)
		time.Sleep(newsTakes - time.Second) //nolint:forbidigo // the bubble's clock
		_, err = pick()
		wantKind(t, err, fault.NoEndpoint)
		k.set("fraud", ready("a:1", "b:1"))
		u.pool("fraud", "3").changed()
		if e, err := pick(); err != nil || e.Name() != "b:1" {
			t.Errorf("once it is known: %v, %v", e, err)
		}
		if all.lost != 0 {
			t.Error("it was told to be lost")
		}
		k.set("fraud", ready("a:1"))
		u.pool("fraud", "3").changed()
		_, err = pick() // this replica has met it, and sees it go
		wantKind(t, err, fault.SequenceLost)

		c := step(&inference.Call{Start: time.Now()}, "78", 1, 10)
		c.Home = all.home("c:1", "y")
		_, err = u.pool("fraud", "3").Pick(c, nil)
		wantKind(t, err, fault.NoEndpoint)
		time.Sleep(newsTakes) //nolint:forbidigo // the bubble's clock
		_, err = u.pool("fraud", "3").Pick(c, nil)
		wantKind(t, err, fault.SequenceLost)
		if all.lost != 2 {
			t.Errorf("told %d times", all.lost)
		}
	})
}
