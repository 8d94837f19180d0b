package health

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

type key struct{ model, version string }

// table is everything that is known, under one lock: it is read when a pool chooses anew, not for every call.
type table struct {
	mu        sync.RWMutex
	endpoints map[string]*endpoint
	names     map[key]*key
	plan      map[key]struct{}  // versions that matter
	kicked    map[key]time.Time // lately
	views     map[string]view   // what Versions says of each model

	allChanged bool
	changed    map[string]struct{} // models, since the notifier last looked
}

// view is the versions of a model.
type view map[string]*inference.VersionState

// entry is one version of a model on one endpoint. There may be millions, so it is kept small.
type entry struct {
	*key           // shared by all endpoints
	due    instant // of the next probe
	probed instant // when ModelReady last said something; 0: the index decides
	hot    instant // until then it is probed at the shortest interval

	place     int32 // in the endpoint's queue; -1 when it is not there
	good, bad uint8 // answers in a row, most at most
	state     inference.Readiness

	listed, unloaded bool // by the index
	wanted           bool
	probing          bool
}

// most is as far as answers are counted.
const most = 255

func oneMore(n uint8) uint8 {
	if n < most {
		n++
	}
	return n
}

// instant is a point in time, counted from the start of the prober, by a clock that nobody sets; 0 is none.
type instant time.Duration

func (p *Prober) at(t time.Time) instant { return instant(t.Sub(p.began)) + 1 }

func (p *Prober) since(i instant) time.Duration { return time.Duration(p.at(time.Now()) - i) }

// name gives the one copy of k. Its names may be parts of larger texts, which it does not keep alive.
func (t *table) name(k key) *key {
	n := t.names[k]
	if n == nil {
		n = &key{strings.Clone(k.model), strings.Clone(k.version)}
		t.names[*n] = n
	}
	return n
}

// forgetNames drops those that no endpoint knows any more.
func (t *table) forgetNames() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k := range t.names {
		known := false
		for _, e := range t.endpoints {
			known = known || e.known(k.model, k.version) != nil
		}
		if !known {
			delete(t.names, k)
		}
	}
}

func (t *table) init() {
	t.endpoints = make(map[string]*endpoint)
	t.names = make(map[key]*key)
	t.plan = make(map[key]struct{})
	t.kicked = make(map[key]time.Time)
	t.views = make(map[string]view)
	t.changed = make(map[string]struct{})
}

func (t *table) takeChanges() (all bool, models []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all, models = t.allChanged, slices.Sorted(maps.Keys(t.changed))
	t.allChanged = false
	clear(t.changed)
	return all, models
}

func (t *table) knownModels() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make(map[string]struct{})
	for m := range t.views {
		all[m] = struct{}{}
	}
	for _, e := range t.endpoints {
		for m := range e.models {
			all[m] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Versions of a model that are known from any endpoint, in order of number. While no endpoint is up nothing is ready,
// and nothing is held to be unloaded that was not before.
func (t *table) Versions(model string) []inference.VersionState {
	t.mu.RLock()
	defer t.mu.RUnlock()
	v := t.views[model]
	out := make([]inference.VersionState, 0, len(v))
	for _, s := range v {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b inference.VersionState) int { return inference.CompareVersions(a.Version, b.Version) })
	return out
}

// review brings the view of a model up to date.
func (p *Prober) review(model string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	v := p.views[model]
	if v == nil {
		v = make(view)
	}
	for _, e := range p.endpoints {
		for _, n := range e.models[model] {
			if version := n.version; version != "" && v[version] == nil {
				v[version] = &inference.VersionState{Version: version, Since: now}
			}
		}
	}
	for version, s := range v {
		gone, known := p.judge(s, model, version, now)
		if gone && !known && now.Sub(s.Since) > p.opts.ForgetAfter {
			delete(v, version)
		}
	}
	if len(v) == 0 {
		delete(p.views, model)
		return
	}
	p.views[model] = v
}

// judge brings one version's state up to date. gone: no endpoint that is up has it; known: some endpoint
// still has an entry of it.
func (p *Prober) judge(s *inference.VersionState, model, version string, now time.Time) (gone, known bool) {
	up, ready := 0, 0
	gone = true
	for _, e := range p.endpoints {
		entry := e.known(model, version)
		known = known || entry != nil
		if e.live != inference.Ready {
			continue
		}
		up++
		switch {
		case entry == nil:
			gone = gone && e.indexed // without an index nobody knows
		case entry.state == inference.Ready:
			ready++
			gone = false
		case entry.listed && !entry.unloaded:
			gone = false
		case !entry.listed && entry.probed == 0 && (entry.wanted || !e.indexed):
			gone = false // nobody has said anything of it yet
		}
	}
	everywhere, unloaded := up > 0 && ready == up, gone
	if up == 0 {
		unloaded = s.Unloaded
	}
	if everywhere != s.Everywhere || unloaded != s.Unloaded {
		s.Since = now
	}
	s.Anywhere, s.Everywhere, s.Unloaded = ready > 0, everywhere, unloaded
	return gone, known
}
