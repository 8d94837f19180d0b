package deadline

import (
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/readmap"
)

var byCaller = fault.New(fault.Deadline, "the model did not answer within the caller's deadline")

// byRest is the fault of a target that was asked in another's place and had what was left of that one's time.
var byRest = fault.New(fault.UpstreamTimeout, "the model did not answer within what was left of the timeout of the model in whose place it was asked; try again, or ask the operator to raise timeout.max")

// maxKept is how many timeouts of configurations have their fault kept. What reloads bring beyond is made call by call.
const maxKept = 1024

// faults makes the fault of each timeout once, not for each call.
type faults struct {
	text string
	made readmap.Map[time.Duration, *fault.Fault]
}

var (
	byModel = &faults{text: "the model did not answer within its timeout of %s; try again, or ask the operator to raise timeout.max"}
	byFirst = &faults{text: "the model did not answer a step of a sequence within %s; try again, or ask the operator to raise timeout.first_answer"}
)

// of gives the fault of calls that took longer than limit.
func (f *faults) of(limit time.Duration) *fault.Fault {
	if made, ok := f.made.Get(limit); ok {
		return made
	}
	return f.made.GetOrAdd(limit, func(size int) (*fault.Fault, bool) {
		return fault.New(fault.UpstreamTimeout, f.text, limit), size < maxKept
	})
}

// byTarget is the fault of calls that took longer than their target's dynamic timeout, which s has.
func byTarget(s *State, d inference.Dynamic) *fault.Fault {
	if s.P999 == 0 { // not known exactly
		return fault.New(fault.UpstreamTimeout, "the model did not answer within its dynamic timeout, which is %s now; try again, or ask the operator about timeout.dynamic", shown(s.Timeout))
	}
	return fault.New(fault.UpstreamTimeout,
		"the model did not answer within its dynamic timeout, which is %s now: it moves to %v times the %s that 999 in 1000 of its answers lately took, and is at least %s; try again, or ask the operator about timeout.dynamic",
		shown(s.Timeout), d.Factor, shown(s.P999), d.Floor)
}

// shown leaves out digits that nobody wants to know.
func shown(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}
