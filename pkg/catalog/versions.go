package catalog

import (
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// settle is how long a newer version must have been ready everywhere before unpinned calls move to it: an
// endpoint that restarts must not pull all traffic over for the seconds in which it alone is counted.
const settle = 10 * time.Second

// choose gives the version of unpinned calls. It holds on to current: a newer version takes over only once it has been
// ready everywhere for settle, and an outage of current moves nothing. Only when current has been unloaded does the
// next one serve at once. It gives "" when there is nothing to choose.
func choose(current string, states []inference.VersionState, now time.Time) string {
	held := false
	for _, s := range states {
		if s.Version == current && !s.Unloaded {
			held = true
		}
	}
	if !held {
		return highest(states)
	}
	best := current
	for _, s := range states {
		if s.Everywhere && !s.Unloaded && inference.NewerVersion(s.Version, best) && now.Sub(s.Since) >= settle {
			best = s.Version
		}
	}
	return best
}

// highest prefers a version that is ready everywhere over one that is ready somewhere, and that over one that is only listed.
func highest(states []inference.VersionState) string {
	best, rank := "", 0
	for _, s := range states {
		r := 1
		switch {
		case s.Unloaded:
			continue
		case s.Everywhere:
			r = 3
		case s.Anywhere:
			r = 2
		}
		if r > rank || (r == rank && inference.NewerVersion(s.Version, best)) {
			best, rank = s.Version, r
		}
	}
	return best
}

// latest gives the highest of versions; "" of none, as upstreams without versions name.
func latest(versions []string) string {
	best := ""
	for _, v := range versions {
		if best == "" || inference.NewerVersion(v, best) {
			best = v
		}
	}
	return best
}
