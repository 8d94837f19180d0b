// Package access decides who may do what: the rules of a configuration, compiled into one immutable policy that calls
// ask without a lock and without allocating.
//
// Without any rule an authenticated caller has infer and metadata. Once one rule exists, nothing is granted but by a
// rule. Repository, shm, trace, log and admin are always granted by a rule. With "auth: none" nobody is known by name:
// everything is allowed that the configuration opens otherwise, but for admin.
package access

import (
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Role begins the entries of a rule's Callers that stand for a role: role:ml-admins is every caller whose credential carries
// that role. No caller has such a name.
const Role = "role:"

// Rule grants each of Callers, which are names and roles, each kind of Allow on models whose whole name fits one of Models: in these, * is any run of
// characters, slashes included, ? is one, [a-z] one of a class. Kinds that are not about a model (shm, trace, log, admin)
// ignore Models.
type Rule struct {
	Callers []string
	Models  []string
	Allow   []inference.Kind
}

const kinds = int(inference.Admin) + 1

// byModel reports whether a kind is granted model by model.
func byModel(kind inference.Kind) bool {
	return kind == inference.Infer || kind == inference.Metadata || kind == inference.Repository
}

// Policy is the compiled rules. It is immutable; the nil Policy allows nothing.
type Policy struct {
	hides    bool
	required bool // callers are authenticated
	rules    int
	callers  map[string]*grants
	roles    map[string]*grants
}

// grants are what one caller may do, by kind.
type grants [kinds]grant

// grant is where one caller has one kind.
type grant struct {
	any   bool           // on some model, or without one
	all   bool           // on every model
	first int            // rule that granted all, or a kind without models
	names map[string]int // plain names, and the rules that granted them
	globs []rulePattern
}

type rulePattern struct {
	pattern
	rule int
}

// New compiles rules. hideForbidden makes a forbidden model look as if it did not exist; authRequired says that callers
// are authenticated.
func New(hideForbidden bool, rules []Rule, authRequired bool) *Policy {
	p := &Policy{hides: hideForbidden, required: authRequired, rules: len(rules), callers: make(map[string]*grants), roles: make(map[string]*grants)}
	for i, r := range rules {
		for _, name := range r.Callers {
			all := p.callers
			if role, ok := strings.CutPrefix(name, Role); ok {
				all, name = p.roles, role
			}
			g := all[name]
			if g == nil {
				g = new(grants)
				all[name] = g
			}
			for _, kind := range r.Allow {
				if int(kind) < kinds {
					g[kind].add(i, r.Models, byModel(kind))
				}
			}
		}
	}
	return p
}

func (g *grant) add(rule int, models []string, byModel bool) {
	if !byModel {
		if !g.any {
			g.any, g.all, g.first = true, true, rule
		}
		return
	}
	for _, model := range models {
		switch {
		case everything(model):
			if !g.all {
				g.all, g.first = true, rule
			}
		case strings.ContainsAny(model, special):
			g.globs = append(g.globs, rulePattern{compile(model), rule})
		case model != "":
			if g.names == nil {
				g.names = make(map[string]int)
			}
			if _, ok := g.names[model]; !ok {
				g.names[model] = rule
			}
		default: // the empty name is no model's
			continue
		}
		g.any = true
	}
}

// rule gives the first rule that grants model, -1 when none does. It prefers wide rules, which are found quickest.
func (g *grant) rule(model string) int {
	if g.all {
		return g.first
	}
	if i, ok := g.names[model]; ok {
		return i
	}
	for i := range g.globs {
		if g.globs[i].match(model) {
			return g.globs[i].rule
		}
	}
	return -1
}

// Hides reports whether a forbidden model looks as if it did not exist.
func (p *Policy) Hides() bool { return p != nil && p.hides }

// Allows reports whether caller may do kind on the model that clients call by this name. Kinds that are not about a
// model ignore it. A nil caller is nobody.
func (p *Policy) Allows(caller *inference.Caller, model string, kind inference.Kind) bool {
	return p.any(caller, kind, func(g *grant) bool { return g.rule(model) >= 0 })
}

// Everything reports whether caller may do kind on every model, also on those that have no name yet.
func (p *Policy) Everything(caller *inference.Caller, kind inference.Kind) bool {
	return p.any(caller, kind, func(g *grant) bool { return g.all })
}

// Somewhere reports whether caller may do kind on any model at all.
func (p *Policy) Somewhere(caller *inference.Caller, kind inference.Kind) bool {
	return p.any(caller, kind, func(g *grant) bool { return g.any })
}

// any reports whether one of the grants that a caller has by its name and its roles does, or decides where no grant has to be
// looked at.
func (p *Policy) any(caller *inference.Caller, kind inference.Kind, does func(*grant) bool) bool {
	switch {
	case p == nil || int(kind) >= kinds:
		return false
	case !p.required && kind != inference.Admin:
		return true
	case caller == nil:
		return false
	case p.rules == 0:
		return kind == inference.Infer || kind == inference.Metadata
	}
	if g := p.callers[caller.Name]; g != nil && does(&g[kind]) {
		return true
	}
	if len(p.roles) > 0 {
		for _, role := range caller.Roles {
			if g := p.roles[role]; g != nil && does(&g[kind]) {
				return true
			}
		}
	}
	return false
}

// Check is Allows as a fault: nil, or what Refusal says.
func (p *Policy) Check(caller *inference.Caller, model string, kind inference.Kind) error {
	if p.Allows(caller, model, kind) {
		return nil
	}
	return p.Refusal(caller, model, kind)
}

// CheckKind refuses a caller that may do kind on no model at all. It says nothing about any model.
func (p *Policy) CheckKind(caller *inference.Caller, kind inference.Kind) error {
	if p.Somewhere(caller, kind) {
		return nil
	}
	return p.Refusal(caller, "", kind)
}

// Refusal is the fault of a caller that may not do kind on a model; of a hidden one it is that of a model that is not there.
func (p *Policy) Refusal(caller *inference.Caller, model string, kind inference.Kind) error {
	switch {
	case caller == nil && kind != inference.Admin:
		// identify refuses these before. This is for a call that was under way while authentication was turned on.
		return fault.New(fault.AuthMissing, "this gateway takes calls of known callers only; send a key as x-api-key or authorization: Bearer")
	case model != "" && byModel(kind) && p.Hides():
		return fault.UnknownModel(model)
	}
	name := "nobody"
	if caller != nil {
		name = caller.Name
	}
	if !byModel(kind) {
		model = ""
	}
	return fault.MayNot(name, words(kind, model != ""), model)
}

// words says what a kind is in a sentence, with a model's name after it where model says so.
func words(kind inference.Kind, model bool) string {
	switch kind {
	case inference.Metadata:
		if model {
			return "see"
		}
		return "see any model"
	case inference.Repository:
		if model {
			return "load or unload"
		}
		return "load or unload any model"
	case inference.SharedMemory:
		return "use shared memory (shm)"
	case inference.Trace:
		return "use trace settings (trace)"
	case inference.Log:
		return "use log settings (log)"
	case inference.Admin:
		return "use the admin port (admin)"
	case inference.Infer:
	}
	if model {
		return "infer"
	}
	return "infer any model"
}

// Decision is the answer to a question of access, with its reason, for people.
type Decision struct {
	Allowed bool
	// Rule is the place of the rule that grants it, as in the file; "" when no rule decided.
	Rule string
	Why  string
}

// Explain is Allows with the reason.
func (p *Policy) Explain(caller *inference.Caller, model string, kind inference.Kind) Decision {
	d := Decision{Allowed: p.Allows(caller, model, kind)}
	switch {
	case p == nil:
		d.Why = "there is no policy"
	case !p.required && kind != inference.Admin:
		d.Why = "auth is none: callers are not told apart"
	case caller == nil:
		d.Why = "the caller is not authenticated"
	case p.rules == 0 && d.Allowed:
		d.Why = "there are no access rules: every authenticated caller has infer and metadata"
	case p.rules == 0:
		d.Why = "there are no access rules, and " + kind.String() + " is granted by a rule only"
	case d.Allowed:
		rule, why := -1, " grants "+kind.String()
		p.any(caller, kind, func(g *grant) bool { rule = g.rule(model); return rule >= 0 })
		if g := p.callers[caller.Name]; g == nil || g[kind].rule(model) < 0 {
			why += " to a role of the caller"
		}
		d.Rule = "access.rules[" + strconv.Itoa(rule) + "]"
		d.Why = d.Rule + why
	case p.callers[caller.Name] == nil && !slices.ContainsFunc(caller.Roles, func(role string) bool { return p.roles[role] != nil }):
		d.Why = "no access rule names the caller"
	case !p.Somewhere(caller, kind):
		d.Why = "no access rule grants the caller " + kind.String()
	default:
		d.Why = "no access rule grants the caller " + kind.String() + " on this model"
	}
	return d
}

// Current is the policy in force, which a new configuration replaces. Its zero value allows nothing.
type Current struct{ p atomic.Pointer[Policy] }

// Use puts next in force, for questions from now on.
func (c *Current) Use(next *Policy) { c.p.Store(next) }

// Policy gives what is in force; nil, which allows nothing, before the first Use.
func (c *Current) Policy() *Policy { return c.p.Load() }

// Allows is Policy.Allows of what is in force.
func (c *Current) Allows(caller *inference.Caller, model string, kind inference.Kind) bool {
	return c.p.Load().Allows(caller, model, kind)
}

// Everything is Policy.Everything of what is in force.
func (c *Current) Everything(caller *inference.Caller, kind inference.Kind) bool {
	return c.p.Load().Everything(caller, kind)
}

// Check is Policy.Check of what is in force.
func (c *Current) Check(caller *inference.Caller, model string, kind inference.Kind) error {
	return c.p.Load().Check(caller, model, kind)
}

// CheckKind is Policy.CheckKind of what is in force.
func (c *Current) CheckKind(caller *inference.Caller, kind inference.Kind) error {
	return c.p.Load().CheckKind(caller, kind)
}

// Refusal is Policy.Refusal of what is in force.
func (c *Current) Refusal(caller *inference.Caller, model string, kind inference.Kind) error {
	return c.p.Load().Refusal(caller, model, kind)
}
