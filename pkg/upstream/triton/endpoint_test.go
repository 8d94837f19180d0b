package triton

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/upstream/triton/tritontest"
	"github.com/model-gateway/model-gateway/proto/triton"
)

// known is a Health that is told what to know.
type known struct {
	ignorance
	mu      sync.Mutex
	states  map[string]inference.Readiness // by endpoint
	out     map[string]bool                // silent
	changed func(string)
	kicks   atomic.Int64
}

func (k *known) Begin(_ func(func(model, version string) bool), changed func(string)) {
	k.changed = changed
}

func (k *known) State(endpoint, _, _ string) inference.Readiness {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.states[endpoint]
}

func (k *known) Up(endpoint string) bool { return k.State(endpoint, "", "") == inference.Ready }

func (k *known) Out(endpoint string) (out, silent bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.out[endpoint], k.out[endpoint]
}

// goOut has an endpoint that does not answer.
func (k *known) goOut(endpoint string) {
	k.mu.Lock()
	k.out = map[string]bool{endpoint: true}
	k.states = map[string]inference.Readiness{endpoint: inference.NotReady}
	k.mu.Unlock()
	k.changed("")
}

func (k *known) Kick(string, string) { k.kicks.Add(1) }

func (k *known) NotReady(string, string, string) { k.kicks.Add(1) }

func (k *known) set(model string, states map[string]inference.Readiness) {
	k.mu.Lock()
	k.states, k.out = states, nil
	k.mu.Unlock()
	k.changed(model)
}

func TestTwoEndpointsShareTheCalls(t *testing.T) {
	a, b := &tritontest.Server{}, &tritontest.Server{}
	u := upstream(t, tritontest.Network{"a:1": a, "b:1": b})
	for range 200 {
		if err := infer(t.Context(), kserve(t, u, request("risk"))); err != nil {
			t.Fatal(err)
		}
	}
	if n := a.Calls.Load(); n < 70 || n > 130 {
		t.Errorf("one endpoint got %d of 200 calls", n)
	}
}

func TestABusyEndpointIsPassedBy(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	slow := &tritontest.Server{Infer: func(_ context.Context, r *tritonpb.ModelInferRequest) (*tritonpb.ModelInferResponse, error) {
		arrived <- struct{}{}
		<-release
		return tritontest.Response(r, 1), nil
	}}
	quick := &tritontest.Server{}
	u := upstream(t, tritontest.Network{"slow:1": slow, "quick:1": quick})
	var all []<-chan error
	for slow.Open.Load() == 0 {
		all = append(all, run(t.Context(), kserve(t, u, request("risk"))))
		select {
		case <-arrived:
		case err := <-all[len(all)-1]:
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	before := quick.Calls.Load()
	for range 50 {
		if err := infer(t.Context(), kserve(t, u, request("risk"))); err != nil {
			t.Fatal(err)
		}
	}
	if n := quick.Calls.Load() - before; n != 50 || u.InFlight("slow:1") != 1 {
		t.Errorf("%d of 50 calls passed by the endpoint that has %d", n, u.InFlight("slow:1"))
	}
	close(release)
	if err := receive(t, all[len(all)-1], "end"); err != nil {
		t.Error(err)
	}
}

func TestOnlyEndpointsThatMayServeAreChosen(t *testing.T) {
	k := &known{}
	servers := tritontest.Network{"a:1": {}, "b:1": {}, "c:1": {}}
	u := upstream(t, servers, func(o *Options) { o.Health = k })
	pool := u.Pool("fraud", "3")
	c := &inference.Call{Start: time.Now()}
	picked := func() map[string]bool {
		names := map[string]bool{}
		for range 100 {
			if e, err := pool.Pick(c, nil); err == nil {
				names[e.Name()] = true
			}
		}
		return names
	}
	if got := picked(); len(got) != 3 || pool.Ready() {
		t.Errorf("while nothing is known: %v, ready %t", got, pool.Ready())
	}
	k.set("fraud", map[string]inference.Readiness{"a:1": inference.Ready, "b:1": inference.NotReady})
	if got := picked(); len(got) != 1 || !got["a:1"] || !pool.Ready() {
		t.Errorf("the one that is ready: %v", got)
	}
	a, _ := pool.Pick(c, nil)
	if e, err := pool.Pick(c, []inference.Endpoint{a}); err != nil || e.Name() != "c:1" {
		t.Errorf("another one: %v, %v", e, err)
	}
	k.set("other", nil)
	if got := picked(); len(got) != 1 {
		t.Errorf("another model's change: %v", got)
	}
	none := map[string]inference.Readiness{"a:1": inference.NotReady, "b:1": inference.NotReady, "c:1": inference.NotReady}
	k.set("", none)
	before := k.kicks.Load()
	_, err := pool.Pick(c, nil)
	if f := wantKind(t, err, fault.NoEndpoint); f.Msg != "none of the 3 endpoints of upstream triton answers; try again shortly" {
		t.Errorf("got %q", f.Msg)
	}
	if k.kicks.Load() != before+1 {
		t.Error("nobody was asked to look again")
	}
	if _, err = pool.Pick(c, []inference.Endpoint{a}); err == nil {
		t.Error("picked an endpoint that cannot serve")
	}
	k.set("", map[string]inference.Readiness{"a:1": inference.NotReady, "b:1": inference.NotReady, "c:1": inference.NotReady})
	u.health = upButNotReady{k}
	u.changed("fraud")
	_, err = pool.Pick(c, nil)
	if f := wantKind(t, err, fault.ModelNotReady); f.Msg != `model "fraud" version 3 is not ready on upstream triton; try again shortly` {
		t.Errorf("got %q", f.Msg)
	}
}

type upButNotReady struct{ *known }

func (upButNotReady) Up(string) bool { return true }

func TestASecondAttemptGoesElsewhereOrNowhere(t *testing.T) {
	u := upstream(t, tritontest.Network{"a:1": {}, "b:1": {}})
	pool, c := u.Pool("m", ""), &inference.Call{Start: time.Now()}
	first, _ := pool.Pick(c, nil)
	second, err := pool.Pick(c, []inference.Endpoint{first})
	if err != nil || second.Name() == first.Name() {
		t.Fatalf("%v, %v", second, err)
	}
	_, err = pool.Pick(c, []inference.Endpoint{first, second})
	wantKind(t, err, fault.NoEndpoint)
}

func TestPoolsAreTheSameOverReloadsAndKeepUpWithChanges(t *testing.T) {
	u := upstream(t, tritontest.Network{"a:1": {}})
	if u.Pool("m", "1") != u.Pool("m", "1") || u.Pool("m", "1") == u.Pool("m", "2") || u.Pool("m", "1") == u.Pool("n", "1") {
		t.Error("pools are not one for each version of a model")
	}
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for n := range 500 {
				if _, err := u.Pool("m", fmt.Sprint(n%5)).Pick(&inference.Call{Start: time.Now()}, nil); err != nil {
					t.Error(err)
				}
				if i == 0 {
					u.changed("m")
				}
			}
		})
	}
	all.Wait()
}

func TestUpdateLeavesTheEndpointsThatStayAlone(t *testing.T) {
	arrived, release := make(chan struct{}, 1), make(chan struct{})
	hold := func(_ context.Context, r *tritonpb.ModelInferRequest) (*tritonpb.ModelInferResponse, error) {
		arrived <- struct{}{}
		<-release
		return tritontest.Response(r, 1), nil
	}
	servers := tritontest.Network{"a:1": {Infer: hold}, "b:1": {}, "c:1": {}}
	u := upstream(t, servers, func(o *Options) { o.Endpoints = []string{"a:1", "b:1"} })
	kept := u.list()[1]
	pool := u.Pool("fraud", "3")
	var under <-chan error
	for servers["a:1"].Open.Load() == 0 {
		done := run(t.Context(), kserve(t, u, request("risk")))
		select {
		case <-arrived:
			under = done
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	o := Options{Name: "triton", Dial: servers.Dial, Version: "test", Endpoints: []string{"c:1", "b:1"}}
	gone := u.list()[0]
	if err := u.Update(o); err != nil {
		t.Fatal(err)
	}
	if got := u.Endpoints(); !slices.Equal(got, []string{"b:1", "c:1"}) || u.list()[0] != kept {
		t.Errorf("endpoints %v", got)
	}
	for range 50 {
		if err := infer(t.Context(), kserve(t, u, request("risk"))); err != nil {
			t.Fatal(err)
		}
	}
	if servers["c:1"].Calls.Load() == 0 || servers["a:1"].Calls.Load() != 1 || u.Pool("fraud", "3") != pool {
		t.Error("calls do not follow the endpoints")
	}
	close(release)
	if err := receive(t, under, "the call under way"); err != nil {
		t.Errorf("a call on an endpoint that was taken out failed: %v", err)
	}
	for until := time.Now().Add(patience); (*gone.conns.Load())[0].open.Load() >= 0; {
		if time.Now().After(until) {
			t.Fatal("the connection of an endpoint that is gone stays open")
		}
	}
	if err := u.Update(o); err != nil || u.list()[0] != kept {
		t.Errorf("the same again changed something: %v", err)
	}
	o.MaxMessage = 1000
	if err := u.Update(o); err != nil || u.list()[0] == kept {
		t.Errorf("the new cap is not in force: %v", err)
	}
	o.Name = "other"
	if u.Update(o) == nil {
		t.Error("the upstream took another name")
	}
	u.Close()
	u.Close()
	if u.Update(o) == nil {
		t.Error("a closed upstream was updated")
	}
}

func TestAStreamToAnEndpointThatIsGoneEndsWithItsLastCall(t *testing.T) {
	arrived, release, ended := make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	servers := tritontest.Network{"a:1": {Stream: func(s *tritontest.Stream) error {
		defer close(ended)
		r, err := s.Recv()
		if err != nil {
			return err
		}
		arrived <- struct{}{}
		<-release
		if err := s.Send(tritontest.Answer(r, true, 1)); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	}}, "b:1": {Stream: serve(func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error {
		return s.Send(tritontest.Answer(r, true, 1))
	})}}
	u := upstream(t, servers, func(o *Options) { o.Endpoints = []string{"a:1"} })
	c := newClient(t, u)
	call := c.message()
	done := run(t.Context(), call)
	receive(t, arrived, "request")
	if err := u.Update(Options{Name: "triton", Dial: servers.Dial, Version: "test", Endpoints: []string{"b:1"}}); err != nil {
		t.Fatal(err)
	}
	next := c.message()
	if err := receive(t, run(t.Context(), next), "a message after"); err != nil {
		t.Error(err)
	}
	close(release)
	if err := receive(t, done, "the call under way"); err != nil || call.Answers != 1 {
		t.Errorf("%d answers, %v", call.Answers, err)
	}
	receive(t, ended, "the end of the upstream stream")
}

func TestANameIsResolvedAgainAndAgainAndWhenAConnectionFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			mu     sync.Mutex
			looks  []time.Duration
			sets   [][]string
			answer = []string{"10.0.0.2", "10.0.0.1"}
			fail   error
		)
		begin := time.Now()
		r, err := resolverFor([]string{"dns:///triton:8001"}, func(_ context.Context, host string) ([]string, error) {
			mu.Lock()
			defer mu.Unlock()
			if host != "triton" {
				t.Errorf("asked for %s", host)
			}
			looks = append(looks, time.Since(begin))
			return answer, fail
		}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		again := make(chan struct{})
		go r.Watch(ctx, again, func(a []string) {
			mu.Lock()
			defer mu.Unlock()
			sets = append(sets, a)
		})
		then := func(a []string, err error, wait time.Duration) {
			mu.Lock()
			answer, fail = a, err
			mu.Unlock()
			time.Sleep(wait) //nolint:forbidigo // the bubble's clock
			synctest.Wait()
		}
		synctest.Wait()
		then([]string{"10.0.0.1", "10.0.0.2", "10.0.0.1"}, nil, 0) // the same
		again <- struct{}{}                                        // is heard when a second has passed
		synctest.Wait()
		then(nil, errors.New("no such host"), 10*time.Second) // keeps what is there
		then(nil, nil, 10*time.Second)                        // and so does nothing
		then([]string{"::1"}, nil, 10*time.Second)
		cancel()
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if want := []time.Duration{0, 1e9, 11e9, 21e9, 31e9}; !slices.Equal(looks, want) {
			t.Errorf("looked at %v, want %v", looks, want)
		}
		if len(sets) != 2 || !slices.Equal(sets[0], []string{"10.0.0.1:8001", "10.0.0.2:8001"}) || !slices.Equal(sets[1], []string{"[::1]:8001"}) {
			t.Errorf("found %q", sets)
		}
	})
}

func TestANameThatCannotBeLookedUpIsToldOnceAMinuteAndOnceWhenItIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		answers := func(n int) ([]string, error) { // a look every ten seconds
			switch {
			case n < 10:
				return nil, errors.New("server misbehaving")
			case n < 20:
				return nil, nil
			}
			return []string{"10.0.0.1"}, nil
		}
		n := 0
		r, err := resolverFor([]string{"dns:///triton:8001"}, func(context.Context, string) ([]string, error) {
			n++
			return answers(n - 1)
		}, slog.New(slog.NewTextHandler(&text, nil)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		r.Watch(ctx, make(chan struct{}), func([]string) {})
		var got []string
		for line := range strings.Lines(text.String()) {
			_, line, _ = strings.Cut(line, "level=")
			level, line, _ := strings.Cut(line, " ")
			_, cause, _ := strings.Cut(strings.TrimSpace(line), "error=")
			if !strings.Contains(line, "endpoints=dns:///triton:8001") {
				t.Errorf("got %q", line)
			}
			got = append(got, level+" "+cause)
		}
		want := []string{`WARN "server misbehaving"`, `WARN "server misbehaving"`, `WARN "the name has no address"`, `WARN "the name has no address"`, "INFO "}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestAnUpstreamFollowsItsName(t *testing.T) {
	servers := tritontest.Network{"10.0.0.1:1": {}, "10.0.0.2:1": {}}
	var mu sync.Mutex
	answer := []string{"10.0.0.1"}
	u := upstream(t, servers, func(o *Options) {
		o.Endpoints = []string{"dns:///triton:1"}
		o.Lookup = func(context.Context, string) ([]string, error) {
			mu.Lock()
			defer mu.Unlock()
			return answer, nil
		}
	})
	if err := infer(t.Context(), kserve(t, u, request("risk"))); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	answer = []string{"10.0.0.2"}
	mu.Unlock()
	servers["10.0.0.1:1"].Stop()
	for until := time.Now().Add(patience); ; {
		if err := infer(t.Context(), kserve(t, u, request("risk"))); err == nil {
			break
		} else if time.Now().After(until) {
			t.Fatal(err)
		}
	}
	if servers["10.0.0.2:1"].Calls.Load() != 1 {
		t.Error("the new address got no call")
	}
}

func TestAnUpstreamWithoutAddressesSaysSo(t *testing.T) {
	u, err := New(Options{Name: "x", Endpoints: []string{"dns:///nowhere:1"}, Lookup: func(context.Context, string) ([]string, error) {
		return nil, errors.New("no such host")
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	_, err = u.Pool("m", "1").Pick(&inference.Call{Start: time.Now()}, nil)
	if f := wantKind(t, err, fault.NoEndpoint); f.Msg != "upstream x has no endpoints: dns:///nowhere:1 gives no address yet; try again shortly" {
		t.Errorf("got %q", f.Msg)
	}
	wantKind(t, u.Any(t.Context(), nil), fault.NoEndpoint)
	wantKind(t, u.Each(t.Context(), nil)[0].Err, fault.NoEndpoint)
	_, err = u.Info(t.Context(), "m", "1")
	wantKind(t, err, fault.NoEndpoint)
}

func TestOptionsThatCannotWorkAreRefusedByName(t *testing.T) {
	many := make([]string, maxEndpoints+1)
	for i := range many {
		many[i] = fmt.Sprintf("h%d:1", i)
	}
	for want, o := range map[string]Options{
		"needs a name":                {},
		"upstream a: no endpoints":    {Name: "a"},
		`endpoint "h" is not`:         {Name: "a", Endpoints: []string{"h"}},
		`endpoint "http://h:1" is`:    {Name: "a", Endpoints: []string{"b:1", "http://h:1"}},
		`endpoint ":1" is not`:        {Name: "a", Endpoints: []string{":1"}},
		`endpoint "h" is not host`:    {Name: "a", Endpoints: []string{"dns:///h"}},
		"must be the only endpoint":   {Name: "a", Endpoints: []string{"dns:///h:1", "b:1"}},
		"1025 endpoints":              {Name: "a", Endpoints: many},
		"the largest message is -1":   {Name: "a", Endpoints: []string{"b:1"}, MaxMessage: -1},
		"keepalive every 1s is too o": {Name: "a", Endpoints: []string{"b:1"}, Keepalive: time.Second},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestEachAsksEveryEndpointAndAnyOne(t *testing.T) {
	refuse := func(context.Context) (bool, error) { return false, status.Error(codes.Internal, "no") }
	servers := tritontest.Network{"a:1": {}, "b:1": {Live: refuse}, "c:1": {}}
	k := &known{states: map[string]inference.Readiness{"c:1": inference.Ready}}
	u := upstream(t, servers, func(o *Options) { o.Health = k })
	live := func(_ string, conn grpc.ClientConnInterface) error {
		_, err := tritonpb.NewGRPCInferenceServiceClient(conn).ServerLive(t.Context(), &tritonpb.ServerLiveRequest{})
		return err
	}
	failed := u.Each(t.Context(), live)
	if len(failed) != 1 || failed[0].Endpoint != "b:1" || status.Code(failed[0].Err) != codes.Internal {
		t.Errorf("failed: %v", failed)
	}
	for range 20 {
		for _, any := range []func(func(string, grpc.ClientConnInterface) error) error{
			func(do func(string, grpc.ClientConnInterface) error) error { return u.Any(t.Context(), do) },
			func(do func(string, grpc.ClientConnInterface) error) error {
				return u.AnyReady(t.Context(), "m", "1", do)
			},
		} {
			if err := any(func(e string, conn grpc.ClientConnInterface) error {
				if e != "c:1" {
					t.Errorf("asked %s, which is not ready", e)
				}
				return live(e, conn)
			}); err != nil {
				t.Error(err)
			}
		}
	}
	servers["c:1"].Stop()
	servers["b:1"].Stop()
	servers["a:1"].Stop()
	asked := 0
	err := u.Any(t.Context(), func(e string, conn grpc.ClientConnInterface) error {
		asked++
		return live(e, conn)
	})
	if asked != 2 || err == nil {
		t.Errorf("asked %d, %v", asked, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if failed := u.Each(ctx, live); len(failed) != 3 || !errors.Is(failed[0].Err, context.Canceled) {
		t.Errorf("failed: %v", failed)
	}
}

func TestWhatAModelIsIsAskedOnceAndAgainAfterItCameBack(t *testing.T) {
	var asked atomic.Int64
	release := make(chan struct{})
	shape := int64(16)
	s := &tritontest.Server{Metadata: func(_ context.Context, model, version string) (*tritonpb.ModelMetadataResponse, error) {
		asked.Add(1)
		<-release
		return &tritonpb.ModelMetadataResponse{Name: model, Versions: []string{"1", version}, Inputs: []*tritonpb.ModelMetadataResponse_TensorMetadata{
			{Name: "IN", Datatype: "FP32", Shape: []int64{-1, atomic.LoadInt64(&shape)}},
		}}, nil
	}, Config: decoupledConfig}
	u := one(t, s)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			info, err := u.Info(t.Context(), "m", "3")
			if err != nil || !info.Decoupled || !slices.Equal(info.Versions, []string{"1", "3"}) || !slices.Equal(info.Tensors.Inputs[0].Shape, []int64{-1, 16}) {
				t.Errorf("%+v, %v", info, err)
			}
		})
	}
	close(release)
	all.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	atomic.StoreInt64(&shape, 17)
	u.changed("m")
	for until := time.Now().Add(patience); ; {
		info, err := u.Info(t.Context(), "m", "3")
		if err != nil {
			t.Fatal(err)
		}
		if info.Tensors.Inputs[0].Shape[1] == 17 {
			break
		}
		if time.Now().After(until) {
			t.Fatal("the old tensors stay")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := u.Info(ctx, "m", "3"); err != nil {
		t.Errorf("what is known needs no time: %v", err)
	}
	_, err := u.Info(ctx, "other", "3")
	wantKind(t, err, fault.Cancelled)
}

func TestNotKnowingAModelIsRememberedForAMoment(t *testing.T) {
	var asked atomic.Int64
	s := &tritontest.Server{Metadata: func(context.Context, string, string) (*tritonpb.ModelMetadataResponse, error) {
		asked.Add(1)
		return nil, status.Error(codes.NotFound, "Request for unknown model: 'm' is not found")
	}}
	u := one(t, s)
	for range 10 {
		_, err := u.Info(t.Context(), "m", "1")
		wantKind(t, err, fault.ModelNotFound)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

func TestDescribeTellsMissingFromUnloaded(t *testing.T) {
	s := &tritontest.Server{Metadata: func(_ context.Context, model, version string) (*tritonpb.ModelMetadataResponse, error) {
		switch {
		case model == "cold":
			return nil, status.Error(codes.NotFound, "Request for unknown model: 'cold' has no available versions")
		case model == "nope" || version == "9":
			return nil, status.Error(codes.NotFound, "Request for unknown model: 'nope' is not found")
		}
		return &tritonpb.ModelMetadataResponse{Versions: []string{"1", "2"}}, nil
	}}
	u := one(t, s)
	if v, err := u.Describe(t.Context(), "m", ""); err != nil || !slices.Equal(v, []string{"1", "2"}) {
		t.Errorf("%v, %v", v, err)
	}
	_, err := u.Describe(t.Context(), "nope", "")
	wantKind(t, err, fault.ModelNotFound)
	_, err = u.Describe(t.Context(), "m", "9")
	wantKind(t, err, fault.ModelNotFound)
	_, err = u.Describe(t.Context(), "cold", "")
	wantKind(t, err, fault.ModelNotReady)
}

func TestAModelThatWasReadyAMomentAgoIsNotReadyRatherThanUnknown(t *testing.T) {
	gone := "Request for unknown model: 'fraud' version 3 is not found"
	s := &tritontest.Server{
		Infer: func(context.Context, *tritonpb.ModelInferRequest) (*tritonpb.ModelInferResponse, error) {
			return nil, status.Error(codes.NotFound, gone)
		},
		Stream: serve(func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error {
			return s.Send(tritontest.Failure(r, gone, false))
		}),
	}
	k := &known{}
	u := one(t, s, func(o *Options) { o.Health = k })
	c := newClient(t, u)
	for state, want := range map[inference.Readiness]fault.Kind{inference.Unknown: fault.ModelNotFound, inference.Ready: fault.ModelNotReady} {
		k.set("", map[string]inference.Readiness{"a:1": state})
		before := k.kicks.Load()
		if f := wantKind(t, infer(t.Context(), kserve(t, u, request("risk"))), want); f.Msg != gone {
			t.Errorf("got %q", f.Msg)
		}
		if k.kicks.Load() == before {
			t.Error("nobody looks again")
		}
		wantKind(t, receive(t, run(t.Context(), c.predict(1)), "end"), want)
	}
}

func TestDeclaredTargetsAndThoseWithTrafficAreWorthProbing(t *testing.T) {
	k := &known{}
	u := one(t, &tritontest.Server{}, func(o *Options) { o.Health = k })
	wanted := func() []string {
		var all []string
		u.wanted(func(model, version string) bool {
			all = append(all, model+"/"+version)
			return true
		})
		slices.Sort(all)
		return all
	}
	u.Pool("idle", "1")
	u.Declare([]inference.Target{{Model: "a", Version: "1"}, {Model: "b", Version: "2"}})
	if got := wanted(); !slices.Equal(got, []string{"a/1", "b/2"}) {
		t.Errorf("declared: %v", got)
	}
	if _, err := u.Pool("busy", "1").Pick(&inference.Call{Start: time.Now()}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := u.Pool("idle", "1").Pick(&inference.Call{Start: time.Now().Add(-2 * recent)}, nil); err != nil {
		t.Fatal(err)
	}
	u.Declare([]inference.Target{{Model: "b", Version: "2"}})
	if got := wanted(); !slices.Equal(got, []string{"b/2", "busy/1"}) {
		t.Errorf("with traffic: %v", got)
	}
	if k.kicks.Load() < 4 {
		t.Errorf("%d kicks", k.kicks.Load())
	}
}

func TestWatchersHearOfEveryChange(t *testing.T) {
	k := &known{}
	u := one(t, &tritontest.Server{}, func(o *Options) { o.Health = k })
	var heard []string
	u.Watch(func(model string) { heard = append(heard, model) })
	k.set("m", nil)
	k.set("", nil)
	if !slices.Equal(heard, []string{"m", ""}) {
		t.Errorf("heard %q", heard)
	}
}
