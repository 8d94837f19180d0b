package luavm

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// need is a place at which a value must be there: it is joined, hashed or calculated with.
type need struct {
	value ast.Expr
	what  string // is done with it
}

// hashing holds the functions that end a run as no_key for want of an argument. What such a run lacks must be the call's,
// not a name that its author misspelt: nobody would be told of that.
var hashing = map[string]bool{
	"hash": true, "split": true, "sticky": true, "ngx.crc32_short": true, "ngx.crc32_long": true, "ngx.md5": true,
	"ngx.md5_bin": true, "ngx.sha1_bin": true, "ngx.hmac_sha1": true,
}

// enough problems are found when there are more than are told: each takes a look at all names.
const enough = 4 * maxProblems

func (in *inspector) need(what string, values ...ast.Expr) {
	for _, v := range values {
		switch v.(type) {
		case *ast.IdentExpr, *ast.AttrGetExpr:
			in.needs = append(in.needs, need{value: v, what: what})
		}
	}
}

// wanting refuses names that are never set where a value must be there. It gives the names that it has told of.
func (in *inspector) wanting() map[string]bool {
	told := map[string]bool{}
	if in.read["_G"]+in.written["_G"] > 0 {
		return told // what is set cannot be told
	}
	for id := range in.parts {
		told[id.Value] = true
	}
	for _, e := range in.calls {
		by := in.nameOf(e.Func, maxAliases)
		if root, _, _ := strings.Cut(by, "."); hashing[by] && in.written[root] == 0 {
			in.need("hashed", e.Args...)
		}
	}
	for _, n := range in.needs {
		if len(in.errors) > enough {
			break
		}
		in.wants(n, told)
	}
	return told
}

func (in *inspector) wants(n need, told map[string]bool) {
	switch e := n.value.(type) {
	case *ast.IdentExpr:
		v := in.uses[e]
		if v != nil && !v.unset() || v == nil && !in.unset(e.Value) || in.parts[e] {
			return
		}
		told[e.Value] = told[e.Value] || v == nil
		in.errors = append(in.errors, in.u.at(e.Line(), e.Value, parse.TIdent,
			"%s is never set, and %s here: set it first (local %s = ...), or write the name that is meant%s", e.Value, n.what, e.Value, in.meant(e.Value)))
	case *ast.AttrGetExpr:
		path := in.paths[e]
		if root, _, _ := strings.Cut(path, "."); path == "" || in.written[root] > 0 || !unknownField(path) {
			return
		}
		if _, gone := removed[path]; gone {
			return // it is told already
		}
		told[path] = true
		key := e.Key.(*ast.StringExpr)
		in.errors = append(in.errors, in.u.at(key.Line(), key.Value, parse.TIdent,
			"%s is not available, and %s here: it is nil in every call%s", path, n.what, suggest(path)))
	}
}

// unset reports whether a global is never set, by the script or by the library.
func (in *inspector) unset(name string) bool {
	_, gone := removed[name]
	return !gone && name != "_G" && in.written[name] == 0 && library.RawGetString(name) == lua.LNil
}

// unset reports whether a local variable is nil wherever it is read.
func (l *local) unset() bool {
	for _, v := range l.values {
		if _, none := v.(*ast.NilExpr); !none {
			return false
		}
	}
	return !l.opaque
}

// near is how many letters a name that is meant may differ in.
func near(name string) int { return min(len(name)/2, 2) }

// meant suggests a name of the script's, or else of the library.
func (in *inspector) meant(name string) string {
	best, most := "", 1+near(name)
	for other := range in.declared {
		d := distance(name, other)
		if d < most || d == most && best != "" && other < best { // of two that are as near, always the same one
			best, most = other, d
		}
	}
	if best != "" && best != name {
		return "; is " + best + " meant?"
	}
	return suggest(name)
}

// maxAliases is how many local variables are followed to what they stand for.
const maxAliases = 8

// only gives the one value that a local variable is ever given.
func (in *inspector) only(e *ast.IdentExpr) ast.Expr {
	if v := in.uses[e]; v != nil && !v.opaque && len(v.values) == 1 {
		return v.values[0]
	}
	return nil
}

// nameOf is path for when all has been looked at; it sees through local variables that stand for something of the library.
func (in *inspector) nameOf(e ast.Expr, aliases int) string {
	switch e := e.(type) {
	case *ast.IdentExpr:
		if in.uses[e] == nil {
			return in.paths[e]
		}
		if v := in.only(e); v != nil && aliases > 0 {
			return in.nameOf(v, aliases-1)
		}
	case *ast.AttrGetExpr:
		key, ok := e.Key.(*ast.StringExpr)
		if outer := in.nameOf(e.Object, aliases); ok && outer != "" {
			return outer + "." + key.Value
		}
	}
	return ""
}

// setField notes that a field is set.
func (in *inspector) setField(e ast.Expr) {
	if at, ok := e.(*ast.AttrGetExpr); ok {
		key, _ := at.Key.(*ast.StringExpr)
		if key == nil {
			in.set[""] = true
		} else {
			in.set[key.Value] = true
		}
	}
}

// lacking tells of fields that a table of the script's own does not have: whatever is made of them is made of nothing.
func (in *inspector) lacking() {
	if in.set[""] || in.read["setmetatable"]+in.read["rawset"]+in.read["_G"] > 0 {
		return
	}
	for _, e := range in.fields {
		if len(in.warnings) > enough {
			break
		}
		key := e.Key.(*ast.StringExpr)
		id, ok := e.Object.(*ast.IdentExpr)
		if !ok || in.set[key.Value] {
			continue
		}
		t, ok := in.only(id).(*ast.TableExpr)
		if !ok || in.has(t, key.Value) {
			continue
		}
		hint := ""
		for _, f := range t.Fields[:min(len(t.Fields), manyFields)] {
			if k, ok := f.Key.(*ast.StringExpr); ok && hint == "" && distance(k.Value, key.Value) <= near(key.Value) {
				hint = "; is " + id.Value + "." + k.Value + " meant?"
			}
		}
		in.warnings = append(in.warnings, in.u.at(key.Line(), key.Value, parse.TIdent, "%s.%s is never set: it is nil%s", id.Value, key.Value, hint))
	}
}

// has reports whether a table that is made so may have a field.
func (in *inspector) has(t *ast.TableExpr, name string) bool {
	for _, f := range t.Fields {
		if f.Key == nil {
			continue // by number
		}
		if k, ok := f.Key.(*ast.StringExpr); !ok || k.Value == name {
			return true
		}
	}
	return false
}
