package luavm

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
)

// What the interpreter does by instructions of its own, and without bound, becomes a call of one of these:
//
//	a .. b .. c            concat(a, b, c)
//	t[k] = v, t.k = v      set(t, k, v), and so for function t.k() and function t:k()
//	{1, 2, x = 3}          made({1, 2, x = 3}, 3)
//	{[k] = v, f()}         fill({}, 1, "km", k, v, f())
//	a % b                  mod(a, b), which is no bound but several times as fast
//
// And what a script takes from the library is looked up now instead of in every run, unless it has globals of that name:
//
//	ngx.crc32_short(u)     the function, as a constant
//	ngx.var.arg_user_id    a call of the function that tells it
//	split(u, {a = 90, b = 10})  a call of a function that has the weights in order
//
// The globals that a script writes become local variables around it, so that they are new in each run for nothing:
//
//	n = (n or 0) + 1       local n; n = (n or 0) + 1
//
// The source's own names cannot reach or hide such functions: they are constants, which link puts in where the rewriting
// left a string that is made up anew in every process.
var (
	opConcat = function(opConcatFunc)
	opSet    = function(opSetFunc)
	opMade   = function(opMadeFunc)
	opFill   = function(opFillFunc)
	opMod    = function(opModFunc)
)

// secret begins the strings that stand for constants.
var secret = "\x00" + rand.Text()

// How many arguments one call of a rewritten operation gets; a function has 200 registers.
const (
	concatArgs = 100
	fillFields = 40
)

// rewriter changes a tree in place. The first problem stops it.
type rewriter struct {
	u       *unit
	fixed   map[ast.Expr]lua.LValue // names of the library, see inspector
	problem *Problem
	temp    int
	values  map[lua.LValue]string // what stands for each constant
}

// rewrite gives the tree as it is to be compiled, and the constants that link puts in.
func rewrite(u *unit, found findings) ([]ast.Stmt, map[string]lua.LValue, *Problem) {
	w := &rewriter{u: u, fixed: found.fixed, values: map[lua.LValue]string{}}
	chunk := w.stmts(u.chunk)
	if len(found.globals) > 0 {
		chunk = append([]ast.Stmt{w.globals(found.globals)}, chunk...)
	}
	constants := make(map[string]lua.LValue, len(w.values))
	for v, name := range w.values {
		constants[name] = v
	}
	return chunk, constants, w.problem
}

// globals declares the globals of a script as local variables. Those of the library begin as what they are there.
func (w *rewriter) globals(names []string) ast.Stmt {
	at := &ast.Node{}
	at.SetLine(1)
	s := on(at, &ast.LocalAssignStmt{Names: names})
	for _, name := range names {
		if v := library.RawGetString(name); v != lua.LNil {
			s.Exprs = append(s.Exprs, w.constant(at, v))
		} else {
			s.Exprs = append(s.Exprs, on(at, &ast.NilExpr{}))
		}
	}
	return s
}

func (w *rewriter) stmts(stmts []ast.Stmt) []ast.Stmt {
	for i, s := range stmts {
		stmts[i] = w.stmt(s)
	}
	return stmts
}

func (w *rewriter) stmt(s ast.Stmt) ast.Stmt {
	switch s := s.(type) {
	case *ast.AssignStmt:
		return w.assign(s)
	case *ast.LocalAssignStmt:
		w.exprs(s.Exprs)
	case *ast.FuncCallStmt:
		s.Expr = w.expr(s.Expr)
	case *ast.DoBlockStmt:
		w.stmts(s.Stmts)
	case *ast.WhileStmt:
		return w.while(s)
	case *ast.RepeatStmt:
		s.Condition = w.expr(s.Condition)
		s.Stmts = steady(s, w.stmts(s.Stmts))
	case *ast.IfStmt:
		return w.branch(s)
	case *ast.NumberForStmt:
		s.Init, s.Limit, s.Step = w.expr(s.Init), w.expr(s.Limit), w.expr(s.Step)
		w.stmts(s.Stmts)
	case *ast.GenericForStmt:
		w.exprs(s.Exprs)
		w.stmts(s.Stmts)
	case *ast.FuncDefStmt:
		return w.define(s)
	case *ast.ReturnStmt:
		w.exprs(s.Exprs)
	}
	return s
}

// define turns function t.k() and function t:k() into writes.
func (w *rewriter) define(s *ast.FuncDefStmt) ast.Stmt {
	w.stmts(s.Func.Stmts)
	var object, key ast.Expr
	switch at, ok := s.Name.Func.(*ast.AttrGetExpr); {
	case ok:
		object, key = w.expr(at.Object), w.key(at.Key)
	case s.Name.Func == nil:
		object, key = w.expr(s.Name.Receiver), on(s, &ast.StringExpr{Value: s.Name.Method})
		s.Func.ParList.Names = append([]string{"self"}, s.Func.ParList.Names...)
	default:
		return s
	}
	return on(s, &ast.FuncCallStmt{Expr: w.call(s, opSet, object, key, s.Func)})
}

// assign turns writes to fields into calls. With several values at once, all is evaluated before anything is written.
//
// That also keeps clear of faults of the compiler, which writes to local variables while it still reads them (a, b = b, a;
// a = (f(a)) where a is the last parameter of a function), or does not write at all (a = not b and c, where b is true).
func (w *rewriter) assign(s *ast.AssignStmt) ast.Stmt {
	w.exprs(s.Rhs)
	for _, l := range s.Lhs {
		if at, ok := l.(*ast.AttrGetExpr); ok {
			at.Object, at.Key = w.expr(at.Object), w.key(at.Key)
		}
	}
	if _, logical := s.Rhs[0].(*ast.LogicalOpExpr); len(s.Lhs) == 1 && len(s.Rhs) == 1 && !logical {
		if at, ok := s.Lhs[0].(*ast.AttrGetExpr); ok {
			return on(s, &ast.FuncCallStmt{Expr: w.call(s, opSet, at.Object, at.Key, s.Rhs[0])})
		}
		if c, ok := s.Rhs[0].(*ast.FuncCallExpr); ok {
			c.AdjustRet = false // one variable takes one value all the same
		}
		return s
	}
	local := func(e ...ast.Expr) *ast.LocalAssignStmt {
		w.temp++
		return on(s, &ast.LocalAssignStmt{Names: []string{fmt.Sprint("\x00", w.temp)}, Exprs: e})
	}
	name := func(l *ast.LocalAssignStmt, i int) ast.Expr { return on(s, &ast.IdentExpr{Value: l.Names[i]}) }
	var before, after []ast.Stmt
	values := local(s.Rhs...)
	for range s.Lhs[1:] {
		w.temp++
		values.Names = append(values.Names, fmt.Sprint("\x00", w.temp))
	}
	for i, l := range s.Lhs {
		if at, ok := l.(*ast.AttrGetExpr); ok {
			object, key := local(at.Object), local(at.Key)
			before = append(before, object, key)
			after = append(after, on(s, &ast.FuncCallStmt{Expr: w.call(s, opSet, name(object, 0), name(key, 0), name(values, i))}))
		} else {
			after = append(after, on(s, &ast.AssignStmt{Lhs: []ast.Expr{l}, Rhs: []ast.Expr{name(values, i)}}))
		}
	}
	slices.Reverse(after) // as the interpreter does
	return on(s, &ast.DoBlockStmt{Stmts: slices.Concat(before, []ast.Stmt{values}, after)})
}

func (w *rewriter) exprs(es []ast.Expr) {
	for i, e := range es {
		es[i] = w.expr(e)
	}
}

func (w *rewriter) expr(e ast.Expr) ast.Expr {
	if v, ok := w.fixed[e]; ok {
		return w.constant(e, v)
	}
	switch e := e.(type) {
	case *ast.AttrGetExpr:
		return w.attribute(e)
	case *ast.TableExpr:
		return w.table(e)
	case *ast.FuncCallExpr:
		w.split(e)
		e.Func, e.Receiver = w.expr(e.Func), w.expr(e.Receiver)
		w.exprs(e.Args)
	case *ast.LogicalOpExpr:
		return w.logical(e)
	case *ast.RelationalOpExpr:
		e.Lhs, e.Rhs = w.expr(e.Lhs), w.expr(e.Rhs)
	case *ast.ArithmeticOpExpr:
		e.Lhs, e.Rhs = w.expr(e.Lhs), w.expr(e.Rhs)
		if e.Operator == "%" {
			return w.call(e, opMod, e.Lhs, e.Rhs)
		}
	case *ast.StringConcatOpExpr:
		return w.concat(e)
	case *ast.UnaryMinusOpExpr:
		e.Expr = w.expr(e.Expr)
	case *ast.UnaryNotOpExpr:
		e.Expr = w.expr(e.Expr)
		if holds, literal := truth(e.Expr); literal && holds {
			return on(e, &ast.FalseExpr{})
		} else if literal {
			return on(e, &ast.TrueExpr{})
		}
	case *ast.UnaryLenOpExpr:
		e.Expr = w.expr(e.Expr)
	case *ast.FunctionExpr:
		w.stmts(e.Stmts)
	}
	return e
}

// attribute asks what tells the fields of ngx.var, call and the like directly.
func (w *rewriter) attribute(e *ast.AttrGetExpr) ast.Expr {
	if t, ok := w.fixed[e.Object].(*lua.LTable); ok && frozenProxy(t) {
		index := t.Metatable.(*lua.LTable).RawGetString("__index")
		return w.call(e, index, on(e, &ast.NilExpr{}), w.key(e.Key))
	}
	e.Object, e.Key = w.expr(e.Object), w.key(e.Key)
	return e
}

// key is expr for what stands in brackets, where the compiler takes a literal string for a name: no constant may be there.
func (w *rewriter) key(e ast.Expr) ast.Expr {
	if _, ok := w.fixed[e]; ok {
		return e
	}
	return w.expr(e)
}

// constant makes the expression of a value that no literal can write.
func (w *rewriter) constant(at ast.PositionHolder, v lua.LValue) ast.Expr {
	if n, ok := v.(lua.LNumber); ok {
		return on(at, &ast.NumberExpr{Value: strconv.FormatFloat(float64(n), 'g', -1, 64)})
	}
	name := w.values[v]
	if name == "" {
		name = fmt.Sprint(secret, len(w.values))
		w.values[v] = name
	}
	return on(at, &ast.StringExpr{Value: name})
}

func (w *rewriter) concat(e *ast.StringConcatOpExpr) ast.Expr {
	args := []ast.Expr{w.expr(e.Lhs)}
	rest := e.Rhs
	for {
		next, ok := rest.(*ast.StringConcatOpExpr)
		if !ok {
			args = append(args, w.expr(rest))
			break
		}
		args = append(args, w.expr(next.Lhs))
		rest = next.Rhs
	}
	for len(args) > concatArgs {
		args = append([]ast.Expr{w.call(e, opConcat, args[:concatArgs]...)}, args[concatArgs:]...)
	}
	return w.call(e, opConcat, args...)
}

// spreads reports whether an expression gives all of several values where it stands last.
func spreads(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.FuncCallExpr:
		return !e.AdjustRet
	case *ast.Comma3Expr:
		return !e.AdjustRet
	}
	return false
}

// single makes an expression give one value wherever it stands.
func single(e ast.Expr) ast.Expr {
	switch e := e.(type) {
	case *ast.FuncCallExpr:
		e.AdjustRet = true
	case *ast.Comma3Expr:
		e.AdjustRet = true
	}
	return e
}

// call makes the call of an operation; each argument is one value.
func (w *rewriter) call(at ast.PositionHolder, f lua.LValue, args ...ast.Expr) *ast.FuncCallExpr {
	for _, a := range args {
		single(a)
	}
	return w.callAll(at, f, args...)
}

// callAll is call with a last argument that may be several values.
func (w *rewriter) callAll(at ast.PositionHolder, f lua.LValue, args ...ast.Expr) *ast.FuncCallExpr {
	return on(at, &ast.FuncCallExpr{Func: w.constant(at, f), Args: slices.Clone(args), AdjustRet: true})
}

func number(at ast.PositionHolder, n int) ast.Expr {
	return on(at, &ast.NumberExpr{Value: strconv.Itoa(n)})
}

// on puts a node where at is.
func on[T ast.PositionHolder](at ast.PositionHolder, node T) T {
	node.SetLine(at.Line())
	node.SetLastLine(at.LastLine())
	return node
}
