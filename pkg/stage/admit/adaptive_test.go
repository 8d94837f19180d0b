package admit

import (
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"
)

// world is a model server behind a limit, in time of its own: calls come at random, and those beyond the limit are refused.
type world struct {
	rnd    *rand.Rand
	now    time.Duration
	events events
	limit  adaptive

	rate   float64 // calls a second that come
	serve  func(n int) time.Duration
	batch  int // at most so many are served together
	slots  int // so many batches at once
	busy   int
	queue  []time.Duration // when those that wait in the server came
	inside int             // calls under way

	done, refused int
	slowest       time.Duration
}

type event struct {
	at time.Duration
	do func()
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

func newWorld(slots, batch int, serve func(n int) time.Duration) *world {
	w := &world{rnd: rand.New(rand.NewPCG(1, 2)), slots: slots, batch: batch, serve: serve} //nolint:gosec // a test
	w.limit.bound(most, true)
	w.after(0, w.come)
	return w
}

func (w *world) after(d time.Duration, do func()) { heap.Push(&w.events, event{w.now + d, do}) }

func (w *world) come() {
	w.after(time.Duration(w.rnd.ExpFloat64()/max(w.rate, .001)*float64(time.Second)), w.come)
	if w.rate == 0 {
		return
	}
	if w.inside >= w.limit.value() {
		w.refused++
		w.limit.crowded = true
		return
	}
	w.inside++
	w.queue = append(w.queue, w.now)
	w.start()
}

func (w *world) start() {
	for w.busy < w.slots && len(w.queue) > 0 {
		n := min(w.batch, len(w.queue))
		batch := w.queue[:n:n]
		w.queue = w.queue[n:]
		w.busy++
		w.after(w.serve(n), func() {
			w.busy--
			for _, came := range batch {
				took := w.now - came
				w.slowest = max(w.slowest, took)
				w.limit.add(sample{kind: timed, at: w.now, took: took}, w.inside)
				w.inside--
				w.done++
			}
			w.start()
		})
	}
}

// run lets time pass with so many calls a second, and gives how many of them were answered each second.
func (w *world) run(d time.Duration, rate float64) float64 {
	w.rate, w.done, w.refused, w.slowest = rate, 0, 0, 0
	for end := w.now + d; len(w.events) > 0 && w.events[0].at < end; {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
	}
	return float64(w.done) / d.Seconds()
}

// exponential service of a mean time.
func about(w **world, mean time.Duration) func(int) time.Duration {
	return func(int) time.Duration { return time.Duration((*w).rnd.ExpFloat64() * float64(mean)) }
}

func TestAModelWithMoreCallsThanItCanDoAnswersThoseItTakesSoonAndLosesNoThroughput(t *testing.T) {
	var w *world
	w = newWorld(16, 1, about(&w, 20*time.Millisecond)) // 800/s at best
	w.run(10*time.Second, 200)
	for _, rate := range []float64{1000, 1600, 4000} {
		w.run(10*time.Second, rate)
		if got := w.run(20*time.Second, rate); got < 720 {
			t.Errorf("at %v/s it answers %.0f/s of 800, limit %d", rate, got, w.limit.value())
		}
		t.Logf("at %v/s: %d answers of 16000, the slowest after %s, limit %d", rate, w.done, w.slowest, w.limit.value())
		if limit := w.limit.value(); limit < 12 || limit > 80 {
			t.Errorf("at %v/s the limit is %d", rate, limit)
		}
	}
}

func TestOverloadForALongTimeDoesNotRaiseTheLimit(t *testing.T) {
	var w *world
	w = newWorld(8, 1, about(&w, 10*time.Millisecond))
	w.run(5*time.Second, 100)
	w.run(10*time.Second, 3000)
	before := w.limit.value()
	w.run(5*time.Minute, 3000)
	if after := w.limit.value(); after > 2*before+8 {
		t.Errorf("from %d to %d in five minutes", before, after)
	}
}

func TestAModelThatBatchesIsNotHeldToWhatASingleCallTakes(t *testing.T) {
	// A batch of 64 takes five times as long as a single call, and there are 12 times as many answers a second.
	batches := func(n int) time.Duration { return 5*time.Millisecond + time.Duration(n)*350*time.Microsecond }
	w := newWorld(1, 64, batches)
	w.run(10*time.Second, 50)
	best := 64 / batches(64).Seconds()
	w.run(30*time.Second, 2*best)
	if got := w.run(20*time.Second, 2*best); got < .5*best {
		t.Errorf("%.0f/s of %.0f/s, limit %d", got, best, w.limit.value())
	}
	t.Logf("answers %.0f/s of %.0f/s, limit %d", float64(w.done)/20, best, w.limit.value())
	if w.limit.value() < 20 {
		t.Errorf("the limit is %d", w.limit.value())
	}
}

func TestASlowPhaseIsOverWhenItIsOver(t *testing.T) {
	var w *world
	mean := 10 * time.Millisecond
	w = newWorld(16, 1, func(int) time.Duration { return time.Duration(w.rnd.ExpFloat64() * float64(mean)) })
	w.run(20*time.Second, 1200)
	mean = 200 * time.Millisecond // 80/s at best
	w.run(time.Minute, 1200)
	if limit := w.limit.value(); limit > 80 {
		t.Errorf("while it is slow the limit is %d", limit)
	}
	mean = 10 * time.Millisecond
	w.run(5*time.Second, 1200)
	if got := w.run(10*time.Second, 1200); got < 1100 {
		t.Errorf("5 s after the slow phase it answers %.0f/s of 1200, limit %d", got, w.limit.value())
	}
}

func TestAModelThatStaysSlowerIsMeasuredByWhatItTakesNow(t *testing.T) {
	var w *world
	mean := 10 * time.Millisecond
	w = newWorld(32, 1, func(int) time.Duration { return time.Duration(w.rnd.ExpFloat64() * float64(mean)) })
	w.run(20*time.Second, 2000)
	mean = 100 * time.Millisecond // a larger version: 320/s at best
	w.run(time.Minute, 2000)
	if got := w.run(20*time.Second, 2000); got < 250 {
		t.Errorf("%.0f/s of 320/s, limit %d", got, w.limit.value())
	}
}

func TestAModelThatHasRoomRefusesNothing(t *testing.T) {
	var w *world
	w = newWorld(200, 1, about(&w, 50*time.Millisecond)) // 4000/s at best
	w.run(20*time.Second, 1000)
	w.run(20*time.Second, 1000)
	if w.refused > 0 {
		t.Errorf("%d refused, limit %d", w.refused, w.limit.value())
	}
}

func TestAFullQueueUpstreamLowersTheLimitOnceAWindowAndNeverToNothing(t *testing.T) {
	var a adaptive
	a.bound(100, true)
	at := time.Duration(0)
	for range 50 {
		a.add(sample{kind: dropped, at: at}, 10)
	}
	if a.value() != 17 {
		t.Errorf("after one window: %d", a.value())
	}
	for range 50 {
		for range leastSamples {
			at += leastWindow / 10
			a.add(sample{kind: timed, at: at, took: time.Millisecond}, 10)
		}
		a.add(sample{kind: dropped, at: at}, 10)
	}
	if a.value() != leastLimit {
		t.Errorf("in the end: %d", a.value())
	}
	a.bound(3, false)
	if a.value() != 3 {
		t.Errorf("with a maximum of 3: %d", a.value())
	}
}
