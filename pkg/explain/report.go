// Package explain says what would happen to a call: which target it would go to, whether its caller may make it, what
// is left in the buckets it would draw from, and how long it may take, each with the reason. It asks the same parts that
// calls go through, and changes nothing: no token is taken and nothing is sent to a model.
package explain

import (
	"fmt"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Question is the call that is asked about.
type Question struct {
	Model   string `json:"model"`
	Version string `json:"version,omitempty"` // "" leaves it to the gateway
	User    string `json:"user,omitempty"`    // as the call would name it
	Caller  string `json:"caller,omitempty"`  // a declared caller; "" leaves open who calls
	Role    string `json:"role,omitempty"`    // that the caller's token carries
	Address string `json:"address,omitempty"` // the client's, for limits per ip
	// Headers are the client's metadata, and Metadata that of the message (Predict), for rules of the split.
	Headers  map[string][]string `json:"headers,omitempty"`
	Metadata map[string]string   `json:"metadata,omitempty"`
}

// Report is the answer.
type Report struct {
	Question Question `json:"question"`
	Config   string   `json:"config"` // hash of the configuration in force
	// Served says that nothing known now keeps such a call from the model.
	Served  bool     `json:"served"`
	Refusal *Refusal `json:"refusal,omitempty"` // the first thing that would
	Access  Access   `json:"access"`
	User    User     `json:"user"`
	Target  *Target  `json:"target,omitempty"` // nil when none could be chosen
	// Split has every rule of the model's split, in order, and what it would answer.
	Split   []inference.Considered `json:"split,omitempty"`
	Mirror  *Mirror                `json:"mirror,omitempty"` // nil when calls are not copied
	Limits  []Limit                `json:"limits"`           // in the order in which they are drawn from
	Timeout *Timeout               `json:"timeout,omitempty"`
	// Fallback is what answers in place of an outage; nil: the error itself.
	Fallback *Fallback `json:"fallback,omitempty"`
	Notes    []string  `json:"notes,omitempty"` // what could not be found out
}

// Refusal is what a call would be refused with.
type Refusal struct {
	Stage   string `json:"stage"`
	Reason  string `json:"reason"` // as in ErrorInfo
	Code    string `json:"code"`   // of gRPC
	HTTP    int    `json:"http"`
	Message string `json:"message"`
}

// Verdicts on access.
const (
	Allowed = "allowed"
	Refused = "refused"
	Open    = "open" // it depends on who calls, which the question does not say
)

// Access says whether the caller may make the call.
type Access struct {
	Verdict string `json:"verdict"`
	Rule    string `json:"rule,omitempty"` // place in the file of the rule that grants it
	Why     string `json:"why"`
}

// User is the person the call would be made for.
type User struct {
	Name string `json:"name"` // "" is nobody in particular
	Why  string `json:"why"`
}

// Target is where the call would go.
type Target struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Upstream string `json:"upstream"`
	Model    string `json:"model"` // its name there
	Ready    bool   `json:"ready"`
	Why      string `json:"why"`
	// Breaker says whether the target gets calls now; nil where nobody knows.
	Breaker *Breaker `json:"breaker,omitempty"`
	// Endpoints says how much room those have that can serve it; nil where nobody knows.
	Endpoints *Endpoints `json:"endpoints,omitempty"`
	// Others are further versions that the upstream has, where the gateway chooses among them.
	Others []Version `json:"others,omitempty"`
}

// Endpoints are those that can serve the target.
type Endpoints struct {
	Serving     int `json:"serving"`       // how many there are
	MaxInFlight int `json:"max_in_flight"` // calls that each takes at once
	Full        int `json:"full"`          // how many take no more now
}

// words say how much room there is.
func (e *Endpoints) words() string {
	calls := "1 call"
	if e.MaxInFlight > 1 {
		calls = fmt.Sprintf("%d calls", e.MaxInFlight)
	}
	text := fmt.Sprintf("each of its %d endpoints takes %s at once, and ", e.Serving, calls)
	if e.Serving == 1 {
		text = fmt.Sprintf("its endpoint takes %s at once, and ", calls)
	}
	switch {
	case e.Full == 0:
		return text + "has room"
	case e.Full == e.Serving:
		return text + "is full"
	case e.Full == 1:
		return text + "1 of them is full"
	}
	return text + fmt.Sprintf("%d of them are full", e.Full)
}

// Breaker is that of the target.
type Breaker struct {
	State string `json:"state"`         // closed, half-open or open
	Why   string `json:"why,omitempty"` // failures, slow, no_endpoint, ...
	// Until is when an open one lets calls through that probe the target; nil while that is not known.
	Until    *time.Time `json:"until,omitempty"`
	Calls    uint32     `json:"calls"` // that ended within its window
	Failures uint32     `json:"failures"`
	Slow     uint32     `json:"slow"`
	// Forced is who keeps it in this state; "" when it is by itself.
	Forced string `json:"forced,omitempty"`
}

// Mirror is where copies of calls go.
type Mirror struct {
	To      string  `json:"to"`
	Percent float64 `json:"percent"` // of calls
}

// Version is a version that the call would not go to.
type Version struct {
	Version string `json:"version"`
	State   string `json:"state"`
}

// Limit is a bucket that the call would draw from.
type Limit struct {
	Name    string  `json:"name"`
	Per     string  `json:"per"`
	Subject string  `json:"subject"`    // whose bucket: "fraud", "ann"
	Rate    float64 `json:"per_second"` // tokens
	Burst   float64 `json:"burst"`      // tokens
	Cost    string  `json:"cost"`       // 1, rows or KiB
	Mode    string  `json:"mode"`
	Draw    string  `json:"draw"`
	// Override says that the file gives this user or caller a rate of its own.
	Override bool `json:"override,omitempty"`
	// Left is how many tokens the bucket has; nil when that could not be found out, or nothing is counted.
	Left *float64 `json:"left"`
	Note string   `json:"note,omitempty"` // why Left is nil
}

// Timeout says how long the call may take. 0 is no limit.
type Timeout struct {
	Max         Duration `json:"max"`          // of a unary call
	FirstAnswer Duration `json:"first_answer"` // of a message in a stream, until its first answer
	Idle        Duration `json:"idle"`         // and between answers
	Why         string   `json:"why"`
	// Dynamic is what the target makes of Max; nil when the model has no dynamic timeout.
	Dynamic *Dynamic `json:"dynamic,omitempty"`
}

// Dynamic is what a target's timeout goes by.
type Dynamic struct {
	Timeout Duration `json:"timeout"`        // of a unary call now; with mode shadow, what it would be
	Source  string   `json:"source"`         // max, prometheus, stale or stats
	Mode    string   `json:"mode"`           // enforce or shadow
	Floor   Duration `json:"floor"`          // the least it becomes
	Factor  float64  `json:"factor"`         // times P999
	P999    Duration `json:"p999,omitempty"` // what 999 in 1000 attempts took at most, within the last hour
	Beyond  bool     `json:"beyond,omitempty"`
	Samples uint64   `json:"samples"` // of these
	Needs   uint64   `json:"needs"`   // as many, before there is a dynamic timeout
	Age     Duration `json:"age"`     // of P999
	Asks    bool     `json:"asks_prometheus"`
	Why     string   `json:"why"`
}

// Duration is written as Go does: "1.5s".
type Duration time.Duration

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes d.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}
