package breaker

import (
	"sync"
	"time"
)

// slowWindow counts the calls that ended within the window, and those of them that were slow.
type slowWindow struct {
	begin time.Time
	part  time.Duration // that one bucket is for

	mu      sync.Mutex
	age     int64 // buckets that have passed
	all     tally
	buckets [parts]tally
}

type tally struct{ calls, failed, slow uint32 }

func newSlowWindow(window time.Duration, now time.Time) *slowWindow {
	return &slowWindow{begin: now, part: max(window/parts, 1)}
}

// add counts a call and gives what there is within the window.
func (w *slowWindow) add(slow bool) tally {
	age := int64(time.Since(w.begin) / w.part)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turn(age)
	now := &w.buckets[w.age%parts]
	now.calls++
	w.all.calls++
	if slow {
		now.slow++
		w.all.slow++
	}
	return w.all
}

// now gives what there is within the window.
func (w *slowWindow) now() tally {
	age := int64(time.Since(w.begin) / w.part)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turn(age)
	return w.all
}

// turn forgets what is older than the window.
func (w *slowWindow) turn(age int64) {
	for passed := min(age-w.age, parts); passed > 0; passed-- {
		w.age++
		old := &w.buckets[w.age%parts]
		w.all.calls -= old.calls
		w.all.slow -= old.slow
		*old = tally{}
	}
	w.age = max(w.age, age)
}
