package breaker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// board is what replicas share, as Redis keeps it.
type board struct {
	mu    sync.Mutex
	epoch string
	rev   int
	ids   map[string]string
	texts map[string][]byte
	down  bool
}

var errDown = errors.New("redis does not answer")

func newBoard() *board {
	return &board{ids: make(map[string]string), texts: make(map[string][]byte)}
}

func (b *board) lock() (func(), error) {
	b.mu.Lock()
	if b.down {
		b.mu.Unlock()
		return nil, errDown
	}
	return b.mu.Unlock, nil
}

func (b *board) Poll(_ context.Context, known string) (string, map[string]string, error) {
	unlock, err := b.lock()
	if err != nil {
		return "", nil, err
	}
	defer unlock()
	rev := ""
	if b.epoch != "" {
		rev = fmt.Sprintf("%s.%d", b.epoch, b.rev)
	}
	if rev == known && rev != "" {
		return rev, nil, nil
	}
	ids := make(map[string]string)
	for k, id := range b.ids {
		ids[k] = id
	}
	return rev, ids, nil
}

func (b *board) Get(_ context.Context, key string) (string, []byte, error) {
	unlock, err := b.lock()
	if err != nil {
		return "", nil, err
	}
	defer unlock()
	return b.ids[key], b.texts[key], nil
}

func (b *board) Put(_ context.Context, key, id string, text []byte, _ string) error {
	unlock, err := b.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if b.epoch == "" {
		b.epoch = fmt.Sprint("e", time.Now().UnixNano())
	}
	b.rev++
	b.ids[key], b.texts[key] = id, text
	return nil
}

func (b *board) Remove(_ context.Context, key, id string) error {
	unlock, err := b.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if b.ids[key] != "" && (id == AnyID || id == b.ids[key]) {
		b.rev++
		delete(b.ids, key)
		delete(b.texts, key)
	}
	return nil
}

func (b *board) lose() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.epoch, b.rev = "", 0
	clear(b.ids)
	clear(b.texts)
}

// left counts what is shared.
func (b *board) left() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.ids)
}

func (b *board) setDown(down bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = down
}

// replicas are stages that share b; each tells its own changed, where there is one.
func replicas(t *testing.T, b *board, n int, changed ...func(Change)) []*Stage {
	t.Helper()
	var all []*Stage
	for i := range n {
		o := Options{Policy: func(string) inference.Breaker { return usual }, Shared: b}
		if i < len(changed) {
			o.Changed = changed[i]
		}
		s := New(o)
		ctx, stop := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { s.Watch(ctx) })
		t.Cleanup(func() { stop(); done.Wait() })
		all = append(all, s)
	}
	return all
}

func wantForced(t *testing.T, want State, all ...*Stage) {
	t.Helper()
	for i, s := range all {
		if got := s.Forced("fraud", "model_v1"); got != want {
			t.Fatalf("replica %d: %s is forced, want %s", i, got, want)
		}
	}
}

func force(t *testing.T, s *Stage, to State, who string) Answer {
	t.Helper()
	a, err := s.Force(t.Context(), "fraud", "model_v1", to, who)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAForcedStateStandsOverWhatTheBreakerFinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := stageOf(usual)
		to, p := target("model_v1")
		other, _ := target("model_v2")
		if a := force(t, s, Open, "sre"); a.Scope != ThisReplica || a.Before != Auto || a.State != Open {
			t.Errorf("%+v", a)
		}
		// A target that has not been called obeys too, and is listed.
		if list := s.List(); len(list) != 1 || list[0].State != Open || list[0].Why != Forced || list[0].Force.Who != "sre" {
			t.Errorf("%+v", list)
		}
		sent, err := do(s, to, fine)
		if sent || !strings.Contains(err.Error(), "operator") {
			t.Errorf("%v %v", sent, err)
		}
		times(t, s, other, 1, fine)
		p.set(inference.NotReady)
		if _, err := do(s, to, fine); !strings.Contains(err.Error(), "operator") {
			t.Error(err)
		}
		p.set(inference.Ready)

		force(t, s, Closed, "sre")
		times(t, s, to, 1000, broken)
		wantState(t, s, to, Closed)

		force(t, s, Auto, "sre")
		wantState(t, s, to, Closed) // with an empty window
		times(t, s, to, usual.MinCalls-1, broken)
		times(t, s, to, 1, broken)
		wantState(t, s, to, Open)
		force(t, s, Open, "sre")
		force(t, s, Auto, "sre")
		pass(2)
		wantState(t, s, to, HalfOpen) // not all calls at once
		times(t, s, to, usual.Probes, fine)
		wantState(t, s, to, Closed)
		if s.Explain(to).Force != nil || r.refused[Forced] != 2 {
			t.Errorf("refused %v", r.refused)
		}
	})
}

func TestWhatIsForcedIsBounded(t *testing.T) {
	s, _ := stageOf(usual)
	for i := range MaxForces {
		if _, err := s.Force(t.Context(), "m", fmt.Sprint(i), Open, strings.Repeat("x", 1000)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Force(t.Context(), "m", "more", Open, "sre"); err == nil {
		t.Error("one more was taken")
	}
	if _, err := s.Force(t.Context(), "m", "7", Closed, "sre"); err != nil {
		t.Error("another state of one that is there was not", err)
	}
	if _, err := s.Force(t.Context(), "m", "7", Auto, "sre"); err != nil {
		t.Error(err)
	}
	if _, err := s.Force(t.Context(), "m", "more", Open, "sre"); err != nil {
		t.Error("there is room again", err)
	}
	if who := s.List()[0].Force.Who; len(who) > maxWho {
		t.Errorf("%d bytes of a name are kept", len(who))
	}
}

func TestReplicasFollowWithinTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		var heard []string // while this test waits
		all := replicas(t, b, 3, nil, func(c Change) {
			heard = append(heard, fmt.Sprintf("%s %s/%s %s to %s", c.Who, c.Model, c.Target, c.From, c.To))
		})
		to, _ := target("model_v1")
		times(t, all[1], to, 1, fine)
		if a := force(t, all[0], Open, "ann"); a.Scope != AllReplicas {
			t.Errorf("%+v", a)
		}
		pass(2 * time.Second)
		wantForced(t, Open, all...)
		if sent, _ := do(all[1], to, fine); sent {
			t.Error("a target that had been called before does not obey")
		}
		if f := all[2].List()[0].Force; f.Who != "ann" || f.Scope != AllReplicas {
			t.Errorf("%+v", f)
		}
		force(t, all[2], Closed, "bob")
		pass(2 * time.Second)
		wantForced(t, Closed, all...)
		force(t, all[0], Auto, "ann")
		pass(2 * time.Second)
		wantForced(t, Auto, all...)
		synctest.Wait()
		want := []string{"ann fraud/model_v1 auto to open", "bob fraud/model_v1 open to closed", " fraud/model_v1 closed to auto"}
		if !slices.Equal(heard, want) {
			t.Errorf("heard %q", heard)
		}
	})
}

func TestWithoutRedisAChangeHoldsHereAndIsSharedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		all := replicas(t, b, 2)
		b.setDown(true)
		if a := force(t, all[0], Open, "ann"); a.Scope != ThisReplica || !strings.Contains(a.Note, "once Redis answers") {
			t.Errorf("%+v", a)
		}
		pass(5 * time.Second)
		wantForced(t, Open, all[0])
		wantForced(t, Auto, all[1])
		if f := all[0].List()[0].Force; f.Scope != ThisReplica {
			t.Errorf("%+v", f)
		}
		b.setDown(false)
		pass(3 * time.Second)
		wantForced(t, Open, all...)
		// So it is with one that was taken back.
		b.setDown(true)
		force(t, all[1], Auto, "bob")
		pass(5 * time.Second)
		b.setDown(false)
		pass(3 * time.Second)
		wantForced(t, Auto, all...)
		if n := b.left(); n != 0 {
			t.Errorf("%d are left", n)
		}
	})
}

func TestTheNewerOfTwoChangesWinsOnceRedisAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		all := replicas(t, b, 2)
		b.setDown(true)
		force(t, all[0], Open, "ann")
		pass(time.Second)
		force(t, all[1], Closed, "bob")
		b.setDown(false)
		pass(5 * time.Second)
		wantForced(t, Closed, all...)
	})
}

func TestWhatRedisLosesIsPutThereAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		all := replicas(t, b, 2)
		force(t, all[0], Open, "ann")
		pass(2 * time.Second)
		b.lose()
		pass(3 * time.Second)
		wantForced(t, Open, all...)
		if n := b.left(); n != 1 {
			t.Errorf("there are %d", n)
		}
		late := replicas(t, b, 1)[0]
		pass(2 * time.Second)
		wantForced(t, Open, late)
	})
}

func TestWhatOthersWriteIsLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		s := replicas(t, b, 1)[0]
		key := names{"fraud", "model_v1"}.key()
		for id, text := range map[string]string{
			"broken": `{`,
			"auto":   `{"id":"auto","model":"fraud","target":"model_v1","state":"auto"}`,
			"ajar":   `{"id":"ajar","model":"fraud","target":"model_v1","state":"ajar"}`,
			"id":     `{"id":"other","model":"fraud","target":"model_v1","state":"open"}`,
			"name":   `{"id":"name","model":"rank","target":"model_v1","state":"open"}`,
			"long":   fmt.Sprintf(`{"id":"long","model":"fraud","target":"model_v1","state":"open","who":%q}`, strings.Repeat("x", maxWho+1)),
		} {
			_ = b.Put(t.Context(), key, id, []byte(text), AnyID)
			if err := s.Follow(t.Context()); err != nil {
				t.Error(id, err)
			}
			if len(s.List()) != 0 {
				t.Errorf("%s was taken: %+v", id, s.List())
			}
		}
		_ = b.Put(t.Context(), key, "good", []byte(`{"id":"good","model":"fraud","target":"model_v1","state":"open","who":"ann"}`), AnyID)
		_ = s.Follow(t.Context())
		wantForced(t, Open, s)
	})
}

func FuzzWhatIsSharedIsTakenOnlyWhole(f *testing.F) {
	f.Add([]byte(`{"id":"x","model":"fraud","target":"model_v1","state":"open"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		b := newBoard()
		s := New(Options{Policy: func(string) inference.Breaker { return usual }, Shared: b})
		_ = b.Put(t.Context(), names{"fraud", "model_v1"}.key(), "x", text, AnyID)
		if err := s.Follow(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, r := range s.List() {
			if r.Model != "fraud" || r.Target != "model_v1" || r.Force.State != Open && r.Force.State != Closed {
				t.Errorf("%+v", r)
			}
		}
	})
}
