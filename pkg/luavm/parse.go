package luavm

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// Bounds of a source. The parser and the compiler recurse on what they read, and know no bound themselves.
const (
	maxSource  = 64 << 10
	maxNesting = 150  // of brackets and blocks
	maxDepth   = 1000 // of the syntax tree: chains of operators and of elseif count, too
)

// unit is a source that has been read.
type unit struct {
	name    string
	tokens  []ast.Token
	chunk   []ast.Stmt
	longest int // bytes of the longest literal string
}

// at makes a problem of a place where the source says word on line, as a name or else as a literal string: the tree knows
// lines only, the tokens columns too.
func (u *unit) at(line int, word string, token int, format string, args ...any) Problem {
	p := Problem{Name: u.name, Line: line, Message: fmt.Sprintf(format, args...)}
	for _, t := range u.tokens {
		if t.Pos.Line == line && t.Type == token && t.Str == word {
			p.Column = t.Pos.Column
			break
		}
	}
	return p
}

// parseUnit reads src as tokens and as a tree, both within bounds.
func parseUnit(name string, src []byte) (*unit, Problems) {
	if len(src) > maxSource {
		return nil, Problems{{Name: name, Message: fmt.Sprintf("the script has %d bytes; at most %d are read: keep long lists in metadata or headers", len(src), maxSource)}}
	}
	src = bytes.TrimPrefix(src, []byte("\xef\xbb\xbf")) // what some editors put first
	u := &unit{name: name}
	if p := u.scan(src); p != nil {
		return nil, Problems{*p}
	}
	chunk, err := parse.Parse(bytes.NewReader(src), name)
	if err != nil {
		return nil, Problems{u.syntax(err)}
	}
	u.chunk = chunk
	if line := tooDeep(chunk); line > 0 {
		return nil, Problems{{Name: name, Line: line, Message: fmt.Sprintf("more than %d expressions or conditions inside each other; use a table: local allowed = {u1 = true, u2 = true}", maxDepth)}}
	}
	return u, nil
}

// scan reads the tokens, and refuses brackets and blocks that are nested too deep.
func (u *unit) scan(src []byte) *Problem {
	sc := parse.NewScanner(bytes.NewReader(src), u.name)
	lx := &parse.Lexer{}
	depth := 0
	for {
		t, err := sc.Scan(lx)
		if err != nil {
			p := u.syntax(err)
			return &p
		}
		if t.Type == parse.EOF {
			return nil
		}
		u.tokens = append(u.tokens, t)
		switch t.Type {
		case '(', '{', '[', parse.TDo, parse.TThen, parse.TFunction, parse.TRepeat:
			depth++
		case ')', '}', ']', parse.TEnd, parse.TUntil, parse.TElseIf:
			depth--
		case parse.TString:
			u.longest = max(u.longest, len(t.Str))
		}
		if depth > maxNesting {
			return &Problem{u.name, t.Pos.Line, t.Pos.Column, fmt.Sprintf("more than %d brackets and blocks inside each other", maxNesting)}
		}
	}
}

// syntax makes a problem of an error of the parser.
func (u *unit) syntax(err error) Problem {
	var pe *parse.Error
	if !errors.As(err, &pe) {
		return Problem{Name: u.name, Message: fmt.Sprint("cannot be read: ", err)}
	}
	p := Problem{Name: u.name, Line: pe.Pos.Line, Column: pe.Pos.Column}
	message := strings.TrimSpace(pe.Message)
	if p.Line < 0 { // the end of the file
		p.Line, p.Column = 1, 0
		if n := len(u.tokens); n > 0 {
			p.Line = u.tokens[n-1].Pos.Line
		}
		p.Message = "the script ends too early (" + message + "): is an `end`, a quote or a bracket missing?"
		return p
	}
	p.Message = fmt.Sprintf("%s near %s", message, quote(pe.Token))
	switch pe.Token {
	case "=":
		p.Message += ": equality is written =="
	case "!":
		p.Message += ": not is written `not`, unequal ~="
	case "&", "|":
		p.Message += ": write `and`, `or`; there are no operators on bits"
	}
	return p
}

func quote(s string) string { return fmt.Sprintf("%q", clip(s, 40)) }

// generate rewrites the tree, compiles it, and puts the functions that the rewriting calls in their places.
func generate(u *unit, found findings) (proto *lua.FunctionProto, ps Problems) {
	defer func() {
		// The compiler panics on what it had not thought of. A script is foreign bytes: that is its mistake.
		if r := recover(); r != nil {
			proto, ps = nil, Problems{{Name: u.name, Message: fmt.Sprint("cannot be compiled: ", r)}}
		}
	}()
	chunk, constants, problem := rewrite(u, found)
	if problem != nil {
		return nil, Problems{*problem}
	}
	proto, err := lua.Compile(chunk, u.name)
	if err != nil {
		p := Problem{Name: u.name, Message: err.Error()}
		var ce *lua.CompileError
		if errors.As(err, &ce) {
			p.Line, p.Message = max(ce.Line, 0), ce.Message
			if strings.Contains(ce.Message, "register") || strings.Contains(ce.Message, "local variables") {
				p.Message += ": too many local variables, arguments or fields at once; use functions of their own, or a table"
			}
		}
		return nil, Problems{p}
	}
	link(proto, constants)
	return proto, nil
}
