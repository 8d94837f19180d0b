// Package calm is for tests of how long something takes, which cannot be moved into testing/synctest because processes,
// sockets or processors take part. A machine that stalls makes any one measurement long; what is wrong with the product
// does so every time. So a measurement is made again until one of them holds.
package calm

import (
	"sync"
	"testing"
	"time"
)

const (
	// attempts at a measurement. Even where every second one is spoilt, fewer than one test in a thousand fails by that.
	attempts = 12
	// quiet is how many of them may fail while the machine did not stall: what is wrong with the product now and then is
	// not to be tried until it is right. They are not none, for a stall just before a measurement spoils it too.
	quiet = 3
	// tick is how often a clock is looked at while something is measured, and stalled how late it is on a machine that stalls.
	tick    = 5 * time.Millisecond
	stalled = 10 * time.Millisecond
)

// Moment runs measure until it gives no error, and fails the test when it never does, or does not in three attempts during
// which the machine did not stall. What must hold whatever the machine does belongs to t, not to the error.
func Moment(t testing.TB, measure func() error) {
	t.Helper()
	moment(t, measure, watch)
}

func moment(t testing.TB, measure func() error, watch func() func() time.Duration) {
	t.Helper()
	var err error
	calm := 0
	for n := range attempts {
		seen := watch()
		longest := measured(&err, measure, seen)
		if err == nil || t.Failed() {
			return
		}
		t.Logf("attempt %d, while the machine stalled for %v: %v", n+1, longest, err)
		if longest < stalled {
			calm++
		}
		if calm == quiet {
			t.Errorf("not in %d attempts, %d of them on a machine that did not stall: %v", n+1, calm, err)
			return
		}
	}
	t.Errorf("not in one of %d attempts: %v", attempts, err)
}

// measured is one attempt. The watch ends whatever becomes of it: measure may end the test.
func measured(err *error, measure func() error, seen func() time.Duration) (longest time.Duration) {
	defer func() { longest = seen() }()
	*err = measure()
	return 0
}

// Luck is Moment for what is spoilt otherwise than by a machine that stalls: a pool, say, that loses what it holds at
// random. Every attempt may fail but one.
func Luck(t testing.TB, measure func() error) {
	t.Helper()
	moment(t, measure, func() func() time.Duration { return func() time.Duration { return stalled } })
}

// watch looks how late a clock ticks, until the function that it gives is called, which tells the most.
func watch() (seen func() time.Duration) {
	stop := make(chan struct{})
	var longest time.Duration
	var watching sync.WaitGroup
	last := time.Now()
	watching.Go(func() {
		ticks := time.NewTicker(tick)
		defer ticks.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticks.C:
				now := time.Now()
				longest, last = max(longest, now.Sub(last)-tick), now
			}
		}
	})
	return func() time.Duration {
		now := time.Now()
		close(stop)
		watching.Wait()
		return max(longest, now.Sub(last)-tick) // one that ends while the clock is late
	}
}
