package luavm

import (
	"fmt"
	"math"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// kinds are the types that a value may have, as far as can be told; 0 when it cannot.
type kinds uint8

const (
	aText kinds = 1 << iota
	aNumber
)

// numbers and texts name functions and fields of the library by what they give. What begins with textsUnder is a text, too.
var (
	numbers = map[string]bool{
		"call.rows": true, "hash": true, "ngx.crc32_short": true, "ngx.crc32_long": true, "ngx.now": true, "ngx.time": true,
		"tonumber": true, "string.len": true, "string.byte": true,
	}
	texts = map[string]bool{
		"call.user": true, "call.model": true, "call.version": true, "call.caller": true, "call.sequence.id": true,
		"tostring": true, "string.lower": true, "string.upper": true, "string.sub": true, "string.format": true, "string.rep": true,
		"table.concat": true, "ngx.md5": true, "ngx.today": true, "ngx.utctime": true, "ngx.localtime": true, "split": true,
	}
	textsUnder = []string{"call.headers.", "call.metadata.", "ngx.var.arg_", "ngx.var.http_"}
)

// maxKinds is how many expressions of a script are looked at for what they may be: each of several may lead to several.
const maxKinds = 50_000

// kind tells what an expression may be.
func (in *inspector) kind(e ast.Expr, aliases int) kinds {
	if in.looked++; in.looked > maxKinds {
		return 0
	}
	switch e := e.(type) {
	case *ast.StringExpr, *ast.StringConcatOpExpr:
		return aText
	case *ast.ArithmeticOpExpr:
		if in.noNumber[e] {
			return 0
		}
		return aNumber
	case *ast.NumberExpr, *ast.UnaryMinusOpExpr, *ast.UnaryLenOpExpr:
		return aNumber
	case *ast.LogicalOpExpr:
		if e.Operator == "or" {
			if a, b := in.kind(e.Lhs, aliases), in.kind(e.Rhs, aliases); a != 0 && b != 0 {
				return a | b
			}
		}
		return 0
	case *ast.FuncCallExpr:
		if e.Func != nil {
			return in.named(in.nameOf(e.Func, maxAliases))
		}
		switch e.Method {
		case "lower", "upper", "sub", "rep", "format":
			return aText
		}
		return 0
	case *ast.IdentExpr:
		if v := in.only(e); v != nil && aliases > 0 {
			return in.kind(v, aliases-1)
		}
		return 0
	case *ast.AttrGetExpr:
		path := in.nameOf(e, maxAliases)
		if _, function := lookupQuietly(path).(*lua.LFunction); function {
			return 0
		}
		return in.named(path)
	}
	return 0
}

// lookupQuietly is lookup for names that may be none.
func lookupQuietly(path string) lua.LValue {
	if path == "" {
		return lua.LNil
	}
	return lookup(path)
}

func (in *inspector) named(path string) kinds {
	root, _, _ := strings.Cut(path, ".")
	switch {
	case path == "" || in.written[root] > 0:
		return 0
	case numbers[path]:
		return aNumber
	case texts[path]:
		return aText
	}
	for _, prefix := range textsUnder {
		if strings.HasPrefix(path, prefix) {
			return aText
		}
	}
	return 0
}

// compared tells of texts that are compared with numbers: Lua never takes one for the other there.
func (in *inspector) compared() {
	for _, e := range in.compares {
		a, b := in.kind(e.Lhs, maxAliases), in.kind(e.Rhs, maxAliases)
		text, number := e.Lhs, e.Rhs
		kind, other := a, b
		if b&aText != 0 && a == aNumber {
			text, number, kind, other = e.Rhs, e.Lhs, b, a
		}
		equality := e.Operator == "==" || e.Operator == "~="
		if kind&aText == 0 || other != aNumber || equality && kind != aText {
			continue
		}
		effect := "the script fails"
		switch e.Operator {
		case "==":
			effect = "never true"
		case "~=":
			effect = "always true"
		}
		line, word, token := e.Line(), "", parse.TIdent
		if t, ok := text.(*ast.StringExpr); ok {
			line, word, token = t.Line(), t.Value, parse.TString
		} else if name := in.shown(text); name != "" {
			line, word = max(text.Line(), line), name[strings.LastIndexByte(name, '.')+1:]
		}
		in.warnings = append(in.warnings, in.u.at(line, word, token, "a text is compared with a number by %s (%s): %s", e.Operator, effect, in.asNumber(text, number)))
	}
}

// asNumber says how to compare with a number.
func (in *inspector) asNumber(text, number ast.Expr) string {
	if lit, ok := text.(*ast.StringExpr); ok {
		if f, ok := parseNumber(lit.Value); ok && !math.IsInf(f, 0) {
			return fmt.Sprintf("write %s without quotes", strings.TrimSpace(clip(lit.Value, 40)))
		}
		if name := in.shown(number); name != "" {
			return fmt.Sprintf("%s is a number", name)
		}
		return "compare with a number"
	}
	name := in.shown(text)
	if or, ok := text.(*ast.LogicalOpExpr); ok && name == "" {
		name = in.shown(or.Lhs)
	}
	if name == "" {
		name = "..."
	}
	return fmt.Sprintf("use tonumber, such as (tonumber(%s) or 0)", name)
}

// shown is how a name is written in the source, as near as the tree tells.
func (in *inspector) shown(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.IdentExpr:
		return e.Value
	case *ast.AttrGetExpr:
		key, ok := e.Key.(*ast.StringExpr)
		outer := in.shown(e.Object)
		switch {
		case !ok || outer == "":
			return ""
		case isName(key.Value):
			return outer + "." + key.Value
		}
		return fmt.Sprintf("%s[%q]", outer, key.Value)
	}
	return ""
}

func isName(s string) bool {
	for i, c := range []byte(s) {
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

const (
	// manyFields is from how many fields on a table is worth a word.
	manyFields = 100
	// fieldTime is about what making a table takes for each of its fields with a name, in nanoseconds.
	fieldTime = 250
	// itemTime is the same for those without, as in {"a", "b"}.
	itemTime = 20
)

// large tells of tables that take long to make.
func (in *inspector) large(e *ast.TableExpr) {
	if n := len(e.Fields); n > manyFields {
		took := 0
		for _, f := range e.Fields {
			if f.Key == nil {
				took += itemTime
			} else {
				took += fieldTime
			}
		}
		in.warnings = append(in.warnings, Problem{Name: in.u.name, Line: max(e.Line(), 1), Message: fmt.Sprintf(
			"this table of %d fields is built anew in every run that comes here: about %d µs; decide before it what can be decided without", n, max(1, took/1000))})
	}
}
