package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/calm"
	"github.com/model-gateway/model-gateway/pkg/internal/redistest"
	"github.com/model-gateway/model-gateway/pkg/stage/limit"
)

func TestCallersWhoLeaveABatchHoldUpNobody(t *testing.T) {
	s := redistest.Start(t)
	c, err := Open(Options{Addresses: []string{s.Addr}, Timeout: time.Minute}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	limits := NewLimits(c)
	const tokens = 3000
	key := limit.ModelBase("m", "l").Key()
	var paid, left atomic.Int64
	var all sync.WaitGroup
	for worker := range 64 {
		all.Go(func() {
			for range 150 {
				patience := time.Minute
				if worker%2 == 0 {
					patience = rand.N(2 * time.Millisecond)
				}
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				v, err := limits.Draw(ctx, []limit.Draw{{Key: key, Rate: inference.Rate{Burst: tokens}, Cost: 1}})
				cancel()
				switch {
				case err == nil && v.OK:
					paid.Add(1)
				case err != nil && worker%2 == 1:
					t.Errorf("who waited got %v", err)
				case err != nil:
					left.Add(1)
				}
			}
		})
	}
	all.Wait()
	// What was paid for somebody who had left is lost, never given twice.
	if p, l := paid.Load(), left.Load(); p > tokens || p+l < tokens {
		t.Errorf("%d draws were paid and %d left, of %d tokens", p, l, tokens)
	}
	if left.Load() == 0 {
		t.Error("nobody left; the test shows nothing")
	}
	b := &c.breakers[0].batch
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.driving) != 0 || len(b.waiting) != 0 {
		t.Errorf("%d lanes are under way and %d wait for nothing", len(b.driving), len(b.waiting))
	}
	if !c.Up() {
		t.Error("callers who leave tripped the breaker")
	}
}

func TestThoseWhoAskAtOnceShareARoundTripAndEachPaysAllOrNothing(t *testing.T) {
	s := redistest.Start(t)
	c, err := Open(Options{Addresses: []string{s.Addr}, Timeout: time.Minute}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	limits := NewLimits(c)
	if _, err := limits.Peek(context.Background(), []limit.Draw{drawOf("m", "all", 40, 1)}); err != nil {
		t.Fatal(err) // connected, and the script known
	}
	before := calls(t, s)
	s.Pause()
	const callers = 60
	paid := make(chan bool, callers)
	for i := range callers {
		go func() {
			v, err := limits.Draw(context.Background(), []limit.Draw{drawOf("m", "all", 40, 1), drawOf("m", strconv.Itoa(i), 5, 1)})
			if err != nil {
				t.Error(err)
			}
			paid <- v.OK
		}()
	}
	b := &c.breakers[0].batch
	redistest.Eventually(t, func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		n := len(b.waiting)
		for _, l := range b.driving {
			n += len(l.questions)
		}
		if n != callers {
			return fmt.Errorf("%d are there", n)
		}
		return nil
	})
	s.Resume()
	n := 0
	for range callers {
		if <-paid {
			n++
		}
	}
	if n != 40 {
		t.Errorf("%d of 60 were paid from a bucket of 40", n)
	}
	// Each lane was under way with one, and the one that got its seat next took along those who were there by then.
	if got := calls(t, s) - before; got > 2*lanes {
		t.Errorf("60 draws at once were %d calls of the script", got)
	}
	if keys := strings.Fields(s.Do("KEYS", "*limit:{m}:l:*")); len(keys) != 41 {
		t.Errorf("%d buckets were paid from, want that of all and those of 40 users", len(keys))
	}
}

func TestALaneOfItsOwnIsForWhoWouldWaitForLong(t *testing.T) {
	now := time.Now()
	young, old := &lane{begun: now.Add(-patience / 2)}, &lane{begun: now.Add(-2 * patience)}
	for _, c := range []struct {
		budget  time.Duration
		driving []*lane
		want    bool
	}{
		{time.Second, nil, true},
		{time.Second, []*lane{young}, false},
		{time.Second, []*lane{old}, true},
		{time.Second, []*lane{old, young}, false},
		{time.Second, []*lane{old, old}, false},
		{2 * patience, []*lane{young}, true}, // who has little time waits less
	} {
		if got := (&batcher{budget: c.budget, driving: c.driving}).goes(now); got != c.want {
			t.Errorf("with %d lanes and a budget of %v: %v", len(c.driving), c.budget, got)
		}
	}
}

// calls is how often the script ran.
func calls(t *testing.T, s *redistest.Server) int {
	t.Helper()
	_, rest, _ := strings.Cut(s.Do("INFO", "commandstats"), "cmdstat_evalsha:calls=")
	n, err := strconv.Atoi(rest[:max(strings.IndexByte(rest, ','), 0)])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Who waits for somebody else's round trip waits no longer than one of his own may take.
func TestWhoRidesAlongIsTold(t *testing.T) {
	const budget = 300 * time.Millisecond
	s := redistest.Start(t)
	c, err := Open(Options{Addresses: []string{s.Addr}, Timeout: budget}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	limits := NewLimits(c)
	b := &c.breakers[0].batch
	calm.Moment(t, func() error {
		redistest.Eventually(t, func() error {
			_, err := limits.Draw(context.Background(), []limit.Draw{drawOf("m", "a", 1e9, 1)})
			return err
		})
		s.Pause()
		defer s.Resume()
		took := make(chan time.Duration, 100)
		for i := range cap(took) {
			time.AfterFunc(time.Duration(i)*3*time.Millisecond, func() {
				begun := time.Now()
				if _, err := limits.Draw(context.Background(), []limit.Draw{drawOf("m", "a", 1e9, 1)}); err == nil {
					t.Error("a silent Redis paid")
				}
				took <- time.Since(begun)
			})
		}
		late := 0
		for range cap(took) {
			if d := <-took; d > budget+100*time.Millisecond {
				late++
			}
		}
		if late > cap(took)/10 {
			return fmt.Errorf("%d of %d waited for much longer than %v", late, cap(took), budget)
		}
		return nil
	})
	redistest.Eventually(t, func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !b.alarmAt.IsZero() || len(b.waiting)+len(b.driving) > 0 {
			return fmt.Errorf("an alarm at %v, %d wait, %d drive", b.alarmAt, len(b.waiting), len(b.driving))
		}
		return nil
	})
}

func TestWhoHasLittleTimeLeftDrivesNobodyWhoHasMore(t *testing.T) {
	now := time.Now()
	late := newQuestion(modeDraw, []limit.Draw{drawOf("m", "late", 1, 1)}, now.Add(time.Minute))
	early := newQuestion(modeDraw, []limit.Draw{drawOf("m", "early", 1, 1)}, now.Add(2*time.Minute))
	b, l := &batcher{budget: time.Hour, waiting: []*question{early}}, &lane{}
	defer b.stop()
	if b.board(l, late) {
		t.Fatal("who has a minute drives who has two")
	}
	if <-early.turn != l || early.state != drives || late.state != waits || !slices.Equal(b.waiting, []*question{late}) || b.alarmAt != late.due {
		t.Errorf("the lane was not passed on well: %+v", b)
	}
	if !b.board(l, early) || late.state != rides || len(l.questions) != 2 || len(b.waiting) != 0 {
		t.Errorf("who has most time does not drive: %+v, %+v", b, l)
	}
}

// A connection that stalls keeps nobody for longer than patience, whether somebody else comes or not.
func TestWhoWaitsForOneThatTakesLongGoesByItself(t *testing.T) {
	s := redistest.Start(t)
	c, err := Open(Options{Addresses: []string{s.Addr}, Timeout: 30 * time.Second}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	limits := NewLimits(c)
	if _, err := limits.Peek(context.Background(), []limit.Draw{drawOf("m", "all", 40, 1)}); err != nil {
		t.Fatal(err) // connected, and the script known
	}
	b := &c.breakers[0].batch
	b.mu.Lock()
	stalled := b.lane() // under way, and nothing comes of it
	stalled.begun = time.Now()
	b.mu.Unlock()
	if v, err := limits.Draw(context.Background(), []limit.Draw{drawOf("m", "all", 40, 1)}); err != nil || !v.OK {
		t.Errorf("%+v, %v", v, err)
	}
	b.arrive(stalled, nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.driving) != 0 || len(b.waiting) != 0 {
		t.Errorf("%d lanes are under way and %d wait for nothing", len(b.driving), len(b.waiting))
	}
}
