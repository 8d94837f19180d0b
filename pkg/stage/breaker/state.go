package breaker

import "time"

// State of a breaker, as people see it.
type State uint8

// The states. Auto is none: it says that nothing is forced.
const (
	Auto     State = iota
	Closed         // calls go through
	HalfOpen       // a few probe the target, the others are refused
	Open           // all are refused
)

var stateNames = [...]string{"auto", "closed", "half-open", "open"}

func (s State) String() string { return stateNames[s] }

// MarshalText writes s by its name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Reason says why a breaker changed, or refused a call.
type Reason string

// The reasons. As labels of metrics they stay as they are.
const (
	Failures   Reason = "failures"    // too many calls failed; of a half-open one, a probe
	Slow       Reason = "slow"        // too many were slow
	NoEndpoint Reason = "no_endpoint" // no endpoint can serve the target
	Waited     Reason = "waited"      // it has been open for its time
	Back       Reason = "back"        // an endpoint can serve the target again
	Probed     Reason = "probed"      // the probes went well
	Probing    Reason = "probing"     // refused: as many probes as may be are under way
	Forced     Reason = "forced"      // by an operator
)

// Report is what is known of one breaker.
type Report struct {
	Model    string `json:"model"` // as clients know it
	Target   string `json:"target"`
	Version  string `json:"version,omitempty"`
	Upstream string `json:"upstream"`
	State    State  `json:"state"` // what calls meet: what is forced, where something is
	Why      Reason `json:"why,omitempty"`
	// Since is when it came into the state that it has by itself.
	Since time.Time `json:"since"`
	// Until is when an open one lets probes through: nil while it is not known, for want of an endpoint or by force.
	Until *time.Time `json:"until,omitempty"`
	// Opened is how many times in a row it has opened: each time it stays so for twice as long.
	Opened int `json:"opened,omitempty"`
	// Calls that ended within the window; of them those that failed, and those that were slow. Of one that is not closed: when
	// it opened, and 0 where it opened by a probe.
	Calls    uint32 `json:"calls"`
	Failures uint32 `json:"failures"`
	Slow     uint32 `json:"slow"`
	// Force is what an operator has forced; nil when nothing is.
	Force *Force `json:"force,omitempty"`
}

// Force is a state that an operator has forced.
type Force struct {
	State State     `json:"state"` // Open or Closed
	Who   string    `json:"who"`
	When  time.Time `json:"when"`
	Scope string    `json:"scope"` // AllReplicas or ThisReplica
}
