package luavm

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// findings is what can be told of a script without running it.
type findings struct {
	errors, warnings Problems
	targets          []string // sorted
	globals          []string // that it writes, sorted; see rewrite
	ownGlobals       bool     // it needs a table of globals of its own in each run
	fixed            map[ast.Expr]lua.LValue
}

// inspect looks at a tree that has not been rewritten.
func inspect(u *unit) findings {
	in := &inspector{
		u: u, scope: &scope{names: map[string]*local{}}, written: map[string]int{}, read: map[string]int{},
		functions: map[string]*ast.FunctionExpr{}, uses: map[*ast.IdentExpr]*local{}, paths: map[ast.Expr]string{},
		declared: map[string]bool{}, set: map[string]bool{}, inDash: map[*ast.ArithmeticOpExpr]bool{}, noNumber: map[*ast.ArithmeticOpExpr]bool{},
	}
	in.block(u.chunk)
	in.parts = in.misread()
	told := in.wanting()
	in.compared()
	in.lacking()
	in.globals(told)
	t := &targeter{in: in, found: map[string]bool{}, seen: map[any]bool{}}
	returns := t.returns(u.chunk)
	if returns == 0 {
		in.warnings = append(in.warnings, Problem{Name: u.name, Line: 1, Message: "it returns nothing, and so never has an opinion: return a target's name"})
	}
	in.warnings = slices.DeleteFunc(in.warnings, func(w Problem) bool { // an error there says more
		return w.Column > 0 && slices.ContainsFunc(in.errors, func(e Problem) bool { return e.Line == w.Line && e.Column == w.Column })
	})
	found := findings{
		errors: in.errors.sorted(), warnings: in.warnings.sorted(),
		targets: slices.Sorted(maps.Keys(t.found)), fixed: in.fixed(),
	}
	if in.written["_G"]+in.read["_G"] > 0 || len(in.written) > maxGlobals {
		found.ownGlobals = true
	} else {
		found.globals = slices.Sorted(maps.Keys(in.written))
	}
	return found
}

// maxGlobals is how many globals can be made local variables, of which a function has 200.
const maxGlobals = 50

// local is a local variable, and what it is ever given.
type local struct {
	values []ast.Expr
	opaque bool // it is given what cannot be told
}

type scope struct {
	names map[string]*local
	outer *scope
}

// inspector walks over a script and knows which names are local where.
type inspector struct {
	u                *unit
	scope            *scope
	errors, warnings Problems
	written, read    map[string]int // globals, and the line they are first seen at
	functions        map[string]*ast.FunctionExpr
	uses             map[*ast.IdentExpr]*local
	paths            map[ast.Expr]string // names of globals and of their fields
	declared         map[string]bool     // names of all local variables

	// What is looked at when all is known.
	needs    []need
	calls    []*ast.FuncCallExpr
	compares []*ast.RelationalOpExpr
	looked   int // see kind
	dashed   []dash
	fields   []*ast.AttrGetExpr             // by a name
	set      map[string]bool                // names of fields that are set; "" for those that cannot be told
	inDash   map[*ast.ArithmeticOpExpr]bool // those that are told of with one around them
	noNumber map[*ast.ArithmeticOpExpr]bool // those that are told of as misread
	parts    map[*ast.IdentExpr]bool        // names that are part of a name with dashes
}

func (in *inspector) declare(name string, opaque bool, values ...ast.Expr) {
	in.declared[name] = true
	in.scope.names[name] = &local{opaque: opaque, values: values}
}

func (in *inspector) find(name string) *local {
	for s := in.scope; s != nil; s = s.outer {
		if l := s.names[name]; l != nil {
			return l
		}
	}
	return nil
}

func (in *inspector) nested(f func()) {
	in.scope = &scope{names: map[string]*local{}, outer: in.scope}
	f()
	in.scope = in.scope.outer
}

func (in *inspector) block(stmts []ast.Stmt) {
	for _, s := range stmts {
		in.stmt(s)
	}
}

func (in *inspector) inner(stmts []ast.Stmt) { in.nested(func() { in.block(stmts) }) }

func (in *inspector) stmt(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.AssignStmt:
		in.exprs(s.Rhs...)
		for i, l := range s.Lhs {
			in.assign(l, s.Rhs, i)
		}
	case *ast.LocalAssignStmt:
		in.local(s)
	case *ast.FuncCallStmt:
		in.expr(s.Expr)
	case *ast.DoBlockStmt:
		in.inner(s.Stmts)
	case *ast.WhileStmt:
		in.expr(s.Condition)
		in.inner(s.Stmts)
	case *ast.RepeatStmt:
		in.nested(func() { in.block(s.Stmts); in.expr(s.Condition) })
	case *ast.IfStmt:
		in.expr(s.Condition)
		in.inner(s.Then)
		in.inner(s.Else)
	case *ast.NumberForStmt:
		in.exprs(s.Init, s.Limit, s.Step)
		in.nested(func() { in.declare(s.Name, true); in.block(s.Stmts) })
	case *ast.GenericForStmt:
		in.exprs(s.Exprs...)
		in.nested(func() {
			for _, n := range s.Names {
				in.declare(n, true)
			}
			in.block(s.Stmts)
		})
	case *ast.FuncDefStmt:
		in.define(s)
	case *ast.ReturnStmt:
		in.exprs(s.Exprs...)
	case *ast.GotoStmt:
		in.jump(s, s.Label)
	case *ast.LabelStmt:
		in.jump(s, s.Name)
	}
}

// jump refuses goto, which Lua 5.1 does not have, and which parts functions from the variables around them here.
func (in *inspector) jump(s ast.Stmt, label string) {
	in.errors = append(in.errors, in.u.at(s.Line(), label, parse.TIdent, "goto and labels are not available: use if, break or a function"))
}

func (in *inspector) local(s *ast.LocalAssignStmt) {
	if len(s.Names) == 1 && len(s.Exprs) == 1 {
		if f, ok := s.Exprs[0].(*ast.FunctionExpr); ok { // it may call itself
			in.functions[s.Names[0]] = f
			in.declare(s.Names[0], false, f)
			in.expr(f)
			return
		}
	}
	in.exprs(s.Exprs...)
	for i, n := range s.Names {
		value, known := valueAt(s.Exprs, i)
		if value == nil {
			in.declare(n, !known)
		} else {
			in.declare(n, false, value)
		}
	}
}

// valueAt gives the expression for the i-th of several variables. Without one it is nil, which is known unless the last
// expression gives several values.
func valueAt(es []ast.Expr, i int) (e ast.Expr, known bool) {
	last := len(es) - 1
	switch {
	case i < last || i == last && !spreads(es[i]):
		return es[i], true
	case i == last:
		return es[i], false
	case last >= 0 && spreads(es[last]):
		return nil, false
	}
	return nil, true
}

func (in *inspector) assign(l ast.Expr, values []ast.Expr, i int) {
	id, ok := l.(*ast.IdentExpr)
	if !ok {
		in.setField(l)
		in.expr(l)
		return
	}
	value, known := valueAt(values, i)
	v := in.find(id.Value)
	switch {
	case v == nil:
		in.write(id)
	case value != nil:
		v.values = append(v.values, value)
	case !known:
		v.opaque = true
	}
}

func (in *inspector) write(id *ast.IdentExpr) {
	if in.written[id.Value] == 0 {
		in.written[id.Value] = max(id.Line(), 1)
	}
}

func (in *inspector) define(s *ast.FuncDefStmt) {
	method := false
	switch f := s.Name.Func.(type) {
	case *ast.IdentExpr:
		if v := in.find(f.Value); v != nil {
			v.values = append(v.values, s.Func)
		} else {
			in.write(f)
		}
		in.functions[f.Value] = s.Func
	case nil:
		in.expr(s.Name.Receiver)
		in.set[s.Name.Method] = true
		method = true
	default:
		in.setField(f)
		in.expr(f)
	}
	in.function(s.Func, method)
}

func (in *inspector) function(f *ast.FunctionExpr, method bool) {
	in.nested(func() {
		if method {
			in.declare("self", true)
		}
		for _, n := range f.ParList.Names {
			in.declare(n, true)
		}
		in.block(f.Stmts)
	})
}

func (in *inspector) exprs(es ...ast.Expr) {
	for _, e := range es {
		in.expr(e)
	}
}

func (in *inspector) expr(e ast.Expr) {
	switch e := e.(type) {
	case *ast.IdentExpr:
		in.ident(e)
	case *ast.AttrGetExpr:
		in.attribute(e)
		if _, named := e.Key.(*ast.StringExpr); named {
			in.fields = append(in.fields, e)
		}
		in.exprs(e.Object, e.Key)
	case *ast.TableExpr:
		in.large(e)
		for _, f := range e.Fields {
			in.exprs(f.Key, f.Value)
		}
	case *ast.FuncCallExpr:
		in.patterns(e)
		if e.Func != nil {
			in.calls = append(in.calls, e)
		}
		in.exprs(e.Func, e.Receiver)
		in.exprs(e.Args...)
	case *ast.LogicalOpExpr:
		in.exprs(e.Lhs, e.Rhs)
	case *ast.RelationalOpExpr:
		in.compares = append(in.compares, e)
		in.exprs(e.Lhs, e.Rhs)
	case *ast.StringConcatOpExpr:
		in.need("joined", e.Lhs, e.Rhs)
		in.exprs(e.Lhs, e.Rhs)
	case *ast.ArithmeticOpExpr:
		in.dashes(e)
		in.need("calculated with", e.Lhs, e.Rhs)
		in.exprs(e.Lhs, e.Rhs)
	case *ast.UnaryMinusOpExpr:
		in.need("calculated with", e.Expr)
		in.expr(e.Expr)
	case *ast.UnaryNotOpExpr:
		in.expr(e.Expr)
	case *ast.UnaryLenOpExpr:
		in.expr(e.Expr)
	case *ast.FunctionExpr:
		in.function(e, false)
	}
}

func (in *inspector) ident(e *ast.IdentExpr) {
	if v := in.find(e.Value); v != nil {
		in.uses[e] = v
		return
	}
	in.paths[e] = e.Value
	if in.read[e.Value] == 0 {
		in.read[e.Value] = max(e.Line(), 1)
	}
}

// path gives the dotted name of a field of a global, such as ngx.re.match, or "".
func (in *inspector) path(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.IdentExpr:
		if in.find(e.Value) == nil {
			return e.Value
		}
	case *ast.AttrGetExpr:
		key, ok := e.Key.(*ast.StringExpr)
		if outer := in.path(e.Object); ok && outer != "" {
			return outer + "." + key.Value
		}
	}
	return ""
}

func (in *inspector) attribute(e *ast.AttrGetExpr) {
	path := in.path(e)
	if path == "" {
		return
	}
	in.paths[e] = path
	key := e.Key.(*ast.StringExpr)
	if remedy, ok := removed[path]; ok {
		in.errors = append(in.errors, in.u.at(key.Line(), key.Value, parse.TIdent, "%s is not available: %s", path, remedy))
	} else if unknownField(path) {
		in.warnings = append(in.warnings, in.u.at(key.Line(), key.Value, parse.TIdent, "%s is not available: it is nil%s", path, suggest(path)))
	}
}

// fixed gives the values of names that are the library's and stay so: functions, tables and numbers.
func (in *inspector) fixed() map[ast.Expr]lua.LValue {
	values := map[ast.Expr]lua.LValue{}
	if in.read["_G"] > 0 {
		return values
	}
	for e, path := range in.paths {
		root, _, _ := strings.Cut(path, ".")
		if in.written[root] > 0 {
			continue
		}
		switch v := lookup(path).(type) {
		case *lua.LFunction, *lua.LTable:
			values[e] = v
		case lua.LNumber:
			if !math.IsInf(float64(v), 0) {
				values[e] = v
			}
		}
	}
	return values
}

// lookup gives what a path names in the library, without asking what a call is.
func lookup(path string) lua.LValue {
	at := lua.LValue(library)
	for name := range strings.SplitSeq(path, ".") {
		t, ok := at.(*lua.LTable)
		if !ok {
			return lua.LNil
		}
		if t == callProxy {
			switch name {
			case "headers":
				at = headersProxy
				continue
			case "metadata":
				at = metadataProxy
				continue
			}
		}
		at = t.RawGetString(name)
	}
	return at
}

// globals tells of names that are not local anywhere, but for those that were told already.
func (in *inspector) globals(told map[string]bool) {
	for name, line := range in.read {
		switch remedy, gone := removed[name]; {
		case in.written[name] > 0 || library.RawGetString(name).String() != "nil" || name == "_G" || told[name]:
		case gone:
			in.errors = append(in.errors, in.u.at(line, name, parse.TIdent, "%s is not available: %s", name, remedy))
		default:
			in.warnings = append(in.warnings, in.u.at(line, name, parse.TIdent, "%s is never set: it is nil%s", name, suggest(name)))
		}
	}
	for name, line := range in.written {
		in.warnings = append(in.warnings, in.u.at(line, name, parse.TIdent, "%s is a global variable: write local %s (it does not outlive the call, and it is slower)", name, name))
	}
	slices.SortFunc(in.warnings, func(a, b Problem) int { return cmp.Compare(a.Message, b.Message) })
}
