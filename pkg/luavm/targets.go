package luavm

import (
	"strings"

	"github.com/yuin/gopher-lua/ast"
)

// targeter collects the names that a script may return.
type targeter struct {
	in    *inspector
	found map[string]bool
	seen  map[any]bool // functions and variables that were followed already
}

// returns looks at all returns of a function's body, and tells how many there are.
func (t *targeter) returns(body []ast.Stmt) int {
	n := 0
	v := &visitor{}
	v.expr = func(ast.Expr) bool { return false } // of functions inside, only those that are called count
	v.stmt = func(s ast.Stmt) bool {
		if r, ok := s.(*ast.ReturnStmt); ok {
			n++
			if len(r.Exprs) > 0 {
				t.value(r.Exprs[0])
			}
		}
		return true
	}
	v.block(body)
	return n
}

// value follows what an expression may be.
func (t *targeter) value(e ast.Expr) {
	switch e := e.(type) {
	case *ast.StringExpr:
		if e.Value != "" {
			t.found[e.Value] = true
		}
	case *ast.LogicalOpExpr:
		if e.Operator == "or" {
			t.value(e.Lhs)
		}
		t.value(e.Rhs)
	case *ast.IdentExpr:
		v := t.in.uses[e]
		if v == nil || t.seen[v] {
			return
		}
		t.seen[v] = true
		for _, value := range v.values {
			t.value(value)
		}
	case *ast.FunctionExpr:
		if !t.seen[e] {
			t.seen[e] = true
			t.returns(e.Stmts)
		}
	case *ast.FuncCallExpr:
		t.call(e)
	}
}

// call follows functions of the script's own, and the names of a split.
func (t *targeter) call(e *ast.FuncCallExpr) {
	id, ok := e.Func.(*ast.IdentExpr)
	if !ok {
		return
	}
	if f := t.in.functions[id.Value]; f != nil {
		t.value(f)
		return
	}
	if id.Value != "split" || len(e.Args) < 2 {
		return
	}
	weights := e.Args[1]
	if id, ok := weights.(*ast.IdentExpr); ok && t.in.uses[id] != nil && len(t.in.uses[id].values) == 1 {
		weights = t.in.uses[id].values[0]
	}
	if table, ok := weights.(*ast.TableExpr); ok {
		for _, f := range table.Fields {
			if key, ok := f.Key.(*ast.StringExpr); ok && strings.TrimSpace(key.Value) != "" {
				t.found[key.Value] = true
			}
		}
	}
}
