// Package catalog finds the model a call means. Declared models stand in an immutable snapshot behind one atomic
// pointer: a call reads one snapshot from start to end, and a new configuration replaces it as a whole. Models that
// pass through under their own name are found on the upstream when first called.
package catalog

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Catalog is the store of models. Its zero value knows none.
type Catalog struct {
	snapshot    atomic.Pointer[Snapshot]
	passthrough *passthrough
}

// New makes an empty catalog.
func New() *Catalog {
	return &Catalog{passthrough: newPassthrough()}
}

// Snapshot is what the catalog says at one time.
type Snapshot struct {
	Config  *config.Config
	models  map[string]*inference.Model
	sources []Source               // in the file's order
	owned   map[ownedName][]string // models of upstreams that routes lead to → those routes' names
}

// ownedName is a model on an upstream.
type ownedName struct{ upstream, model string }

// Build makes a snapshot of cfg. sources has every upstream that cfg names.
func Build(cfg *config.Config, sources map[string]Source) (*Snapshot, error) {
	s := &Snapshot{Config: cfg, models: make(map[string]*inference.Model, len(cfg.Models)), owned: make(map[ownedName][]string)}
	for _, u := range cfg.Upstreams {
		source := sources[u.Name]
		if source == nil {
			return nil, fmt.Errorf("upstream %q is not there", u.Name)
		}
		s.sources = append(s.sources, source)
	}
	for i := range cfg.Models {
		if err := s.add(&cfg.Models[i], sources); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *Snapshot) add(declared *config.Model, sources map[string]Source) error {
	var m *inference.Model
	if len(declared.Targets) == 0 {
		source := sources[declared.Upstream]
		if source == nil {
			return fmt.Errorf("model %q: upstream %q is not there", declared.Name, declared.Upstream)
		}
		im := newImplicit(declared.Name, declared.UpstreamModel, source, nil)
		m = implicitModel(im, declared.Timeouts, describe(source, declared.Name))
		m.Choose = im.chooseAsking
		s.own(ownedName{declared.Upstream, declared.UpstreamModel}, m.Name)
	} else {
		var err error
		if m, err = s.explicit(declared, sources); err != nil {
			return err
		}
	}
	m.Route, m.Tensors, m.SetHeaders = true, declared.Tensors, declared.SetHeaders
	s.models[m.Name] = m
	return nil
}

// explicit makes a model of declared targets.
func (s *Snapshot) explicit(declared *config.Model, sources map[string]Source) (*inference.Model, error) {
	m := &inference.Model{Name: declared.Name, Timeouts: declared.Timeouts, Targets: make(map[string]*inference.Target, len(declared.Targets))}
	byVersion := make(map[string]*inference.Target, len(declared.Targets))
	for _, t := range declared.Targets {
		source := sources[t.Upstream]
		if source == nil {
			return nil, fmt.Errorf("model %q: upstream %q is not there", declared.Name, t.Upstream)
		}
		target := &inference.Target{
			Name: t.Name, Model: t.Model, Version: t.Version, Upstream: t.Upstream, Asked: declared.Name, Pool: source.Pool(t.Model, t.Version),
		}
		m.Targets[t.Name] = target
		if byVersion[t.Version] == nil || t.Name == declared.Stable {
			byVersion[t.Version] = target
		}
		s.own(ownedName{t.Upstream, t.Model}, m.Name)
	}
	m.Stable = m.Targets[declared.Stable]
	any := declared.Pins == config.PinsAny
	source := sources[m.Stable.Upstream]
	rest := newImplicit(declared.Name, m.Stable.Model, source, nil)
	m.Pin = func(ctx context.Context, version string) (*inference.Target, error) {
		if t := byVersion[version]; t != nil {
			return t, nil
		}
		if !any {
			return nil, versionNotFound(declared.Name, version)
		}
		return rest.pin(ctx, version, describe(source, declared.Name))
	}
	return m, nil
}

// describe asks a source whether it has a version, in the name that clients know.
func describe(source Source, asked string) func(ctx context.Context, model, version string) error {
	return func(ctx context.Context, model, version string) error {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		_, err := source.Describe(ctx, model, version)
		if err != nil && fault.Of(err).Kind == fault.ModelNotFound {
			return versionNotFound(asked, version)
		}
		return err
	}
}

// Use makes next the snapshot that calls from now on see. Models that pass through are kept when the upstreams are
// the same objects as before.
func (c *Catalog) Use(next *Snapshot) {
	old := c.snapshot.Swap(next)
	if old != nil && !slices.Equal(old.sources, next.sources) {
		c.passthrough.reset()
	}
}

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
	return c.passthrough.model(ctx, name, sources, s.Config.Defaults)
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

func (s *Snapshot) own(what ownedName, by string) {
	if !slices.Contains(s.owned[what], by) {
		s.owned[what] = append(s.owned[what], by)
	}
}

// Ready reports whether any route can serve now, or whether names may pass through to an upstream that serves any.
func (s *Snapshot) Ready(serves func(upstream string) bool) bool {
	for _, m := range s.models {
		if t := m.Stable; t != nil && t.Pool.Ready() {
			return true
		}
		if m.Stable == nil && m.Choose != nil {
			if t, err := m.Choose(); err == nil && t.Pool.Ready() {
				return true
			}
		}
	}
	return s.Config.Passthrough && slices.ContainsFunc(s.sources, func(u Source) bool { return serves(u.Name()) })
}
