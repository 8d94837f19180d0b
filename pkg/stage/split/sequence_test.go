package split

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// flip answers v2 and v3 in turn.
type flip struct{ n int }

func (*flip) Has(string) bool { return true }

func (f *flip) Decide(context.Context, string, string, *inference.Call) (string, string, bool) {
	f.n++
	return [...]string{"model_v2", "model_v3"}[f.n%2], "", true
}

func step(id string, m *inference.Model) *inference.Call {
	return &inference.Call{Model: m, Head: inference.Head{Sequence: inference.Sequence{ID: id}}}
}

func TestASequenceKeepsItsFirstTarget(t *testing.T) {
	s := &Stage{Scripts: &flip{}}
	m := declared(script("flip"))
	m.Split[0].SetHeaders = map[string]string{"x-mesh-route": "canary"}
	first := chosen(t, s, step("7", m))
	for range 5 {
		c := chosen(t, s, step("7", m))
		if c.Target != first.Target || c.Choice.By != inference.BySequence || c.Choice.SetHeaders["x-mesh-route"] != "canary" {
			t.Fatalf("a step went to %s by %s with %v", c.Target.Name, c.Choice.By, c.Choice.SetHeaders)
		}
	}
	if other := chosen(t, s, step("8", m)); other.Target == first.Target {
		t.Error("another sequence follows the first one")
	}
	pinned := step("7", m)
	pinned.Head.Version = "3"
	if chosen(t, s, pinned); pinned.Choice.By != inference.ByPinned {
		t.Errorf("a pinned step goes by %s", pinned.Choice.By)
	}
}

func TestSequencesOfOthersAreOthers(t *testing.T) {
	s := &Stage{Scripts: &flip{}}
	m := declared(script("flip"))
	first := chosen(t, s, step("7", m))
	other := step("7", m)
	other.Caller = &inference.Caller{Name: "batch"}
	if chosen(t, s, other); other.Choice.By == inference.BySequence || other.Target == first.Target {
		t.Errorf("another caller's sequence of the same id goes by %s", other.Choice.By)
	}
}

func TestASequenceThatEndedOrStartsAgainIsAnotherOne(t *testing.T) {
	s := &Stage{Scripts: &flip{}}
	m := declared(script("flip"))
	chosen(t, s, step("7", m))
	end := step("7", m)
	end.Head.Sequence.End = true
	if chosen(t, s, end); end.Choice.By != inference.BySequence {
		t.Errorf("the last step goes by %s", end.Choice.By)
	}
	if c := chosen(t, s, step("7", m)); c.Choice.By != inference.ByScript {
		t.Errorf("a step after the end goes by %s", c.Choice.By)
	}
	start := step("7", m)
	start.Head.Sequence.Start = true
	if chosen(t, s, start); start.Choice.By != inference.ByScript {
		t.Errorf("a sequence that starts again goes by %s", start.Choice.By)
	}
	if c := chosen(t, s, step("7", m)); c.Target != start.Target || c.Choice.By != inference.BySequence {
		t.Errorf("and its second step to %s by %s", c.Target.Name, c.Choice.By)
	}
}

func TestAnEndThatFailedEndsNothing(t *testing.T) {
	s := &Stage{Scripts: &flip{}}
	m := declared(script("flip"))
	first := chosen(t, s, step("7", m))
	end := step("7", m)
	end.Head.Sequence.End = true
	failed := errors.New("no")
	if err := s.Wrap(func(context.Context, *inference.Call) error { return failed })(t.Context(), end); !errors.Is(err, failed) {
		t.Fatal(err)
	}
	if c := chosen(t, s, step("7", m)); c.Target != first.Target || c.Choice.By != inference.BySequence {
		t.Errorf("the step after went to %s by %s", c.Target.Name, c.Choice.By)
	}
}

func TestAnIdleSequenceIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Stage{Scripts: &flip{}}
		m := declared(script("flip"))
		chosen(t, s, step("7", m))
		time.Sleep(sequenceIdle) //nolint:forbidigo // the bubble's clock
		if c := chosen(t, s, step("7", m)); c.Choice.By != inference.BySequence {
			t.Errorf("just in time, a step goes by %s", c.Choice.By)
		}
		time.Sleep(sequenceIdle + time.Second) //nolint:forbidigo // the bubble's clock
		if c := chosen(t, s, step("7", m)); c.Choice.By != inference.ByScript {
			t.Errorf("after a long pause a step goes by %s", c.Choice.By)
		}
	})
}

func TestManySequencesAreBounded(t *testing.T) {
	s, m := new(Stage), declared(weights("s", []*inference.Target{v1, v2}, 50, 50))
	first := chosen(t, s, step("first", m))
	for i := range 2 * maxSequences {
		chosen(t, s, step(fmt.Sprint(i), m))
	}
	kept := 0
	for i := range s.sequences {
		kept += len(s.sequences[i].byKey)
		if len(s.sequences[i].byKey) != s.sequences[i].order.Len() {
			t.Error("list and map differ")
		}
	}
	if kept > maxSequences {
		t.Errorf("%d sequences are remembered", kept)
	}
	if c := chosen(t, s, step("first", m)); c.Target != first.Target || c.Choice.By != inference.BySequence {
		t.Error("those that are remembered are driven out")
	}
}

func TestASequenceFollowsItsTargetOverAReloadAndIsLostWithIt(t *testing.T) {
	s := &Stage{Scripts: &flip{}}
	before := declared(script("flip"))
	first := chosen(t, s, step("7", before))
	renamed := *first.Target
	renamed.Name = "canary"
	after := declared(script("flip"))
	after.Targets = map[string]*inference.Target{"canary": &renamed, v1.Name: v1}
	if c := chosen(t, s, step("7", after)); c.Target != &renamed {
		t.Errorf("after its target was renamed, it goes to %s", c.Target.Name)
	}
	after.Targets = map[string]*inference.Target{v1.Name: v1}
	err := s.Wrap(func(context.Context, *inference.Call) error { t.Error("it was sent on"); return nil })(t.Context(), step("7", after))
	if err == nil || fault.Of(err).Kind != fault.SequenceLost {
		t.Errorf("without its target: %v", err)
	}
}

func TestStepsOfAStreamWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Stage{Scripts: &flip{}}
		m := declared(script("flip"))
		first, second := step("7", m), step("7", m)
		first.Stream = &inference.Stream{Context: t.Context()}
		second.Stream = first.Stream
		first.Turn = inference.Turn{}.Next()
		second.Turn = first.Turn.Next()
		h := s.Wrap(func(_ context.Context, c *inference.Call) error { c.Turn.Done(); return nil })
		ended := make(chan error, 1)
		go func() { ended <- h(t.Context(), second) }()
		synctest.Wait()
		if second.Target != nil {
			t.Error("the second step went before the first")
		}
		if err := errors.Join(h(t.Context(), first), <-ended); err != nil || second.Target != first.Target || second.Choice.By != inference.BySequence {
			t.Errorf("the steps went to %v and %v by %s: %v", first.Target, second.Target, second.Choice.By, err)
		}
		third := step("7", m)
		third.Stream, third.Turn = first.Stream, inference.Turn{}.Next().Next()
		gone, leave := context.WithCancel(t.Context())
		leave()
		if err := h(gone, third); !errors.Is(err, context.Canceled) {
			t.Errorf("a client that is gone: %v", err)
		}
	})
}

func BenchmarkStepOfASequence(b *testing.B) {
	s, m := new(Stage), declared(weights("s", []*inference.Target{v1, v2}, 50, 50))
	h := s.Wrap(func(context.Context, *inference.Call) error { return nil })
	c := step("1234", m)
	b.ReportAllocs()
	for b.Loop() {
		_ = h(b.Context(), c)
	}
}
