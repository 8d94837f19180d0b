package luavm

import (
	"fmt"
	"slices"

	"github.com/yuin/gopher-lua/ast"
)

// split makes a call of split with literal weights one of a function that has them.
func (w *rewriter) split(e *ast.FuncCallExpr) {
	if f := w.fixed[e.Func]; f == nil || f != library.RawGetString("split") || len(e.Args) < 2 {
		return
	}
	table, ok := e.Args[1].(*ast.TableExpr)
	if !ok {
		return
	}
	var weights []weight
	seen := map[string]bool{}
	for _, f := range table.Fields {
		name, ok1 := f.Key.(*ast.StringExpr)
		n, ok2 := f.Value.(*ast.NumberExpr)
		if !ok1 || !ok2 || seen[name.Value] {
			return
		}
		share, ok := parseNumber(n.Value)
		if !ok {
			return
		}
		seen[name.Value] = true
		weights = append(weights, weight{name.Value, share})
	}
	total, problem := ordered(weights)
	if problem != "" {
		return // it is raised when it is run
	}
	w.fixed[e.Func] = splitOf(weights, total)
	e.Args = append([]ast.Expr{single(e.Args[0])}, e.Args[2:]...)
}

func (w *rewriter) table(e *ast.TableExpr) ast.Expr {
	if len(e.Fields) > maxEntries && w.problem == nil {
		w.problem = &Problem{Name: w.u.name, Line: e.Line(), Message: fmt.Sprintf("a table of %d fields; at most %d are allowed", len(e.Fields), maxEntries)}
	}
	static := true
	for i, f := range e.Fields {
		if f.Key != nil {
			_, literal := f.Key.(*ast.StringExpr)
			static = static && literal
			f.Key = w.key(f.Key)
		}
		f.Value = w.expr(f.Value)
		if f.Key != nil {
			single(f.Value) // or the compiler takes a call that stands last for the rest of the list
		}
		if f.Key == nil && i == len(e.Fields)-1 && spreads(f.Value) {
			static = false
		}
	}
	if len(e.Fields) == 0 {
		return e
	}
	if static {
		return w.call(e, opMade, e, number(e, len(e.Fields)))
	}
	var t ast.Expr = on(e, &ast.TableExpr{})
	index := 1
	for part := range slices.Chunk(e.Fields, fillFields) {
		spec, args := "", []ast.Expr{t, number(e, index), nil}
		spread := false
		for _, f := range part {
			switch {
			case f.Key != nil:
				spec += "k"
				args = append(args, single(f.Key), single(f.Value))
			case f == e.Fields[len(e.Fields)-1] && spreads(f.Value):
				spec += "m"
				args, spread = append(args, f.Value), true
			default:
				spec += "p"
				index++
				args = append(args, single(f.Value))
			}
		}
		args[2] = on(e, &ast.StringExpr{Value: spec})
		if spread {
			t = w.callAll(e, opFill, args...)
		} else {
			t = w.call(e, opFill, args...)
		}
	}
	return t
}
