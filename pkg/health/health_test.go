package health

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/proto/triton"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a model server that answers questions after its fields, and counts them.
type server struct {
	mu     sync.Mutex
	err    error // of every question
	silent bool  // no question is answered
	ready  map[string]bool
	notSay error // of ModelReady
	index  []string
	config *tritonpb.ModelConfig
	inputs []*tritonpb.ModelMetadataResponse_TensorMetadata
	infer  func(*tritonpb.ModelInferRequest) error
	hangs  bool // inferences are not answered
	infers int
	live   int
	asked  map[string]int
}

func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *server) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	panic("no streams")
}

func (s *server) Invoke(ctx context.Context, method string, question, answer any, _ ...grpc.CallOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silent {
		s.mu.Unlock()
		<-ctx.Done()
		s.mu.Lock()
		return fault.Of(context.Cause(ctx))
	}
	var is proto.Message
	switch method {
	case tritonpb.GRPCInferenceService_ServerLive_FullMethodName:
		s.live++
		is = &tritonpb.ServerLiveResponse{Live: true}
	case tritonpb.GRPCInferenceService_ModelReady_FullMethodName:
		q := question.(*tritonpb.ModelReadyRequest)
		if s.asked == nil {
			s.asked = make(map[string]int)
		}
		k := q.GetName() + "/" + q.GetVersion()
		s.asked[k]++
		if s.notSay != nil {
			return s.notSay
		}
		is = &tritonpb.ModelReadyResponse{Ready: s.ready[k]}
	case tritonpb.GRPCInferenceService_ModelMetadata_FullMethodName:
		is = &tritonpb.ModelMetadataResponse{Inputs: s.inputs}
	case tritonpb.GRPCInferenceService_ModelConfig_FullMethodName:
		is = &tritonpb.ModelConfigResponse{Config: s.config}
	case tritonpb.GRPCInferenceService_ModelInfer_FullMethodName:
		s.infers++
		if s.hangs {
			s.mu.Unlock()
			<-ctx.Done()
			s.mu.Lock()
			return fault.Of(context.Cause(ctx))
		}
		if s.infer != nil {
			if err := s.infer(question.(*tritonpb.ModelInferRequest)); err != nil {
				return err
			}
		}
		is = &tritonpb.ModelInferResponse{}
	case tritonpb.GRPCInferenceService_RepositoryIndex_FullMethodName:
		list := &tritonpb.RepositoryIndexResponse{}
		for _, row := range s.index {
			m := &tritonpb.RepositoryIndexResponse_ModelIndex{}
			_, _ = fmt.Sscan(row, &m.Name, &m.Version, &m.State, &m.Reason)
			list.Models = append(list.Models, m)
		}
		is = list
	}
	if s.err != nil {
		return s.err
	}
	proto.Merge(answer.(proto.Message), is)
	return nil
}

func (s *server) count(k string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[k]
}

// rig is a Prober over servers a, b, … with one wanted version after another.
type rig struct {
	*Prober
	mu      sync.Mutex
	wanted  []key
	changes []string
}

func start(t *testing.T, servers map[string]*server, wanted ...key) *rig {
	r := &rig{Prober: New(Options{}), wanted: wanted}
	r.Begin(func(yield func(model, version string) bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, k := range r.wanted {
			if !yield(k.model, k.version) {
				return
			}
		}
	}, func(model string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.changes = append(r.changes, model)
	})
	r.SetEndpoints(conns(servers))
	t.Cleanup(r.Close)
	return r
}

func conns(servers map[string]*server) map[string]grpc.ClientConnInterface {
	c := make(map[string]grpc.ClientConnInterface)
	for name, s := range servers {
		c[name] = s
	}
	return c
}

func (r *rig) want(t *testing.T, endpoint, model, version string, state inference.Readiness) {
	t.Helper()
	synctest.Wait()
	if got := r.State(endpoint, model, version); got != state {
		t.Errorf("after %s: %s %s on %s is %s, want %s", time.Since(began), model, version, endpoint, got, state)
	}
}

func (r *rig) took() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.changes
	r.changes = nil
	return c
}

// began is when every bubble begins.
var began = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

var (
	refused = fault.New(fault.UpstreamUnavailable, "connection refused")
	fraud1  = key{"fraud", "1"}
)

func after(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // inside a synctest bubble it is the clock that moves

func TestTheFirstAnswerDecidesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &server{ready: map[string]bool{"fraud/1": true}}, &server{}
		r := start(t, map[string]*server{"a": a, "b": b}, fraud1)
		r.want(t, "a", "fraud", "1", inference.Ready)
		r.want(t, "b", "fraud", "1", inference.NotReady)
		r.want(t, "a", "fraud", "2", inference.Unknown)
		r.want(t, "c", "fraud", "1", inference.NotReady)
		if !slices.Contains(r.took(), "fraud") {
			t.Error("nobody was told")
		}
	})
}

func TestAModelGoesAfterThreeBadAnswersAndComesBackAfterTwoGoodOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{ready: map[string]bool{"fraud/1": true}}
		r := start(t, map[string]*server{"a": s}, fraud1, key{"other", ""})
		s.set(func() { s.ready["other/"] = true })
		after(3 * time.Second)
		r.want(t, "a", "fraud", "1", inference.Ready)
		s.set(func() { s.ready["fraud/1"] = false })
		after(time.Second + 100*time.Millisecond) // the first at 4.0 s
		r.want(t, "a", "fraud", "1", inference.Ready)
		after(500 * time.Millisecond)
		r.want(t, "a", "fraud", "1", inference.Ready)
		r.took()
		after(500 * time.Millisecond)
		r.want(t, "a", "fraud", "1", inference.NotReady)
		if got := r.took(); !slices.Equal(got, []string{"fraud"}) {
			t.Errorf("told of %q", got)
		}
		s.set(func() { s.ready["fraud/1"] = true })
		after(2 * time.Second) // the first at 7.0 s
		r.want(t, "a", "fraud", "1", inference.NotReady)
		after(500 * time.Millisecond)
		r.want(t, "a", "fraud", "1", inference.Ready)
		r.want(t, "a", "other", "", inference.Ready)
	})
}

func TestOneBadAnswerAmongGoodOnesChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{ready: map[string]bool{"fraud/1": true}}
		r := start(t, map[string]*server{"a": s}, fraud1)
		synctest.Wait()
		for range 5 {
			s.set(func() { s.ready["fraud/1"] = false })
			after(2*time.Second + 700*time.Millisecond) // two bad answers
			synctest.Wait()
			s.set(func() { s.ready["fraud/1"] = true })
			after(300 * time.Millisecond) // and a good one
			r.want(t, "a", "fraud", "1", inference.Ready)
		}
	})
}

func TestNotBeingAbleToAskKeepsWhatWasKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{ready: map[string]bool{"fraud/1": true}, index: []string{"fraud 1 READY", "fraud 2 UNAVAILABLE unloaded"}}
		r := start(t, map[string]*server{"a": s}, fraud1)
		after(time.Second)
		for _, err := range []error{
			fault.New(fault.UpstreamFailed, "no"), fault.New(fault.UpstreamRefused, "restricted"),
			fault.New(fault.Deadline, "late"), fault.New(fault.NotServed, "what?"),
		} {
			s.set(func() { s.notSay = err })
			after(time.Minute)
			r.want(t, "a", "fraud", "1", inference.Ready)
		}
		s.set(func() { s.notSay = fault.New(fault.ModelNotReady, "no available versions") })
		after(4 * time.Second)
		r.want(t, "a", "fraud", "1", inference.NotReady)
	})
}

func TestARefusedConnectionTakesTheEndpointOutAtOnceForAllModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &server{ready: map[string]bool{"fraud/1": true}, index: []string{"cnn 1 READY"}}, &server{ready: map[string]bool{"fraud/1": true}}
		r := start(t, map[string]*server{"a": a, "b": b}, fraud1)
		after(time.Second)
		r.want(t, "a", "cnn", "1", inference.Ready)
		r.took()
		a.set(func() { a.err, a.index = refused, nil })
		after(2 * time.Second)
		r.want(t, "a", "fraud", "1", inference.NotReady)
		r.want(t, "a", "cnn", "1", inference.NotReady)
		r.want(t, "a", "never seen", "1", inference.NotReady)
		r.want(t, "b", "fraud", "1", inference.Ready)
		if r.Up("a") || !r.Up("b") || !slices.Contains(r.took(), "") {
			t.Error("the endpoint is not out")
		}
		after(time.Minute)
		a.set(func() { a.err, a.index = nil, []string{"cnn 1 LOADING"} })
		after(2*time.Second + 600*time.Millisecond)
		synctest.Wait()
		if !r.Up("a") {
			t.Error("the endpoint is not back")
		}
		r.want(t, "a", "fraud", "1", inference.Ready)
		r.want(t, "a", "cnn", "1", inference.NotReady) // it loads, and what was known of it is void
		a.set(func() { a.index = []string{"cnn 1 READY"} })
		after(10 * time.Second)
		r.want(t, "a", "cnn", "1", inference.Ready)
	})
}

func TestASilentEndpointIsOutWithinSevenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{ready: map[string]bool{"fraud/1": true}}
		r := start(t, map[string]*server{"a": s}, fraud1)
		after(time.Second)
		s.set(func() { s.silent = true })
		after(4 * time.Second)
		synctest.Wait()
		if !r.Up("a") {
			t.Error("out after two misses")
		}
		after(3 * time.Second)
		r.want(t, "a", "fraud", "1", inference.NotReady)
		s.set(func() { s.silent = false })
		after(3 * time.Second)
		r.want(t, "a", "fraud", "1", inference.Ready)
	})
}

func TestABrokenConnectionIsAskedAboutAgainBeforeTheEndpointIsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{ready: map[string]bool{"fraud/1": true}}
		r := start(t, map[string]*server{"a": s}, fraud1)
		after(time.Second)
		s.set(func() { s.err = fault.New(fault.EndpointLost, "reset") })
		after(time.Second)
		synctest.Wait()
		if r.Up("a") {
			t.Error("three resets in a row are not enough")
		}
	})
}

func TestTheIndexTellsOfVersionsThatNobodyAsksFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &server{index: []string{"fraud 1 READY", "fraud 2 LOADING", "fraud 10 UNAVAILABLE unloaded", "fraud 3 UNAVAILABLE failed", "cold", "cnn 1 READY"}}
		b := &server{index: []string{"fraud 1 READY", "fraud 2 READY"}}
		r := start(t, map[string]*server{"a": a, "b": b})
		synctest.Wait()
		r.want(t, "a", "fraud", "1", inference.Ready)
		r.want(t, "a", "fraud", "2", inference.Unknown)
		r.want(t, "a", "fraud", "10", inference.NotReady)
		if !r.Listed("cnn") || r.Listed("cold") || r.Listed("nope") {
			t.Error("the list is wrong")
		}
		want := []inference.VersionState{
			{Version: "1", Anywhere: true, Everywhere: true},
			{Version: "2", Anywhere: true},
			{Version: "3"},
			{Version: "10", Unloaded: true},
		}
		same(t, r.Versions("fraud"), want)
		same(t, r.Versions("cnn"), []inference.VersionState{{Version: "1", Anywhere: true}})
		same(t, r.Versions("cold"), nil)

		a.set(func() { a.index[1] = "fraud 2 READY" })
		b.set(func() { b.index = b.index[1:] })
		after(15 * time.Second)
		synctest.Wait()
		v := r.Versions("fraud")
		want[0] = inference.VersionState{Version: "1", Anywhere: true}
		want[1] = inference.VersionState{Version: "2", Anywhere: true, Everywhere: true}
		same(t, v, want)
		if age := time.Since(v[1].Since); age != 5*time.Second {
			t.Errorf("everywhere since %s", age)
		}
		a.set(func() { a.index = nil })
		b.set(func() { b.index = nil })
		r.Refresh()
		synctest.Wait()
		for _, s := range r.Versions("fraud") {
			if !s.Unloaded || s.Anywhere {
				t.Errorf("%+v is gone", s)
			}
		}
		after(12 * time.Minute)
		same(t, r.Versions("fraud"), nil)
	})
}

func same(t *testing.T, got, want []inference.VersionState) {
	t.Helper()
	got = slices.Clone(got)
	for i := range got {
		got[i].Since = time.Time{}
	}
	if !slices.Equal(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
}

func TestAnOutageUnloadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{index: []string{"fraud 1 READY"}}
		r := start(t, map[string]*server{"a": s})
		after(time.Second)
		s.set(func() { s.err = refused })
		after(time.Hour)
		synctest.Wait()
		same(t, r.Versions("fraud"), []inference.VersionState{{Version: "1"}})
	})
}

func TestAModelThatNoIndexListsIsKnownByItsProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{ready: map[string]bool{"pushed/1": true}}
		r := start(t, map[string]*server{"a": s}, key{"pushed", "1"})
		after(20 * time.Second)
		r.want(t, "a", "pushed", "1", inference.Ready)
		same(t, r.Versions("pushed"), []inference.VersionState{{Version: "1", Anywhere: true, Everywhere: true}})
		if r.Listed("pushed") {
			t.Error("it is listed")
		}
		s.set(func() { s.ready["pushed/1"] = false })
		after(5 * time.Second)
		synctest.Wait()
		same(t, r.Versions("pushed"), []inference.VersionState{{Version: "1", Unloaded: true}})
	})
}

func TestAProbeOutweighsTheIndexAndTheIndexCausesAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{ready: map[string]bool{"fraud/1": true}, index: []string{"fraud 1 LOADING"}}
		r := start(t, map[string]*server{"a": s}, fraud1)
		after(30 * time.Second) // a hot reload: the version before serves on
		r.want(t, "a", "fraud", "1", inference.Ready)
		s.set(func() { s.index[0] = "fraud 1 UNAVAILABLE unloaded" })
		after(30 * time.Second)
		r.want(t, "a", "fraud", "1", inference.Ready)
	})
}

func TestProbesKeepToTheirBudgetAndStretch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{ready: map[string]bool{}}
		var all []key
		for i := range 400 {
			k := key{fmt.Sprintf("m%d", i), "1"}
			all = append(all, k)
			s.ready[k.model+"/1"] = true
		}
		start(t, map[string]*server{"a": s}, all...)
		after(40 * time.Second)
		synctest.Wait()
		total := 0
		for _, k := range all {
			n := s.count(k.model + "/1")
			if n < 4 || n > 6 {
				t.Errorf("%s was probed %d times in 40 s", k.model, n)
			}
			total += n
		}
		if total > 50*40+1 || total < 1900 {
			t.Errorf("%d probes in 40 s", total)
		}
		if s.live != 21 && s.live != 20 {
			t.Errorf("%d questions after its life", s.live)
		}
	})
}

func TestOnlyWantedVersionsAreProbedAndAKickProbesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{ready: map[string]bool{"fraud/1": true}}
		r := start(t, map[string]*server{"a": s})
		after(10 * time.Second)
		if n := s.count("fraud/1"); n != 0 {
			t.Errorf("%d probes", n)
		}
		for range 100 {
			r.Kick("fraud", "1")
		}
		synctest.Wait()
		if n := s.count("fraud/1"); n != 1 {
			t.Errorf("%d probes after a kick", n)
		}
		r.want(t, "a", "fraud", "1", inference.Ready)
		after(time.Minute)
		if n := s.count("fraud/1"); n > 3 {
			t.Errorf("%d probes of a version that nobody wants", n)
		}
		r.want(t, "a", "fraud", "1", inference.Unknown)
		r.mu.Lock()
		r.wanted = []key{fraud1}
		r.mu.Unlock()
		after(10 * time.Second)
		r.want(t, "a", "fraud", "1", inference.Ready)
	})
}

func TestEndpointsComeAndGoWithoutTouchingTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := map[string]*server{"a": {ready: map[string]bool{"fraud/1": true}}, "b": {ready: map[string]bool{"fraud/1": true}}}
		r := start(t, servers, fraud1)
		after(time.Second)
		kept := r.endpoints["b"]
		next := maps.Clone(servers)
		delete(next, "a")
		next["c"] = &server{}
		r.SetEndpoints(conns(next))
		r.want(t, "a", "fraud", "1", inference.NotReady)
		r.want(t, "b", "fraud", "1", inference.Ready)
		r.want(t, "c", "fraud", "1", inference.NotReady)
		if r.endpoints["b"] != kept {
			t.Error("what was known of an endpoint that stays is lost")
		}
		before := servers["a"].live
		after(time.Minute)
		if servers["a"].live != before {
			t.Error("an endpoint that is gone is still asked")
		}
	})
}

func TestAnEndpointsNewConnectionInheritsWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, now := &server{ready: map[string]bool{"fraud/1": true}}, &server{ready: map[string]bool{"fraud/1": true}}
		r := start(t, map[string]*server{"a": before}, fraud1)
		after(time.Second)
		r.SetEndpoints(conns(map[string]*server{"a": now}))
		r.want(t, "a", "fraud", "1", inference.Ready)
		asked := before.count("fraud/1")
		after(time.Minute)
		if before.count("fraud/1") != asked || now.count("fraud/1") < 29 {
			t.Errorf("the old connection was asked %d times, the new one %d times", before.count("fraud/1")-asked, now.count("fraud/1"))
		}
	})
}

func TestServingNeedsAModelThatIsReadyWhereSomebodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{index: []string{"fraud 1 LOADING"}}
		r := start(t, map[string]*server{"a": s})
		synctest.Wait()
		if r.Serving() {
			t.Error("a model that loads is served")
		}
		s.set(func() { s.index[0] = "fraud 1 READY" })
		r.Refresh()
		synctest.Wait()
		if !r.Serving() {
			t.Error("nothing is served")
		}
		s.set(func() { s.err = refused })
		after(3 * time.Second)
		synctest.Wait()
		if r.Serving() {
			t.Error("an endpoint that is out serves")
		}
	})
}

func TestClosingStopsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{silent: true}
		r := start(t, map[string]*server{"a": s}, fraud1)
		synctest.Wait() // three questions are under way
		r.Close()
		r.SetEndpoints(conns(map[string]*server{"b": s}))
		r.Kick("fraud", "1")
		if r.Up("b") {
			t.Error("a closed prober watches")
		}
	})
}

func TestAnEndpointThatGoesOutIsToldWithTheCauseAndOnceWhenItIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		s := &server{}
		p := New(Options{Logger: slog.New(slog.NewTextHandler(&text, nil))})
		p.Begin(func(func(model, version string) bool) {}, func(string) {})
		p.SetEndpoints(conns(map[string]*server{"a": s}))
		after(3 * time.Second)
		s.set(func() {
			s.err = fault.Wrap(fault.UpstreamUnavailable, errors.New("dial tcp: no route to host"), "cannot be reached")
		})
		after(time.Minute)
		s.set(func() { s.err = nil })
		after(time.Minute)
		s.set(func() { s.silent = true })
		after(time.Minute)
		p.Close()
		var got []string
		for line := range strings.Lines(text.String()) {
			_, line, _ = strings.Cut(strings.TrimSpace(line), "level=")
			got = append(got, line)
		}
		want := []string{
			`INFO msg="endpoint answers" endpoint=a`,
			`WARN msg="endpoint out" endpoint=a error="dial tcp: no route to host"`,
			`INFO msg="endpoint back" endpoint=a`,
			`WARN msg="endpoint out" endpoint=a error="context deadline exceeded"`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
