package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Fallback is what answers in place of an outage. One of To, Model and Score is set.
type Fallback struct {
	To    string    // name of another target
	Model string    // name of another model
	Else  *Fallback // when that cannot answer either; nil: the error itself
	Score *float64

	// Of the first of a chain only: the protocols that get it, and the failures that it stands in for.
	Predict, V2      bool
	Outage, Overload bool
}

// defaultScore is what Predict answers for models that nobody has declared while their upstream is out.
var defaultScore = 0.5

// passthroughFallback is the fallback of models that pass through, the same over reloads.
var passthroughFallback = &inference.Fallback{Score: &defaultScore, Predict: true, Outage: true}

// fallbackStep is one step of a chain as the file has it.
type fallbackStep struct {
	path      string
	score     *float64
	to, model string
}

// fallbacks compiles the fallbacks of all models, once all models are known.
func (c *compiler) fallbacks(files []ModelFile) {
	byName := make(map[string]int, len(c.cfg.Models))
	for i := range c.cfg.Models {
		if _, ok := byName[c.cfg.Models[i].Name]; !ok {
			byName[c.cfg.Models[i].Name] = i
		}
	}
	at := 0 // models that are no mappings at all have been left out
	for i := range files {
		path := fmt.Sprintf("models[%d]", i)
		if c.mistaken(path) {
			continue
		}
		if m := &c.cfg.Models[at]; c.has(path+".fallback") && files[i].Fallback != nil && !c.mistaken(path+".fallback") {
			m.Fallback = c.fallback(path+".fallback", files[i].Fallback, m, byName)
		}
		at++
	}
	c.fallbackLoops(files, byName)
}

func (c *compiler) fallback(path string, f *FallbackFile, m *Model, models map[string]int) *Fallback {
	steps := []fallbackStep{{path, f.Score, f.To, f.Model}}
	if e := f.Else; e != nil {
		steps = append(steps, fallbackStep{path + ".else", e.Score, e.To, e.Model})
		if l := e.Else; l != nil {
			steps = append(steps, fallbackStep{path + ".else.else", l.Score, l.To, l.Model})
		}
	}
	var first *Fallback
	last := &first
	for i, s := range steps {
		c.fallbackStep(s, steps[:i], m, models)
		*last = &Fallback{To: s.to, Model: s.model, Score: s.score}
		last = &(*last).Else
	}
	protocols := c.listOr(path+".protocols", f.Protocols, "predict", "where it is given: predict, v2 or both; without it, predict")
	on := c.listOr(path+".on", f.On, "outage", "which failures it stands in for: outage, overload or both; without it, outage")
	first.Predict, first.V2 = slices.Contains(protocols, "predict"), slices.Contains(protocols, "v2")
	first.Outage, first.Overload = slices.Contains(on, "outage"), slices.Contains(on, "overload")
	for _, s := range steps {
		if s.score != nil {
			c.fits(s.path+".score", *s.score, first, m.Tensors)
		}
		if i, ok := models[s.model]; ok && s.model != m.Name {
			c.alike(s.path+".model", s.model, first, m.Tensors, c.cfg.Models[i].Tensors)
		}
	}
	return first
}

// listOr is a list of the file, or one value where the file has none. An empty one would turn the section off.
func (c *compiler) listOr(path string, list []string, otherwise, says string) []string {
	if !c.has(path) {
		return []string{otherwise}
	}
	if len(list) == 0 {
		c.check(path, fmt.Errorf("must say %s", says))
	}
	return list
}

// fallbackStep checks one step of a chain; before are those ahead of it.
func (c *compiler) fallbackStep(s fallbackStep, before []fallbackStep, m *Model, models map[string]int) {
	answers := c.given(s.path, "score", "to", "model")
	switch {
	case len(answers) == 0:
		c.check(s.path, errors.New("must say what answers: score: a number, to: another target, or model: another model"))
	case len(answers) > 1:
		c.check(s.path, fmt.Errorf("has %s; one answers, the others follow it under else", strings.Join(answers, " and ")))
	case answers[0] == "score" && c.has(s.path+".else"):
		c.check(s.path+".else", errors.New("is never asked, since a score always answers; remove it"))
	case answers[0] == "to":
		c.fallbackTarget(s, before, m)
	case answers[0] == "model":
		c.fallbackModel(s, before, m, models)
	}
}

func (c *compiler) fallbackTarget(s fallbackStep, before []fallbackStep, m *Model) {
	path := s.path + ".to"
	found := len(c.found)
	c.targetName(path, s.to, m)
	if len(c.found) > found {
		return
	}
	for _, b := range before {
		if b.to == s.to {
			c.check(path, fmt.Errorf("is %s, which %s.to has asked already: a chain that comes back to a target asks it in vain; remove it", s.to, b.path))
			return
		}
	}
	switch {
	case len(m.Targets) == 1:
		c.check(path, fmt.Errorf("is %s, the only target of this model, whose outage it is; use score, or model: another model", s.to))
	case s.to == m.Stable && len(m.Split) == 0:
		c.check(path, fmt.Errorf("is %s, where all calls go already, since no split sends any elsewhere; use another target, or score", s.to))
	}
}

func (c *compiler) fallbackModel(s fallbackStep, before []fallbackStep, m *Model, models map[string]int) {
	path := s.path + ".model"
	if s.model == m.Name {
		c.check(path, errors.New("is this model itself; use to for another of its targets"))
		return
	}
	if _, ok := models[s.model]; !ok {
		names := make([]string, 0, len(c.cfg.Models))
		for i := range c.cfg.Models {
			names = append(names, c.cfg.Models[i].Name)
		}
		hint := didYouMean(s.model, names)
		if hint == "" {
			hint = "; declare it, for its tensors and timeouts"
		}
		c.check(path, fmt.Errorf("%s is no declared model%s", clip(s.model), hint))
		return
	}
	for _, b := range before {
		if b.model == s.model {
			c.check(path, fmt.Errorf("is %s, which %s.model has asked already; remove it", clip(s.model), b.path))
		}
	}
}

// fits checks a score against the outputs that the file declares. Where it declares none, what cannot be written exactly
// is rounded once the upstream has told.
func (c *compiler) fits(path string, score float64, f *Fallback, t *inference.Tensors) {
	if math.IsNaN(score) || math.Abs(score) > math.MaxFloat32 || math.IsInf(score, 0) {
		c.check(path, errors.New("must be a number that FP32 holds, since confidence is one"))
		return
	}
	if t == nil || len(t.Outputs) == 0 {
		return
	}
	for _, o := range t.Outputs {
		answers := f.V2 || o.Name == t.Answering().Name
		if answers && inference.DatatypeSize(o.Datatype) >= 0 && !inference.HoldsScore(o.Datatype, score) {
			c.check(path, fmt.Errorf("is %s, which output %s cannot be: its datatype is %s; use %s", shortest(score), clip(o.Name), o.Datatype, scoresOf(o.Datatype)))
			return
		}
	}
}

// alike checks the tensors of a model that stands in for another, where both are declared: its answer is read as the other's.
// Targets of one model have the same.
func (c *compiler) alike(path, name string, f *Fallback, own, other *inference.Tensors) {
	if own == nil || other == nil {
		return
	}
	if f.V2 {
		for _, in := range own.Inputs {
			if len(other.Inputs) > 0 && !slices.ContainsFunc(other.Inputs, func(o inference.Tensor) bool { return o.Name == in.Name }) {
				c.check(path, fmt.Errorf("is %s, which has no input %q, as this model has: calls over v2 would be refused; use a model of the same tensors, or protocols: [predict]", clip(name), clip(in.Name)))
				return
			}
		}
	}
	for _, predict := range []bool{true, false} {
		if predict && !f.Predict || !predict && !f.V2 {
			continue
		}
		if m := own.MismatchOf(other, predict); m.Found() {
			c.check(path, fmt.Errorf("is %s, %s: its answer would be read as something else; use a model of the same tensors, or score", clip(name), m))
			return
		}
	}
}

// scoresOf says which scores a datatype holds.
func scoresOf(datatype string) string {
	switch {
	case datatype == "BOOL":
		return "0 or 1"
	case strings.HasPrefix(datatype, "UINT"):
		return "a whole number from 0, within its bounds"
	case strings.HasPrefix(datatype, "INT"):
		return "a whole number within its bounds"
	}
	return "a smaller number"
}

// fallbackLoops finds models that stand in for one another in a circle: what they share fails for all of them at once, and
// the calls of each would fall on the others.
func (c *compiler) fallbackLoops(files []ModelFile, models map[string]int) {
	next := make(map[string][]string, len(c.cfg.Models))
	for i := range c.cfg.Models {
		m := &c.cfg.Models[i]
		for f := m.Fallback; f != nil; f = f.Else {
			if f.Model != "" && f.Model != m.Name {
				next[m.Name] = append(next[m.Name], f.Model)
			}
		}
	}
	for i := range files {
		name := files[i].Name
		if models[name] >= len(c.cfg.Models) || next[name] == nil {
			continue
		}
		circle := circleFrom(name, next)
		if len(circle) == 0 || slices.MinFunc(circle, func(a, b string) int { return cmp.Compare(models[a], models[b]) }) != name {
			continue // none, or told at another of its models
		}
		path := fmt.Sprintf("models[%d].fallback", i)
		c.check(path, fmt.Errorf("leads in a circle: %s; end the chain of one of them with a score", strings.Join(append(circle, name), " → ")))
	}
}

// circleFrom gives a way from a model back to itself, beginning with it; nil when there is none.
func circleFrom(name string, next map[string][]string) []string {
	seen := make(map[string]bool)
	var walk func(at string) []string
	walk = func(at string) []string {
		for _, n := range next[at] {
			if n == name {
				return []string{at}
			}
			if seen[n] {
				continue
			}
			seen[n] = true
			if rest := walk(n); rest != nil {
				return append([]string{at}, rest...)
			}
		}
		return nil
	}
	return walk(name)
}
