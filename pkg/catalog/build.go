package catalog

import (
	"context"
	"fmt"

	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Build makes a snapshot of cfg and changes nothing: Use puts it in force. sources has every upstream that cfg names.
// Versions that the snapshot in force holds for unpinned calls, and models that it lets through, are taken over where
// the upstream is still the same object.
func (c *Catalog) Build(cfg *config.Config, sources map[string]Source) (*Snapshot, error) {
	old := c.snapshot.Load()
	s := &Snapshot{
		Config: cfg, models: make(map[string]*inference.Model, len(cfg.Models)),
		owned: make(map[ownedName][]string), implicits: make(map[implicitKey]*implicit),
	}
	for _, u := range cfg.Upstreams {
		source := sources[u.Name]
		if source == nil {
			return nil, fmt.Errorf("upstream %q is not there", u.Name)
		}
		s.sources = append(s.sources, source)
	}
	s.passthrough = c.passthroughOver(s.sources, old)
	for i := range cfg.Models {
		if err := s.add(&cfg.Models[i], sources, old, c.splitByScript); err != nil {
			return nil, err
		}
	}
	for i := range cfg.Models { // which may stand in for one another
		s.link(&cfg.Models[i])
	}
	return s, nil
}

func (s *Snapshot) add(declared *config.Model, sources map[string]Source, old *Snapshot, byScript func(string) func() bool) error {
	var m *inference.Model
	target := func(name string) *inference.Target { return m.Targets[name] }
	if len(declared.Targets) == 0 {
		source := sources[declared.Upstream]
		if source == nil {
			return fmt.Errorf("model %q: upstream %q is not there", declared.Name, declared.Upstream)
		}
		versions := s.implicit(implicitKey{declared.Name, source, declared.UpstreamModel}, old)
		var split func() bool
		switch {
		case len(declared.Split) > 0:
			split = func() bool { return true }
		case declared.Scripted:
			split = byScript(declared.Name)
		}
		m = implicitModel(versions, declared.Timeouts, split)
		m.Scripted = declared.Scripted
		target = versions.promised
		s.own(ownedName{declared.Upstream, declared.UpstreamModel}, m.Name)
	} else {
		var err error
		if m, err = s.explicit(declared, sources, old); err != nil {
			return err
		}
	}
	m.Route, m.Tensors, m.SetHeaders, m.Limits = true, declared.Tensors, declared.SetHeaders, declared.Limits
	m.Breaker = declared.Breaker
	m.Retry, m.Pick = declared.Retry, declared.Pick
	m.Concurrency, m.PassPriority = declared.Concurrency, declared.PassPriority
	m.Split, m.Mirror = rules(declared, target), mirror(declared, target)
	m.Fallback = fallback(declared.Fallback, target)
	s.models[m.Name] = m
	return nil
}

// implicit gives the versions of key, with all that old knows of them: as a route, or as a model that passed through.
func (s *Snapshot) implicit(key implicitKey, old *Snapshot) *implicit {
	var m *implicit
	if old != nil {
		if m = old.implicits[key]; m == nil {
			m = old.passthrough.implicit(key)
		}
	}
	if m == nil {
		m = newImplicit(key, s.passthrough.asker, nil)
	}
	s.implicits[key] = m
	return m
}

// explicit makes a model of declared targets.
func (s *Snapshot) explicit(declared *config.Model, sources map[string]Source, old *Snapshot) (*inference.Model, error) {
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
	m.Named = func(name string) *inference.Target { return m.Targets[name] }
	undeclared := func(_ context.Context, version string) (*inference.Target, error) {
		return nil, versionNotFound(declared.Name, version)
	}
	if declared.Pins == config.PinsAny {
		undeclared = s.implicit(implicitKey{declared.Name, sources[m.Stable.Upstream], m.Stable.Model}, old).pin
	}
	m.Pin = func(ctx context.Context, version string) (*inference.Target, error) {
		if t := byVersion[version]; t != nil {
			return t, nil
		}
		return undeclared(ctx, version)
	}
	return m, nil
}
