package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

const (
	maxRules    = 10_000
	maxPatterns = 1000 // of one rule
	maxRole     = 256  // bytes
	everybody   = "*"  // all callers, in a rule
	rolePrefix  = "role:"
)

// ofModels reports whether a kind of call is about one model, so that a rule must say which.
func ofModels(k inference.Kind) bool {
	return k == inference.Infer || k == inference.Metadata || k == inference.Repository
}

// access compiles the section `access`.
func (c *compiler) access(f *AccessFile) {
	if f == nil || c.mistaken("access") {
		c.accessNotes()
		return
	}
	c.cfg.Access.HideForbidden = f.HideForbidden
	if f.HideForbidden && c.cfg.Auth == AuthNone {
		c.check("access.hide_forbidden", errors.New("has nothing to hide: auth is none, so nothing is forbidden; write auth: required, or remove it"))
	}
	if len(f.Rules) > maxRules {
		c.check("access.rules", fmt.Errorf("has %d entries; at most %d", len(f.Rules), maxRules))
		return
	}
	if c.has("access.rules") && len(f.Rules) == 0 && !c.mistaken("access.rules") {
		c.wrong("access.rules", "is empty: no rules mean that every caller may infer and read metadata; remove it, or write what is allowed")
	}
	for i := range f.Rules {
		if at := fmt.Sprintf("access.rules[%d]", i); !c.mistaken(at) {
			c.cfg.Access.Rules = append(c.cfg.Access.Rules, c.rule(at, &f.Rules[i]))
		}
	}
	c.accessNotes()
}

func (c *compiler) rule(at string, f *AccessRuleFile) AccessRule {
	r := AccessRule{Callers: c.ruleCallers(at+".callers", f.Callers)}
	for _, name := range f.Allow {
		k := named(name, inference.Admin, inference.Kind(255))
		if k <= inference.Admin && !slices.Contains(r.Allow, k) {
			r.Allow = append(r.Allow, k)
		}
	}
	if len(f.Allow) == 0 {
		c.check(at+".allow", errors.New("must list what is allowed: infer, metadata, repository, shm, trace, log or admin; what no rule allows is refused"))
	}
	if c.cfg.Auth == AuthNone && c.cfg.AuthStated && slices.ContainsFunc(r.Allow, func(k inference.Kind) bool { return k != inference.Admin }) {
		c.check(at, errors.New("can refuse nobody: auth is none, so every caller may do everything that is open; write auth: required, or keep only admin"))
	}
	r.Models = c.patterns(at+".models", f.Models)
	switch about := slices.ContainsFunc(r.Allow, ofModels); {
	case about && len(f.Models) == 0:
		c.check(at+".models", errors.New(`must list the models, for infer, metadata and repository are of models; ["*"] is all of them`))
	case !about && len(r.Allow) > 0 && len(f.Models) > 0:
		c.check(at+".models", fmt.Errorf("says nothing here: of what the rule allows (%s) nothing is about one model; remove it", kindNames(r.Allow)))
	}
	return r
}

func kindNames(kinds []inference.Kind) string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.String())
	}
	return strings.Join(names, ", ")
}

// callerNames lists the declared callers.
func (c *compiler) callerNames() []string {
	var names []string
	for _, caller := range c.cfg.Callers {
		if caller.Name != "" {
			names = append(names, caller.Name)
		}
	}
	return names
}

// knownCaller checks that a name is a declared caller's.
func (c *compiler) knownCaller(name string) error {
	known := c.callerNames()
	switch {
	case slices.Contains(known, name):
		return nil
	case len(known) == 0:
		return errors.New("names a caller, and none are declared; declare it in callers")
	}
	hint := didYouMean(name, known)
	if hint == "" {
		hint = "; there is " + strings.Join(few(known), ", ")
	}
	return fmt.Errorf("%q is no caller%s", clip(name), hint)
}

// knownRole checks a role in a rule. Which roles there are is known to the issuers of tokens alone.
func (c *compiler) knownRole(role string) error {
	switch {
	case role == "" || len(role) > maxRole || strings.ContainsFunc(role, isControl) || strings.TrimSpace(role) != role:
		return errors.New("must have a role after role:, such as role:ml-admins, in at most 256 bytes")
	case !slices.ContainsFunc(c.cfg.Callers, func(caller Caller) bool { return caller.JWT != nil && caller.JWT.RolesClaim != "" }):
		return errors.New("names a role, and no caller's credential carries any; say in callers[].jwt.roles which claim has them")
	}
	return nil
}

func (c *compiler) ruleCallers(at string, names []string) []string {
	if len(names) == 0 {
		c.check(at, errors.New(`must list callers by name; ["*"] is all of them`))
		return nil
	}
	var all []string
	for i, name := range names {
		path := fmt.Sprintf("%s[%d]", at, i)
		switch {
		case c.mistaken(path):
		case name == everybody:
			return c.callerNames()
		case slices.Contains(all, name):
			c.wrong(path, "%s is in the list already", clip(name))
		case strings.HasPrefix(name, rolePrefix):
			c.check(path, c.knownRole(strings.TrimPrefix(name, rolePrefix)))
			all = append(all, name)
		default:
			c.check(path, c.knownCaller(name))
			all = append(all, name)
		}
	}
	return all
}

// patterns checks patterns of models' names. One that can match no declared model is worth a note where no others are served.
func (c *compiler) patterns(at string, list []string) []string {
	if len(list) > maxPatterns {
		c.check(at, fmt.Errorf("has %d entries; at most %d", len(list), maxPatterns))
		return nil
	}
	var all []string
	for i, p := range list {
		path := fmt.Sprintf("%s[%d]", at, i)
		switch {
		case c.mistaken(path):
			continue
		case p == "" || len(p) > maxModelName || strings.ContainsFunc(p, isControl) || strings.TrimSpace(p) != p:
			c.wrong(path, "must be a model's name or a pattern of names, such as rank-*")
			continue
		case checkPattern(p) != nil:
			c.wrong(path, "%s", errPattern)
			continue
		}
		if !c.cfg.Passthrough && len(c.found) == 0 && !slices.ContainsFunc(c.cfg.Models, func(m Model) bool { return MatchModel(p, m.Name) }) {
			var names []string
			for _, m := range c.cfg.Models {
				names = append(names, m.Name)
			}
			hint := ""
			if near := strings.TrimPrefix(didYouMean(p, names), "; "); near != "" {
				hint = " (" + near + ")"
			}
			c.note("%s: %s matches no model%s", path, clip(p), hint)
		}
		all = append(all, p)
	}
	return all
}

// controlKinds are the kinds that `control` must open besides.
var controlKinds = []inference.Kind{inference.Repository, inference.SharedMemory, inference.Trace, inference.Log}

// accessNotes tells of what one section opens and another keeps shut.
func (c *compiler) accessNotes() {
	granted := func(k inference.Kind) bool {
		return slices.ContainsFunc(c.cfg.Access.Rules, func(r AccessRule) bool { return slices.Contains(r.Allow, k) })
	}
	for _, k := range controlKinds {
		switch open := slices.Contains(c.cfg.Control, k.String()); {
		case open && c.cfg.Auth == AuthRequired && !granted(k):
			c.note("control opens %s, and no access rule allows it to anybody, so it stays shut", k)
		case !open && granted(k):
			c.note("an access rule allows %s, and control does not open it, so it stays shut", k)
		}
	}
	if host, _, ok := cutPort(c.cfg.Listen.Admin); ok && !onLoopback(host) && !granted(inference.Admin) {
		c.note("listen.admin is reachable from elsewhere, and no access rule allows admin: only health and metrics answer there")
	}
}
