package scripts

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/model-gateway/model-gateway/pkg/luavm"
	"github.com/model-gateway/model-gateway/pkg/scripts/cases"
)

// wanted is the version that ought to run.
type wanted struct {
	source []byte
	hash   string
	from   Source
	who    string
	when   time.Time
	back   int // of an override that went back
}

// want says which version ought to run: an override as long as it stands in the place of the file, else the file. ok is
// false where there is neither.
func (u *unit) want() (w wanted, ok bool) {
	if o := u.override; u.stands() {
		return wanted{[]byte(o.Source), o.Hash, FromOverride, o.Who, o.When, o.Back}, true
	}
	if u.file.hash == "" {
		return wanted{}, false
	}
	return wanted{source: u.file.text, hash: u.file.hash, from: FromFile, who: ByFile, when: time.Now()}, true
}

// settle makes what ought to run run, if it holds; else the last good version stays, and problems say why. Nothing is
// done where nothing has changed. The caller holds change.
func (s *Store) settle(ctx context.Context, u *unit) {
	defer u.show(s)
	u.absent = false
	use := s.use(u.name)
	s.noteNamed(u, use)
	w, ok := u.want()
	switch {
	case !ok:
		s.settleGone(ctx, u, use)
		return
	case w.from == FromFile && u.none:
		s.settleNone(ctx, u, use, w)
		return
	}
	now := tried{hash: w.hash, cases: u.cases.hash, source: w.from, use: use.key(), deadline: s.limits().Deadline, gone: u.gone}
	now.err = errorText(u.file.err) + errorText(u.cases.err)
	if now == u.tried {
		return
	}
	running := u.running.Load()
	// Who went back to a version did not have to pass the cases of another; neither has it later.
	c := s.judge(ctx, u, w.source, running, w.from == FromFile)
	if u.file.err != nil {
		c.problems = append(c.problems, unreadable(u.name+suffix, u.file.err))
	}
	u.tried = now
	before := ""
	if running != nil {
		before = running.script.Hash
	}
	if len(c.problems) > 0 {
		s.refuse(ctx, u, w, c.problems)
	} else {
		u.problems = nil
		if u.gone {
			u.problems = luavm.Problems{s.missing(u, use)}
			s.log.Error("the file of a script is gone; what an operator has put in its place stays", "script", u.name)
		}
		s.swap(u, w, c.script)
		s.log.Info("a script is in force", "script", u.name, "source", string(w.from), "hash", w.hash, "who", w.who, "replayed", replayed(c.replay))
	}
	s.keep(u)
	if w.from == FromFile && before != w.hash {
		s.changed(u, before, w, c.problems)
	}
}

func (s *Store) changed(u *unit, before string, w wanted, problems luavm.Problems) {
	if s.opts.Changed == nil {
		return
	}
	c := Change{Script: u.name, Who: w.who, OldHash: before, NewHash: w.hash}
	if len(problems) > 0 {
		c.Err = problems
	}
	s.opts.Changed(c)
}

func replayed(r *cases.Replayed) string {
	if r == nil {
		return "no calls recorded"
	}
	return fmt.Sprintf("%d of %d recorded calls decided otherwise, %d failed", r.Changed, r.Calls, r.Failed)
}

// settleGone is for a script whose file is not there. It stays as it last was, for a typo in a shell, or a volume that was
// not mounted, must not move users. What never had a file is gone, and so is what nobody can want any more.
func (s *Store) settleGone(ctx context.Context, u *unit, use Use) {
	if u.file.err == nil && s.leaves(u, use) {
		s.leave(u, "it has no file")
		return
	}
	now := tried{use: use.key(), source: FromLastGood, err: errorText(u.file.err) + s.dirError, gone: true}
	if u.tried == now {
		return
	}
	u.tried = now
	problem := s.missing(u, use)
	if u.file.err != nil {
		problem = unreadable(u.name+suffix, u.file.err)
	}
	s.refuse(ctx, u, wanted{from: FromFile}, luavm.Problems{problem})
}

// noteNamed notes whether a script is, or was before nobody used it any more, one of rules.
func (s *Store) noteNamed(u *unit, use Use) {
	switch {
	case use.Named:
		u.named = true
		u.byName.Store(false)
	case u.named && u.byName.Load():
		u.named = false
		s.keep(u)
	}
}

// leaves reports whether a script without a file is no more.
func (s *Store) leaves(u *unit, use Use) bool {
	switch {
	case use.Named:
		return false
	case u.last == "" || u.none: // there never was a file, or it has said so
		return true
	case u.running.Load() == nil && len(u.history) == 0: // and none of its versions was good
		return true
	}
	// Nobody uses it: no declared model, and it is not there for models that pass through, or had its place in a rule.
	return s.opts.Uses != nil && len(use.Models) == 0 && (!use.Open || u.named)
}

// settleNone is for a script whose file says that there is none.
func (s *Store) settleNone(ctx context.Context, u *unit, use Use, w wanted) {
	if !use.Named {
		s.leave(u, "its file says so")
		s.keep(u)
		return
	}
	now := tried{hash: w.hash, use: use.key(), source: FromFile}
	if u.tried == now {
		return
	}
	u.tried = now
	problem := luavm.Problem{Name: u.name + suffix, Line: 1, Message: "says that there is no script, and the configuration names it; remove the rule"}
	s.refuse(ctx, u, w, luavm.Problems{problem})
}

// leave takes a script away, and tells it where it ran.
func (s *Store) leave(u *unit, why string) {
	running := u.running.Load()
	s.drop(u)
	if running == nil {
		return
	}
	s.log.Warn(
		"there is no such script any more: models that had it by their name have default.lua, else their highest version serves",
		"script", u.name, "why", why, "hash", running.script.Hash,
	)
	if u.last != "" { // else an operator took it back, which is on record
		s.changed(u, running.script.Hash, wanted{who: ByFile}, nil)
	}
}

// missing is the problem of a file that is not there, and what may be done about it.
func (s *Store) missing(u *unit, use Use) luavm.Problem {
	p := luavm.Problem{Name: u.name + suffix}
	switch {
	case s.dirError != "":
		p.Message = "cannot be read, and neither can its folder"
	case use.Named:
		p.Message = "is not there, and the configuration names it; put it back, or remove the rule"
	default:
		p.Message = `is gone, and what ran stays; put it back. To end a canary let it say: return "model_v1". To take the script away let it say: -- no script`
	}
	return p
}

// refuse keeps the last good version, and says why.
func (s *Store) refuse(ctx context.Context, u *unit, w wanted, problems luavm.Problems) {
	u.problems = problems
	if s.metrics != nil {
		s.metrics.Refused(u.name)
	}
	if u.running.Load() == nil {
		s.lastGood(ctx, u, w.hash)
	}
	v := u.running.Load()
	if v != nil && v.script.Hash != w.hash && v.source != FromLastGood {
		v = &version{script: v.script, source: FromLastGood, who: v.who, when: v.when, gate: v.gate, deadline: v.deadline}
		u.running.Store(v)
	}
	serves := "its models go to their stable targets"
	if v != nil {
		serves = "version " + v.script.Hash + " stays"
	}
	s.log.Error("a script is refused", "script", u.name, "source", string(w.from), "hash", w.hash, "who", w.who, "serves", serves, "error", problems.Error())
}

// lastGood makes the newest version of the history that can still run run.
func (s *Store) lastGood(ctx context.Context, u *unit, not string) {
	for _, e := range u.history {
		if e.Hash == not {
			continue
		}
		c := s.judge(ctx, u, []byte(e.Source), nil, false)
		if len(c.problems) == 0 {
			u.running.Store(&version{script: c.script, source: FromLastGood, who: e.Who, when: e.When, gate: new(gate), deadline: s.deadline()})
			return
		}
	}
}

// swap makes a version run, for every call from here on. What is the same text goes on as it was, with the record of its
// failures.
func (s *Store) swap(u *unit, w wanted, script *luavm.Script) {
	v := &version{script: script, source: w.from, who: w.who, when: w.when, gate: new(gate), deadline: s.deadline()}
	if old := u.running.Load(); old != nil && old.script.Hash == script.Hash {
		v.gate = old.gate
	}
	u.running.Store(v)
	u.remember(Entry{Hash: w.hash, Who: w.who, When: w.when.UTC().Round(0), From: w.from, Source: string(w.source), Back: u.back(w)})
	u.show(s)
}

// back is how many entries before that of w, which comes next, the one stands that it went back to; 0 for what is new, and
// where there is none. Another replica, which says how far it was there, may have another history.
func (u *unit) back(w wanted) int {
	if w.back == 0 {
		return 0
	}
	if n := w.back - 1; n < len(u.history) && u.history[n].Hash == w.hash {
		return w.back
	}
	return 1 + slices.IndexFunc(u.history, func(e Entry) bool { return e.Hash == w.hash })
}

// remember puts a version at the head of the history.
func (u *unit) remember(e Entry) {
	if len(u.history) > 0 && u.history[0].Hash == e.Hash {
		if u.history[0].From == e.From {
			return
		}
	}
	history := make([]Entry, 0, MaxHistory)
	history = append(history, e)
	for _, old := range u.history {
		if len(history) < MaxHistory {
			history = append(history, old)
		}
	}
	u.history = history
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
