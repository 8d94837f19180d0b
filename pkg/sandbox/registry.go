package sandbox

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/sandbox/repository"
	"github.com/model-gateway/model-gateway/pkg/sandbox/schedule"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// States of a version as the repository index names them.
const (
	stateReady       = "READY"
	stateLoading     = "LOADING"
	stateUnloading   = "UNLOADING"
	stateUnavailable = "UNAVAILABLE"
	reasonUnloaded   = "unloaded"
)

// registry knows the models and the state of every version.
type registry struct {
	repo   *repository.Repository
	faults *Faults
	log    *slog.Logger

	mu      sync.RWMutex
	entries map[string]*entry
	closing sync.WaitGroup
	closed  bool
}

// entry is a model that was loaded, or tried to be, at least once.
type entry struct {
	loading  sync.Mutex // one load or unload of a model at a time
	disk     string     // digest of the folder at the last load from it
	versions map[int64]*served
}

// served is one version of a model.
type served struct {
	model   string
	version int64
	state   string
	reason  string
	config  *tritonpb.ModelConfig
	labels  map[string][]string
	run     schedule.Scheduler // nil unless READY
}

func newRegistry(repo *repository.Repository, f *Faults, log *slog.Logger) *registry {
	return &registry{repo: repo, faults: f, log: log, entries: map[string]*entry{}}
}

// start loads models; a nil list loads all there are.
func (r *registry) start(ctx context.Context, names []string) error {
	all, err := r.repo.Names()
	if err != nil {
		return err
	}
	if names == nil {
		names = all
	}
	var wg sync.WaitGroup
	for _, name := range names {
		wg.Go(func() {
			if err := r.load(ctx, name, repository.Override{}); err != nil {
				r.log.Warn("model does not load", "model", name, "error", err)
			}
		})
	}
	wg.Wait()
	return nil
}

func notFound(format string, args ...any) error {
	return status.Errorf(codes.NotFound, "Request for unknown model: "+format, args...)
}

// find gives the version a request is for: version -1 asks for the highest one that is ready.
func (r *registry) find(name string, version int64) (*served, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	e := r.entries[name]
	if e == nil || len(e.versions) == 0 {
		return nil, notFound("'%s' is not found", name)
	}
	if version >= 0 {
		v := e.versions[version]
		switch {
		case v == nil:
			return nil, notFound("'%s' version %d is not found", name, version)
		case v.state != stateReady || r.faults.unready(name, version):
			return nil, status.Errorf(codes.Unavailable, "Request for unknown model: '%s' version %d is not at ready state", name, version)
		}
		return v, nil
	}
	for _, n := range slices.Backward(slices.Sorted(maps.Keys(e.versions))) {
		if v := e.versions[n]; v.state == stateReady && !r.faults.unready(name, n) {
			return v, nil
		}
	}
	return nil, notFound("'%s' has no available versions", name)
}

// parseVersion reads a version as C's strtol does: leading blanks and sign, digits, and whatever follows. "" is -1.
func parseVersion(s string) (int64, error) {
	if s == "" {
		return -1, nil
	}
	digits := strings.TrimLeft(s, " \t\n\v\f\r")
	end := 0
	for end < len(digits) && (digits[end] >= '0' && digits[end] <= '9' || end == 0 && (digits[0] == '+' || digits[0] == '-')) {
		end++
	}
	v, err := strconv.ParseInt(digits[:end], 10, 64)
	switch {
	case err != nil:
		return 0, status.Errorf(codes.InvalidArgument, "failed to get model version from specified version string '%s' (details: stol), version should be an integral value > 0", s)
	case v < 0:
		return 0, status.Errorf(codes.InvalidArgument, "invalid model version specified '%s' , version should be an integral value > 0", s)
	}
	return v, nil
}

// entry finds or makes the entry of a model that the repository may have.
func (r *registry) entry(name string) *entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[name]
	if e == nil {
		e = &entry{versions: map[int64]*served{}}
		r.entries[name] = e
	}
	return e
}

// load loads a model, or loads it again. A model that is served goes on being served by what is loaded until the new one
// is ready, and for good when that fails.
func (r *registry) load(ctx context.Context, name string, o repository.Override) error {
	disk, err := r.repo.Digest(name)
	if err != nil && len(o.Files) == 0 {
		return pollFailed(name)
	}
	e := r.entry(name)
	e.loading.Lock()
	defer e.loading.Unlock()
	if o.Config == "" && len(o.Files) == 0 && e.disk == disk && r.serves(e) {
		return nil // nothing has changed
	}
	m, err := r.repo.Load(name, o)
	if err == nil {
		r.mark(e, m)
		if err = r.faults.loading(ctx, name); err == nil {
			err = m.Warm(ctx)
		}
	}
	if err != nil {
		r.log.Warn("load failed", "model", name, "error", err)
		return r.failed(e, name, err)
	}
	e.disk = disk
	r.swap(e, m)
	r.log.Info("model loaded", "model", name, "versions", m.Versions)
	return nil
}

func pollFailed(name string) error {
	return status.Errorf(codes.Internal, "failed to load '%s', failed to poll from model repository", name)
}

func (r *registry) serves(e *entry) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, v := range e.versions {
		if v.state == stateReady {
			return true
		}
	}
	return false
}

// mark shows the versions that are about to be served as LOADING.
func (r *registry) mark(e *entry, m *repository.Model) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range m.Versions {
		if v := e.versions[n]; v == nil || v.state != stateReady {
			e.versions[n] = &served{model: m.Name, version: n, state: stateLoading}
		}
	}
}

// failed notes why a load failed and gives the error of the load request.
func (r *registry) failed(e *entry, name string, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var version *repository.VersionError
	var poll *repository.PollError
	reason := "the load was given up"
	if errors.As(err, &version) {
		reason = "another version failed to load"
		if v := e.versions[version.Version]; v == nil || v.state != stateReady {
			e.versions[version.Version] = &served{model: name, version: version.Version, state: stateUnavailable, reason: version.Err.Error()}
		}
	}
	for n, v := range e.versions {
		if v.state == stateLoading {
			e.versions[n] = &served{model: name, version: n, state: stateUnavailable, reason: reason}
		}
	}
	switch {
	case version != nil:
		return status.Errorf(codes.InvalidArgument, "load failed for model '%s': version %d is at UNAVAILABLE state: Invalid argument: %v;\n", name, version.Version, version.Err)
	case errors.As(err, &poll):
		return pollFailed(name)
	}
	return err
}

// swap puts the new versions in place of the old ones, which finish what they have begun.
func (r *registry) swap(e *entry, m *repository.Model) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := maps.Clone(e.versions)
	for _, n := range m.Versions {
		e.versions[n] = &served{
			model: m.Name, version: n, state: stateReady, config: m.Config, labels: m.Labels,
			run: schedule.New(m.Config, n, m.Backends[n]),
		}
	}
	for n, v := range old {
		if v.run == nil {
			continue
		}
		gone := !slices.Contains(m.Versions, n)
		r.retire(e, v, gone)
	}
	if r.closed {
		for _, n := range m.Versions {
			r.retire(e, e.versions[n], true)
		}
	}
}

// retire closes what serves v in the background. With gone, v's state tells how far that is. The caller holds the lock.
func (r *registry) retire(e *entry, v *served, gone bool) {
	run := v.run
	var mark *served
	if gone {
		mark = &served{model: v.model, version: v.version, state: stateUnloading}
		e.versions[v.version] = mark
	}
	r.closing.Go(func() {
		run.Close()
		if !gone {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if e.versions[v.version] == mark {
			e.versions[v.version] = &served{model: v.model, version: v.version, state: stateUnavailable, reason: reasonUnloaded}
		}
	})
}

// unload takes a model out of service and returns at once; what it has begun is finished.
func (r *registry) unload(name string) {
	r.mu.RLock()
	e := r.entries[name]
	r.mu.RUnlock()
	if e == nil {
		return
	}
	e.loading.Lock()
	defer e.loading.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range e.versions {
		if v.state == stateReady {
			r.retire(e, v, true)
		}
	}
	r.log.Info("model unloaded", "model", name)
}

// close ends all models and waits for what they have begun.
func (r *registry) close() {
	r.mu.Lock()
	r.closed = true
	for _, e := range r.entries {
		for _, v := range e.versions {
			if v.state == stateReady {
				r.retire(e, v, true)
			}
		}
	}
	r.mu.Unlock()
	r.closing.Wait()
}

// snapshot lists all versions of all models that were ever loaded, sorted.
func (r *registry) snapshot() []served {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var all []served
	for _, name := range slices.Sorted(maps.Keys(r.entries)) {
		e := r.entries[name]
		for _, n := range slices.Sorted(maps.Keys(e.versions)) {
			all = append(all, *e.versions[n])
		}
	}
	return all
}

// ready reports whether the server as a whole is ready: nothing is being loaded, and nothing has failed to.
func (r *registry) ready() bool {
	for _, v := range r.snapshot() {
		if v.state == stateLoading || v.state == stateUnavailable && v.reason != reasonUnloaded {
			return false
		}
	}
	return true
}

// known reports whether name is a model that was ever loaded.
func (r *registry) known(name string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.entries[name] != nil
}
