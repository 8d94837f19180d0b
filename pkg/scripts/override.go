package scripts

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Shared is where overrides are shared with other replicas. pkg/redis has the implementation. An override is a text by
// the script's name, with an id. Errors mean that nothing is known to have happened.
type Shared interface {
	// Poll gives the revision, and the ids by name when it is another than known; else ids is nil. Revisions are
	// <epoch>.<number>; another epoch, or none, means that what was there has been lost.
	Poll(ctx context.Context, known string) (rev string, ids map[string]string, err error)
	// Get gives what stands under a name; id is "" when nothing does.
	Get(ctx context.Context, name string) (id string, text []byte, err error)
	// Put sets it, in place of what has the id over; "" where nothing is to be there, AnyID whatever is.
	Put(ctx context.Context, name, id string, text []byte, over string) error
	// Remove takes away what has that id, and leaves alone what has another by now.
	Remove(ctx context.Context, name, id string) error
	// End lets it go after a while, when it still has that id.
	End(ctx context.Context, name, id string, after time.Duration) error
}

// AnyID stands for any id in Shared.Put and Shared.Remove.
const AnyID = "any"

const (
	pollEvery = time.Second
	// endsAfter is how long an override whose file has changed here stays for replicas that do not see that yet: mounted
	// files come to each in its own time.
	endsAfter = 10 * time.Minute
	maxWho    = 256 // bytes
)

// override is a version that an operator has put in the place of a file's.
type override struct {
	ID       string    `json:"id"`
	Hash     string    `json:"hash"`
	Source   string    `json:"source"`
	Who      string    `json:"who"`
	When     time.Time `json:"when"`
	Replaces string    `json:"replaces"` // hash of the file; "" where there is none
	// Back, of who went back, is how many entries before its own one of the history he went to; 0 for what is new.
	Back int `json:"back,omitempty"`

	pending bool // other replicas do not know of it yet
}

func newOverride(source, who, replaces string) *override {
	if len(who) > maxWho {
		who = who[:maxWho]
	}
	return &override{
		ID: rand.Text()[:16], Hash: hashOf([]byte(source)), Source: source, Who: who,
		When: time.Now().UTC().Truncate(time.Millisecond), Replaces: replaces,
	}
}

func (o *override) check() error {
	switch {
	case o.ID == "" || o.Back < 0 || len(o.Who) > maxWho || len(o.Source) > MaxSource:
		return errors.New("an override has fields that are missing or too large")
	case hashOf([]byte(o.Source)) != o.Hash:
		return errors.New("an override is damaged")
	}
	return nil
}

// end lets the override of u end, since its file has changed here.
func (s *Store) end(u *unit) {
	s.log.Info("the file of a script changed; the version that an operator had put in its place ends", "script", u.name, "hash", u.override.Hash, "who", u.override.Who)
	u.ended, u.endSaid = u.override.ID, u.override.pending // what nobody else knows needs no ending
	u.override = nil
	s.edits++
}

// share tells other replicas of the override of u. The caller holds change.
func (s *Store) share(ctx context.Context, u *unit, over string) error {
	o := u.override
	if s.opts.Shared == nil {
		return errAlone
	}
	text, err := json.Marshal(o)
	if err == nil {
		err = s.opts.Shared.Put(ctx, u.name, o.ID, text, over)
	}
	o.pending = err != nil
	return err
}

var errAlone = errors.New("there is no Redis that replicas share")

// watchShared follows what operators of other replicas change, until ctx ends. While Redis does not answer, what was known
// last holds.
func (s *Store) watchShared(ctx context.Context) {
	failing := false
	for {
		switch err := s.Follow(ctx); {
		case err != nil && ctx.Err() == nil && !failing:
			failing = true
			s.log.Warn("what operators of other replicas change in scripts cannot be followed; scripts stay as they are", "error", err)
		case err == nil && failing:
			failing = false
			s.log.Info("what operators of other replicas change in scripts is followed again")
		}
		wait := time.NewTimer(pollEvery*9/10 + mathrand.N(pollEvery/5)) // apart from the others
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
	}
}

// Follow asks once for what operators of other replicas have changed, and puts it to use. Watch does so every second.
func (s *Store) Follow(ctx context.Context) error {
	s.polling.Lock()
	defer s.polling.Unlock()
	s.change.Lock()
	known, edits, mine := s.rev, s.edits, s.ids()
	s.change.Unlock()

	rev, ids, err := s.opts.Shared.Poll(ctx, known)
	if err != nil {
		return err
	}
	if ids == nil {
		return s.publish(ctx, edits, nil)
	}
	theirs := make(map[string]*override)
	for name, id := range ids {
		if mine[name] == id {
			continue
		}
		o, err := s.fetch(ctx, name)
		if err != nil {
			return err
		}
		if o != nil {
			theirs[name] = o
		}
	}
	s.change.Lock()
	if edits != s.edits {
		s.change.Unlock()
		return nil // what was asked for is older than what was changed here meanwhile; next time
	}
	s.follow(ctx, known, rev, ids, theirs)
	edits = s.edits
	s.change.Unlock()
	return s.publish(ctx, edits, ids)
}

// ids gives those that need not be fetched.
func (s *Store) ids() map[string]string {
	ids := make(map[string]string)
	add := func(u *unit) {
		switch {
		case u.override != nil:
			ids[u.name] = u.override.ID
		case u.ended != "":
			ids[u.name] = u.ended
		}
	}
	for _, u := range s.everything() {
		add(u)
	}
	return ids
}

// fetch reads an override; nil when it is gone or damaged.
func (s *Store) fetch(ctx context.Context, name string) (*override, error) {
	id, text, err := s.opts.Shared.Get(ctx, name)
	if err != nil || id == "" {
		return nil, err
	}
	o := new(override)
	if err = json.Unmarshal(text, o); err == nil {
		err = o.check()
	}
	if err != nil || o.ID != id {
		s.log.Warn("a change of a script on another replica cannot be used", "script", name, "error", err)
		return nil, nil // asking again would not help
	}
	return o, nil
}

// follow puts to use what is shared: ids is all there is, theirs what is new here. The caller holds change.
func (s *Store) follow(ctx context.Context, known, rev string, ids map[string]string, theirs map[string]*override) {
	lost := rev == "" || (known != "" && epochOf(known) != epochOf(rev))
	s.rev = rev
	for _, u := range s.everything() {
		o := u.override
		if o == nil || ids[u.name] != "" {
			if o != nil && ids[u.name] == o.ID {
				o.pending = false
				u.show(s)
			}
			continue
		}
		switch {
		case lost: // what Redis has lost we still have
			o.pending = true
			u.show(s)
		case !o.pending: // it was taken back
			s.take(ctx, u, nil)
		}
	}
	for name, o := range theirs {
		u := s.unitOf(name)
		if u == nil || o.ID == u.ended || o.ID == u.taken {
			continue
		}
		if mine := u.override; mine != nil && mine.pending && mine.When.After(o.When) {
			continue // ours is newer; it is shared next
		}
		s.take(ctx, u, o)
	}
}

// unitOf gives the unit that an override is for; nil for a name that no script can have.
func (s *Store) unitOf(name string) *unit {
	if !scriptName(name) {
		return nil
	}
	return s.known(name)
}

// take puts an override of another replica to use, or with nil goes back to the file.
func (s *Store) take(ctx context.Context, u *unit, o *override) {
	before := ""
	if v := u.running.Load(); v != nil {
		before = v.script.Hash
	}
	who := ""
	if u.override != nil {
		who = u.override.Who
	}
	if o != nil {
		who = o.Who
	}
	u.override = o
	s.settle(ctx, u)
	if !s.enter(u) {
		return
	}
	after := ""
	if v := u.running.Load(); v != nil {
		after = v.script.Hash
	}
	if s.opts.Changed != nil && after != before {
		c := Change{Script: u.name, Who: who, OldHash: before, NewHash: after}
		if len(u.problems) > 0 {
			c.Err = u.problems
		}
		s.opts.Changed(c)
	}
	s.keep(u)
}

// publish shares what was changed here while Redis did not answer, and lets end there what has ended here. ids is what is
// there, nil when that is unknown.
func (s *Store) publish(ctx context.Context, edits int, ids map[string]string) error {
	s.change.Lock()
	defer s.change.Unlock()
	if edits != s.edits {
		return nil
	}
	var failed error
	for _, u := range s.everything() {
		if o := u.override; o != nil && o.pending {
			over := AnyID
			if ids != nil {
				over = ids[u.name]
			}
			if err := s.share(ctx, u, over); err != nil {
				failed = errors.Join(failed, err)
			} else {
				s.keep(u)
				u.show(s)
				s.log.Info("a change of a script is shared with the other replicas now", "script", u.name, "hash", o.Hash, "who", o.Who)
			}
		}
		if u.taken != "" {
			if err := s.opts.Shared.Remove(ctx, u.name, u.taken); err != nil {
				failed = errors.Join(failed, err)
			} else {
				u.taken = ""
			}
		}
		if u.ended != "" && !u.endSaid {
			if err := s.opts.Shared.End(ctx, u.name, u.ended, endsAfter); err != nil {
				failed = errors.Join(failed, err)
			} else {
				u.endSaid = true
			}
		}
	}
	return failed
}

func epochOf(rev string) string {
	epoch, _, _ := strings.Cut(rev, ".")
	return epoch
}

// Answer says what came of a change.
type Answer struct {
	Script string `json:"script"`
	Hash   string `json:"hash"`             // of the version that was asked for
	Before string `json:"before,omitempty"` // of the one that ran
	Scope  string `json:"scope"`            // AllReplicas or ThisReplica
	Error  string `json:"error,omitempty"`  // why nothing was changed
	DryRun bool   `json:"dry_run,omitempty"`
	Note   string `json:"note,omitempty"`
	Cases  int    `json:"cases"` // that were run
	// Replay says what recorded calls become; nil where none were recorded.
	Replay *Replay `json:"replay,omitempty"`
	// Problems say why it was refused, file:line: message.
	Problems []string `json:"problems,omitempty"`
}

// Scopes of a change.
const (
	AllReplicas = "all replicas"
	ThisReplica = "this replica"
)

// Scope is that of changes made here, while Redis answers.
func (s *Store) Scope() string {
	if s.opts.Shared == nil {
		return ThisReplica
	}
	return AllReplicas
}

// Put makes a source the version that runs, in place of the file until that changes. It is judged as a file would be; with
// dry nothing changes. The error, where it is refused, is luavm.Problems.
func (s *Store) Put(ctx context.Context, name string, source []byte, who string, dry bool) (Answer, error) {
	a := Answer{Script: name, Scope: s.Scope(), DryRun: dry, Hash: hashOf(source)}
	if !scriptName(name) {
		return a, fmt.Errorf("%q is no name of a script; it has letters, digits, '.', '-' and '_', at most 128", clip(name))
	}
	s.change.Lock()
	defer s.change.Unlock()
	u := s.known(name) // it may not be there yet, and is not if it is refused
	before := u.running.Load()
	if before != nil {
		a.Before = before.script.Hash
	}
	a.note(s.unused(name))
	c := s.judge(ctx, u, source, before, true)
	a.Cases, a.Replay = c.cases, c.replay
	if len(c.problems) > 0 {
		a.Problems = words(c.problems)
		if s.metrics != nil && !dry {
			s.metrics.Refused(name)
		}
		return a, c.problems
	}
	if dry {
		return a, nil
	}
	if !s.room(u) {
		return a, fmt.Errorf("there are %d scripts already", MaxScripts)
	}
	s.edit(ctx, u, newOverride(string(source), who, u.file.hash), &a)
	return a, nil
}

// edit puts an override to use and shares it.
func (s *Store) edit(ctx context.Context, u *unit, o *override, a *Answer) {
	s.edits++
	u.override = o
	s.shared(s.share(ctx, u, AnyID), a)
	s.settle(ctx, u)
	s.enter(u)
	s.keep(u)
}

// shared says in a who follows a change.
func (s *Store) shared(err error, a *Answer) {
	switch {
	case errors.Is(err, errAlone):
	case err != nil:
		a.Scope = ThisReplica
		a.note("other replicas follow once Redis answers again: " + clip(err.Error()))
	}
}

// note adds something worth knowing.
func (a *Answer) note(text string) {
	if a.Note != "" && text != "" {
		a.Note += "; "
	}
	a.Note += text
}

// unused says that no declared model uses a script, and how one would; "" where one does.
func (s *Store) unused(name string) string {
	use := s.use(name)
	switch {
	case s.opts.Uses == nil || len(use.Models) > 0:
		return ""
	case !use.Open:
		return fmt.Sprintf("no model uses it now: name it in a rule, split: [{script: %s%s}]", name, suffix)
	case name == inference.DefaultScript:
		return "it is used by models that pass through and have no script of their name"
	}
	return "it is used by a model of that name, if one passes through"
}

// ToFile, as the version to go back to, takes an override back: what the file says runs again.
const ToFile = "file"

// Rollback goes back to a version of the history: to is the beginning of its hash, at least 6 digits, or how many
// versions back, or ToFile. It is compiled and held against the targets there are; the cases, which may be of a later
// version, are not run. The error, where it is refused, is luavm.Problems.
func (s *Store) Rollback(ctx context.Context, name, to, who string) (Answer, error) {
	a := Answer{Script: name, Scope: s.Scope()}
	s.change.Lock()
	defer s.change.Unlock()
	u := (*s.units.Load())[name]
	if u == nil {
		return a, fmt.Errorf("there is no script %q", clip(name))
	}
	before := u.running.Load()
	if before != nil {
		a.Before = before.script.Hash
	}
	if to == ToFile {
		return a, s.toFile(ctx, u, &a)
	}
	n, err := find(u.history, to, before)
	if err != nil {
		return a, err
	}
	e := u.history[n]
	a.Hash = e.Hash
	c := s.judge(ctx, u, []byte(e.Source), before, false)
	a.Replay = c.replay
	if len(c.problems) > 0 {
		a.Problems = words(c.problems)
		return a, c.problems
	}
	if e.Hash == u.file.hash {
		a.note("this is what the file says")
	}
	o := newOverride(e.Source, who, u.file.hash)
	o.Back = n + 1
	s.edit(ctx, u, o, &a)
	return a, nil
}

// toFile takes the override of u back.
func (s *Store) toFile(ctx context.Context, u *unit, a *Answer) error {
	o := u.override
	if o == nil {
		return fmt.Errorf("script %q has no override; it runs what its file says", u.name)
	}
	s.edits++
	u.override = nil
	if !o.pending || s.opts.Shared != nil {
		err := errAlone
		if s.opts.Shared != nil {
			if err = s.opts.Shared.Remove(ctx, u.name, o.ID); err != nil {
				u.taken = o.ID
			}
		}
		s.shared(err, a)
	}
	s.settle(ctx, u)
	s.keep(u)
	if a.Hash = u.file.hash; len(u.problems) > 0 {
		a.Problems = words(u.problems)
		a.note("the file is refused; the version that ran stays")
	}
	return nil
}

// scriptName reports whether a script can have that name.
func scriptName(name string) bool {
	return inference.IsScriptName(name) && !strings.HasPrefix(name, ".")
}
