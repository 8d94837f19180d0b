// Package scripts keeps the Lua scripts that split calls: which version of each runs, where it came from, and why a newer
// one does not.
//
// The promise: a call never waits for an edit and never fails by a script. A new version, from a file that was saved, an
// operator or another replica, is compiled, run on its cases, held against the targets there are and tried on recorded
// calls; only then it takes the place of the one that runs, at once for all calls. One that does not hold is refused, with
// file and line, and the last good one stays. A script that keeps failing is off, and tried again (gate.go).
package scripts

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/luavm"
	"github.com/model-gateway/model-gateway/pkg/scripts/cases"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
)

// Bounds of a store.
const (
	MaxScripts  = 2_000
	MaxSource   = 64 << 10 // bytes of a script
	MaxHistory  = 10       // versions kept of each
	MaxRecorded = 1_000    // calls
)

// Options of a Store. All may be left out.
type Options struct {
	// Dir is where the files are, <name>.lua and <name>_cases.yaml; "" for none.
	Dir string
	// StateDir gives the folder in which last good versions and histories are kept, in a folder of their own; it may
	// change, and "" keeps none.
	StateDir func() string
	// Limits of runs; asked whenever a version is compiled.
	Limits func() luavm.Limits
	// Uses says who uses a script; nil lets every target pass.
	Uses func(script string) Use
	// Names lists the scripts that the configuration names; nil for none.
	Names func() []string
	// Stats answers stats(target); nil knows nothing.
	Stats func(m *inference.Model, target string) (luavm.Stats, bool)
	// Shared is where overrides are shared with other replicas; nil: they hold for this replica.
	Shared Shared
	// Metrics show the scripts; nil shows them nowhere.
	Metrics *telemetry.Metrics
	Log     *slog.Logger
	// Changed is told of each change of what runs that no operator asked this replica for: by files, and by operators
	// of other replicas. For the record of changes; it must not call the store.
	Changed func(Change)
}

// Use says who uses a script.
type Use struct {
	Models []string // by name
	// Targets are those that these models declare; Open says that some of them have the versions of their upstream
	// instead: model_v<number>.
	Targets []string
	Open    bool
	// Named says that the configuration names the script: it must be there.
	Named bool
}

// Change is a change of what runs.
type Change struct {
	Script, Who      string // Who is ByFile, or an operator of another replica
	OldHash, NewHash string // "" for none
	Err              error  // why it was refused; nil when it was made
}

// ByFile is who changed a script whose file was changed.
const ByFile = "file"

// Store keeps scripts. Its methods may be called at once.
type Store struct {
	opts    Options
	log     *slog.Logger
	metrics *telemetry.Scripts
	units   atomic.Pointer[map[string]*unit] // those there are; never written once it is here
	calls   recorder
	inputs  sync.Pool
	salt    []byte // of the users in what is exported

	// change is held while something changes; calls never wait for it.
	change   sync.Mutex
	gone     map[string]*unit // that are no more, with their histories
	rev      string           // of the overrides that are shared, as known
	edits    int              // changes of overrides that were made here
	dirError string           // what was last said about the folder
	dirSeen  bool             // the folder has been there
	begun    bool             // state_dir has been looked at

	dirProblem atomic.Pointer[string] // as people see it; nil while the folder can be read

	polling sync.Mutex
}

// unit is one script by name.
type unit struct {
	name     string
	running  atomic.Pointer[version] // nil while no version is good
	shown    atomic.Pointer[Info]
	counts   *telemetry.ScriptCounts // nil without metrics
	failures limiter
	said     limiter
	recordAt atomic.Int64
	byName   atomic.Bool // a model has had it by its name

	// The rest belongs to whoever holds Store.change.
	file     file
	cases    file
	tried    tried // what was last judged
	problems luavm.Problems
	override *override // nil: none is known
	ended    string    // id of one that ended here since the file changed
	endSaid  bool      // and that Redis knows of
	taken    string    // id of one that was taken back while Redis did not answer
	history  []Entry   // newest first
	kept     string    // digest of what state_dir has
	last     string    // hash of the file as it last was; "" where there never was one
	none     bool      // and that said that there is no script
	gone     bool      // and it said something else, and is not there any more
	named    bool      // the configuration has named the script, and no model has had it by its name since
	absent   bool      // there is no such script
}

// tried identifies what was judged.
type tried struct {
	hash, cases string
	source      Source
	use         string
	deadline    time.Duration
	err         string // of reading the files
	gone        bool   // the file
}

// Source is where a version is from.
type Source string

// Sources.
const (
	FromFile     Source = "file"
	FromOverride Source = "override"
	FromLastGood Source = "last_good" // what is newer does not hold
)

// version is one that runs.
type version struct {
	script   *luavm.Script
	source   Source
	who      string
	when     time.Time
	gate     *gate
	deadline time.Duration // of its runs
}

// Entry is a version in a history.
type Entry struct {
	Hash   string    `json:"hash"`
	Who    string    `json:"who"`
	When   time.Time `json:"when"`
	From   Source    `json:"from"`
	Source string    `json:"source,omitempty"`
	// Back, of one that somebody went back to, is how many entries before this one that stands; 0 for what was new.
	Back int `json:"back,omitempty"`
}

// New makes a store with what its folder has now. Scripts that do not hold are in its log and in List; there is no error
// for them. Watch keeps it up to date.
func New(o Options) *Store {
	s := &Store{opts: o, log: o.Log, gone: make(map[string]*unit), salt: newSalt()}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.units.Store(&map[string]*unit{})
	s.inputs.New = func() any { return newInput(s) }
	if o.Metrics != nil {
		s.metrics = telemetry.NewScripts(o.Metrics, s.states, s.calls.len)
	}
	_ = s.Reload() // it has been logged
	if s.stateDir() == "" && len(*s.units.Load()) > 0 {
		s.log.Warn("no state_dir: last good versions of scripts are not kept, and a start with a broken script has none")
	}
	return s
}

// Reload looks at the files now, and judges what has changed since: files, cases, and what the options say of targets and
// limits. Call it when the configuration has changed. The error lists what is refused; what was good stays in force.
func (s *Store) Reload() error { return s.reload(context.Background()) }

func (s *Store) reload(ctx context.Context) error {
	s.change.Lock()
	defer s.change.Unlock()
	return s.scan(ctx)
}

// Has reports whether there is a script of that name, also one of which no version is good.
func (s *Store) Has(name string) bool {
	_, ok := (*s.units.Load())[name]
	return ok
}

// known gives the unit of that name, also one that is no more, or not yet. The caller holds change.
func (s *Store) known(name string) *unit {
	if u := (*s.units.Load())[name]; u != nil {
		return u
	}
	if u := s.gone[name]; u != nil {
		return u
	}
	u := &unit{name: name}
	s.restore(u)
	return u
}

// enter lets calls see a unit that has been settled, where there is such a script; false when there are too many. The
// caller holds change.
func (s *Store) enter(u *unit) bool {
	now := *s.units.Load()
	if u.absent || now[u.name] == u {
		return true
	}
	if !s.room(u) {
		return false
	}
	if u.counts == nil && s.metrics != nil {
		u.counts = s.metrics.Script(u.name, outcomeLabels)
	}
	delete(s.gone, u.name)
	next := maps.Clone(now)
	next[u.name] = u
	s.units.Store(&next)
	return true
}

// room reports whether there is a place for u.
func (s *Store) room(u *unit) bool {
	now := *s.units.Load()
	return now[u.name] == u || len(now) < MaxScripts
}

// drop takes a unit away of which there is no script. The caller holds change.
func (s *Store) drop(u *unit) {
	if now := *s.units.Load(); now[u.name] != nil {
		next := maps.Clone(now)
		delete(next, u.name)
		s.units.Store(&next)
	}
	u.absent = true
	u.running.Store(nil)
	u.tried, u.problems, u.cases = tried{}, nil, file{}
	if len(s.gone) < MaxScripts {
		s.gone[u.name] = u
	}
}

// sorted lists the units by name.
func (s *Store) sorted() []*unit {
	units := *s.units.Load()
	all := make([]*unit, 0, len(units))
	for _, name := range slices.Sorted(maps.Keys(units)) {
		all = append(all, units[name])
	}
	return all
}

// everything is all units, those that are gone too. The caller holds change.
func (s *Store) everything() []*unit {
	all := s.sorted()
	for _, name := range slices.Sorted(maps.Keys(s.gone)) {
		all = append(all, s.gone[name])
	}
	return all
}

func (s *Store) use(name string) Use {
	if s.opts.Uses == nil {
		return Use{}
	}
	return s.opts.Uses(name)
}

func (s *Store) limits() luavm.Limits {
	if s.opts.Limits == nil {
		return luavm.Limits{}
	}
	return s.opts.Limits()
}

// deadline is that of a run of what is compiled now.
func (s *Store) deadline() time.Duration {
	d := s.limits().Deadline
	if d <= 0 {
		d = luavm.DefaultDeadline
	}
	return min(d, luavm.MaxDeadline)
}

func (s *Store) stateDir() string {
	if s.opts.StateDir == nil {
		return ""
	}
	return s.opts.StateDir()
}

// states is what metrics show.
func (s *Store) states() []telemetry.ScriptState {
	var all []telemetry.ScriptState
	for _, u := range s.sorted() {
		i := s.info(u)
		all = append(all, telemetry.ScriptState{
			Script: i.Name, Hash: i.Hash, Source: string(i.Source), State: i.State, Off: i.Off, Memory: i.Memory,
		})
	}
	return all
}

// key tells one use from another.
func (u Use) key() string { return fmt.Sprintf("%q %v %v", u.Targets, u.Open, u.Named) }

// known tells whether a version may answer a target to a recorded call.
func (u Use) known(_ *cases.Call, target string) bool { return u.lets(target) }

// lets reports whether a target is one that the models have or, where their versions come and go, may have.
func (u Use) lets(target string) bool {
	return u.unknown() || slices.Contains(u.Targets, target) || (u.Open && implicitTarget(target))
}

// unknown reports whether nothing is known of who uses the script.
func (u Use) unknown() bool { return len(u.Models) == 0 && len(u.Targets) == 0 && !u.Open }

// byName reports whether only a model that passes through can have the script, by its name.
func (u Use) byName() bool { return len(u.Models) == 0 && u.Open }

// implicitTarget reports whether it is model_v<number>, or the one target of an upstream without versions.
func implicitTarget(name string) bool {
	const prefix = "model_v"
	if name == "model" {
		return true
	}
	if len(name) <= len(prefix) || name[:len(prefix)] != prefix {
		return false
	}
	for _, c := range name[len(prefix):] {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// Watch keeps the store up to date until ctx ends: files within a second of their being saved, what operators of other
// replicas have changed within two. Once for each store.
func (s *Store) Watch(ctx context.Context) {
	var both sync.WaitGroup
	if s.opts.Dir != "" {
		both.Go(func() { s.watchFiles(ctx) })
	}
	if s.opts.Shared != nil {
		both.Go(func() { s.watchShared(ctx) })
	}
	both.Wait()
}
