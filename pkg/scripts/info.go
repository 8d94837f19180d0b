package scripts

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/model-gateway/model-gateway/pkg/luavm"
	"github.com/model-gateway/model-gateway/pkg/scripts/cases"
)

// Replay is what recorded calls become under another version.
type Replay = cases.Replayed

// States of a script.
const (
	StateOK      = "ok"
	StateRefused = "refused" // the newest version, or its cases, do not hold; Problems say why
	StateOff     = "off"     // it fails too often
)

// Info is what is known of a script.
type Info struct {
	Name     string     `json:"name"`
	State    string     `json:"state"`
	Hash     string     `json:"hash"`   // of the version that runs; "" while none does
	Source   Source     `json:"source"` // where that is from
	Who      string     `json:"who,omitempty"`
	When     time.Time  `json:"when,omitzero"`
	Models   []string   `json:"models"`            // declared ones that use it
	ByName   bool       `json:"by_name,omitempty"` // no declared model does, and one of its name has it, if one passes through
	FileHash string     `json:"file_hash"`         // of what the file says; "" where there is none
	Cases    bool       `json:"cases"`             // there is a file of cases
	Problems []string   `json:"problems"`          // file:line: why the newest version does not run
	Override *Override  `json:"override"`          // that an operator has put in the file's place; null for none
	Off      bool       `json:"off"`               // it fails too often, and is not run
	OffSince *time.Time `json:"off_since"`         // null while it is on
	Retry    *time.Time `json:"tried_again"`       // and when it is tried again
	Memory   int64      `json:"memory_bytes"`      // that its compiled code holds
	Recorded int        `json:"recorded_calls"`    // on which a new version is tried
	History  []Entry    `json:"history,omitempty"` // newest first; in lists left out, and without the texts
	Text     string     `json:"text,omitempty"`    // of the version that runs; left out in lists
}

// Override is an operator's version in the place of a file's.
type Override struct {
	Hash     string    `json:"hash"`
	Who      string    `json:"who"`
	When     time.Time `json:"when"`
	Replaces string    `json:"replaces"` // hash of the file; it ends when that changes
	InForce  bool      `json:"in_force"` // false while the file here is another one
	Scope    string    `json:"scope"`
}

// show makes what is known of u what readers see. The caller holds change.
func (u *unit) show(s *Store) {
	i := &Info{
		Name: u.name, FileHash: u.file.hash, Cases: u.cases.there(), Problems: words(u.problems),
		History: slices.Clone(u.history),
	}
	if o := u.override; o != nil {
		i.Override = &Override{Hash: o.Hash, Who: o.Who, When: o.When, Replaces: o.Replaces, InForce: u.stands(), Scope: AllReplicas}
		if o.pending || s.opts.Shared == nil {
			i.Override.Scope = ThisReplica
		}
	}
	u.shown.Store(i)
}

// info gives what is known of u now, without texts and history.
func (s *Store) info(u *unit) Info {
	i := *u.shown.Load()
	use := s.use(u.name)
	i.History, i.Models, i.ByName = nil, use.Models, use.byName()
	if i.Models == nil {
		i.Models = []string{}
	}
	if p := s.dirProblem.Load(); p != nil {
		i.Problems = append(slices.Clip(i.Problems), *p)
	}
	i.State = StateOK
	if len(i.Problems) > 0 {
		i.State = StateRefused
	}
	if v := u.running.Load(); v != nil {
		i.Hash, i.Source, i.Who, i.When, i.Memory = v.script.Hash, v.source, v.who, v.when.UTC().Round(0), v.script.Memory()
		if since, retry, off := v.gate.off(); off {
			i.State, i.Off, i.OffSince, i.Retry = StateOff, true, &since, &retry
		}
	} else {
		i.Source = FromFile
	}
	return i
}

// List gives all scripts by name.
func (s *Store) List() []Info {
	all := []Info{}
	for _, u := range s.sorted() {
		i := s.info(u)
		i.Recorded = len(s.calls.of(u.name))
		all = append(all, i)
	}
	return all
}

// Show gives one script, with its text and history.
func (s *Store) Show(name string) (Info, bool) {
	u := (*s.units.Load())[name]
	if u == nil {
		return Info{}, false
	}
	i := s.info(u)
	i.Recorded = len(s.calls.of(name))
	if v := u.running.Load(); v != nil {
		i.Text = v.script.Source
	}
	i.History = slices.Clone(u.shown.Load().History)
	for n := range i.History {
		i.History[n].Source = ""
	}
	return i, true
}

// Hash is that of the version of a script that runs; "" where none does.
func (s *Store) Hash(name string) string {
	if u := (*s.units.Load())[name]; u != nil {
		if v := u.running.Load(); v != nil {
			return v.script.Hash
		}
	}
	return ""
}

// Export writes the recorded calls as lines of JSON, users replaced by salted hashes.
func (s *Store) Export(w io.Writer) error {
	calls := s.exported()
	return cases.Write(w, cases.Head{Format: cases.Format, Users: cases.HashedUsers, Calls: len(calls)}, calls)
}

const minHash = 6 // digits

// start says where in a history counting back starts: at the version that runs. Who has gone back and goes back again
// wants a version before that one, not the one that he left.
func start(history []Entry, running *version) int {
	n := 0
	if running != nil {
		n = max(0, slices.IndexFunc(history, func(e Entry) bool { return e.Hash == running.script.Hash }))
	}
	for n < len(history) && history[n].Back > 0 {
		n += history[n].Back
	}
	return min(n, len(history)) // it may be so old that it is not there any more
}

// find finds a version in a history: by the beginning of its hash, or how many versions back from the one that runs it is.
func find(history []Entry, to string, running *version) (int, error) {
	to = strings.TrimPrefix(strings.ToLower(strings.TrimSpace(to)), "-")
	if steps, err := strconv.Atoi(to); err == nil && len(to) < minHash {
		from := start(history, running)
		if steps < 1 || from+steps >= len(history) {
			return 0, fmt.Errorf("there are %d versions before the one that runs; name one of them by its hash, or how many back", max(0, len(history)-from-1))
		}
		return from + steps, nil
	}
	if len(to) < minHash {
		return 0, fmt.Errorf("%q is too short; name a version by at least %d digits of its hash, by how many versions back (1 is the one before), or say %q", clip(to), minHash, ToFile)
	}
	found := -1
	for i, e := range history {
		switch {
		case !strings.HasPrefix(e.Hash, to):
		case found < 0:
			found = i
		case history[found].Hash != e.Hash:
			return 0, fmt.Errorf("several versions begin with %q; give more digits", clip(to))
		}
	}
	if found < 0 {
		return 0, fmt.Errorf("no version of the history begins with %q", clip(to))
	}
	return found, nil
}

// words are problems as people read them.
func words(problems luavm.Problems) []string {
	all := make([]string, len(problems))
	for i, p := range problems {
		all[i] = p.String()
	}
	return all
}
