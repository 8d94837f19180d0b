// Package catalog finds the model a call means. Declared models stand in an immutable snapshot behind one atomic
// pointer: a call reads one snapshot from start to end, and a new configuration replaces it as a whole. Models that
// pass through under their own name are found on the upstream when first called. Which version serves unpinned calls
// of a model without declared targets outlives snapshots: no reload moves it.
package catalog

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"

	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Catalog is the store of models.
type Catalog struct {
	snapshot atomic.Pointer[Snapshot]
	limits   limits
	scripted func(model string) bool // nil: no model is
}

// New makes an empty catalog.
func New() *Catalog { return &Catalog{limits: newLimits()} }

// Scripted tells the catalog how to find out whether a script splits the calls of a model that has neither declared
// targets nor rules: such a model serves what the script sends nowhere else with its lowest version, others with their
// highest. scripted is called with names that scripts can have, for every call, and answers at once. Tell it before the first
// Build.
func (c *Catalog) Scripted(scripted func(model string) bool) { c.scripted = scripted }

// splitByScript tells whether a script splits a model's calls now; nil where none can.
func (c *Catalog) splitByScript(model string) func() bool {
	if c.scripted == nil || !inference.IsScriptName(model) {
		return nil
	}
	return func() bool { return c.scripted(model) }
}

// Use makes next, which Build made, the snapshot that calls from now on see.
func (c *Catalog) Use(next *Snapshot) { c.snapshot.Store(next) }

// Snapshot gives what is in force; nil before the first Use.
func (c *Catalog) Snapshot() *Snapshot { return c.snapshot.Load() }

// Model finds a model by the name clients use.
func (c *Catalog) Model(ctx context.Context, name string) (*inference.Model, error) {
	s := c.snapshot.Load()
	if m := s.models[name]; m != nil {
		return m, nil
	}
	if !s.Config.Passthrough {
		return nil, fault.UnknownModel(name)
	}
	sources := s.sources
	if s.ownsAny(name) {
		sources = slices.DeleteFunc(slices.Clone(sources), func(u Source) bool { return s.owned[ownedName{u.Name(), name}] != nil })
		if len(sources) == 0 {
			return nil, fault.UnknownModel(name)
		}
	}
	return s.passthrough.model(ctx, name, sources, defaultsOf(s.Config))
}

// Declared finds a declared model without asking anybody; nil when there is none of that name.
func (c *Catalog) Declared(name string) *inference.Model { return c.snapshot.Load().models[name] }

// Known lists the models that pass through and have been found on an upstream, by name. It asks nobody.
func (c *Catalog) Known() []*inference.Model {
	s := c.snapshot.Load()
	if s == nil || !s.Config.Passthrough {
		return nil
	}
	var all []*inference.Model
	s.passthrough.each(func(name string, e *entry) {
		if s.models[name] == nil && s.owned[ownedName{e.implicit.source.Name(), name}] == nil && e.fresh() {
			all = append(all, e.under(defaultsOf(s.Config)))
		}
	})
	slices.SortFunc(all, func(a, b *inference.Model) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Snapshot is what the catalog says at one time.
type Snapshot struct {
	Config      *config.Config
	models      map[string]*inference.Model
	sources     []Source               // in the file's order
	owned       map[ownedName][]string // models of upstreams that routes lead to → those routes' names
	implicits   map[implicitKey]*implicit
	passthrough *passthrough
}

// ownedName is a model on an upstream.
type ownedName struct{ upstream, model string }

// Routes lists the declared models in the order of the file.
func (s *Snapshot) Routes() []*inference.Model {
	all := make([]*inference.Model, 0, len(s.models))
	for i := range s.Config.Models {
		all = append(all, s.models[s.Config.Models[i].Name])
	}
	return all
}

// NamesOf gives the names under which clients know a model of an upstream: those of its routes, its own when it
// passes through, none when clients cannot reach it.
func (s *Snapshot) NamesOf(upstream, model string) []string {
	if names := s.owned[ownedName{upstream, model}]; len(names) > 0 {
		return names
	}
	if s.Config.Passthrough && s.models[model] == nil {
		return []string{model}
	}
	return nil
}

// ownsAny reports whether a route leads to a model of this name on some upstream: such a one is reached only
// through its route.
func (s *Snapshot) ownsAny(name string) bool {
	for _, u := range s.sources {
		if s.owned[ownedName{u.Name(), name}] != nil {
			return true
		}
	}
	return false
}

func (s *Snapshot) own(what ownedName, by string) {
	if !slices.Contains(s.owned[what], by) {
		s.owned[what] = append(s.owned[what], by)
	}
}

// Ready reports whether any route can serve now, or whether names may pass through to an upstream that serves any.
// It goes by what is known, and never waits for an upstream.
func (s *Snapshot) Ready(serves func(upstream string) bool) bool {
	for _, m := range s.models {
		t := m.Stable
		if t == nil && m.Current != nil {
			t = m.Current()
		}
		if t != nil && t.Pool.Ready() {
			return true
		}
	}
	return s.Config.Passthrough && slices.ContainsFunc(s.sources, func(u Source) bool { return serves(u.Name()) })
}
