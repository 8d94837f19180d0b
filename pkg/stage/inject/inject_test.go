package inject

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

func injected(t *testing.T, s Stage, c *inference.Call) map[string][]string {
	t.Helper()
	if c.Model == nil {
		c.Model = &inference.Model{}
	}
	if c.Target == nil {
		c.Target = &inference.Target{Name: "model_v1", Upstream: "triton"}
	}
	if err := s.Wrap(func(context.Context, *inference.Call) error { return nil })(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return c.Outgoing
}

func TestReservedAndHopByHopMetadataStaysHereAndTheRestGoesOn(t *testing.T) { // O-04, O-18
	got := injected(t, Stage{}, &inference.Call{
		Identity: inference.Identity{RequestID: "r", TraceID: "t", User: "ann"},
		Incoming: map[string][]string{
			":authority": {"x"}, "te": {"trailers"}, "connection": {"close"}, "content-length": {"1"}, "host": {"h"}, "content-type": {"application/grpc"},
			"grpc-timeout": {"1S"}, "grpc-accept-encoding": {"gzip"}, "user-agent": {"ua"}, "authorization": {"Bearer x"}, "x-api-key": {"k"},
			"triton-grpc-protocol-infer": {"k"}, "x-gateway-target": {"spoof"}, "x-user-id": {"alice"}, "x-request-id": {"bad id"},
			"sig-bin": {"\x00\xff\n"}, "x-tenant": {"a", "b"},
		},
	})
	want := map[string][]string{
		"x-request-id": {"r"}, "x-trace-id": {"t"}, "x-user-id": {"ann"}, "sig-bin": {"\x00\xff\n"}, "x-tenant": {"a", "b"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTraceContextGoesOnlyWhereItsPolicySays(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, tt := range []struct {
		policy  TraceParent
		sampled bool
		want    bool
	}{{Sampled, true, true}, {Sampled, false, false}, {Always, false, true}, {Never, true, false}} {
		got := injected(t, Stage{TraceParent: func(string) TraceParent { return tt.policy }}, &inference.Call{
			Identity: inference.Identity{TraceParent: parent, TraceState: "a=b", Sampled: tt.sampled},
			Incoming: map[string][]string{"traceparent": {parent}, "tracestate": {"a=b"}},
		})
		if (got["traceparent"] != nil) != tt.want || (got["tracestate"] != nil) != tt.want {
			t.Errorf("policy %d, sampled %v: sent %v", tt.policy, tt.sampled, got)
		}
	}
}

func TestAUserThatIsNotASCIITravelsPercentEncoded(t *testing.T) {
	got := injected(t, Stage{}, &inference.Call{Identity: inference.Identity{User: "zoë\n"}})
	if diff := cmp.Diff([]string{"zo%C3%AB%0A"}, got["x-user-id"]); diff != "" {
		t.Error(diff)
	}
}

func TestSetHeadersNameTheTarget(t *testing.T) {
	got := injected(t, Stage{}, &inference.Call{Model: &inference.Model{SetHeaders: map[string]string{"x-mesh-route": "to-{target}"}}})
	if diff := cmp.Diff([]string{"to-model_v1"}, got["x-mesh-route"]); diff != "" {
		t.Error(diff)
	}
}

func TestHeadersOfTheRuleThatDecidedGoBeforeThoseOfTheModel(t *testing.T) {
	got := injected(t, Stage{}, &inference.Call{
		Model:    &inference.Model{SetHeaders: map[string]string{"x-mesh-route": "{target}", "x-team": "risk"}},
		Choice:   inference.Choice{SetHeaders: map[string]string{"x-mesh-route": "canary-{target}"}},
		Incoming: map[string][]string{"x-mesh-route": {"mine"}},
	})
	if diff := cmp.Diff([][]string{{"canary-model_v1"}, {"risk"}}, [][]string{got["x-mesh-route"], got["x-team"]}); diff != "" {
		t.Error(diff)
	}
}

func TestMessagesOfAStreamDoNotSeeEachOthersMetadata(t *testing.T) {
	shared := map[string][]string{"x-tenant": {"a"}}
	s := &inference.Stream{}
	first := injected(t, Stage{}, &inference.Call{Stream: s, Incoming: shared, Identity: inference.Identity{User: "ann"}})
	second := injected(t, Stage{}, &inference.Call{Stream: s, Incoming: shared})
	if first["x-user-id"] == nil || second["x-user-id"] != nil || shared["x-request-id"] != nil {
		t.Errorf("first %v, second %v, shared %v", first, second, shared)
	}
}

func BenchmarkInject(b *testing.B) {
	h := Stage{}.Wrap(func(context.Context, *inference.Call) error { return nil })
	m, t := &inference.Model{}, &inference.Target{}
	b.ReportAllocs()
	for b.Loop() {
		_ = h(b.Context(), &inference.Call{Model: m, Target: t, Incoming: map[string][]string{"x-tenant": {"a"}, ":authority": {"a"}, "content-type": {"x"}}})
	}
}

func TestMetadataThatGRPCCannotCarryIsLeftOutAndFailsNothing(t *testing.T) {
	got := injected(t, Stage{}, &inference.Call{
		Identity: inference.Identity{TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceState: "caf\xe9", Sampled: true},
		Incoming: map[string][]string{"x-latin": {"caf\xe9"}, "x-tab": {"a\tb"}, "x-foo!": {"a"}, "x-good": {"a b~"}, "x-bin": {"\xe9\t"}},
	})
	for name, want := range map[string]bool{"x-latin": false, "x-tab": false, "x-foo!": false, "x-good": true, "x-bin": true, "tracestate": false, "traceparent": true} {
		if (got[name] != nil) != want {
			t.Errorf("%s: sent %v", name, got[name])
		}
	}
}
