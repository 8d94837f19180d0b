package cases

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/model-gateway/model-gateway/pkg/luavm"
)

// file reads the whole.
func (r *reader) file(n ast.Node, f *File) {
	r.fields(n, "the file", map[string]func(ast.Node){
		"targets": func(n ast.Node) {
			f.Targets = []string{}
			r.list(n, "targets", func(n ast.Node) { f.Targets = append(f.Targets, r.string(n, "a target")) })
		},
		"cases": func(n ast.Node) {
			r.list(n, "cases", func(n ast.Node) {
				if len(f.Cases) == MaxCases {
					r.bad(at(n), "is one case too many; a file has at most %d", MaxCases)
				}
				if len(f.Cases) <= MaxCases {
					f.Cases = append(f.Cases, r.one(n))
				}
			})
		},
	})
	if len(f.Cases) == 0 && len(r.problems) == 0 {
		r.bad(nil, "has no cases; remove the file, or write some under cases:")
	}
}

// one reads a case.
func (r *reader) one(n ast.Node) Case {
	c := Case{}
	if at := at(n); at != nil {
		c.Line = at.Line
	}
	var wants, shares bool
	r.fields(n, "a case", map[string]func(ast.Node){
		"name":  func(n ast.Node) { c.Name = r.string(n, "name") },
		"call":  func(n ast.Node) { r.call(n, &c.Call) },
		"want":  func(n ast.Node) { wants = true; r.want(n, &c.Want) },
		"share": func(n ast.Node) { shares = true; r.share(n, &c) },
	})
	if wants == shares {
		r.bad(at(n), "a case needs want (what the script answers to the call), or share (how users are divided), and not both")
	}
	if c.Name == "" {
		c.Name = "case on line " + strconv.Itoa(c.Line)
	}
	return c
}

// call reads what a script sees.
func (r *reader) call(n ast.Node, c *Call) {
	texts := func(to *string, what string) func(ast.Node) {
		return func(n ast.Node) { *to = r.string(n, what) }
	}
	r.fields(n, "call", map[string]func(ast.Node){
		"model": texts(&c.Model, "model"), "user": texts(&c.User, "user"), "caller": texts(&c.Caller, "caller"),
		"version": texts(&c.Version, "version"),
		"headers": func(n ast.Node) {
			c.Headers = make(map[string][]string)
			r.entries(n, "headers", func(name string, _, value ast.Node) {
				name = strings.ToLower(name)
				if _, ok := value.(*ast.SequenceNode); ok {
					r.list(value, "a header", func(n ast.Node) { c.Headers[name] = append(c.Headers[name], r.string(n, "a header")) })
					return
				}
				c.Headers[name] = append(c.Headers[name], r.string(value, "a header"))
			})
		},
		"metadata": func(n ast.Node) {
			c.Metadata = make(map[string]string)
			r.entries(n, "metadata", func(name string, _, value ast.Node) { c.Metadata[name] = r.string(value, "a value of metadata") })
		},
		"params": func(n ast.Node) {
			c.Params = make(map[string]any)
			r.entries(n, "params", func(name string, _, value ast.Node) { c.Params[name] = r.param(value) })
		},
		"rows":     func(n ast.Node) { c.Rows = r.count(n, "rows", math.MaxInt32) },
		"sequence": func(n ast.Node) { r.sequence(n, &c.Sequence) },
		"now": func(n ast.Node) {
			s := r.string(n, "now")
			t, err := time.Parse(time.RFC3339, s)
			if err != nil {
				r.bad(at(n), "now must be an instant such as 2026-11-30T12:00:00Z")
			}
			c.Now = t
		},
		"stats": func(n ast.Node) {
			c.Stats = make(map[string]luavm.Stats)
			r.entries(n, "stats", func(name string, _, value ast.Node) { c.Stats[name] = r.stats(value) })
		},
	})
}

func (r *reader) sequence(n ast.Node, s *Sequence) {
	if id, ok := text(n); ok {
		s.ID = id
		return
	}
	r.fields(n, "sequence", map[string]func(ast.Node){
		"id": func(n ast.Node) { s.ID = r.string(n, "id") }, "start": func(n ast.Node) { s.Start = r.truth(n, "start") },
	})
}

func (r *reader) truth(n ast.Node, what string) bool {
	b, ok := n.(*ast.BoolNode)
	if !ok {
		r.bad(at(n), "%s must be true or false", what)
		return false
	}
	return b.Value
}

// count reads a whole number from 0 to most.
func (r *reader) count(n ast.Node, what string, most int64) int64 {
	s, _ := text(n)
	i, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
	if err != nil || i < 0 || i > most {
		r.bad(at(n), "%s must be a whole number from 0 to %d", what, most)
		return 0
	}
	return i
}

// param reads a request parameter, whose type is as it is written.
func (r *reader) param(n ast.Node) any {
	s, ok := text(n)
	switch v := n.(type) {
	case *ast.BoolNode:
		return v.Value
	case *ast.IntegerNode:
		if i, err := strconv.ParseInt(s, 0, 64); err == nil {
			return i
		}
		r.bad(at(n), "a parameter must be a number of 64 bits, a text, or true or false")
	case *ast.FloatNode:
		return v.Value
	}
	if !ok {
		r.bad(at(n), "a parameter must be a number, a text, or true or false")
	}
	return s
}

// stats reads what stats(target) gives.
func (r *reader) stats(n ast.Node) luavm.Stats {
	var s luavm.Stats
	duration := func(to *time.Duration, what string) func(ast.Node) {
		return func(n ast.Node) {
			d, err := time.ParseDuration(r.string(n, what))
			if err != nil || d < 0 {
				r.bad(at(n), "%s must be a duration such as 120ms", what)
			}
			*to = d
		}
	}
	rated := false
	r.fields(n, "the stats of a target", map[string]func(ast.Node){
		"calls":  func(n ast.Node) { s.Calls = uint64(r.count(n, "calls", math.MaxInt64)) },
		"errors": func(n ast.Node) { s.Errors = uint64(r.count(n, "errors", math.MaxInt64)) },
		"error_rate": func(n ast.Node) {
			rated = true
			t := r.string(n, "error_rate")
			part, err := number(t)
			if err != nil || part < 0 || part > 1 {
				r.bad(at(n), "error_rate must be a part such as 0.5%% or 0.005")
			}
			s.ErrorRate = part
		},
		"p50": duration(&s.P50, "p50"), "p99": duration(&s.P99, "p99"), "p999": duration(&s.P999, "p999"),
	})
	if !rated && s.Calls > 0 {
		s.ErrorRate = float64(s.Errors) / float64(s.Calls)
	}
	return s
}

// number reads 0.5% as 0.005, and 0.005 too.
func number(s string) (float64, error) {
	s = strings.TrimSpace(s)
	digits, percent := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if percent {
		v /= 100
	}
	if err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
		err = strconv.ErrRange
	}
	return v, err
}

// want reads what a script must answer; a text alone is the target.
func (r *reader) want(n ast.Node, w *Want) {
	if target, ok := text(n); ok {
		w.Target = target
		return
	}
	ended := false
	r.fields(n, "want", map[string]func(ast.Node){
		"target": func(n ast.Node) { w.Target = r.string(n, "target") },
		"reason": func(n ast.Node) { w.Reason = r.string(n, "reason") },
		"outcome": func(n ast.Node) {
			name := r.string(n, "outcome")
			names := make([]string, 0, len(luavm.Outcomes()))
			for _, o := range luavm.Outcomes() {
				if names = append(names, o.String()); o.String() == name {
					w.Outcome, ended = o, true
				}
			}
			if !ended {
				r.bad(at(n), "outcome must be one of %s", strings.Join(names, ", "))
			}
		},
	})
	switch {
	case ended && w.Outcome != luavm.OK && w.Target != "":
		r.bad(at(n), "a run that ends as %s gives no target; remove one of them", w.Outcome)
	case w.Target == "" && (!ended || w.Outcome == luavm.OK) && len(r.problems) == 0:
		r.bad(at(n), "want needs a target, or an outcome such as no_opinion")
	}
}

// share reads how users are divided.
func (r *reader) share(n ast.Node, c *Case) {
	const defaultUsers = 10_000
	c.Users = defaultUsers
	r.fields(n, "share", map[string]func(ast.Node){
		"users": func(n ast.Node) {
			c.Users = max(1, int(r.count(n, "users", MaxUsers)))
		},
		"want": func(n ast.Node) {
			r.entries(n, "want of a share", func(target string, _, value ast.Node) {
				c.Shares = append(c.Shares, r.part(target, value))
			})
		},
	})
	if len(c.Shares) == 0 {
		r.bad(at(n), "share needs want, the part of each target: {model_v2: 10%% ± 0.5%%}")
	}
	if r.users += c.Users; r.users > MaxUsers {
		r.bad(at(n), "the users of all shares come to more than %d", MaxUsers)
	}
}

// part reads "10% ± 0.5%"; without a margin it is one of a hundred.
func (r *reader) part(target string, n ast.Node) Share {
	const defaultMargin = 1
	s := Share{Target: target, Margin: defaultMargin}
	words := strings.ReplaceAll(strings.ReplaceAll(r.string(n, "the part of a target"), "+-", "±"), "+/-", "±")
	part, margin, has := strings.Cut(words, "±")
	percent := func(s string) (float64, bool) {
		digits, ok := strings.CutSuffix(strings.TrimSpace(s), "%")
		v, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
		return v, ok && err == nil && v >= 0 && v <= 100
	}
	var ok bool
	s.Percent, ok = percent(part)
	if ok && has {
		s.Margin, ok = percent(margin)
	}
	if !ok {
		r.bad(at(n), "the part of a target must be written as 10%% or 10%% ± 0.5%%")
	}
	return s
}
