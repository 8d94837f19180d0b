package identify

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

func identified(t *testing.T, c *inference.Call) inference.Identity {
	t.Helper()
	ran := false
	err := Stage{}.Wrap(func(context.Context, *inference.Call) error { ran = true; return nil })(t.Context(), c)
	if err != nil || !ran {
		t.Fatalf("identify refused the call: %v", err)
	}
	return c.Identity
}

var uuid7 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func TestACleanRequestIDIsKeptAndAnyOtherIsReplaced(t *testing.T) { // O-20
	for sent, kept := range map[string]bool{
		"abc-1": true, "A.b_c-9": true, strings.Repeat("a", 128): true,
		"": false, strings.Repeat("a", 129): false, strings.Repeat("a", 5000): false, "tab\tin": false, "ümlaut": false, "a b": false, "a/b": false,
	} {
		id := identified(t, &inference.Call{Incoming: map[string][]string{"x-request-id": {sent}}}).RequestID
		if kept && id != sent {
			t.Errorf("request id %q became %q", sent, id)
		}
		if !kept && !uuid7.MatchString(id) {
			t.Errorf("request id %q became %q, want a fresh UUIDv7", sent, id)
		}
	}
}

func TestFreshIDsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := identified(t, &inference.Call{})
		if seen[id.RequestID] || seen[id.TraceID] || len(id.TraceID) != 32 {
			t.Fatalf("id %+v is not fresh", id)
		}
		seen[id.RequestID], seen[id.TraceID] = true, true
	}
}

func TestMetadataOfTheMessageGoesBeforeHeaders(t *testing.T) {
	c := &inference.Call{
		Incoming: map[string][]string{"x-request-id": {"h-1"}, "x-user-id": {"header"}, "x-trace-id": {"h-t"}},
		Head:     inference.Head{Metadata: map[string]string{"request_id": "m-1", "user_id": "message", "trace_id": "m-t"}},
	}
	if id := identified(t, c); id.RequestID != "m-1" || id.User != "message" || id.TraceID != "m-t" {
		t.Errorf("got %+v", id)
	}
}

func TestEveryMessageOfAStreamHasItsOwnUserAndTheStreamsRequestID(t *testing.T) {
	s := &inference.Stream{Identity: inference.Identity{RequestID: "stream-1", User: "opened", Caller: &inference.Caller{Name: "svc", MayNameUsers: true}}}
	first := identified(t, &inference.Call{Stream: s, Head: inference.Head{Metadata: map[string]string{"user_id": "ann"}}})
	second := identified(t, &inference.Call{Stream: s})
	if first.User != "ann" || second.User != "opened" || first.RequestID != "stream-1" || first.CallerName() != "svc" {
		t.Errorf("got %+v and %+v", first, second)
	}
}

func TestATraceContextIsTakenOnlyWhenItIsValid(t *testing.T) {
	const trace = "0af7651916cd43dd8448eb211c80319c"
	for sent, want := range map[string]struct{ valid, sampled bool }{
		"00-" + trace + "-b7ad6b7169203331-01":                    {true, true},
		"00-" + trace + "-b7ad6b7169203331-00":                    {true, false},
		"01-" + trace + "-b7ad6b7169203331-03-extra":              {true, true},
		"00-" + trace + "-b7ad6b7169203331-01-extra":              {},
		"ff-" + trace + "-b7ad6b7169203331-01":                    {},
		"00-" + strings.ToUpper(trace) + "-b7ad6b7169203331-01":   {},
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": {},
		"00-" + trace + "-0000000000000000-01":                    {},
		"00-" + trace + "-b7ad6b7169203331":                       {},
		"garbage":                                                 {}, "": {},
	} {
		id := identified(t, &inference.Call{Incoming: map[string][]string{"traceparent": {sent}}})
		if (id.TraceParent == sent && sent != "") != want.valid || id.Sampled != want.sampled {
			t.Errorf("traceparent %q: got %+v", sent, id)
		}
		if want.valid && id.TraceID != trace {
			t.Errorf("traceparent %q gives trace id %q", sent, id.TraceID)
		}
	}
}

func FuzzParseTraceParent(f *testing.F) {
	f.Add("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	f.Add("00-")
	f.Fuzz(func(t *testing.T, v string) {
		if id, _, ok := parseTraceParent(v); ok && len(id) != 32 {
			t.Errorf("%q gives trace id %q", v, id)
		}
	})
}

func BenchmarkIdentify(b *testing.B) {
	h := Stage{}.Wrap(func(context.Context, *inference.Call) error { return nil })
	md := map[string][]string{"x-user-id": {"u1"}}
	b.ReportAllocs()
	for b.Loop() {
		_ = h(b.Context(), &inference.Call{Incoming: md})
	}
}
