package config

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// reader fills a File from a YAML tree, and remembers where each field stands for the mistakes found later.
type reader struct {
	path    string // of the file
	lines   []string
	found   Errors
	place   map[string]place    // by field
	order   map[string][]string // names of a mapping, in the file's order
	anchors map[string]ast.Node
	nodes   int
	told    map[string]bool // fields that have a mistake
	blank   map[string]bool // fields without a value, which are as good as absent
	secrets []string        // that excerpts must not show
	more    int             // mistakes beyond maxMistakes
}

// place is where a field stands: its value, and its key.
type place struct{ value, key *token.Position }

// maxMistakes is how many are reported; who has more wants to see the first ones.
const maxMistakes = 200

func newReader(path string, source []byte) *reader {
	return &reader{
		path:    path,
		lines:   strings.Split(string(source), "\n"),
		place:   make(map[string]place),
		order:   make(map[string][]string),
		anchors: make(map[string]ast.Node),
		told:    make(map[string]bool),
		blank:   make(map[string]bool),
	}
}

// field is a place in the File: as it is shown, and as the tables call it.
type field struct{ path, pattern string }

func (f field) child(name, pattern string) field {
	return field{join(f.path, name), join(f.pattern, pattern)}
}

func (f field) entry(i int) field {
	return field{fmt.Sprintf("%s[%d]", f.path, i), f.pattern + "[]"}
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_*-]+$`)

func join(path, name string) string {
	switch {
	case !plainName.MatchString(name):
		return path + "[" + strconv.Quote(clip(name)) + "]"
	case path == "":
		return name
	}
	return path + "." + name
}

// bad reports a mistake at a position, which may be nil.
func (r *reader) bad(at *token.Position, path, format string, args ...any) {
	r.told[path] = true
	if len(r.found) >= maxMistakes {
		r.more++
		return
	}
	m := Mistake{File: r.path, Path: path, Msg: clean([]rune(fmt.Sprintf(format, args...)))}
	if at != nil {
		m.Line, m.Col = at.Line, at.Column
		m.Excerpt = excerpt(r.lines, m.Line, m.Col)
	}
	r.found = append(r.found, m)
}

// wrong reports a mistake in the value of a field; a field that is absent stands where its parent does.
func (r *reader) wrong(path, format string, args ...any) {
	r.bad(r.at(path).value, path, format, args...)
}

func (r *reader) at(path string) place {
	for p := path; p != ""; p = parent(p) {
		if at, ok := r.place[p]; ok {
			if p != path && at.key != nil {
				at.value = at.key
			}
			return at
		}
	}
	return place{}
}

func parent(path string) string {
	return path[:max(strings.LastIndexAny(path, ".["), 0)]
}

// has reports whether the file has a field, with a value.
func (r *reader) has(path string) bool {
	_, ok := r.place[path]
	return ok
}

// open resolves what is not a value itself: anchors, aliases, tags. It returns nil for no value at all.
func (r *reader) open(n ast.Node, f field) ast.Node {
	for range maxDepth {
		switch v := n.(type) {
		case nil, *ast.NullNode:
			return nil
		case *ast.AnchorNode:
			n = v.Value
		case *ast.AliasNode:
			name := v.Value.GetToken().Value
			target, ok := r.anchors[name]
			if !ok {
				r.bad(v.GetToken().Position, f.path, "no anchor &%s stands before this", clip(name))
				return nil
			}
			n = target
		case *ast.TagNode:
			r.bad(v.GetToken().Position, f.path, "YAML tags are not understood here; remove %s", clip(v.GetToken().Value))
			return nil
		default:
			return n
		}
	}
	r.bad(n.GetToken().Position, f.path, "is nested too deeply")
	return nil
}

// anchored notes an anchor once its value has been read, so that no value can hold itself.
func (r *reader) anchored(n ast.Node) {
	if a, ok := n.(*ast.AnchorNode); ok {
		r.anchors[a.Name.GetToken().Value] = a.Value
	}
}

// skip notes the anchors in what is not read, so that an alias elsewhere is no second mistake.
func (r *reader) skip(n ast.Node) {
	if n != nil {
		ast.Walk(skipper{r}, n)
	}
}

type skipper struct{ r *reader }

// Visit implements ast.Visitor. What is skipped counts too, for an alias may skip it again and again.
func (s skipper) Visit(n ast.Node) ast.Visitor {
	if s.r.nodes++; s.r.nodes > maxNodes {
		return nil
	}
	s.r.anchored(n)
	return s
}

// read fills v from n, and reports whether there is a value at all.
func (r *reader) read(n ast.Node, f field, v reflect.Value, depth int) bool {
	defer r.anchored(n)
	if r.nodes++; r.nodes > maxNodes {
		return false
	}
	if depth > maxDepth {
		r.bad(position(n), f.path, "is nested too deeply")
		return false
	}
	raw := n
	if n = r.open(n, f); n == nil {
		return false
	}
	at := r.place[f.path]
	at.value = position(raw)
	if _, ok := raw.(*ast.AnchorNode); ok {
		at.value = position(n)
	}
	r.place[f.path] = at
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Struct:
		if plain, ok := v.Addr().Interface().(*SecretFile); ok && isPlain(n) {
			r.readScalar(n, f, reflect.ValueOf(&plain.Value).Elem())
			break
		}
		r.readStruct(n, f, v, depth)
	case reflect.Map:
		r.readMap(n, f, v, depth)
	case reflect.Slice:
		r.readList(n, f, v, depth)
	default:
		r.readScalar(n, f, v)
	}
	return true
}

// pair is one key of a mapping and its value.
type pair struct {
	name  string
	key   *token.Position
	value ast.Node
}

// pairs lists what a mapping holds, each name once; what is merged in (<<) comes last and yields to what is there.
func (r *reader) pairs(n ast.Node, f field, depth int) ([]pair, bool) {
	m, ok := n.(ast.MapNode)
	if !ok {
		r.bad(position(n), f.path, "must be a mapping, not %s", kindOf(n))
		return nil, false
	}
	var all []pair
	var merged []ast.Node
	seen := make(map[string]*token.Position)
	for it := m.MapRange(); it.Next(); {
		key := it.Key()
		if key.IsMergeKey() {
			merged = append(merged, it.Value())
			continue
		}
		name, ok := keyText(key)
		if !ok {
			r.bad(position(key), f.path, "has a key that is no text")
			continue
		}
		at := position(key)
		if first, ok := seen[name]; ok {
			r.bad(at, join(f.path, name), "is here a second time; the first is on line %d", first.Line)
			continue
		}
		seen[name] = at
		all = append(all, pair{name, at, it.Value()})
	}
	for _, n := range merged {
		for _, p := range r.mergedPairs(n, f, depth+1) {
			if _, ok := seen[p.name]; !ok {
				seen[p.name] = p.key
				all = append(all, p)
			}
		}
	}
	return all, true
}

func (r *reader) mergedPairs(n ast.Node, f field, depth int) []pair {
	if r.nodes++; r.nodes > maxNodes || depth > maxDepth {
		return nil
	}
	n = r.open(n, f)
	switch v := n.(type) {
	case nil:
		return nil
	case *ast.SequenceNode:
		var all []pair
		for _, e := range v.Values {
			all = append(all, r.mergedPairs(e, f, depth+1)...)
			if len(all) > maxNodes {
				return nil
			}
		}
		return all
	}
	all, _ := r.pairs(n, f, depth)
	r.nodes += len(all)
	return all
}

func (r *reader) readStruct(n ast.Node, f field, v reflect.Value, depth int) {
	pairs, ok := r.pairs(n, f, depth)
	if !ok {
		return
	}
	fields := fieldsOf(v.Type())
	for _, p := range pairs {
		at := f.child(p.name, p.name)
		index, ok := fields[p.name]
		if !ok {
			r.bad(p.key, at.path, "is no field of %s%s", sectionName(f), didYouMean(p.name, slices.Collect(maps.Keys(fields))))
			r.skip(p.value)
			continue
		}
		if unserved[at.pattern] {
			r.bad(p.key, at.path, "not served by this version; remove it")
			r.skip(p.value)
			continue
		}
		r.place[at.path] = place{key: p.key, value: p.key}
		sf := v.Type().FieldByIndex(index.Index)
		if !r.read(p.value, at, v.FieldByIndex(index.Index), depth+1) {
			delete(r.place, at.path) // the field is as good as absent
			r.blank[at.path] = true
			continue
		}
		r.checkChoice(at, sf.Tag, v.FieldByIndex(index.Index))
	}
}

func (r *reader) readMap(n ast.Node, f field, v reflect.Value, depth int) {
	pairs, ok := r.pairs(n, f, depth)
	if !ok {
		return
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(pairs)))
	for _, p := range pairs {
		at := f.child(p.name, "*")
		r.place[at.path] = place{key: p.key, value: p.key}
		r.order[f.path] = append(r.order[f.path], p.name)
		e := reflect.New(v.Type().Elem()).Elem()
		r.read(p.value, at, e, depth+1)
		v.SetMapIndex(reflect.ValueOf(p.name), e)
	}
}

func (r *reader) readList(n ast.Node, f field, v reflect.Value, depth int) {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		if _, scalar := n.(ast.ScalarNode); scalar && v.Type() == reflect.TypeFor[OneOrMany]() {
			var one string
			r.readScalar(n, f, reflect.ValueOf(&one).Elem())
			v.Set(reflect.ValueOf(OneOrMany{one}))
			return
		}
		r.bad(position(n), f.path, "must be a list, not %s", kindOf(n))
		return
	}
	for i, n := range list.Values {
		e := reflect.New(v.Type().Elem()).Elem()
		at := f.entry(i)
		if r.open(n, at) == nil {
			r.bad(position(n), at.path, "must not be empty")
		}
		r.read(n, at, e, depth+1)
		v.Set(reflect.Append(v, e))
	}
}

// isPlain reports whether a value is a text, number or boolean.
func isPlain(n ast.Node) bool {
	if _, ok := colonText(n); ok {
		return true
	}
	_, ok := n.(ast.ScalarNode)
	return ok
}

// readScalar fills a text, number or boolean.
func (r *reader) readScalar(n ast.Node, f field, v reflect.Value) {
	if text, ok := colonText(n); ok && v.Kind() == reflect.String {
		v.SetString(text)
		return
	}
	s, ok := n.(ast.ScalarNode)
	if !ok {
		r.bad(position(n), f.path, "must be %s, not %s", wanted(v), kindOf(n))
		return
	}
	text, isText := scalarText(s)
	switch v.Kind() {
	case reflect.String:
		// A type of our own takes numbers too: what they are is for its parser to say.
		if !isText && v.Type() == reflect.TypeFor[string]() {
			r.bad(position(n), f.path, "must be text, not %s; put it in quotes", kindOf(n))
			return
		}
		v.SetString(text)
	case reflect.Bool:
		b, ok := n.(*ast.BoolNode)
		if !ok {
			r.bad(position(n), f.path, "must be true or false, not %s", kindOf(n))
			return
		}
		v.SetBool(b.Value)
	case reflect.Int, reflect.Int64:
		i, err := strconv.ParseInt(text, 10, 32)
		if isText || err != nil {
			r.bad(position(n), f.path, "must be a whole number, not %s", kindOf(n))
			return
		}
		v.SetInt(i)
	case reflect.Float64:
		x, err := strconv.ParseFloat(text, 64)
		if isText || err != nil {
			r.bad(position(n), f.path, "must be a number, not %s", kindOf(n))
			return
		}
		v.SetFloat(x)
	}
}

// checkChoice refuses values outside the choices of a field, and those that this build does not serve.
func (r *reader) checkChoice(f field, tag reflect.StructTag, v reflect.Value) {
	choices := choicesOf(tag)
	if len(choices) == 0 || !r.has(f.path) {
		return
	}
	check := func(path, value string) {
		switch {
		case !slices.Contains(choices, value):
			hint := ""
			if len(choices) > 1 {
				hint = didYouMean(value, choices)
			}
			r.wrong(path, "must be %s, not %q%s", oneOf(choices), clip(value), hint)
		case unserved[f.pattern+"="+value]:
			r.wrong(path, "%s is not served by this version%s", value, instead(f.pattern, choices))
		}
	}
	switch v.Kind() {
	case reflect.String:
		if !r.mistaken(f.path) {
			check(f.path, v.String())
		}
	case reflect.Int:
		if !r.mistaken(f.path) {
			check(f.path, strconv.FormatInt(v.Int(), 10))
		}
	case reflect.Slice:
		for i := range v.Len() {
			if at := f.entry(i); !r.mistaken(at.path) {
				check(at.path, v.Index(i).String())
			}
		}
	}
}

// mistaken reports whether a field has a mistake already, so that none is told twice.
func (r *reader) mistaken(path string) bool { return r.told[path] }

// instead says which values can be written in place of one that is not served.
func instead(pattern string, choices []string) string {
	var served []string
	for _, c := range choices {
		if !unserved[pattern+"="+c] {
			served = append(served, c)
		}
	}
	return "; use " + oneOf(served) + ", or remove it"
}

func choicesOf(tag reflect.StructTag) []string {
	var choices []string
	for part := range strings.SplitSeq(tag.Get("jsonschema"), ",") {
		if c, ok := strings.CutPrefix(part, "enum="); ok {
			choices = append(choices, c)
		}
	}
	return choices
}

// sections keeps what fieldsOf found, by reflect.Type: a file may have thousands of entries of a kind.
var sections sync.Map

// fieldsOf lists the fields of a section by the names that the file calls them.
func fieldsOf(t reflect.Type) map[string]reflect.StructField {
	if known, ok := sections.Load(t); ok {
		return known.(map[string]reflect.StructField)
	}
	fields := make(map[string]reflect.StructField)
	for _, f := range reflect.VisibleFields(t) {
		if name, opts, _ := strings.Cut(f.Tag.Get("yaml"), ","); opts != "inline" && name != "-" {
			fields[name] = f
		}
	}
	sections.Store(t, fields)
	return fields
}

func sectionName(f field) string {
	if f.path == "" {
		return "a configuration"
	}
	return f.path
}

func wanted(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64, reflect.Float64:
		return "a number"
	default:
		return "text"
	}
}

func kindOf(n ast.Node) string {
	switch n := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.BoolNode:
		return n.Token.Value
	case *ast.IntegerNode, *ast.FloatNode:
		return "the number " + clip(n.GetToken().Value)
	case *ast.StringNode:
		return strconv.Quote(clip(n.Value))
	case *ast.LiteralNode:
		return strconv.Quote(clip(n.Value.Value))
	default:
		return "this"
	}
}

// scalarText is what a scalar says, and whether YAML takes it for text.
func scalarText(n ast.ScalarNode) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	default:
		return n.GetToken().Value, false
	}
}

// colonText is a text with a colon inside, such as triton:8001, that the parser took for a mapping of one pair: within
// braces it does not ask for the space that makes a colon one of YAML's.
func colonText(n ast.Node) (string, bool) {
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) == 1 && m.Start != nil && m.Start.Type != token.MappingStartType {
		n = m.Values[0]
	}
	pair, ok := n.(*ast.MappingValueNode)
	if !ok {
		return "", false
	}
	key, ok := pair.Key.(*ast.StringNode)
	if !ok || key.Token.Type != token.StringType || pair.Start == nil || pair.Value == nil {
		return "", false
	}
	value, ok := pair.Value.(ast.ScalarNode)
	if !ok || value.GetToken().Indicator == token.QuotedScalarIndicator {
		return "", false
	}
	colon, after := pair.Start.Position, value.GetToken().Position
	before := key.Token.Position.Column + utf8.RuneCountInString(key.Value)
	if colon.Line != after.Line || colon.Column != before || after.Column != colon.Column+1 {
		return "", false
	}
	return key.Value + ":" + value.GetToken().Value, true
}

func keyText(key ast.MapKeyNode) (string, bool) {
	var n ast.Node = key
	for range maxDepth {
		switch k := n.(type) {
		case *ast.AnchorNode:
			n = k.Value
		case *ast.MappingKeyNode:
			n = k.Value
		case *ast.StringNode:
			return k.Value, true
		case *ast.BoolNode, *ast.IntegerNode, *ast.FloatNode:
			return k.GetToken().Value, true
		default:
			return "", false
		}
	}
	return "", false
}

// position is where a value begins.
func position(n ast.Node) *token.Position {
	switch v := n.(type) {
	case *ast.MappingNode:
		if !v.IsFlowStyle && len(v.Values) > 0 {
			return position(v.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return position(v.Key)
	}
	if n == nil || n.GetToken() == nil {
		return nil
	}
	return n.GetToken().Position
}
