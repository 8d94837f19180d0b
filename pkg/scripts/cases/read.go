package cases

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/model-gateway/model-gateway/pkg/luavm"
)

// Load reads the file at path; its name in problems is the path's last part. The error is luavm.Problems, or that of
// a file that cannot be read.
func Load(path string) (*File, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	source, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, err
	}
	return Parse(filepath.Base(path), source)
}

// Parse reads cases. The error is luavm.Problems: all of them.
func Parse(name string, source []byte) (*File, error) {
	r := &reader{name: name}
	f := &File{Name: name}
	if body := r.parse(source); body != nil {
		r.file(body, f)
	}
	if len(r.problems) > 0 {
		slices.SortStableFunc(r.problems, func(a, b luavm.Problem) int { return a.Line - b.Line })
		return nil, r.problems
	}
	return f, nil
}

// maxDepth of what is nested, and maxProblems that are told.
const (
	maxDepth    = 16
	maxColumn   = 16 * maxDepth // where a block's key may begin
	maxProblems = 50
)

// reader collects what is wrong with a file.
type reader struct {
	name     string
	problems luavm.Problems
	users    int
}

func (r *reader) bad(at *token.Position, format string, args ...any) {
	if len(r.problems) == maxProblems {
		return
	}
	p := luavm.Problem{Name: r.name, Message: fmt.Sprintf(format, args...)}
	if at != nil {
		p.Line, p.Column = at.Line, at.Column
	}
	r.problems = append(r.problems, p)
}

// parse gives the value of the one document; nil when there is none.
func (r *reader) parse(source []byte) (body ast.Node) {
	switch {
	case len(source) > MaxFile:
		r.bad(nil, "is larger than %d KiB, the most that cases may have", MaxFile>>10)
		return nil
	case !utf8.Valid(source) || bytes.IndexByte(source, 0) >= 0:
		r.bad(nil, "is not UTF-8 text; save the file as UTF-8")
		return nil
	}
	defer func() { // the library has given up by a panic on broken files before
		if recover() != nil {
			r.bad(nil, "is not YAML: it cannot be read at all")
			body = nil
		}
	}()
	tokens := lexer.Tokenize(string(bytes.TrimPrefix(source, []byte("\uFEFF"))))
	if !r.modest(tokens) {
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		r.syntax(err)
		return nil
	}
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil || doc.Body.Type() == ast.CommentType:
		case body != nil:
			r.bad(doc.Body.GetToken().Position, "a second document begins here; cases are one")
			return nil
		default:
			body = doc.Body
		}
	}
	if body == nil {
		r.bad(nil, "has no cases; remove the file, or write some: cases: [{name: …, call: {user: u1}, want: {target: …}}]")
	}
	return body
}

// modest refuses, before the parser recurses on it, what no person writes.
func (r *reader) modest(tokens token.Tokens) bool {
	flow := 0
	for i, t := range tokens {
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			flow++
		case token.MappingEndType, token.SequenceEndType:
			flow--
		case token.AnchorType, token.AliasType, token.TagType, token.MergeKeyType, token.MappingKeyType, token.DirectiveType:
			r.bad(t.Position, "anchors, aliases, tags and the like are not understood here; write the value out")
			return false
		case token.CollectEntryType:
			if i > 0 && tokens[i-1].Type == token.CollectEntryType {
				r.bad(t.Position, "is not YAML: there is nothing between two commas")
				return false
			}
		case token.SequenceEntryType:
			if t.Position.Column > maxColumn {
				flow = maxDepth + 1
			}
		}
		if flow > maxDepth || i > MaxFile/2 {
			r.bad(t.Position, "is nested too deeply")
			return false
		}
	}
	return true
}

func (r *reader) syntax(err error) {
	line := func(s string) string { s, _, _ = strings.Cut(s, "\n"); return s }
	var e yaml.Error
	if errors.As(err, &e) && e.GetToken() != nil {
		r.bad(e.GetToken().Position, "is not YAML: %s", line(e.GetMessage()))
		return
	}
	r.bad(nil, "is not YAML: %s", line(err.Error()))
}

// fields calls the reader of each field of a mapping; what says what it is a mapping of.
func (r *reader) fields(n ast.Node, what string, read map[string]func(ast.Node)) {
	r.entries(n, what, func(name string, key, value ast.Node) {
		f, ok := read[name]
		if !ok {
			names := slices.Sorted(func(yield func(string) bool) {
				for name := range read {
					if !yield(name) {
						return
					}
				}
			})
			r.bad(at(key), "%q is no field of %s, which has %s", clip(name), what, strings.Join(names, ", "))
			return
		}
		if f != nil {
			f(value)
		}
	})
}

// entries calls f for each entry of a mapping, and tells of what is none or stands twice.
func (r *reader) entries(n ast.Node, what string, f func(name string, key, value ast.Node)) {
	m, ok := n.(ast.MapNode)
	if !ok {
		r.bad(at(n), "%s must be a mapping: {name: value}", what)
		return
	}
	seen := make(map[string]bool)
	for it := m.MapRange(); it.Next(); {
		key := it.Key()
		var name string
		if k, ok := key.(ast.Node); ok {
			name, ok = text(k)
			if !ok {
				r.bad(at(k), "%s has a key that is no text", what)
				continue
			}
		}
		if seen[name] {
			r.bad(at(key), "%q is here a second time", clip(name))
			continue
		}
		seen[name] = true
		f(name, key, it.Value())
	}
}

// list calls f for each element of a list.
func (r *reader) list(n ast.Node, what string, f func(ast.Node)) {
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		r.bad(at(n), "%s must be a list: [a, b]", what)
		return
	}
	for _, e := range s.Values {
		f(e)
	}
}

// string reads a text; numbers and truth values are as they are written.
func (r *reader) string(n ast.Node, what string) string {
	s, ok := text(n)
	if !ok {
		r.bad(at(n), "%s must be a text", what)
	}
	return s
}

// text is the text of a scalar.
func text(n ast.Node) (string, bool) {
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, true
	case *ast.LiteralNode:
		return v.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// at is where n stands.
func at(n ast.Node) *token.Position {
	for m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 && !m.IsFlowStyle; m, ok = n.(*ast.MappingNode) {
		n = m.Values[0].Key
	}
	if v, ok := n.(*ast.MappingValueNode); ok {
		n = v.Key
	}
	if n == nil || n.GetToken() == nil {
		return nil
	}
	return n.GetToken().Position
}

func clip(s string) string {
	const most = 64
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strings.Map(func(c rune) rune {
		if c < ' ' || c >= 0x7f && c < 0xa0 {
			return '\uFFFD'
		}
		return c
	}, s)
}
