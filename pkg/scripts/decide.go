package scripts

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/luavm"
	"github.com/model-gateway/model-gateway/pkg/wire"
)

// How runs end, beyond what the interpreter knows.
const (
	unknownTarget = iota + nLuaOutcomes // the script answered what is no target
	cancelled                           // the caller left
	isOff                               // it was not run, since it fails too often
	nOutcomes
)

const nLuaOutcomes = int(luavm.WrongType) + 1

// outcomeLabels are labels of metrics, by outcome.
var outcomeLabels = func() []string {
	labels := make([]string, nOutcomes)
	for _, o := range luavm.Outcomes() {
		labels[o] = o.String()
	}
	labels[unknownTarget], labels[cancelled], labels[isOff] = "unknown_target", "cancelled", "off"
	return labels
}()

// Reasons for which a script has no target to name, beside the labels of outcomes.
const (
	ReasonOff  = "off"             // it fails too often
	ReasonNone = "no good version" // there is none that may run
)

// timedRuns is how many runs there are to one of which the duration is recorded.
const timedRuns = 64

// Decide runs a script for c. Without an opinion the next rule decides. An opinion without a target means the stable
// target: the run failed, there was no key to hash, the script is off or has no good version; reason says which. Nothing
// that a script does fails the call.
func (s *Store) Decide(ctx context.Context, _, script string, c *inference.Call) (target, reason string, opinion bool) {
	u := (*s.units.Load())[script]
	if u == nil {
		return "", ReasonNone, true
	}
	v := u.running.Load()
	if v == nil {
		return "", ReasonNone, true
	}
	at := c.Start
	if at.IsZero() {
		at = time.Now()
	}
	now := at.UnixNano()
	run, probe := v.gate.allow(now)
	if !run {
		u.count(isOff)
		return "", ReasonOff, true
	}
	if c.Model != nil && c.Model.Scripted && !u.byName.Load() {
		u.byName.Store(true)
	}
	if next := u.recordAt.Load(); now >= next && u.recordAt.CompareAndSwap(next, now+int64(recordEvery)) {
		s.calls.record(script, c, at)
	}
	var begun time.Time
	if timed := u.counts != nil && rand.Uint32()%timedRuns == 0; timed {
		begun = time.Now()
	}
	d, outcome, err := s.run(ctx, u, v, c, at)
	if !begun.IsZero() {
		u.counts.Took(time.Since(begun))
	}
	u.count(outcome)
	off, on := v.gate.ran(now, howRan(outcome), probe, v.deadline)
	if off || on {
		s.switched(u, v, off)
	}
	switch outcome {
	case int(luavm.OK):
		return d.Target, d.Reason, true
	case int(luavm.NoOpinion):
		return "", d.Reason, false
	case int(luavm.NoKey), int(luavm.TooLong), cancelled: // nothing that its author could put right
	default:
		s.failed(u, v, c, outcome, err)
	}
	return "", outcomeLabels[outcome], true
}

// Try is Decide for questions: it leaves no trace in counts, logs and records.
func (s *Store) Try(ctx context.Context, _, script string, c *inference.Call) (target, reason string, opinion bool) {
	u := (*s.units.Load())[script]
	if u == nil {
		return "", ReasonNone, true
	}
	v := u.running.Load()
	if v == nil {
		return "", ReasonNone, true
	}
	if _, _, off := v.gate.off(); off {
		return "", ReasonOff, true
	}
	at := c.Start
	if at.IsZero() {
		at = time.Now()
	}
	d, outcome, err := s.run(ctx, nil, v, c, at)
	switch {
	case outcome == int(luavm.OK):
		return d.Target, d.Reason, true
	case outcome == int(luavm.NoOpinion):
		return "", d.Reason, false
	case err != nil && outcome != int(luavm.NoKey):
		return "", outcomeLabels[outcome] + ": " + clip(err.Error()), true
	}
	return "", outcomeLabels[outcome], true
}

// run runs a version and says how that ended. u is nil for questions.
func (s *Store) run(ctx context.Context, u *unit, v *version, c *inference.Call, at time.Time) (d luavm.Decision, outcome int, err error) {
	in := s.inputs.Get().(*input)
	in.fill(u, c, at)
	defer func() {
		if p := recover(); p != nil { // a bug of ours, and yet no reason to fail the call
			d, outcome, err = luavm.Decision{}, int(luavm.Error), &luavm.RunError{Outcome: luavm.Error, Message: fmt.Sprintf("panic: %v", p)}
			return
		}
		in.clear()
		s.inputs.Put(in)
	}()
	d, err = v.script.Run(ctx, &in.Input)
	if err != nil {
		var failed *luavm.RunError
		if !errors.As(err, &failed) {
			return d, cancelled, err
		}
		if ctx.Err() != nil && failed.Outcome == luavm.Timeout {
			return d, cancelled, err
		}
		return luavm.Decision{}, int(failed.Outcome), err
	}
	if d.Target == "" {
		return d, int(luavm.NoOpinion), nil
	}
	if m := c.Model; m != nil && m.Named != nil && m.Named(d.Target) == nil {
		return luavm.Decision{}, unknownTarget, &luavm.RunError{Outcome: luavm.Error, Message: fmt.Sprintf("%q is no target of model %q now", clip(d.Target), clip(m.Name))}
	}
	return d, int(luavm.OK), nil
}

// howRan says what an outcome means for the gate.
func howRan(outcome int) runOf {
	switch outcome {
	case int(luavm.OK), int(luavm.NoOpinion):
		return ranWell
	case int(luavm.NoKey), int(luavm.TooLong), cancelled:
		return ranEmpty
	case int(luavm.Timeout), int(luavm.Memory):
		return ranStopped
	}
	return ranBadly
}

func (u *unit) count(outcome int) {
	if u.counts != nil {
		u.counts.Ran(outcome)
	}
}

// input is what a run sees of a call. Its functions are made once, and looked up in the call only when the script asks.
type input struct {
	luavm.Input
	store  *Store
	unit   *unit
	call   *inference.Call
	params func() map[string]any
	stats  func(string) (luavm.Stats, bool)
	log    func(int, string)
}

func newInput(s *Store) *input {
	in := &input{store: s}
	in.params = func() map[string]any { return paramsOf(in.call) }
	in.log = func(level int, message string) { s.say(in.unit, level, message) }
	if s.opts.Stats != nil {
		in.stats = func(target string) (luavm.Stats, bool) {
			if in.call.Model == nil {
				return luavm.Stats{}, false
			}
			return s.opts.Stats(in.call.Model, target)
		}
	}
	return in
}

func (in *input) fill(u *unit, c *inference.Call, at time.Time) {
	in.unit, in.call = u, c
	in.Input = luavm.Input{
		Model: c.Head.Model, User: c.User, Caller: c.CallerName(), Version: c.Head.Version,
		Headers: c.Incoming, Metadata: c.Head.Metadata, Params: in.params, Rows: c.Head.Rows,
		SequenceID: c.Head.Sequence.ID, SequenceStart: c.Head.Sequence.Start, Now: at, Stats: in.stats,
	}
	if c.Model != nil {
		in.Model = c.Model.Name
	}
	if u != nil {
		in.Log = in.log
	}
}

func (in *input) clear() {
	in.unit, in.call, in.Input = nil, nil, luavm.Input{}
}

// paramsOf reads the request parameters of a KServe call; a message that cannot be read has none, for it is refused
// elsewhere.
func paramsOf(c *inference.Call) map[string]any {
	if c == nil || c.Protocol.SpeaksPredict() {
		return nil
	}
	params, err := wire.PeekParams(c.Request)
	if err != nil {
		return nil
	}
	return params
}
