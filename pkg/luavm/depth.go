package luavm

import "github.com/yuin/gopher-lua/ast"

// tooDeep gives the line at which a tree is deeper than maxDepth, or 0.
func tooDeep(chunk []ast.Stmt) int {
	line := 0
	v := &visitor{}
	v.stmt = func(s ast.Stmt) bool {
		if v.depth > maxDepth && line == 0 {
			line = max(s.Line(), 1)
		}
		return line == 0
	}
	v.expr = func(e ast.Expr) bool {
		if v.depth > maxDepth && line == 0 {
			line = max(e.Line(), 1)
		}
		return line == 0
	}
	v.block(chunk)
	return line
}

// visitor walks a tree. Its functions are called before the children of what they get are walked, which they
// can keep from happening by returning false.
type visitor struct {
	stmt  func(ast.Stmt) bool
	expr  func(ast.Expr) bool
	leave func(ast.Expr) // after the children, where set
	depth int
}

func (v *visitor) block(stmts []ast.Stmt) {
	for _, s := range stmts {
		v.walk(s)
	}
}

func (v *visitor) walk(s ast.Stmt) {
	v.depth++
	defer func() { v.depth-- }()
	if v.stmt != nil && !v.stmt(s) {
		return
	}
	switch s := s.(type) {
	case *ast.AssignStmt:
		v.exprs(s.Rhs)
		v.exprs(s.Lhs)
	case *ast.LocalAssignStmt:
		v.exprs(s.Exprs)
	case *ast.FuncCallStmt:
		v.visit(s.Expr)
	case *ast.DoBlockStmt:
		v.block(s.Stmts)
	case *ast.WhileStmt:
		v.visit(s.Condition)
		v.block(s.Stmts)
	case *ast.RepeatStmt:
		v.block(s.Stmts)
		v.visit(s.Condition)
	case *ast.IfStmt:
		v.visit(s.Condition)
		v.block(s.Then)
		v.block(s.Else)
	case *ast.NumberForStmt:
		v.visit(s.Init)
		v.visit(s.Limit)
		v.visit(s.Step)
		v.block(s.Stmts)
	case *ast.GenericForStmt:
		v.exprs(s.Exprs)
		v.block(s.Stmts)
	case *ast.FuncDefStmt:
		v.visit(s.Name.Func)
		v.visit(s.Name.Receiver)
		v.visit(s.Func)
	case *ast.ReturnStmt:
		v.exprs(s.Exprs)
	}
}

func (v *visitor) exprs(es []ast.Expr) {
	for _, e := range es {
		v.visit(e)
	}
}

func (v *visitor) visit(e ast.Expr) {
	if e == nil {
		return
	}
	v.depth++
	defer func() { v.depth-- }()
	if f, ok := e.(*ast.FunctionExpr); ok && f == nil || v.expr != nil && !v.expr(e) {
		return
	}
	switch e := e.(type) {
	case *ast.AttrGetExpr:
		v.visit(e.Object)
		v.visit(e.Key)
	case *ast.TableExpr:
		for _, f := range e.Fields {
			v.visit(f.Key)
			v.visit(f.Value)
		}
	case *ast.FuncCallExpr:
		v.visit(e.Func)
		v.visit(e.Receiver)
		v.exprs(e.Args)
	case *ast.LogicalOpExpr:
		v.visit(e.Lhs)
		v.visit(e.Rhs)
	case *ast.RelationalOpExpr:
		v.visit(e.Lhs)
		v.visit(e.Rhs)
	case *ast.StringConcatOpExpr:
		v.visit(e.Lhs)
		v.visit(e.Rhs)
	case *ast.ArithmeticOpExpr:
		v.visit(e.Lhs)
		v.visit(e.Rhs)
	case *ast.UnaryMinusOpExpr:
		v.visit(e.Expr)
	case *ast.UnaryNotOpExpr:
		v.visit(e.Expr)
	case *ast.UnaryLenOpExpr:
		v.visit(e.Expr)
	case *ast.FunctionExpr:
		v.block(e.Stmts)
	}
	if v.leave != nil {
		v.leave(e)
	}
}
