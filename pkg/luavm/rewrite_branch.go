package luavm

import "github.com/yuin/gopher-lua/ast"

// The compiler leads a jump backwards astray when it goes to an instruction that is a jump itself. So no loop may begin
// with one: conditions that are known are decided here, and other loops are given a beginning that does nothing.

// truth tells whether an expression holds, if that can be seen from it.
func truth(e ast.Expr) (holds, literal bool) {
	switch e.(type) {
	case *ast.NilExpr, *ast.FalseExpr:
		return false, true
	case *ast.TrueExpr, *ast.NumberExpr, *ast.StringExpr:
		return true, true
	}
	return false, false
}

// logical leaves out the left side of and and or where it is known.
func (w *rewriter) logical(e *ast.LogicalOpExpr) ast.Expr {
	e.Lhs, e.Rhs = w.expr(e.Lhs), w.expr(e.Rhs)
	holds, literal := truth(e.Lhs)
	switch {
	case !literal:
		return e
	case holds == (e.Operator == "and"):
		return single(e.Rhs)
	}
	return e.Lhs
}

func (w *rewriter) while(s *ast.WhileStmt) ast.Stmt {
	s.Condition = w.expr(s.Condition)
	w.stmts(s.Stmts)
	holds, literal := truth(s.Condition)
	switch {
	case literal && holds:
		s.Stmts = steady(s, s.Stmts)
	case literal:
		return on(s, &ast.DoBlockStmt{})
	}
	return s
}

func (w *rewriter) branch(s *ast.IfStmt) ast.Stmt {
	s.Condition = w.expr(s.Condition)
	w.stmts(s.Then)
	w.stmts(s.Else)
	holds, literal := truth(s.Condition)
	switch {
	case literal && holds:
		return on(s, &ast.DoBlockStmt{Stmts: s.Then})
	case literal:
		return on(s, &ast.DoBlockStmt{Stmts: s.Else})
	}
	return s
}

// steady puts an instruction that does nothing before the body of a loop.
func steady(at ast.PositionHolder, body []ast.Stmt) []ast.Stmt {
	nothing := on(at, &ast.LocalAssignStmt{Names: []string{"\x00"}, Exprs: []ast.Expr{on(at, &ast.NilExpr{})}})
	return append([]ast.Stmt{nothing}, body...)
}
