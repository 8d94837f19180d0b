package luavm

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// Bounds of a run. All are reached within a deadline of milliseconds by a script that tries to, none by one that decides
// where a call goes.
const (
	maxString  = 64 << 10 // bytes of a string
	maxStrings = 4 << 20  // bytes of all strings and gaps in tables that a run makes
	maxEntries = 10_000   // entries of all tables that a run makes, and the highest index
	maxCalls   = 64       // functions inside each other
	maxMessage = 512      // bytes of an error's text
	maxName    = 256      // bytes of a target's name, and of a reason
	maxValues  = 4_000    // arguments or results of one library call
	maxRegs    = 16 << 10 // values on the stack

	// A script that asked for so many bytes of its call works on what the caller made long: calls as they are meant have
	// users, tenants and regions of some ten bytes. A string beyond a bound is then the caller's doing.
	longCall = 512
)

// How time is watched. An instruction is one unit, and so is every slowUnit of what a library function handles; the
// clock is looked at once in a slice. What makes single instructions slow, long strings and tables with gaps, makes them
// count for more units.
const (
	slice     = 256
	slowBytes = 1 << 10 // a comparison of so many bytes takes about as long as an instruction
	slowHoles = 256     // and so does looking for a table's end behind so many empty places
)

// run is one run of a script: what it is about, and what it has left. It is also the context.Context that the interpreter
// asks at each instruction whether it is done; that costs less than a channel which somebody would have to close.
type run struct {
	L      *lua.LState
	script *Script
	in     *Input
	ctx    context.Context
	now    time.Time

	left, step int32 // units until the clock is looked at, and units per instruction
	ticking    bool
	until      time.Duration // since epoch

	entries, bytes, holes int

	// Why the run must end, whatever the script does to go on.
	fatal     Outcome
	cancelled error
	why       string
	line      int // of the last error, or of what was fatal

	given   int    // bytes of what the call has that was asked for
	missing string // the last fact that was asked for and that the call does not have
	logged  int
	params  lua.LValue
	seq     lua.LValue
	scratch [128]byte
}

var (
	epoch  = time.Now()
	closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()
)

// Done is asked before each instruction.
func (r *run) Done() <-chan struct{} {
	if r.left -= r.step; r.left >= 0 || r.look() {
		return nil
	}
	return closed
}

// look looks at the clock. The clock starts when it is looked at first: what is over by then took no time.
func (r *run) look() bool {
	if r.fatal != OK || r.cancelled != nil {
		r.left = 0
		return false
	}
	now := time.Since(epoch)
	switch {
	case !r.ticking:
		r.ticking, r.until = true, now+r.script.deadline
	case now > r.until:
		r.fatal, r.why = Timeout, fmt.Sprintf("did not end within %v", r.script.deadline)
		r.left = 0
		return false
	}
	if err := r.ctx.Err(); err != nil {
		r.cancelled, r.why = err, err.Error()
		r.left = 0
		return false
	}
	r.left = slice
	return true
}

// Err is what the interpreter raises when Done has said so.
func (r *run) Err() error { return ending(r.why) }

type ending string

func (e ending) Error() string { return string(e) }

// Deadline and Value make it a context; nobody asks.
func (r *run) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value has none.
func (r *run) Value(any) any { return nil }

// runOf gives the run that a library function is called in.
func runOf(L *lua.LState) *run { return L.Context().(*run) }

// spend counts the work of a library function.
func (r *run) spend(units int) {
	if r.left -= int32(min(units, slice)) * r.step; r.left < 0 && !r.look() {
		r.abort()
	}
}

// work counts handling n bytes.
func (r *run) work(n int) {
	if n >= slowBytes/8 {
		r.spend(1 + n/(slowBytes/8))
	}
}

// made counts a string that was made, or the bytes of a gap in a table.
func (r *run) made(n int) {
	if n > maxString {
		r.end(r.blame(Memory), "a string of %d bytes; at most %d are allowed", n, maxString)
	}
	r.grow(n)
}

func (r *run) grow(n int) {
	if r.bytes += n; r.bytes > maxStrings {
		r.end(Memory, "more than %d bytes of strings and tables", maxStrings)
	}
	if n >= 64 {
		r.setStep()
		r.work(n)
	}
}

// entry counts new entries of tables.
func (r *run) entry(n int) {
	if r.entries += n; r.entries > maxEntries {
		r.end(Memory, "more than %d entries in tables", maxEntries)
	}
}

// hole counts places in tables that are or were made empty: what walks over them is one instruction all the same.
func (r *run) hole(n int) {
	r.holes += n
	r.setStep()
}

func (r *run) setStep() {
	r.step = 1 + r.script.slow + int32(r.bytes/slowBytes+r.holes/slowHoles)
}

// end ends the run; no pcall keeps it from ending.
func (r *run) end(o Outcome, format string, args ...any) {
	r.fatal, r.why = o, fmt.Sprintf(format, args...)
	r.abort()
}

// blame is how a run ends that comes upon something too long: as its script's mistake o, or as TooLong where the caller
// sent much. Whoever may call must not be able to make a good script look like a bad one.
func (r *run) blame(o Outcome) Outcome {
	if r.given >= longCall {
		return TooLong
	}
	return o
}

// noKey ends the run because the call lacks what is to be hashed.
func (r *run) noKey() {
	what := "a key"
	if r.missing != "" {
		what = r.missing
	}
	r.end(NoKey, "needs %s, which this call does not have", what)
}

// ended is what is thrown to end a run. Scripts never see it.
var ended = &lua.LUserData{Metatable: lua.LNil}

func (r *run) abort() {
	r.left = 0
	r.L.Error(ended, 0)
}

// lineOf reads the line of a text that begins with name:line:, or 0.
func lineOf(text, name string) int {
	line, _ := cutLine(text, name)
	return line
}

func cutLine(text, name string) (line int, rest string) {
	after, ok := strings.CutPrefix(text, name+":")
	if !ok {
		return 0, text
	}
	digits, rest, ok := strings.Cut(after, ":")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil {
		return 0, text
	}
	return n, strings.TrimPrefix(rest, " ")
}

// state is an interpreter that is ready to run any script. What a run leaves is nothing: a script has only locals, or
// globals in a table of the run's own.
type state struct {
	L      *lua.LState
	run    run
	spoilt bool // the interpreter was stopped in the midst of something: it is not used again
}

// states holds interpreters that are not in use, per processor, and lets go of them when they have not been for a while.
var states = sync.Pool{New: func() any { return newState() }}

func init() {
	// Settings of the library, of which this package is the only user. An index that would fill a table up to it goes no
	// further than we allow; no hidden table of arguments is made for each call.
	lua.MaxArrayIndex = maxEntries + 1
	lua.CompatVarArg = false
}

func newState() *state {
	st := &state{L: lua.NewState(lua.Options{
		SkipOpenLibs: true, CallStackSize: maxCalls,
		RegistrySize: 256, RegistryGrowStep: 2048, RegistryMaxSize: maxRegs,
	})}
	st.L.G.Global, st.L.G.Registry, st.L.Env = library, emptyTable, library
	st.L.SetMetatable(lua.LString(""), stringMeta)
	st.run.L = st.L
	st.L.SetContext(&st.run)
	return st
}

// do runs s on in.
func (st *state) do(ctx context.Context, s *Script, in *Input) (Decision, error) {
	r := &st.run
	r.script, r.in, r.ctx = s, in, ctx
	r.left, r.step = slice, 1+s.slow
	fn := s.fn
	if fn == nil {
		fn = &lua.LFunction{Proto: s.proto, Env: globals()}
	}
	err := st.call(fn)
	var d Decision
	if err == nil && r.fatal == OK && r.cancelled == nil {
		target, reason := st.L.Get(-2), st.L.Get(-1)
		st.L.SetTop(0)
		d, err = r.decide(target, reason)
	} else {
		err = st.failure(err)
	}
	clean := err == nil
	*r = run{L: st.L, left: slice}
	if !clean && !st.spoilt {
		st.L.Push(nothing) // see protect: what the run had open is closed
		st.spoilt = st.L.PCall(0, 0, nil) != nil
	}
	return d, err
}

// call calls the script's function for two results. When the stack is full there is no room for what the interpreter does
// about an error, and it panics; that is where such a run ends, and the interpreter with it.
func (st *state) call(fn *lua.LFunction) (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		st.spoilt = true
		r := &st.run
		r.fatal, r.why = Error, fmt.Sprint("the interpreter failed: ", p)
		if ae, ok := p.(*lua.ApiError); ok {
			if text, ok := ae.Object.(lua.LString); ok {
				r.line, r.why = cutLine(string(text), r.script.Name)
			}
			r.fatal, r.why = Memory, "too many values at once: "+r.why
		}
	}()
	st.L.Push(fn)
	return st.L.PCall(0, 2, handler)
}

// decide reads what the script returned.
func (r *run) decide(target, reason lua.LValue) (Decision, error) {
	if target == lua.LNil {
		return Decision{}, nil
	}
	name, ok := target.(lua.LString)
	if !ok {
		return Decision{}, wrongType("returned a %s (%s); a rule returns a target's name, a name and a reason, or nil", target.Type(), clip(show(target), 60))
	}
	if name == "" || len(name) > maxName {
		return Decision{}, wrongType("returned a name of %d bytes; it must have 1 to %d", len(name), maxName)
	}
	d := Decision{Target: string(name)}
	switch v := reason.(type) {
	case *lua.LNilType:
	case lua.LString, lua.LNumber:
		d.Reason = clip(show(v), maxName)
	default:
		return Decision{}, wrongType("returned a %s as the reason; it must be a text", reason.Type())
	}
	return d, nil
}

func wrongType(format string, args ...any) *RunError {
	return &RunError{Outcome: WrongType, Message: fmt.Sprintf(format, args...)}
}

// failure says how a run ended that did not come to its end.
func (st *state) failure(err error) error {
	r := &st.run
	switch r.fatal {
	case OK:
		if r.cancelled != nil {
			st.spoilt = true
			return r.cancelled
		}
	case NoKey, TooLong: // what callers can bring about costs no interpreter
		return &RunError{r.fatal, r.line, clip(r.why, maxMessage)}
	default:
		st.spoilt = true
		return &RunError{r.fatal, r.line, clip(r.why, maxMessage)}
	}
	line, message := r.line, "failed"
	if ae, ok := err.(*lua.ApiError); ok { //nolint:errorlint // the interpreter returns it bare
		if text, ok := ae.Object.(lua.LString); ok {
			if at, rest := cutLine(string(text), r.script.Name); at > 0 {
				line, message = at, rest
			} else {
				message = rest
			}
		} else {
			message = "an error that is no text but a " + ae.Object.Type().String()
		}
		st.spoilt = st.spoilt || ae.Type == lua.ApiErrorPanic
	}
	return &RunError{Error, line, clip(message, maxMessage)}
}
