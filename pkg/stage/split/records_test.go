package split

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// book is Records in memory.
type book struct {
	mu    sync.Mutex
	down  bool
	asked int
	texts map[string]string
	keeps time.Duration // as it was said last
}

var errDown = errors.New("down")

func (b *book) do(keep time.Duration, f func()) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down {
		return errDown
	}
	if b.texts == nil {
		b.texts = map[string]string{}
	}
	b.keeps = keep
	f()
	return nil
}

func (b *book) Ask(_ context.Context, key string, keep time.Duration) (text string, err error) {
	err = b.do(keep, func() { b.asked++; text = b.texts[key] })
	return text, err
}

func (b *book) Put(_ context.Context, key, text string, keep time.Duration) error {
	return b.do(keep, func() {
		if b.texts[key] = text; keep == over {
			delete(b.texts, key)
		}
	})
}

func (b *book) Claim(_ context.Context, key, text string, keep time.Duration) (is string, err error) {
	err = b.do(keep, func() {
		if b.texts[key] == "" {
			b.texts[key] = text
		}
		is = b.texts[key]
	})
	return is, err
}

func (b *book) Swap(_ context.Context, key, text, next string, keep time.Duration) (is string, err error) {
	err = b.do(keep, func() {
		if b.texts[key] == text {
			b.texts[key] = next
		}
		if is = b.texts[key]; keep == over {
			delete(b.texts, key)
		}
	})
	return is, err
}

// alwaysTo is a model whose calls all go to t, with a header of the rule's own.
func alwaysTo(t *inference.Target) *inference.Model {
	m := declared(inference.Rule{Name: "always", To: t, SetHeaders: map[string]string{"x-mesh-route": t.Name}})
	m.Pin = pin
	return m
}

func pin(_ context.Context, version string) (*inference.Target, error) {
	return map[string]*inference.Target{"1": v1, "2": v2, "3": v3}[version], nil
}

// taken takes a step through s, and through an upstream that would have it at endpoint if nobody knows better. It gives
// where the step went: target and endpoint.
func taken(t *testing.T, s *Stage, c *inference.Call, endpoint string) string {
	t.Helper()
	at := ""
	err := s.Wrap(func(_ context.Context, c *inference.Call) error {
		if c.Home.New {
			c.Home.Settle(endpoint)
		}
		if at = c.Home.Endpoint; at == "" {
			at = endpoint
		}
		if c.Home.Lost {
			return fault.New(fault.SequenceLost, "lost")
		}
		return nil
	})(t.Context(), c)
	if err != nil {
		return fault.Of(err).Kind.Reason()
	}
	return c.Target.Name + " " + at
}

func start(id string, m *inference.Model) *inference.Call {
	c := step(id, m)
	c.Head.Sequence.Start = true
	return c
}

func end(id string, m *inference.Model) *inference.Call {
	c := step(id, m)
	c.Head.Sequence.End = true
	return c
}

func wants(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s went to %q, want %q", what, got, want)
	}
}

func TestAllReplicasFollowTheRecordOfASequence(t *testing.T) {
	b := new(book)
	one, two := &Stage{Records: b}, &Stage{Records: b}
	older, newer := alwaysTo(v1), alwaysTo(v2)
	wants(t, "the start", taken(t, one, start("7", older), "a:1"), "model_v1 a:1")
	c := step("7", newer)
	wants(t, "a step by the other replica", taken(t, two, c, "b:1"), "model_v1 a:1")
	if c.Choice.By != inference.BySequence || c.Choice.SetHeaders["x-mesh-route"] != "model_v1" {
		t.Errorf("by %s with %v", c.Choice.By, c.Choice.SetHeaders)
	}
	wants(t, "another one", taken(t, two, step("7", newer), "b:1"), "model_v1 a:1")
	if b.keeps != recordIdle {
		t.Errorf("it is kept for %s", b.keeps)
	}
	wants(t, "the end", taken(t, two, end("7", newer), "b:1"), "model_v1 a:1")
	if len(b.texts) != 0 {
		t.Errorf("after its end there is %v", b.texts)
	}
	// The first replica still remembers it, and does not know that the id has begun anew.
	wants(t, "the next start", taken(t, two, start("7", newer), "b:1"), "model_v2 b:1")
	wants(t, "its second step", taken(t, one, step("7", older), "a:1"), "model_v2 b:1")
}

func TestTheFirstOfTwoReplicasThatTakeASequenceUpDecides(t *testing.T) {
	b := new(book)
	one, two := &Stage{Records: b}, &Stage{Records: b}
	late := step("7", alwaysTo(v1))
	if err := two.Wrap(func(_ context.Context, c *inference.Call) error {
		wants(t, "the quicker one", taken(t, one, step("7", alwaysTo(v1)), "a:1"), "model_v1 a:1") //nolint:contextcheck // another call
		c.Home.Settle("b:1")
		return nil
	})(t.Context(), late); err != nil || late.Home.Endpoint != "a:1" || late.Home.Lost {
		t.Errorf("%+v, %v", late.Home, err)
	}
	elsewhere := step("8", alwaysTo(v2))
	if err := (&Stage{Records: b}).Wrap(func(_ context.Context, c *inference.Call) error {
		wants(t, "the quicker one", taken(t, one, step("8", alwaysTo(v1)), "a:1"), "model_v1 a:1") //nolint:contextcheck // another call
		c.Home.Settle("b:1")
		return nil
	})(t.Context(), elsewhere); err != nil || !elsewhere.Home.Lost {
		t.Errorf("a step on its way to another target may go on: %+v, %v", elsewhere.Home, err)
	}
}

func TestALostSequenceIsLostToAllUntilItStartsAnew(t *testing.T) {
	b := new(book)
	one, two := &Stage{Records: b}, &Stage{Records: b}
	m := alwaysTo(v1)
	c := start("7", m)
	taken(t, one, c, "a:1")
	c.Home.Lose()
	wants(t, "a step by the other", taken(t, two, step("7", m), "b:1"), "SEQUENCE_LOST")
	wants(t, "a step by the same", taken(t, one, step("7", m), "b:1"), "SEQUENCE_LOST")
	again := start("7", m)
	wants(t, "a new start", taken(t, two, again, "b:1"), "model_v1 b:1")
	c.Home.Lose() // late, and of the old one
	wants(t, "its second step", taken(t, one, step("7", m), "a:1"), "model_v1 b:1")
	if again.Home.Mark == c.Home.Mark {
		t.Error("the two sequences have one mark")
	}
}

func TestATargetThatIsNotConfiguredHereLosesTheSequence(t *testing.T) {
	b := new(book)
	one, two := &Stage{Records: b}, &Stage{Records: b}
	m := alwaysTo(v1)
	taken(t, one, start("7", m), "a:1")
	without := alwaysTo(v2)
	without.Targets = map[string]*inference.Target{v2.Name: v2}
	wants(t, "a step", taken(t, two, step("7", without), "b:1"), "SEQUENCE_LOST")
	wants(t, "the next by the first", taken(t, one, step("7", m), "a:1"), "SEQUENCE_LOST")
	taken(t, one, start("8", m), "a:1")
	wants(t, "a step by the first, which has it no more", taken(t, one, step("8", without), "a:1"), "SEQUENCE_LOST")
	wants(t, "a step by one that has it", taken(t, two, step("8", m), "a:1"), "SEQUENCE_LOST")
}

func TestWhileNothingIsOnRecordEachReplicaGoesByWhatItKnows(t *testing.T) {
	b := &book{down: true}
	one, two := &Stage{Records: b}, &Stage{Records: b}
	wants(t, "the start", taken(t, one, start("7", alwaysTo(v1)), "a:1"), "model_v1 a:1")
	wants(t, "a step", taken(t, one, step("7", alwaysTo(v2)), "a:1"), "model_v1 a:1")
	b.texts = map[string]string{keyOf(step("7", alwaysTo(v1)), "").name(): predecessor(t)} // whose start was put on record in time
	b.down = false
	wants(t, "a step once it is back", taken(t, one, step("7", alwaysTo(v2)), "a:1"), "model_v1 a:1")
	wants(t, "a step by the other", taken(t, two, step("7", alwaysTo(v2)), "b:1"), "model_v1 a:1")
	// What nobody can read is nothing, and makes room for what can be read.
	for key := range b.texts {
		b.texts[key] = "{"
	}
	wants(t, "a step", taken(t, one, step("7", alwaysTo(v2)), "a:1"), "model_v1 a:1")
	wants(t, "a step by the other", taken(t, two, step("7", alwaysTo(v2)), "b:1"), "model_v1 a:1")
}

// predecessor is the record of a sequence of the id that began a minute ago.
func predecessor(t *testing.T) string {
	t.Helper()
	b := new(book)
	taken(t, &Stage{Records: b}, start("7", alwaysTo(v2)), "z:1")
	for _, text := range b.texts {
		r, _ := parseRecord(text)
		r.Began -= time.Minute.Milliseconds()
		return r.text()
	}
	return ""
}

func TestAStartThatCouldNotBePutOnRecordDoesNotReplaceALaterOne(t *testing.T) {
	b := &book{down: true}
	one, two := &Stage{Records: b}, &Stage{Records: b}
	taken(t, one, start("7", alwaysTo(v1)), "a:1")
	b.down = false
	taken(t, two, end("7", alwaysTo(v1)), "a:1")
	taken(t, two, start("7", alwaysTo(v2)), "b:1")
	wants(t, "a step by who missed the later start", taken(t, one, step("7", alwaysTo(v1)), "a:1"), "model_v2 b:1")
	wants(t, "a step by the other", taken(t, two, step("7", alwaysTo(v2)), "b:1"), "model_v2 b:1")
}

func TestANewStreamDoesNotGoByWhatAnOlderOneLooked(t *testing.T) {
	b := new(book)
	one, two := &Stage{Records: b}, &Stage{Records: b}
	in := func(c *inference.Call) *inference.Call {
		c.Stream = &inference.Stream{Context: t.Context()}
		return c
	}
	taken(t, one, in(start("7", alwaysTo(v1))), "a:1")
	taken(t, two, in(start("7", alwaysTo(v2))), "b:1")
	wants(t, "a step in a new stream", taken(t, one, in(step("7", alwaysTo(v1))), "a:1"), "model_v2 b:1")
}

func TestWhatThereIsNoRoomToRememberIsNotPutOnRecord(t *testing.T) {
	b := new(book)
	s, m := &Stage{Records: b}, alwaysTo(v1)
	for i := range 2 * maxSequences {
		taken(t, s, start(strconv.Itoa(i), m), "a:1")
	}
	if len(b.texts) > maxSequences {
		t.Errorf("%d records", len(b.texts))
	}
	const id = "one more"
	taken(t, &Stage{Records: b}, start(id, alwaysTo(v2)), "b:1") // by a replica that has room
	taken(t, s, start(id, m), "a:1")
	if text := b.texts[keyOf(step(id, m), "").name()]; text != "" {
		t.Errorf("the record of a predecessor is still there: %s", text)
	}
}

func TestStepsOfAStreamAskOnce(t *testing.T) {
	b := new(book)
	s, m := &Stage{Records: b}, alwaysTo(v1)
	stream := &inference.Stream{Context: t.Context()}
	in := func(c *inference.Call) *inference.Call { c.Stream = stream; return c }
	taken(t, s, in(start("7", m)), "a:1")
	for range 10 {
		wants(t, "a step", taken(t, s, in(step("7", m)), "a:1"), "model_v1 a:1")
	}
	if b.asked != 0 {
		t.Errorf("a stream that knows has asked %d times", b.asked)
	}
	other := &Stage{Records: b}
	for range 10 {
		wants(t, "a step by another", taken(t, other, in(step("7", m)), "b:1"), "model_v1 a:1")
		if b.asked != 1 {
			t.Errorf("one that does not know has asked %d times", b.asked)
		}
	}
	c := in(step("7", m))
	c.Head.Sequence.Start = false
	h := other.Wrap(func(_ context.Context, c *inference.Call) error { c.Home.Lose(); return nil })
	if err := h(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	for _, text := range b.texts {
		if !strings.Contains(text, `"lost":true`) {
			t.Errorf("a loss found by a step that did not ask is not on record: %s", text)
		}
	}
}

func TestStepsThatPinAVersionShareTheirEndpointAndNoOthersDo(t *testing.T) {
	b := new(book)
	one, two := &Stage{Records: b}, &Stage{Records: b}
	pinned := func(c *inference.Call) *inference.Call { c.Head.Version = "2"; return c }
	wants(t, "the start", taken(t, one, pinned(start("7", alwaysTo(v1))), "a:1"), "model_v2 a:1")
	c := pinned(step("7", alwaysTo(v1)))
	wants(t, "a step by the other", taken(t, two, c, "b:1"), "model_v2 a:1")
	if c.Choice.By != inference.ByPinned || !c.Pinned {
		t.Errorf("it went by %s", c.Choice.By)
	}
	wants(t, "the same id without a version", taken(t, two, start("7", alwaysTo(v1)), "c:1"), "model_v1 c:1")
	wants(t, "the pinned one", taken(t, two, pinned(step("7", alwaysTo(v1))), "b:1"), "model_v2 a:1")
}

func TestWhatBeginsAndEndsAtOnceIsNotOnRecord(t *testing.T) {
	b := new(book)
	c := start("7", alwaysTo(v1))
	c.Head.Sequence.End = true
	wants(t, "it", taken(t, &Stage{Records: b}, c, "a:1"), "model_v1 a:1")
	if len(b.texts) != 0 {
		t.Errorf("%v", b.texts)
	}
}

func TestASequenceOfAModelThatPassesThroughFollowsItsVersion(t *testing.T) {
	b := new(book)
	one, two := &Stage{Records: b}, &Stage{Records: b}
	first, second := undeclared(), undeclared()
	first.Pin, second.Pin = pin, pin
	c := start("7", first)
	taken(t, one, c, "a:1")
	second.Choose = func(context.Context) (*inference.Target, error) { return v2, nil } // it has another default by now
	wants(t, "a step", taken(t, two, step("7", second), "b:1"), c.Target.Name+" a:1")
	silent := undeclared()
	outage := fault.New(fault.NoEndpoint, "nobody answers")
	silent.Pin = func(context.Context, string) (*inference.Target, error) { return nil, outage }
	wants(t, "while nobody answers, a step", taken(t, &Stage{Records: b}, step("7", silent), "b:1"), "NO_ENDPOINT")
	wants(t, "and then", taken(t, two, step("7", second), "b:1"), c.Target.Name+" a:1")
}

func FuzzARecordThatSaysSomethingSaysWhere(f *testing.F) {
	f.Add(`{"mark":"x","target":"model_v1","upstream":"triton","model":"fraud","version":"1","endpoint":"a:1"}`)
	f.Add(`{"mark":1}`)
	f.Add(``)
	f.Fuzz(func(t *testing.T, text string) {
		r, ok := parseRecord(text)
		if !ok {
			return
		}
		if again, ok := parseRecord(r.text()); !ok || r.Mark == "" || r.Endpoint == "" || again.Endpoint != r.Endpoint || again.Mark != r.Mark {
			t.Errorf("%q is %+v and then %+v", text, r, again)
		}
	})
}
