package scripts

import (
	"sync/atomic"
	"time"
)

// The rule of a script that keeps failing.
const (
	gateWindow  = 10 * time.Second
	offFailures = 20 // failed runs in the window, and at least half of all
	offStops    = 5  // runs in the window that were stopped, for their time or their memory, and either
	offStopped  = 1  // percent of all runs or
	offCost     = 2  // percent of the window, by the time that they took
	offFor      = time.Minute
	probeEvery  = time.Second
	probesToOn  = 3 // in a row
)

const (
	slotWidth   = int64(250 * time.Millisecond)
	slots       = 64 // more than the window has, for calls that come late
	windowSlots = int64(gateWindow) / slotWidth
)

// gate switches one version of a script off when at least 20 of its runs in 10 s failed and these are half of them, or
// when 5 or more were stopped that are 1 % of them, or cost 2 % of the time: what a few callers can bring about among many
// is no reason to take it from everybody (ADR 8). After a minute one call a second tries it; three that do well in a row
// switch it on again, and one that fails puts that off by another minute. Another version has another gate. While it is
// on, a run costs two atomic operations and no lock.
type gate struct {
	retry atomic.Int64 // 0: on; else when it is tried again, unix ns
	since atomic.Int64 // when it was switched off
	probe atomic.Int64 // when the next probe may be
	good  atomic.Int32 // probes in a row
	slots [slots]slot
}

// slot counts runs within a quarter of a second.
type slot struct{ number, runs, failed, stopped atomic.Int64 }

// runOf is how a run ended, for the gate.
type runOf uint8

const (
	ranWell  runOf = iota
	ranEmpty       // nothing follows from it: there was no key, the call was too long, or the caller left
	ranBadly
	ranStopped // badly, and it had to be stopped
)

// allow reports whether the script may run at now, in unix ns, and whether that is a probe.
func (g *gate) allow(now int64) (run, probe bool) {
	retry := g.retry.Load()
	if retry == 0 {
		return true, false
	}
	if now < retry {
		return false, false
	}
	next := g.probe.Load()
	run = now >= next && g.probe.CompareAndSwap(next, now+int64(probeEvery))
	return run, run
}

// ran notes a run, of which deadline is the longest that it may have taken, and reports whether that switched the script
// off or on.
func (g *gate) ran(now int64, how runOf, probe bool, deadline time.Duration) (off, on bool) {
	if probe {
		return false, g.probed(now, how)
	}
	s := g.slot(now / slotWidth)
	s.runs.Add(1)
	if how < ranBadly {
		return false, false
	}
	s.failed.Add(1)
	if how == ranStopped {
		s.stopped.Add(1)
	}
	if runs, failed, stopped := g.sum(now); !tooManyStops(runs, stopped, deadline) && (failed < offFailures || 2*failed < runs) {
		return false, false
	}
	g.good.Store(0)
	g.probe.Store(0)
	if !g.retry.CompareAndSwap(0, now+int64(offFor)) {
		return false, false // runs that had begun before
	}
	g.since.Store(now)
	return true, false
}

// tooManyStops reports whether so many runs were stopped that it is the script's doing, or that what they take is felt.
func tooManyStops(runs, stopped int64, deadline time.Duration) bool {
	if stopped < offStops {
		return false
	}
	return 100*stopped >= offStopped*runs || 100*stopped*int64(deadline) > offCost*int64(gateWindow)
}

func (g *gate) probed(now int64, how runOf) (on bool) {
	switch how {
	case ranEmpty:
	case ranWell:
		if g.good.Add(1) >= probesToOn {
			for i := range g.slots {
				g.slots[i].number.Store(0)
			}
			return g.retry.Swap(0) != 0
		}
	case ranBadly, ranStopped:
		g.good.Store(0)
		g.retry.Store(now + int64(offFor))
	}
	return false
}

// slot gives the slot of that number. Whoever comes first empties it; a run that is counted just then may be lost.
func (g *gate) slot(number int64) *slot {
	s := &g.slots[number%slots]
	if old := s.number.Load(); old < number && s.number.CompareAndSwap(old, number) {
		s.runs.Store(0)
		s.failed.Store(0)
		s.stopped.Store(0)
	}
	return s
}

func (g *gate) sum(now int64) (runs, failed, stopped int64) {
	last := now / slotWidth
	for i := range g.slots {
		s := &g.slots[i]
		if n := s.number.Load(); n >= last-windowSlots && n <= last {
			runs += s.runs.Load()
			failed += s.failed.Load()
			stopped += s.stopped.Load()
		}
	}
	return runs, failed, stopped
}

// off says since when the script is off and when it is tried again; false while it is on.
func (g *gate) off() (since, retry time.Time, off bool) {
	r := g.retry.Load()
	if r == 0 {
		return time.Time{}, time.Time{}, false
	}
	return time.Unix(0, g.since.Load()), time.Unix(0, r), true
}
