package stats

import (
	"github.com/model-gateway/model-gateway/pkg/fault"
)

// Outcome is how one attempt at an upstream ended.
type Outcome uint8

// The outcomes.
const (
	OK          Outcome = iota // answered
	Failure                    // the target's own fault: not ready, failed, lost
	Timeout                    // our limit on its time passed; the duration is that limit
	Deadline                   // the caller's own, shorter deadline passed: nobody's failure, but it was not quick either
	Cancelled                  // the caller left
	Overload                   // the upstream's queue was full
	ClientFault                // the upstream refused what the client sent
	Refused                    // refused for a reason that says nothing about the model: credentials, drain, the gateway itself
	outcomes
)

var outcomeNames = [outcomes]string{"ok", "failure", "timeout", "deadline", "cancelled", "overload", "client_fault", "refused"}

// String is the outcome's name on metrics.
func (o Outcome) String() string {
	if o >= outcomes {
		return "unknown"
	}
	return outcomeNames[o]
}

// Outcomes lists all outcomes.
func Outcomes() []Outcome {
	all := make([]Outcome, outcomes)
	for i := range all {
		all[i] = Outcome(i)
	}
	return all
}

// OutcomeOf tells the outcome of an attempt that returned err.
func OutcomeOf(err error) Outcome {
	f := fault.Of(err)
	if f == nil {
		return OK
	}
	switch f.Kind {
	case fault.UpstreamTimeout:
		return Timeout
	case fault.Deadline, fault.Expired:
		return Deadline
	case fault.Cancelled:
		return Cancelled
	case fault.UpstreamQueue:
		return Overload
	case fault.Overloaded, fault.Memory:
		return Refused
	default:
		return byRow(f.Kind.Row())
	}
}

func byRow(row fault.Row) Outcome {
	switch {
	case row.Canary:
		return Failure
	case row.HTTP >= 400 && row.HTTP < 500:
		return ClientFault
	}
	return Refused
}

// Set is a set of outcomes.
type Set uint16

// Of makes a Set.
func Of(list ...Outcome) Set {
	var s Set
	for _, o := range list {
		s |= 1 << o
	}
	return s
}

// Has reports whether o is in s.
func (s Set) Has(o Outcome) bool { return s&(1<<o) != 0 }

// The sets that have a meaning of their own.
const (
	// Any is every outcome.
	Any Set = 1<<outcomes - 1
	// Judged is what says something about the target: its answers and its failures.
	Judged Set = 1<<OK | 1<<Failure | 1<<Timeout
	// Bad is what counts against a target.
	Bad Set = 1<<Failure | 1<<Timeout
	// Timed is what latency is read from: answers, and attempts given up for taking too long. Errors are quick
	// and would make a failing target look fast.
	Timed Set = 1<<OK | 1<<Timeout
)
