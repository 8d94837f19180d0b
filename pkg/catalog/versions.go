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

// lowest gives the version of calls that rules send nowhere else, where rules split a model's calls: the lowest that any
// endpoint lists and that is not unloaded. It holds on to current while that is not ready, which is an outage, and moves
// up only once current has been unloaded, or gone, on every endpoint that is up for settle. A version below current takes
// over when it serves: one that is being loaded would be an outage that nothing called for. It gives "" when there is
// nothing to choose.
func lowest(current string, states []inference.VersionState, now time.Time) string {
	best := ""
	for _, s := range states {
		held := s.Version == current && current != ""
		switch {
		case s.Unloaded && !(held && now.Sub(s.Since) < settle):
			continue
		case !held && current != "" && inference.NewerVersion(current, s.Version) && !s.Anywhere:
			continue
		}
		if best == "" || inference.NewerVersion(best, s.Version) {
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

// earliest gives the lowest of versions; "" of none.
func earliest(versions []string) string {
	best := ""
	for _, v := range versions {
		if best == "" || inference.NewerVersion(best, v) {
			best = v
		}
	}
	return best
}
