package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// MaxFile is the most bytes a file may have.
const MaxFile = 1 << 20

// What else a file may cost to read. A file that a person writes is far below each.
const (
	maxDepth = 32      // of lists and mappings in one another
	maxNodes = 200_000 // values, those that an alias repeats included
	maxKeys  = 2_000   // of one mapping
	maxMarks = 10_000  // anchors, aliases and tags
)

// readFile reads a file that may be at most MaxFile bytes, and never more of it than that.
func readFile(path string) ([]byte, error) {
	// Before it is opened: opening a pipe would wait for whoever writes to it.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	return io.ReadAll(io.LimitReader(f, MaxFile+1))
}

// parseYAML gives the value of a file's one document; nil for a file of comments only.
func parseYAML(source []byte) (body ast.Node, bad *Mistake) {
	switch {
	case len(source) > MaxFile:
		return nil, &Mistake{Msg: "is larger than 1 MiB, the most a configuration may have"}
	case !utf8.Valid(source):
		line := 1 + bytes.Count(source[:firstInvalid(source)], []byte("\n"))
		return nil, &Mistake{Line: line, Col: 1, Msg: "is not UTF-8; save the file as UTF-8"}
	case bytes.IndexByte(source, 0) >= 0:
		line := 1 + bytes.Count(source[:bytes.IndexByte(source, 0)], []byte("\n"))
		return nil, &Mistake{Line: line, Col: 1, Msg: "has a NUL byte, which YAML does not allow"}
	}
	// The library has given up by a panic on broken files before; that is a mistake of the file all the same.
	defer func() {
		if r := recover(); r != nil {
			body, bad = nil, &Mistake{Msg: "is not YAML: it cannot be read at all"}
		}
	}()
	source = bytes.TrimPrefix(source, []byte("\uFEFF"))
	tokens := lexer.Tokenize(string(source))
	if bad := outlandish(tokens); bad != nil {
		return nil, bad
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, syntaxMistake(err)
	}
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil || doc.Body.Type() == ast.CommentType:
		case body != nil:
			at := position(doc.Body)
			return nil, &Mistake{Line: at.Line, Col: at.Column, Msg: "a second document begins here; a configuration is one"}
		case doc.Body.Type() == ast.DirectiveType:
			at := doc.Body.GetToken().Position
			return nil, &Mistake{Line: at.Line, Col: at.Column, Msg: "YAML directives are not understood here; remove it"}
		default:
			body = doc.Body
		}
	}
	return body, nil
}

// outlandish looks, before the parser does, for what no person writes: it recurses on nesting, and its time grows with
// the square of the keys of one mapping, of anchors and of empty entries.
func outlandish(tokens token.Tokens) *Mistake {
	var flow, marks int
	var blocks []block // the mappings that are open, outermost first
	for i, t := range tokens {
		at := t.Position
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			flow++
		case token.MappingEndType, token.SequenceEndType:
			flow--
		case token.AnchorType, token.AliasType, token.MappingKeyType, token.TagType:
			marks++
		case token.CollectEntryType:
			if i > 0 && tokens[i-1].Type == token.CollectEntryType {
				return &Mistake{Line: at.Line, Col: at.Column, Msg: "is not YAML: there is nothing between two commas"}
			}
		case token.SequenceEntryType:
			blocks = closeBlocks(blocks, at.Column)
		case token.MappingValueType:
			if flow > 0 || i == 0 {
				break
			}
			at = tokens[i-1].Position
			blocks = closeBlocks(blocks, at.Column)
			if n := len(blocks); n == 0 || blocks[n-1].column < at.Column {
				blocks = append(blocks, block{column: at.Column})
			}
			blocks[len(blocks)-1].keys++
		}
		// Every level of a list, or of keys with a question mark, is at least a column further in.
		far := at.Column > 4*maxDepth && (t.Type == token.SequenceEntryType || t.Type == token.MappingKeyType)
		switch {
		case far, flow > maxDepth, len(blocks) > maxDepth:
			return &Mistake{Line: at.Line, Col: at.Column, Msg: "is nested too deeply"}
		case marks > maxMarks:
			return &Mistake{Line: at.Line, Col: at.Column, Msg: fmt.Sprintf("is the %dth anchor, alias, tag or ? of the file; at most %d", marks, maxMarks)}
		case len(blocks) > 0 && blocks[len(blocks)-1].keys > maxKeys:
			return &Mistake{Line: at.Line, Col: at.Column, Msg: fmt.Sprintf("is one key too many; a mapping has at most %d", maxKeys)}
		}
	}
	return nil
}

// block is a mapping written line by line: where its keys stand, and how many there have been.
type block struct{ column, keys int }

// closeBlocks ends the mappings whose keys stand further in than column.
func closeBlocks(open []block, column int) []block {
	for len(open) > 0 && open[len(open)-1].column > column {
		open = open[:len(open)-1]
	}
	return open
}

// syntaxMistake words the parser's error.
func syntaxMistake(err error) *Mistake {
	m := &Mistake{Msg: "is not YAML: " + firstLine(err.Error())}
	var e yaml.Error
	if errors.As(err, &e) {
		m.Msg = "is not YAML: " + firstLine(e.GetMessage())
		if t := e.GetToken(); t != nil && t.Position != nil {
			m.Line, m.Col = t.Position.Line, t.Position.Column
		}
	}
	if strings.Contains(m.Msg, "\t") {
		m.Msg = "is not YAML: a tab cannot indent a line; use spaces"
	}
	return m
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

func firstInvalid(b []byte) int {
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return 0
}

// excerpt shows a line of the source with a caret under col.
func excerpt(lines []string, line, col int) string {
	if line < 1 || line > len(lines) {
		return ""
	}
	const most = 160
	text := strings.TrimRight(lines[line-1], "\r")
	runes := []rune(text)
	from := 0
	if col > most/2 && len(runes) > most {
		from = min(col-most/2, len(runes)-1)
	}
	shown := runes[from:min(len(runes), from+most)]
	var pad strings.Builder
	for i := range col - 1 - from {
		if i < len(shown) && shown[i] == '\t' {
			pad.WriteByte('\t')
			continue
		}
		pad.WriteString(strings.Repeat(" ", cells(shown, i)))
	}
	gutter := fmt.Sprintf("%5d | ", line)
	return gutter + clean(shown) + "\n" + strings.Repeat(" ", len(gutter)-2) + "| " + pad.String() + "^"
}

// cells is how many columns of a terminal the rune at i takes: two for the wide scripts of East Asia.
func cells(runes []rune, i int) int {
	if i >= len(runes) {
		return 1
	}
	switch r := runes[i]; {
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf, r >= 0xac00 && r <= 0xd7a3,
		r >= 0xf900 && r <= 0xfaff, r >= 0xfe30 && r <= 0xfe6f, r >= 0xff00 && r <= 0xff60, r >= 0x1f300 && r <= 0x1faff:
		return 2
	}
	return 1
}

// clean keeps control characters of a file away from the terminal that shows it.
func clean(runes []rune) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && (r < ' ' || r >= 0x7f && r < 0xa0) {
			return '\uFFFD'
		}
		return r
	}, string(runes))
}
