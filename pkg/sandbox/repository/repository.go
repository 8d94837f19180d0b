// Package repository loads models from a folder laid out as Triton's model repository: MODEL/config.pbtxt and
// MODEL/VERSION/model.onnx or model.py. ONNX models run in package onnx. Python is not run: a model of the python
// backend needs a twin written in Go, from the closed list in twins.go, and is refused by name without one.
package repository

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"

	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// Limits of a repository.
const (
	maxConfig   = 1 << 20
	maxFile     = 256 << 20
	maxVersions = 1_000
	maxModels   = 10_000
)

// Repository is a folder of models. It is read anew at every Load.
type Repository struct {
	files fs.FS
}

// New makes a repository of files, which has one folder per model.
func New(files fs.FS) *Repository { return &Repository{files: files} }

// Names lists the models: all folders, sorted.
func (r *Repository) Names() ([]string, error) {
	entries, err := fs.ReadDir(r.files, ".")
	if err != nil {
		return nil, fmt.Errorf("model repository: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	if len(names) > maxModels {
		return nil, fmt.Errorf("model repository: %d models, more than %d", len(names), maxModels)
	}
	return names, nil
}

// Override replaces parts of a model for one load.
type Override struct {
	Config string            // a whole model configuration as JSON; "" reads config.pbtxt
	Files  map[string][]byte // by path within the model's folder; needs Config, and hides all files of the folder
}

// Model is a loaded model: its completed configuration and what runs each version.
type Model struct {
	Name     string
	Config   *tritonpb.ModelConfig
	Versions []int64 // ascending, never empty
	Backends map[int64]Backend
	Labels   map[string][]string // of the outputs that have a label file
}

// Load reads and prepares a model. An error that carries a PollError says that the folder or configuration could not be
// read at all; any other error says which version failed and why.
func (r *Repository) Load(name string, o Override) (*Model, error) {
	src, err := r.source(name, o)
	if err != nil {
		return nil, &PollError{name, err}
	}
	config, err := src.config(o.Config)
	if err != nil {
		return nil, &PollError{name, err}
	}
	versions, err := src.versions(config.VersionPolicy)
	if err != nil {
		return nil, &PollError{name, err}
	}
	m := &Model{Name: name, Config: config, Versions: versions, Backends: map[int64]Backend{}}
	if m.Labels, err = src.labels(config); err != nil {
		return nil, &PollError{name, err}
	}
	for _, v := range versions {
		b, err := newBackend(src, config, v)
		if err != nil {
			return nil, &VersionError{Model: name, Version: v, Err: err}
		}
		m.Backends[v] = b
	}
	return m, nil
}

// PollError is a model whose folder or configuration cannot be used.
type PollError struct {
	Model string
	Err   error
}

func (e *PollError) Error() string { return fmt.Sprintf("model %q: %v", e.Model, e.Err) }

// Unwrap gives the cause.
func (e *PollError) Unwrap() error { return e.Err }

// VersionError is a version that cannot be run.
type VersionError struct {
	Model   string
	Version int64
	Err     error
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("model %q version %d: %v", e.Model, e.Version, e.Err)
}

// Unwrap gives the cause.
func (e *VersionError) Unwrap() error { return e.Err }

// source is the files of one model.
type source struct {
	name  string
	dir   fs.FS             // nil when files replace the folder
	files map[string][]byte // pushed with a load
}

func (r *Repository) source(name string, o Override) (*source, error) {
	if name == "" || !fs.ValidPath(name) || strings.Contains(name, "/") || name == "." {
		return nil, fmt.Errorf("%q is no name of a folder", name)
	}
	if len(o.Files) > 0 {
		if o.Config == "" {
			return nil, fmt.Errorf("files were pushed without a configuration")
		}
		return &source{name: name, files: o.Files}, nil
	}
	info, err := fs.Stat(r.files, name)
	if err != nil || !info.IsDir() {
		return nil, fmt.Errorf("there is no folder %q", name)
	}
	dir, err := fs.Sub(r.files, name)
	return &source{name: name, dir: dir}, err
}

// read reads one file, of at most limit bytes.
func (s *source) read(name string, limit int64) ([]byte, error) {
	if s.dir == nil {
		if b, ok := s.files[name]; ok {
			return b, nil
		}
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	info, err := fs.Stat(s.dir, name)
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("%s has %d bytes, more than %d", name, info.Size(), limit)
	}
	return fs.ReadFile(s.dir, name)
}

// folders lists the version folders, ascending. A name that is no positive number is no version.
func (s *source) folders() ([]int64, error) {
	found := map[int64]bool{}
	add := func(name string) {
		if v, err := strconv.ParseInt(name, 10, 64); err == nil && v > 0 && strconv.FormatInt(v, 10) == name {
			found[v] = true
		}
	}
	if s.dir == nil {
		for p := range s.files {
			if dir, _, ok := strings.Cut(p, "/"); ok {
				add(dir)
			}
		}
	} else {
		entries, err := fs.ReadDir(s.dir, ".")
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.IsDir() {
				add(e.Name())
			}
		}
	}
	if len(found) > maxVersions {
		return nil, fmt.Errorf("%d versions, more than %d", len(found), maxVersions)
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// versions applies the version policy to the folders there are.
func (s *source) versions(policy *tritonpb.ModelVersionPolicy) ([]int64, error) {
	all, err := s.folders()
	if err != nil {
		return nil, err
	}
	var served []int64
	switch p := policy.PolicyChoice.(type) {
	case *tritonpb.ModelVersionPolicy_All_:
		served = all
	case *tritonpb.ModelVersionPolicy_Specific_:
		for _, v := range all {
			if slices.Contains(p.Specific.Versions, v) {
				served = append(served, v)
			}
		}
	case *tritonpb.ModelVersionPolicy_Latest_:
		served = all[max(0, len(all)-int(min(p.Latest.NumVersions, maxVersions))):]
	}
	if len(served) == 0 {
		return nil, fmt.Errorf("no version folder is served: there are %v and version_policy is {%v}", all, policy)
	}
	return served, nil
}

// config reads the configuration, fills in what a server fills in, and checks what the sandbox relies on.
func (s *source) config(override string) (*tritonpb.ModelConfig, error) {
	c := &tritonpb.ModelConfig{}
	if override != "" {
		if len(override) > maxConfig {
			return nil, fmt.Errorf("the configuration has %d bytes, more than %d", len(override), maxConfig)
		}
		if err := protojson.Unmarshal([]byte(override), c); err != nil {
			return nil, fmt.Errorf("the configuration of the load request: %w", err)
		}
	} else {
		b, err := s.read("config.pbtxt", maxConfig)
		if err != nil {
			return nil, err
		}
		if err := prototext.Unmarshal(b, c); err != nil {
			return nil, fmt.Errorf("config.pbtxt: %w", err)
		}
	}
	if c.Name != "" && c.Name != s.name {
		return nil, fmt.Errorf("the folder is %q and name in the configuration %q; they must be equal", s.name, c.Name)
	}
	c.Name = s.name
	complete(c)
	return c, validate(c)
}

// labels reads the label files that outputs name.
func (s *source) labels(c *tritonpb.ModelConfig) (map[string][]string, error) {
	labels := map[string][]string{}
	for _, o := range c.Output {
		if o.LabelFilename == "" {
			continue
		}
		b, err := s.read(path.Clean(o.LabelFilename), maxConfig)
		if err != nil {
			return nil, fmt.Errorf("output %q: label_filename: %w", o.Name, err)
		}
		labels[o.Name] = strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	}
	return labels, nil
}

// Error is what a model answers instead of outputs.
type Error struct {
	Code   codes.Code
	Msg    string
	Raised bool // the model threw: servers count that as a failure, an error it answered as a success
}

func (e *Error) Error() string { return e.Msg }

// Digest tells whether a model's folder has changed: two equal digests mean the same files with the same content.
func (r *Repository) Digest(name string) (string, error) {
	src, err := r.source(name, Override{})
	if err != nil {
		return "", err
	}
	h := sha256.New()
	err = fs.WalkDir(src.dir, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := src.read(p, maxFile)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%q %d\n", p, len(b))
		h.Write(b)
		return nil
	})
	return string(h.Sum(nil)), err
}

// Warm runs the requests of model_warmup once on every version, so that a model that cannot run does not count as loaded.
func (m *Model) Warm(ctx context.Context) error {
	for _, v := range m.Versions {
		for _, w := range m.Config.ModelWarmup {
			if err := m.warm(ctx, v, w); err != nil {
				return &VersionError{Model: m.Name, Version: v, Err: fmt.Errorf("model_warmup %q: %w", w.Name, err)}
			}
		}
	}
	return nil
}

func (m *Model) warm(ctx context.Context, version int64, w *tritonpb.ModelWarmup) error {
	rows := int(min(max(w.BatchSize, 1), maxBatch))
	var state any
	r := &Request{Context: ctx, Version: version, Rows: rows, Sequence: Sequence{ID: int64(1), Start: true, End: true, State: &state}}
	for name, in := range w.Inputs {
		t := Tensor{Name: name, Datatype: Datatype(in.DataType), Shape: in.Dims}
		elements := int64(1)
		if m.Config.MaxBatchSize > 0 {
			t.Shape = append([]int64{int64(rows)}, in.Dims...)
		}
		for _, d := range t.Shape {
			if d < 0 || d > maxFile || elements*max(d, 1) > maxFile/8 {
				return fmt.Errorf("input %q: dims %v are not a size to warm up with", name, in.Dims)
			}
			elements *= d
		}
		t.Data = make([]byte, elements*int64(max(ElementSize(t.Datatype), 0)))
		if t.Datatype == "BYTES" {
			t.Data = make([]byte, 4*elements) // empty strings
		}
		r.Inputs = append(r.Inputs, t)
	}
	done := make(chan error, 1)
	var failed error
	r.Send = func(_ []Tensor, err *Error, final bool) {
		if err != nil {
			failed = err
		}
		if final {
			done <- failed
		}
	}
	m.Backends[version].Execute([]*Request{r})
	return <-done
}
