// Package cases runs scripts on calls that are written down: the cases beside a script, which say what it must answer,
// and calls that were recorded, which show what a new version would do otherwise. It needs no gateway.
//
// The cases of fraud.lua stand in fraud_cases.yaml beside it:
//
//	targets: [model_v1, model_v2]                 # what a script may answer; optional
//	cases:
//	  - name: premium users get the new version
//	    call: {user: u1, headers: {x-user-type: premium}}
//	    want: {target: model_v2, reason: premium}
//	  - name: without a user there is nothing to hash
//	    call: {}
//	    want: {outcome: no_key}
//	  - name: a tenth of all users
//	    share: {users: 100000, want: {model_v2: 10% ± 0.5%}}
//
// An unknown field is a mistake, and all mistakes are told at once, with file and line.
package cases

import (
	"maps"
	"time"

	"github.com/model-gateway/model-gateway/pkg/luavm"
)

// Bounds on a file of cases.
const (
	MaxFile  = 256 << 10 // bytes
	MaxCases = 1_000
	MaxUsers = 1_000_000 // of all shares of a file together
)

// Suffix is what the name of a file of cases has behind the script's.
const Suffix = "_cases.yaml"

// Call is what a script sees of a call.
type Call struct {
	Model    string              `json:"model,omitempty"`
	User     string              `json:"user,omitempty"`
	Caller   string              `json:"caller,omitempty"`
	Version  string              `json:"version,omitempty"` // that the caller pins
	Headers  map[string][]string `json:"headers,omitempty"` // lower-case names
	Metadata map[string]string   `json:"metadata,omitempty"`
	Params   map[string]any      `json:"params,omitempty"` // bool, int64, float64 and string
	Rows     int64               `json:"rows,omitempty"`
	Sequence Sequence            `json:"sequence,omitzero"`
	Now      time.Time           `json:"now,omitzero"`
	// Stats by target. A recorded call has none.
	Stats map[string]luavm.Stats `json:"-"`
}

// Sequence ties calls together; without an id a call stands alone.
type Sequence struct {
	ID    string `json:"id,omitempty"`
	Start bool   `json:"start,omitempty"`
}

// Input is the call as a script gets it.
func (c *Call) Input() *luavm.Input {
	in := &luavm.Input{
		Model: c.Model, User: c.User, Caller: c.Caller, Version: c.Version, Headers: c.Headers, Metadata: c.Metadata,
		Rows: c.Rows, SequenceID: c.Sequence.ID, SequenceStart: c.Sequence.Start, Now: c.Now,
	}
	if c.Params != nil {
		in.Params = func() map[string]any { return maps.Clone(c.Params) }
	}
	if c.Stats != nil {
		in.Stats = func(target string) (luavm.Stats, bool) { s, ok := c.Stats[target]; return s, ok }
	}
	return in
}

// File is a file of cases.
type File struct {
	Name    string   // as problems call it
	Targets []string // what the script may answer besides what cases name; nil: anything
	Cases   []Case
}

// Case is a call and what the script must answer, or a share of users and how they must be divided.
type Case struct {
	Name string
	Line int // in the file
	Call Call
	Want Want
	// Users, above 0, makes it a case of a share: the call is made for each of so many users, User(0) and on.
	Users  int
	Shares []Share
}

// Want is what a script must answer. Without a Target, Outcome says how the run must end.
type Want struct {
	Target  string
	Reason  string // "" for any
	Outcome luavm.Outcome
}

// Share is the part of users that a target must get, in percent.
type Share struct {
	Target          string
	Percent, Margin float64
}
