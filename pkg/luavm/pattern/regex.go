package pattern

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Regex is a compiled regular expression of ngx.re.
type Regex struct {
	source  string
	options string
	prog    *program
	names   []string // of the captures; "" for those without
}

// Compile-time bounds of a regular expression, beside MaxProgram.
const maxUnicodeClasses = 8 // of \p{...} in one; each can hold thousands of ranges

// CompileRegex reads a regular expression with the options that ngx.re takes: a (match where the search starts only), i
// (letters of either case), j and o (accepted; everything is compiled, once), m (^ and $ at every line), s (. takes
// line feeds too), u (characters, not bytes; U: without checking the subject), x (blanks and # comments in the pattern
// count for nothing). Its error is an *Error: of what PCRE has, all that cannot be matched in linear time is refused.
// One thing differs silently: repeating a group that can match nothing, as in (a*)+, RE2 and we go on where PCRE stops, so
// that the group may hold something else.
func CompileRegex(pattern, options string) (*Regex, error) {
	pattern, options = strings.Clone(pattern), strings.Clone(options)
	if len(pattern) > MaxPattern {
		return nil, &Error{
			Pattern: pattern, Problem: fmt.Sprintf("is %d bytes long", len(pattern)),
			Remedy: fmt.Sprintf("a regular expression may have %d bytes at most", MaxPattern),
		}
	}
	t, err := newTranslator(pattern, options)
	if err != nil {
		return nil, err
	}
	re2, err := t.translate()
	if err != nil {
		return nil, err
	}
	tree, err := syntax.Parse(re2, t.flags)
	if err != nil {
		return nil, explained(pattern, err)
	}
	if n := instructions(tree); n > MaxProgram {
		return nil, &Error{
			Pattern: pattern, Problem: fmt.Sprintf("needs more than %d instructions", MaxProgram),
			Remedy: "use smaller counts in {n,m}, or * and + instead",
		}
	}
	compiled, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, &Error{Pattern: pattern, Problem: err.Error()}
	}
	if n := len(compiled.Inst); n > MaxProgram {
		return nil, &Error{Pattern: pattern, Problem: fmt.Sprintf("needs %d instructions, of %d at most", n, MaxProgram), Remedy: "match in two steps"}
	}
	r := &Regex{source: pattern, options: options, names: t.names, prog: t.program(compiled)}
	return r, nil
}

// explained turns an error of regexp/syntax into one of ours.
func explained(pattern string, err error) error {
	var bad *syntax.Error
	if !errors.As(err, &bad) {
		return &Error{Pattern: pattern, Problem: err.Error()}
	}
	e := &Error{Pattern: pattern, Problem: bad.Code.String()}
	if i := strings.Index(pattern, bad.Expr); i >= 0 {
		e.Item, e.Offset = bad.Expr, i
	}
	switch bad.Code {
	case syntax.ErrInvalidRepeatSize:
		e.Remedy = "counts in {n,m} may be 1000 at most, those of repetitions inside repetitions multiplied"
	case syntax.ErrMissingRepeatArgument, syntax.ErrInvalidRepeatOp:
		e.Remedy = `write a backslash before *, + or ? that is meant as a character`
	case syntax.ErrMissingParen, syntax.ErrUnexpectedParen:
		e.Remedy = `write \( or \) for the character`
	case syntax.ErrMissingBracket:
		e.Remedy = `write \[ for the character`
	default: // the problem says it all
	}
	return e
}

// instructions estimates, from below, the number of instructions that tree compiles to: counted repetitions are copied
// out, which is not to be done before it is known how long it takes. More than MaxProgram are not counted.
func instructions(tree *syntax.Regexp) int {
	n := 0
	for _, sub := range tree.Sub {
		n += instructions(sub)
	}
	switch tree.Op {
	case syntax.OpLiteral:
		n = len(tree.Rune)
	case syntax.OpRepeat:
		n *= max(tree.Min, tree.Max)
	case syntax.OpConcat, syntax.OpAlternate:
	default:
		n++
	}
	return min(n, MaxProgram+1)
}

// String is the regular expression as it was given.
func (r *Regex) String() string { return r.source }

// Names are the names of the captures, in order, "" for those that have none.
func (r *Regex) Names() []string { return r.names }

// Captures is how many captures there are.
func (r *Regex) Captures() int { return len(r.names) }

// Size estimates the memory the regular expression holds, in bytes.
func (r *Regex) Size() int { return len(r.source) + r.prog.size() + 32*len(r.names) }

func (r *Regex) key() regexKey { return regexKey{r.source, r.options} }

// Find is the first match that starts at init (from 0) or later, as ngx.re.match and ngx.re.find have it: what is before
// init counts for ^ and \b. ok is false if there is none. The error is ErrSubject, ErrWork or ErrUTF8.
func (r *Regex) Find(subject string, init int) (m Match, ok bool, err error) {
	return r.prog.find(subject, init)
}

// Gmatch begins a walk over all matches. The error is ErrSubject or ErrUTF8.
func (r *Regex) Gmatch(subject string) (*Iterator, error) {
	sc, err := r.prog.start(subject, 0)
	if err != nil {
		return nil, err
	}
	return &Iterator{scan: sc}, nil
}

// Gsub replaces the first max matches: ngx.re.sub with 1, ngx.re.gsub with -1. See Pattern.Gsub.
func (r *Regex) Gsub(subject string, max, limit int, f Replacer) (result string, n int, err error) {
	return r.prog.gsub(subject, max, limit, f)
}

// GsubString replaces matches by a text in which $0 and ${0} stand for the match, $1 and ${1} and so on for its
// captures, and $$ for $. The error may be an *Error about repl, too.
func (r *Regex) GsubString(subject, repl string, max, limit int) (result string, n int, err error) {
	parts, err := ngxTemplate(repl, len(r.names))
	if err != nil {
		return "", 0, err
	}
	return r.prog.gsub(subject, max, limit, parts.replacer(subject, limit))
}

type regexKey struct{ pattern, options string }

var regexes cache[regexKey, *Regex]

// CachedRegex is CompileRegex for regular expressions that may have been compiled before; see Cached.
func CachedRegex(pattern, options string) (*Regex, error) {
	return regexes.get(regexKey{pattern, options}, func() (*Regex, error) { return CompileRegex(pattern, options) })
}

// program turns what regexp/syntax compiled into our instructions, on bytes unless option u is given.
func (t *translator) program(compiled *syntax.Prog) *program {
	p := &program{restore: true, utf8: t.utf8, checked: t.utf8 && !t.unchecked, captures: make([]bool, len(t.names))}
	if t.anchored {
		p.anchor = atFrom
	}
	// What does nothing is left out of the way, though not out of the list.
	at := func(pc uint32) uint16 {
		for range compiled.Inst {
			if in := &compiled.Inst[pc]; !t.idle(in) {
				break
			}
			pc = compiled.Inst[pc].Out
		}
		return uint16(pc)
	}
	p.entry = at(uint32(compiled.Start))
	sets := make(map[set]*set)
	for i := range compiled.Inst {
		p.insts = append(p.insts, t.instruction(&compiled.Inst[i], at, sets))
	}
	p.fuseLoops()
	for i := range p.insts {
		p.insts[i].memo = noMemo
	}
	p.chooseRows()
	p.finish()
	return p
}

// idle tells whether an instruction does nothing.
func (t *translator) idle(in *syntax.Inst) bool {
	return in.Op == syntax.InstNop || in.Op == syntax.InstCapture && in.Arg%2 == 1 && t.groups[in.Arg/2] == markDollar
}

func (t *translator) instruction(in *syntax.Inst, at func(uint32) uint16, sets map[set]*set) inst {
	out := at(in.Out)
	switch in.Op {
	case syntax.InstAlt, syntax.InstAltMatch:
		return inst{op: opSplit, out: out, arg: at(in.Arg)}
	case syntax.InstCapture:
		n := int(in.Arg)
		if group := t.groups[n/2]; group != markDollar {
			return inst{op: opSave, out: out, arg: uint16(2*group + n%2)}
		}
		return inst{op: opDollar, out: out}
	case syntax.InstEmptyWidth:
		return inst{op: opAssert, empty: syntax.EmptyOp(in.Arg), out: out}
	case syntax.InstMatch:
		return inst{op: opMatch}
	case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
		return t.byteOrRune(in, out, sets)
	default: // a failure, or idle: nothing leads there then
		return inst{op: opFail}
	}
}

// byteOrRune translates what takes one byte or character.
func (t *translator) byteOrRune(in *syntax.Inst, out uint16, sets map[set]*set) inst {
	var s set
	high := false // does it take characters above 127
	each := func(lo, hi rune) {
		for r := lo; r <= min(hi, utf8.RuneSelf-1); r++ {
			s.add(byte(r))
		}
		high = high || hi >= utf8.RuneSelf
		for r := max(lo, highBytes+utf8.RuneSelf); !t.utf8 && r <= min(hi, highBytes+0xff); r++ {
			s.add(byte(r - highBytes))
		}
	}
	switch {
	case in.Op == syntax.InstRuneAny:
		each(0, unicode.MaxRune)
	case in.Op == syntax.InstRuneAnyNotNL:
		each(0, '\n'-1)
		each('\n'+1, unicode.MaxRune)
	case len(in.Rune) == 1:
		each(in.Rune[0], in.Rune[0])
		if syntax.Flags(in.Arg)&syntax.FoldCase != 0 {
			for r := in.Rune[0]; ; {
				if r = unicode.SimpleFold(r); r == in.Rune[0] {
					break
				}
				each(r, r)
			}
		}
	default:
		for i := 0; i+1 < len(in.Rune); i += 2 {
			each(in.Rune[i], in.Rune[i+1])
		}
	}
	shared, ok := sets[s]
	if !ok {
		shared = &s
		sets[s] = shared
	}
	if t.utf8 && high {
		return inst{op: opRune, set: shared, rune: in, out: out}
	}
	if c, ok := s.single(); ok {
		return inst{op: opChar, c: c, out: out}
	}
	return inst{op: opSet, set: shared, out: out}
}
