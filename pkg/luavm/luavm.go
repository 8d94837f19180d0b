// Package luavm runs the rules that operators write in Lua: given a call's facts, a script names the target.
//
// The promise: whatever a script does, Run returns soon after its deadline, has held a few MiB at most, has done no
// input or output, has left nothing behind for the next run, and has not slowed other runs down. An author who errs
// gets an error that names the line; the caller gets the stable target.
//
// That is not the interpreter's doing: its own strings, tables and patterns know no bound. A source is rewritten when it
// is compiled (rewrite.go), so that joining strings and writing to tables go through functions that count (run.go), and
// the library is one of our own (lib_*.go). Script says what a script sees.
package luavm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// Deadlines of a run.
const (
	DefaultDeadline = 2 * time.Millisecond
	MaxDeadline     = 5 * time.Millisecond
)

// Limits bound what a script may take.
type Limits struct {
	// Deadline of a run; 0 means DefaultDeadline, and more than MaxDeadline means MaxDeadline. It is wall-clock time,
	// looked at once in some hundred instructions: a run that has hardly begun is not blamed for a machine that
	// was busy with others.
	Deadline time.Duration
}

// Compile reads a script. The error is Problems: every mistake that can be found without running it.
func Compile(name string, src []byte, lim Limits) (*Script, error) {
	s, errs, _ := compile(name, src, lim)
	if len(errs) > 0 {
		return nil, errs
	}
	return s, nil
}

// Lint reads a script and tells what keeps it from running (errors; what Compile gives) and what is likely a mistake
// (warnings), each in order of lines.
func Lint(name string, src []byte) (errors, warnings Problems) {
	_, errors, warnings = compile(name, src, Limits{})
	return errors, warnings
}

func compile(name string, src []byte, lim Limits) (*Script, Problems, Problems) {
	u, errs := parseUnit(name, src)
	if len(errs) > 0 {
		return nil, errs, nil
	}
	found := inspect(u)
	if len(found.errors) > 0 {
		return nil, found.errors, found.warnings
	}
	proto, errs := generate(u, found)
	if len(errs) > 0 {
		return nil, errs, found.warnings
	}
	sum := sha256.Sum256(src)
	s := &Script{
		Name: name, Source: string(src), Hash: hex.EncodeToString(sum[:]),
		deadline: clampDeadline(lim.Deadline), proto: proto, slow: int32(u.longest / slowBytes), targets: found.targets,
	}
	if !found.ownGlobals {
		s.fn = &lua.LFunction{Proto: proto, Env: library}
	}
	s.memory = int64(len(src)) + protoSize(proto)
	return s, nil, found.warnings
}

func clampDeadline(d time.Duration) time.Duration {
	if d <= 0 {
		return DefaultDeadline
	}
	return min(d, MaxDeadline)
}

// Input is what a run sees of a call. Strings above 64 KiB are as if they were not there.
type Input struct {
	Model, User, Caller, Version string
	Headers                      map[string][]string   // the call's incoming metadata, lower-case keys
	Metadata                     map[string]string     // the message's metadata
	Params                       func() map[string]any // KServe request parameters, read only when the script asks; nil: none
	Rows                         int64
	SequenceID                   string
	SequenceStart                bool
	Now                          time.Time                         // zero: the time of the first question
	Stats                        func(target string) (Stats, bool) // nil: none
	Log                          func(level int, msg string)       // nil: dropped; level is one of the Log constants
}

// Stats is what a target did lately.
type Stats struct {
	Calls, Errors  uint64
	ErrorRate      float64 // 0 to 1
	P50, P99, P999 time.Duration
}

// Levels of Input.Log, nginx's.
const (
	LogStderr = iota
	LogEmerg
	LogAlert
	LogCrit
	LogErr
	LogWarn
	LogNotice
	LogInfo
	LogDebug
)

// Decision is what a script answered. Target "" means that it has no opinion.
type Decision struct{ Target, Reason string }

// Outcome says how a run ended; its String is a label of metrics.
type Outcome uint8

// How a run may end.
const (
	OK        Outcome = iota // a target was named
	NoOpinion                // nil was returned
	NoKey                    // the call does not have the key that was to be hashed: nobody's mistake
	TooLong                  // the caller sent so much that a bound was reached: not the script's mistake
	Error                    // the script failed
	Timeout                  // the deadline passed
	Memory                   // it wanted more than it may have
	WrongType                // what was returned is no name
	outcomes
)

var outcomeNames = [outcomes]string{"ok", "no_opinion", "no_key", "too_long", "error", "timeout", "memory", "wrong_type"}

func (o Outcome) String() string { return outcomeNames[o] }

// Failed reports whether the script is to blame for an end like this.
func (o Outcome) Failed() bool { return o >= Error }

// Outcomes lists all outcomes.
func Outcomes() []Outcome {
	all := make([]Outcome, outcomes)
	for i := range all {
		all[i] = Outcome(i)
	}
	return all
}

// RunError says why a run gave no decision.
type RunError struct {
	Outcome Outcome
	Line    int // of the script; 0 when unknown
	Message string
}

func (e *RunError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("line %d: %s", e.Line, e.Message)
	}
	return e.Message
}

// Run runs the script on a call. An error is a *RunError, or the error of ctx, which is nobody's failure. The strings of
// in must not change meanwhile; nothing keeps in when Run has returned.
func (s *Script) Run(ctx context.Context, in *Input) (Decision, error) {
	st := states.Get().(*state)
	d, err := st.do(ctx, s, in)
	if !st.spoilt {
		states.Put(st)
	}
	return d, err
}
