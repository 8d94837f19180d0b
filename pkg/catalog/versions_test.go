package catalog

import (
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

func TestTheVersionOfUnpinnedCallsIsHeldUntilANewerOneHasSettledEverywhere(t *testing.T) {
	now := time.Unix(1000, 0)
	ready := func(v string, ago time.Duration) inference.VersionState {
		return inference.VersionState{Version: v, Anywhere: true, Everywhere: true, Since: now.Add(-ago)}
	}
	somewhere := func(v string) inference.VersionState { return inference.VersionState{Version: v, Anywhere: true} }
	down := func(v string) inference.VersionState { return inference.VersionState{Version: v} }
	unloaded := func(v string) inference.VersionState { return inference.VersionState{Version: v, Unloaded: true} }
	type states = []inference.VersionState
	for name, tt := range map[string]struct {
		current string
		states  states
		want    string
	}{
		"the first choice is the highest that is ready everywhere": {"", states{ready("1", 0), ready("2", 0), somewhere("3")}, "2"},
		"or ready anywhere":                                {"", states{down("1"), somewhere("2"), down("3")}, "2"},
		"or at least listed":                               {"", states{down("1"), down("2"), unloaded("3")}, "2"},
		"nothing gives nothing":                            {"", nil, ""},
		"a newer one waits":                                {"1", states{ready("1", time.Hour), ready("2", 9*time.Second)}, "1"},
		"and takes over once it has settled":               {"1", states{ready("1", time.Hour), ready("2", 10*time.Second)}, "2"},
		"not when one endpoint lacks it":                   {"1", states{ready("1", time.Hour), somewhere("2")}, "1"},
		"an outage moves nothing":                          {"2", states{ready("1", time.Hour), down("2")}, "2"},
		"an unloaded one is replaced at once":              {"2", states{ready("1", 0), unloaded("2")}, "1"},
		"so is one that is gone":                           {"2", states{ready("1", 0)}, "1"},
		"numbers are compared as numbers":                  {"9", states{ready("9", time.Hour), ready("10", time.Hour)}, "10"},
		"an older one never takes over from a ready newer": {"2", states{ready("1", time.Hour), ready("2", 0)}, "2"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := choose(tt.current, tt.states, now); got != tt.want {
				t.Errorf("chose %q, want %q", got, tt.want)
			}
		})
	}
}
