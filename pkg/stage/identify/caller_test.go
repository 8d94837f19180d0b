package identify

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/callers"
	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/stage/inject"
)

// door is an Authenticator that always says the same, and counts.
type door struct {
	caller *inference.Caller
	user   string
	err    error
	asked  int
}

func (d *door) Authenticate(context.Context, *inference.Call) (*inference.Caller, string, error) {
	d.asked++
	return d.caller, d.user, d.err
}

func through(t *testing.T, a Authenticator, c *inference.Call) inference.Identity {
	t.Helper()
	if err := (Stage{Auth: a}).Wrap(func(context.Context, *inference.Call) error { return nil })(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return c.Identity
}

// naming sends a user in every way there is.
func naming(user string) *inference.Call {
	return &inference.Call{
		Incoming: map[string][]string{"x-user-id": {user}, "x-request-id": {"r-1"}},
		Head:     inference.Head{Metadata: map[string]string{"user_id": user, "k": "v"}},
	}
}

func TestOnlyACallerThatMayNamesItsUsers(t *testing.T) {
	for _, w := range []struct {
		what   string
		door   door
		header string
		field  string
		want   string
	}{
		{"a trusted network", door{}, "ann", "", "ann"},
		{"a trusted network, the message wins", door{}, "ann", "eve", "eve"},
		{"may name users", door{caller: &inference.Caller{Name: "svc", MayNameUsers: true}}, "ann", "", "ann"},
		{"may name users, the message wins", door{caller: &inference.Caller{Name: "svc", MayNameUsers: true}}, "ann", "eve", "eve"},
		{"may, and does not", door{caller: &inference.Caller{Name: "svc", MayNameUsers: true}}, "", "", "svc"},
		{"may, does not, and has a user of its own", door{caller: &inference.Caller{Name: "svc", MayNameUsers: true}, user: "sub"}, "", "", "sub"},
		{"may, and its token has a user too", door{caller: &inference.Caller{Name: "svc", MayNameUsers: true}, user: "sub"}, "ann", "", "ann"},
		{"may, and sends too long a name", door{caller: &inference.Caller{Name: "svc", MayNameUsers: true}}, strings.Repeat("a", maxUser+1), strings.Repeat("b", maxUser+1), "svc"},
		{"may not", door{caller: &inference.Caller{Name: "bob"}}, "alice", "alice", "bob"},
		{"may, and is called like a user", door{caller: &inference.Caller{Name: "svc", MayNameUsers: true}}, "", "svc", "svc"},
		{"may not, and its token has a user", door{caller: &inference.Caller{Name: "web"}, user: "bob"}, "alice", "alice", "bob"},
	} {
		c := &inference.Call{Incoming: map[string][]string{}}
		if w.header != "" {
			c.Incoming["x-user-id"] = []string{w.header}
		}
		if w.field != "" {
			c.Head.Metadata = map[string]string{"user_id": w.field}
		}
		if id := through(t, &w.door, c); id.User != w.want || id.Caller != w.door.caller {
			t.Errorf("%s: got user %q of %+v, want %q", w.what, id.User, id.Caller, w.want)
		} else if own := w.door.caller != nil && w.want == w.door.caller.Name && w.field != w.want && w.header != w.want && w.door.user == ""; id.OwnUser != own {
			t.Errorf("%s: the user is the caller itself: %v, want %v", w.what, id.OwnUser, own)
		}
	}
}

func TestARefusedCallHasItsIDsAndNoUser(t *testing.T) {
	refusal := fault.New(fault.AuthInvalid, "no")
	s := Stage{Auth: &door{err: refusal}}
	never := func(context.Context, *inference.Call) error { t.Error("a refused call went on"); return nil }
	for name, h := range map[string]inference.Handler{"Wrap": s.Wrap(never), "Open": s.Open(never)} {
		c := naming("alice")
		if err := h(t.Context(), c); !errors.Is(err, refusal) {
			t.Errorf("%s: got %v", name, err)
		}
		if c.RequestID != "r-1" || len(c.TraceID) != 32 || c.User != "" || c.Caller != nil {
			t.Errorf("%s: got %+v", name, c.Identity)
		}
		if shown := fmt.Sprint(c.Incoming, c.Head, c.Identity); strings.Contains(shown, "alice") {
			t.Errorf("%s: alice is in %s", name, shown)
		}
	}
}

func TestEachMessageOfAStreamHasItsUserAndIsAskedForAgain(t *testing.T) {
	d := &door{caller: &inference.Caller{Name: "svc", MayNameUsers: true}}
	s := Stage{Auth: d}
	opening := &inference.Call{Incoming: map[string][]string{"x-user-id": {"opener"}}}
	var stream *inference.Stream
	open := s.Open(func(_ context.Context, c *inference.Call) error {
		stream = &inference.Stream{Identity: c.Identity}
		return nil
	})
	if err := open(t.Context(), opening); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]string{"ann": "ann", "": "opener"} {
		m := &inference.Call{Stream: stream}
		if field != "" {
			m.Head.Metadata = map[string]string{"user_id": field}
		}
		if id := through(t, d, m); id.User != want || id.Caller != d.caller || id.RequestID != opening.RequestID {
			t.Errorf("got %+v, want user %s", id, want)
		}
	}
	d.caller = &inference.Caller{Name: "bob"}
	stream.Caller, stream.User = d.caller, "bob"
	m := &inference.Call{Stream: stream, Head: inference.Head{Metadata: map[string]string{"user_id": "alice"}}}
	if id := through(t, d, m); id.User != "bob" || m.Head.Metadata["user_id"] != "" {
		t.Errorf("got %+v, and the message still says %q", id, m.Head.Metadata)
	}
	if d.asked != 4 {
		t.Errorf("the door was asked %d times", d.asked)
	}
}

func TestACredentialThatIsTakenAwayOrChangedCountsForTheNextMessageOfAnOpenStream(t *testing.T) {
	c := callers.New(callers.Options{})
	defer c.Close()
	set := func(entries ...callers.Entry) {
		t.Helper()
		if err := c.Set(true, entries); err != nil {
			t.Fatal(err)
		}
	}
	old, other := []callers.Hash{callers.HashKey("old-key")}, []callers.Hash{callers.HashKey("new-key")}
	set(callers.Entry{Name: "svc", Keys: old, MayNameUsers: true})
	s := Stage{Auth: c}
	opening := &inference.Call{Incoming: map[string][]string{"x-api-key": {"old-key"}, "x-user-id": {"ann"}}}
	var stream *inference.Stream
	if err := s.Open(func(_ context.Context, c *inference.Call) error {
		stream = &inference.Stream{Identity: c.Identity}
		return nil
	})(t.Context(), opening); err != nil {
		t.Fatal(err)
	}
	message := func() (*inference.Call, error) {
		m := &inference.Call{Stream: stream, Incoming: opening.Incoming, Head: inference.Head{Metadata: map[string]string{"user_id": "eve", "request_id": "m-1"}}}
		return m, s.Wrap(func(context.Context, *inference.Call) error { return nil })(t.Context(), m)
	}
	if m, err := message(); err != nil || m.User != "eve" {
		t.Fatalf("%v, user %q", err, m.User)
	}
	set(callers.Entry{Name: "svc", Keys: old})
	if m, err := message(); err != nil || m.User != "svc" || m.Head.Metadata["user_id"] != "" || m.RequestID != "m-1" {
		t.Errorf("a caller that may no longer name users: %v, %+v", err, m.Identity)
	}
	set(callers.Entry{Name: "svc", Keys: other, MayNameUsers: true})
	m, err := message()
	if fault.Of(err).Kind != fault.AuthInvalid || m.Caller != nil || m.User != "" || m.Head.Metadata["user_id"] != "" || m.RequestID != "m-1" {
		t.Errorf("a key that was taken away: %v, %+v", err, m.Identity)
	}
	set(callers.Entry{Name: "svc", Keys: append(old, other...), MayNameUsers: true})
	if m, err := message(); err != nil || m.User != "eve" || m.CallerName() != "svc" {
		t.Errorf("a key that was put back: %v, %+v", err, m.Identity)
	}
	if stream.User != "ann" || len(opening.Incoming["x-user-id"]) != 1 {
		t.Error("what the messages of the stream share was changed")
	}
}

// unread is a message that is yet to be read.
type unread struct {
	head inference.Head
	err  error
	read int
}

func (s *unread) Read(c *inference.Call) error {
	s.read++
	c.Head, c.Request = s.head, inference.NewFrame(make([]byte, 7))
	return s.err
}

func TestAMessageIsReadOnceItsSenderIsKnownAndNotBefore(t *testing.T) {
	refusal := fault.New(fault.AuthInvalid, "no")
	next := func(context.Context, *inference.Call) error { return nil }
	pipe := func(s Stage) inference.Handler { return IDs{}.Wrap(s.Wrap(Message{}.Wrap(next))) }
	stranger := &unread{}
	if err := pipe(Stage{Auth: &door{err: refusal}})(t.Context(), &inference.Call{Source: stranger}); !errors.Is(err, refusal) || stranger.read != 0 {
		t.Errorf("%v; a stranger's message was read %d times", err, stranger.read)
	}
	known := &unread{head: inference.Head{Metadata: map[string]string{"user_id": "ann", "request_id": "m-1"}}}
	c := &inference.Call{Source: known, Incoming: map[string][]string{"x-request-id": {"h-1"}, "x-user-id": {"eve"}}}
	if err := pipe(Stage{})(t.Context(), c); err != nil || known.read != 1 || c.User != "ann" || c.RequestID != "m-1" || c.Size != 7 || c.Source != nil {
		t.Errorf("%v; read %d times, %+v, size %d", err, known.read, c.Identity, c.Size)
	}
	bob := &unread{head: inference.Head{Metadata: map[string]string{"user_id": "alice"}}}
	c = &inference.Call{Source: bob}
	if err := pipe(Stage{Auth: &door{caller: &inference.Caller{Name: "bob"}}})(t.Context(), c); err != nil || c.User != "bob" || c.Head.Metadata["user_id"] != "" {
		t.Errorf("%v; user %q of %v", err, c.User, c.Head.Metadata)
	}
	broken := &unread{err: refusal}
	if err := pipe(Stage{})(t.Context(), &inference.Call{Source: broken}); !errors.Is(err, refusal) {
		t.Error(err)
	}
}

// O-19: bob's valid credential plus somebody else's name, through every stage that passes names on.
func TestBobCannotAskInTheNameOfAlice(t *testing.T) {
	c := callers.New(callers.Options{})
	defer c.Close()
	if err := c.Set(true, []callers.Entry{{Name: "bob", Keys: []callers.Hash{callers.HashKey("bobs-key")}}}); err != nil {
		t.Fatal(err)
	}
	s := Stage{Auth: c}
	reached := 0
	pipe := s.Wrap(func(ctx context.Context, c *inference.Call) error {
		c.Model, c.Target = &inference.Model{Name: "fraud"}, &inference.Target{Name: "model_v1", Upstream: "triton"}
		return inject.Stage{}.Wrap(func(_ context.Context, c *inference.Call) error {
			reached++
			if got := c.Outgoing["x-user-id"]; len(got) != 1 || got[0] != "bob" {
				t.Errorf("upstream is told %q", got)
			}
			if c.User != "bob" || c.CallerName() != "bob" {
				t.Errorf("got %+v", c.Identity)
			}
			shown := fmt.Sprintf("%+v %+v %+v %+v", c.Incoming, c.Outgoing, c.Head, c.Identity)
			if strings.Contains(shown, "alice") {
				t.Errorf("alice is in %s", shown)
			}
			if out := fmt.Sprint(c.Outgoing); strings.Contains(out, "bobs-key") {
				t.Errorf("the credential goes upstream: %s", out)
			}
			return nil
		})(ctx, c)
	})
	call := naming("alice")
	call.Incoming["x-api-key"] = []string{"bobs-key"}
	if err := pipe(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	// The same as a message of a stream.
	opening := &inference.Call{Incoming: map[string][]string{"x-user-id": {"alice"}, "authorization": {"Bearer bobs-key"}}}
	if err := s.Open(func(ctx context.Context, o *inference.Call) error {
		message := naming("alice")
		message.Incoming, message.Stream = o.Incoming, &inference.Stream{Identity: o.Identity}
		return pipe(ctx, message)
	})(t.Context(), opening); err != nil {
		t.Fatal(err)
	}
	if reached != 2 {
		t.Errorf("%d calls went upstream", reached)
	}
	stranger := naming("alice")
	if err := pipe(t.Context(), stranger); fault.Of(err).Kind != fault.AuthMissing {
		t.Errorf("got %v", err)
	}
}

func BenchmarkIdentifyWithAKey(b *testing.B) {
	c := callers.New(callers.Options{})
	defer c.Close()
	key := callers.NewKey()
	if err := c.Set(true, []callers.Entry{{Name: "svc", Keys: []callers.Hash{callers.HashKey(key)}, MayNameUsers: true}}); err != nil {
		b.Fatal(err)
	}
	h := Stage{Auth: c}.Wrap(func(context.Context, *inference.Call) error { return nil })
	md := map[string][]string{"x-user-id": {"u1"}, "x-api-key": {key}}
	b.ReportAllocs()
	for b.Loop() {
		_ = h(b.Context(), &inference.Call{Incoming: md})
	}
}
