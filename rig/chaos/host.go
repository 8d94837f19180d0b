package main

import (
	"sync"
	"time"
)

// What is measured here is measured on a machine that others use, too. One that stops for a second makes answers late that
// were not, and faults seem unnoticed: the bounds say what the gateway does while it runs. So the rig watches how late its
// own clock ticks, and plays a scenario again that did not hold while the machine stalled.
const (
	tickEvery = 10 * time.Millisecond
	// stalledFor in one go, or in parts more than the part of a scenario, is a machine that measures nothing.
	stalledFor  = 150 * time.Millisecond
	stalledPart = 0.1
	lateTick    = 50 * time.Millisecond // less is how machines are that have something to do
	// plays is how often a scenario is played at most.
	plays = 4
)

// host is what was seen of the machine.
type host struct {
	mu      sync.Mutex
	longest time.Duration // that the clock stood still
	late    time.Duration // all of it, in parts of at least lateTick
	begun   time.Time
	stop    chan struct{}
	stopped sync.WaitGroup
}

// watchHost watches until seen is asked.
func watchHost() *host {
	h := &host{begun: time.Now(), stop: make(chan struct{})}
	h.stopped.Go(func() {
		tick := time.NewTicker(tickEvery)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-h.stop:
				return
			case <-tick.C:
			}
			now := time.Now()
			h.ticked(now.Sub(last) - tickEvery)
			last = now
		}
	})
	return h
}

// ticked takes how late a tick was.
func (h *host) ticked(late time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.longest = max(h.longest, late)
	if late >= lateTick {
		h.late += late
	}
}

// seen ends the watch, and tells whether the machine stalled too much for anything to be measured, and for how long.
func (h *host) seen() (stalled bool, longest, late time.Duration) {
	close(h.stop)
	h.stopped.Wait()
	return h.longest >= stalledFor || h.late.Seconds() > stalledPart*time.Since(h.begun).Seconds(), h.longest, h.late
}
