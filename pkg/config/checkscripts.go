package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Compile makes sense of a script: the names of targets that it may answer, as far as its text tells, or what is wrong with
// it. Mistakes need Line, Col and Msg only.
type Compile func(name string, source []byte) (targets []string, mistakes []Mistake)

// maxScripts is how many scripts of the folder are looked at by themselves.
const maxScripts = 2_000

// CheckScripts reads the scripts that models have and says what is wrong with them: files that are not there, that do not
// compile, and answers that are no declared targets. A gateway starts all the same, since a script that is wrong costs
// its model the script and no more. Notes are no mistakes.
func (c *Config) CheckScripts(compile Compile) (mistakes Errors, notes []string) {
	k := scriptCheck{cfg: c, compile: compile, known: make(map[string]*checkedScript)}
	for i := range c.Models {
		m := &c.Models[i]
		for _, r := range m.Split {
			if r.Script != "" {
				k.named(m, r)
			}
		}
		k.byName(m)
	}
	if c.Passthrough || slices.ContainsFunc(c.Models, func(m Model) bool { return m.Scripted }) {
		k.folder()
	}
	return k.mistakes, k.notes
}

// scriptCheck is what is known while scripts are checked.
type scriptCheck struct {
	cfg      *Config
	compile  Compile
	known    map[string]*checkedScript
	mistakes Errors
	notes    []string
}

// checkedScript is a script that has been looked at.
type checkedScript struct {
	err     error // it could not be read
	targets []string
	lines   []string
}

// script looks at a script, once.
func (k *scriptCheck) script(name string) *checkedScript {
	if s := k.known[name]; s != nil {
		return s
	}
	s := &checkedScript{}
	k.known[name] = s
	path := k.path(name)
	source, err := readFile(path)
	if err != nil {
		s.err = err
		return s
	}
	s.lines = strings.Split(string(source), "\n")
	var wrong []Mistake
	s.targets, wrong = k.compile(name, source)
	for _, m := range wrong {
		m.File, m.Excerpt = path, excerpt(s.lines, m.Line, max(m.Col, 1))
		m.Msg = clean([]rune(m.Msg))
		k.mistakes = append(k.mistakes, m)
	}
	return s
}

// cause is the system's error without the path, which is told already.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func (k *scriptCheck) path(name string) string {
	return filepath.Join(k.cfg.Lua.Dir, name+scriptSuffix)
}

// named looks at a script that a rule names.
func (k *scriptCheck) named(m *Model, r SplitRule) {
	wrong := func(format string, args ...any) {
		k.mistakes = append(k.mistakes, Mistake{
			File: k.cfg.Path, Path: r.Place.Path, Line: r.Place.Line, Col: r.Place.Col, Excerpt: r.Place.Excerpt,
			Msg: clean([]rune(fmt.Sprintf(format, args...))),
		})
	}
	s := k.script(r.Script)
	if s.err != nil {
		wrong("%s cannot be read: %v; put the script there, or say where scripts are (lua.dir, GATEWAY_LUA_DIR)", k.path(r.Script), cause(s.err))
		return
	}
	for _, t := range s.targets {
		switch {
		case len(m.Targets) == 0:
			k.odd(m, r.Script, t)
		case !slices.ContainsFunc(m.Targets, func(o Target) bool { return o.Name == t }):
			names := make([]string, len(m.Targets))
			for i, o := range m.Targets {
				names[i] = o.Name
			}
			hint := didYouMean(t, names)
			if hint == "" {
				hint = "; it has " + strings.Join(few(names), ", ")
			}
			wrong("%s answers %q, which is no target of this model%s", k.path(r.Script), clip(t), hint)
		}
	}
}

// odd notes an answer that can be no implicit target of a model.
func (k *scriptCheck) odd(m *Model, script, target string) {
	if _, ok := ImplicitVersion(target); !ok {
		k.notef("%s answers %q, and model %s has no declared targets: only model_v1, model_v2 and so on mean something; other answers mean its stable target", k.path(script), clip(target), clip(m.Name))
	}
}

func (k *scriptCheck) notef(format string, args ...any) {
	const most = 100
	if len(k.notes) < most {
		k.notes = append(k.notes, clean([]rune(fmt.Sprintf(format, args...))))
	}
}

// byName looks at what a model has by its name, or would have.
func (k *scriptCheck) byName(m *Model) {
	if m.Scripted {
		for _, name := range []string{m.Name, inference.DefaultScript} {
			if s := k.script(name); s.err == nil {
				for _, t := range s.targets {
					k.odd(m, name, t)
				}
				return
			}
		}
		return
	}
	used := slices.ContainsFunc(m.Split, func(r SplitRule) bool { return r.Script == m.Name })
	if used || !inference.IsScriptName(m.Name) {
		return
	}
	if info, err := os.Stat(k.path(m.Name)); err == nil && info.Mode().IsRegular() {
		why := "has declared targets"
		if len(m.Targets) == 0 {
			why = "has a split of its own"
		}
		k.notef("%s is there, and model %s does not use it, since it %s: name it in a rule, {script: %s}", k.path(m.Name), clip(m.Name), why, m.Name+scriptSuffix)
	}
}

// folder looks at every script that is there, for any may be a model's by its name.
func (k *scriptCheck) folder() {
	files, err := os.ReadDir(k.cfg.Lua.Dir)
	if err != nil {
		if k.cfg.Lua.DirStated {
			k.notef("the folder of scripts, %s, cannot be read: %v; no model has a script until it is there", k.cfg.Lua.Dir, cause(err))
		}
		return
	}
	seen := 0
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), scriptSuffix)
		if !ok || !inference.IsScriptName(name) || strings.HasPrefix(name, ".") {
			continue
		}
		if seen++; seen > maxScripts {
			k.notef("%s has more than %d scripts; the rest was not looked at", clip(k.cfg.Lua.Dir), maxScripts)
			return
		}
		k.script(name)
	}
}

// ScriptUse says who uses a script.
type ScriptUse struct {
	Models  []string // declared ones, by name
	Targets []string // that these declare, each once
	// Open says that some models that use it have the versions of their upstream for targets: model_v1, model_v2, ...
	Open  bool
	Named bool // a rule names it
}

// UseOf says who uses a script: models whose rules name it, and those that have it by their name.
func (c *Config) UseOf(script string) ScriptUse {
	var use ScriptUse
	for i := range c.Models {
		m := &c.Models[i]
		named := slices.ContainsFunc(m.Split, func(r SplitRule) bool { return r.Script == script })
		if !named && !(m.Scripted && (m.Name == script || script == inference.DefaultScript)) {
			continue
		}
		use.Models = append(use.Models, m.Name)
		use.Named = use.Named || named
		use.Open = use.Open || len(m.Targets) == 0
		for _, t := range m.Targets {
			if !slices.Contains(use.Targets, t.Name) {
				use.Targets = append(use.Targets, t.Name)
			}
		}
	}
	if c.Passthrough && len(use.Models) == 0 && !slices.ContainsFunc(c.Models, func(m Model) bool { return m.Name == script }) {
		use.Open = true // a model of that name may pass through
	}
	return use
}

// ScriptNames lists the scripts that rules name, sorted.
func (c *Config) ScriptNames() []string {
	names := make(map[string]bool)
	for i := range c.Models {
		for _, r := range c.Models[i].Split {
			if r.Script != "" {
				names[r.Script] = true
			}
		}
	}
	return sortedKeys(names)
}
