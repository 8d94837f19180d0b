package luavm

import (
	"fmt"
	"slices"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// dash is what reads like a name with dashes in it and is a difference: call.headers.x-user-type.
type dash struct {
	whole *ast.ArithmeticOpExpr
	base  *ast.AttrGetExpr // call.headers.x
	rest  []*ast.IdentExpr // user, type
}

// dashes notes differences of names whose first is a field.
func (in *inspector) dashes(e *ast.ArithmeticOpExpr) {
	if in.inDash[e] {
		return
	}
	d := dash{whole: e}
	for at := ast.Expr(e); ; {
		switch x := at.(type) {
		case *ast.ArithmeticOpExpr:
			id, ok := x.Rhs.(*ast.IdentExpr)
			if !ok || x.Operator != "-" {
				return
			}
			in.inDash[x] = true
			d.rest = append(d.rest, id)
			at = x.Lhs
			continue
		case *ast.AttrGetExpr:
			d.base = x
			slices.Reverse(d.rest)
			in.dashed = append(in.dashed, d)
		}
		return
	}
}

// misread tells of names of headers and the like that are written without brackets. It gives the names that are no mistakes
// of their own then.
func (in *inspector) misread() map[*ast.IdentExpr]bool {
	parts := map[*ast.IdentExpr]bool{}
	for _, d := range in.dashed {
		remedy := in.bracketed(d)
		if remedy == "" {
			continue
		}
		certain := false // no local variable is subtracted: it cannot be meant
		key := d.base.Key.(*ast.StringExpr)
		written := in.nameOf(d.base, maxAliases)
		minus := written
		for _, id := range d.rest {
			if in.uses[id] == nil && in.written[id.Value] == 0 {
				_, number := library.RawGetString(id.Value).(lua.LNumber)
				certain = certain || !number
			}
			written += "-" + id.Value
			minus += " minus " + id.Value
		}
		p := in.u.at(key.Line(), key.Value, parse.TIdent, "%s is %s: write %s", written, minus, remedy)
		in.noNumber[d.whole] = certain || key.Value == "x"
		switch {
		case certain:
			in.errors = append(in.errors, p)
			for _, id := range d.rest {
				parts[id] = true
			}
		case key.Value == "x":
			in.warnings = append(in.warnings, p)
		}
	}
	return parts
}

// bracketed gives how the name is written that was meant, or "" where none was.
func (in *inspector) bracketed(d dash) string {
	path := in.nameOf(d.base, maxAliases)
	name := path[strings.LastIndexByte(path, '.')+1:]
	if root, _, _ := strings.Cut(path, "."); path == "" || in.written[root] > 0 {
		return ""
	}
	for _, id := range d.rest {
		name += "-" + id.Value
	}
	switch under, _, _ := strings.Cut(strings.TrimPrefix(path, "call."), "."); {
	case strings.HasPrefix(path, "ngx.var.http_"):
		return "ngx.var." + strings.ReplaceAll(name, "-", "_")
	case strings.HasPrefix(path, "ngx.var.arg_"):
		return fmt.Sprintf("ngx.var[%q]", name)
	case strings.Count(path, ".") == 2 && strings.HasPrefix(path, "call.") && (under == "headers" || under == "metadata" || under == "params"):
		return fmt.Sprintf("call.%s[%q]", under, name)
	}
	return ""
}
