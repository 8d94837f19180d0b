package main

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestAMachineThatStallsIsToldFromOneThatIsBusy(t *testing.T) {
	for name, c := range map[string]struct {
		late    []time.Duration // of ticks, in a scenario of ten seconds
		stalled bool
	}{
		"quiet":               {nil, false},
		"busy":                {[]time.Duration{40 * time.Millisecond, 100 * time.Millisecond, 140 * time.Millisecond}, false},
		"stops":               {[]time.Duration{stalledFor}, true},
		"crawls":              {repeated(140*time.Millisecond, 8), true},
		"is a little late":    {make([]time.Duration, 1000), false},
		"is late all the way": {repeated(40*time.Millisecond, 200), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := watchHost()
				for _, d := range c.late {
					h.ticked(d)
				}
				<-time.After(10 * time.Second)
				if stalled, longest, late := h.seen(); stalled != c.stalled {
					t.Errorf("stalled: %v, for %v at most, %v in all", stalled, longest, late)
				}
			})
		})
	}
}

func repeated(d time.Duration, n int) []time.Duration {
	all := make([]time.Duration, n)
	for i := range all {
		all[i] = d
	}
	return all
}
