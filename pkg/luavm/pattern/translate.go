package pattern

import (
	"fmt"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode/utf8"
)

// highBytes is where bytes above 127 are put among the characters while regexp/syntax reads a pattern of bytes: byte b
// becomes highBytes+b, a character that has no other case and is in no class. They stay in order, so ranges work.
const highBytes = 0x700

// What a capture group of the translated pattern means, beside the number of a capture of the pattern.
const (
	wholeMatch = -1
	markDollar = -2 // an empty group that stands for $, which RE2 has not: also before a line feed at the end
)

// translator writes PCRE's syntax in that of RE2, byte by byte, and refuses what RE2 has not.
type translator struct {
	src       string
	at        int
	out       strings.Builder
	flags     syntax.Flags
	utf8      bool
	unchecked bool
	anchored  bool
	extended  bool // option x
	lines     bool // ^ and $ at every line, here
	fold      bool // letters of either case, here
	outer     []outer
	groups    []int // what each group of out means
	names     []string
	classes   int
	folded    int
	atom      bool // what was written last can be repeated
}

// outer is what holds again when a group ends.
type outer struct {
	lines  bool
	fold   bool
	opened int // where the group begins
}

func newTranslator(pattern, options string) (*translator, error) {
	t := &translator{src: pattern, flags: syntax.Perl, groups: []int{wholeMatch}}
	for i, o := range []byte(options) {
		problem, remedy := "", ""
		switch o {
		case 'a':
			t.anchored = true
		case 'i':
			t.flags |= syntax.FoldCase
			t.fold = true
		case 'j', 'o': // compiled always
		case 'm':
			t.lines = true
		case 's':
			t.flags |= syntax.DotNL
		case 'u':
			t.utf8 = true
		case 'U':
			t.utf8, t.unchecked = true, true
		case 'x':
			t.extended = true
		case 'd':
			problem, remedy = "the longest match instead of the first (DFA mode) is not available", `leave out "d"`
		case 'D':
			problem, remedy = "one name for several captures is not available", `leave out "D", and give each its own name`
		case 'J':
			problem, remedy = "the mode compatible with JavaScript is not available", `leave out "J"`
		default:
			problem, remedy = "is not an option of ngx.re", "use some of a, i, j, m, o, s, u, U, x"
		}
		if problem != "" {
			return nil, &Error{Pattern: pattern, Item: options[i : i+1], Offset: i, Problem: "option " + strconv.Quote(options[i:i+1]) + " of ngx.re: " + problem, Remedy: remedy}
		}
	}
	if t.utf8 && !utf8.ValidString(pattern) {
		return nil, &Error{Pattern: pattern, Problem: "is not UTF-8", Remedy: `leave out option "u" to match bytes`}
	}
	return t, nil
}

func (t *translator) fail(from, to int, problem, remedy string) error {
	return &Error{Pattern: t.src, Item: t.src[from:min(to, len(t.src))], Offset: from, Problem: problem, Remedy: remedy}
}

// peek is the byte n after t.at, 0 behind the end.
func (t *translator) peek(n int) byte {
	if t.at+n >= len(t.src) {
		return 0
	}
	return t.src[t.at+n]
}

func (t *translator) translate() (string, error) {
	for t.at < len(t.src) {
		if err := t.item(); err != nil {
			return "", err
		}
	}
	if n := len(t.outer); n > 0 {
		at := t.outer[n-1].opened
		return "", t.fail(at, at+1, "this group is never closed", `write ) where it ends, or \( for the character`)
	}
	return t.out.String(), nil
}

// item translates what stands at t.at.
func (t *translator) item() error {
	c := t.src[t.at]
	switch {
	case t.extended && strings.IndexByte(" \t\n\v\f\r", c) >= 0:
		t.at++
		return nil
	case t.extended && c == '#':
		for t.at < len(t.src) && t.src[t.at] != '\n' {
			t.at++
		}
		return nil
	case strings.HasPrefix(t.src[t.at:], "(?#"):
		end := strings.IndexByte(t.src[t.at:], ')')
		if end < 0 {
			return t.fail(t.at, len(t.src), "this comment is never closed", "write ) where it ends")
		}
		t.at += end + 1
		return nil
	}
	repeatable := t.atom
	t.atom = false
	switch c {
	case '\\':
		return t.escape()
	case '[':
		t.atom = true
		return t.class()
	case '(':
		return t.group()
	case ')':
		return t.closeGroup()
	case '^', '$':
		t.anchor(c)
	case '*', '+', '?':
		t.out.WriteByte(c)
		t.at++
		return t.possessive(t.at-1, repeatable)
	case '{':
		if end := t.count(); end > 0 {
			from := t.at
			t.out.WriteString(t.src[from:end])
			t.at = end
			return t.possessive(from, repeatable)
		}
		t.write(t.literal())
		t.atom = true
	case '|':
		t.out.WriteByte(c)
		t.at++
	case '.':
		t.out.WriteByte(c)
		t.at++
		t.atom = true
	default:
		t.write(t.literal())
		t.atom = true
	}
	return nil
}

// possessive is called behind a repetition, and looks at what may follow it: ? (as few as possible) or +.
func (t *translator) possessive(from int, repeatable bool) error {
	if !repeatable {
		return t.fail(from, t.at, "there is nothing to repeat before it", "write a backslash before it if the character is meant")
	}
	switch t.peek(0) {
	case '?':
		t.out.WriteByte('?')
		t.at++
	case '+':
		return t.fail(from, t.at+1, "repetitions that give nothing back (possessive) are refused", "leave out the second +")
	}
	return nil
}

// count is the end of a {n}, {n,} or {n,m} at t.at, 0 if the brace is a character.
func (t *translator) count() int {
	i := t.at + 1
	digits := func() bool {
		from := i
		for i < len(t.src) && t.src[i] >= '0' && t.src[i] <= '9' {
			i++
		}
		return i > from
	}
	if !digits() {
		return 0
	}
	if i < len(t.src) && t.src[i] == ',' {
		i++
		digits()
	}
	if i < len(t.src) && t.src[i] == '}' {
		return i + 1
	}
	return 0
}

// anchor translates ^ and $.
func (t *translator) anchor(c byte) {
	t.at++
	switch {
	case c == '^' && t.lines:
		t.out.WriteString("(?m:^)")
	case c == '^':
		t.out.WriteString(`\A`)
	case t.lines:
		t.out.WriteString("(?m:$)")
	default:
		t.dollar()
	}
}

// dollar writes the mark for: at the end, or before a line feed at the end.
func (t *translator) dollar() {
	t.groups = append(t.groups, markDollar)
	t.out.WriteString("()")
}

// group translates what an opening parenthesis begins.
func (t *translator) group() error {
	from := t.at
	if t.peek(1) == '*' {
		return t.fail(from, from+2, "verbs are refused", `write \( for the character`)
	}
	if t.peek(1) != '?' {
		t.at++
		return t.capture(from, "")
	}
	rest := t.src[t.at+2:]
	for _, r := range refusedGroups {
		if strings.HasPrefix(rest, r.opening) {
			return t.fail(from, from+2+len(r.opening), r.problem, r.remedy)
		}
	}
	switch {
	case strings.HasPrefix(rest, "P<"):
		return t.named(from, 4, '>')
	case strings.HasPrefix(rest, "<"):
		return t.named(from, 3, '>')
	case strings.HasPrefix(rest, "'"):
		return t.named(from, 3, '\'')
	}
	return t.inline(from)
}

// refusedGroups is what may follow "(?" in PCRE, and not here.
var refusedGroups = []struct{ opening, problem, remedy string }{
	{"<=", "look-behind is refused: it cannot be matched in bounded time", `match what is before too, and capture what you need`},
	{"<!", "look-behind is refused: it cannot be matched in bounded time", `match what is before too, and test the capture in Lua`},
	{"=", "look-ahead is refused: it cannot be matched in bounded time", `match what follows too, and capture what you need`},
	{"!", "look-ahead is refused: it cannot be matched in bounded time", `match what follows too, and test the capture in Lua`},
	{">", "groups that give nothing back (atomic) are refused", "use (?:...)"},
	{"|", "groups that number their branches alike are refused", "use (?:...), and look which capture is set"},
	{"(", "conditions are refused", "use branches: (?:a|b)"},
	{"P=", "back-references are refused: they cannot be matched in bounded time", "capture twice, and compare in Lua"},
	{"P>", "recursion is refused: it cannot be matched in bounded time", "string.find with %b() matches balanced pairs"},
	{"R", "recursion is refused: it cannot be matched in bounded time", "string.find with %b() matches balanced pairs"},
	{"&", "recursion is refused: it cannot be matched in bounded time", "string.find with %b() matches balanced pairs"},
	{"C", "callouts are refused", "leave it out"},
}

// named translates a capture with a name, which begins name bytes after from.
func (t *translator) named(from, name int, close byte) error {
	start := from + name
	length := strings.IndexByte(t.src[start:], close)
	if length < 0 {
		return t.fail(from, len(t.src), "the name of this capture is never closed", "such as (?<name>...)")
	}
	n := t.src[start : start+length]
	for i, c := range []byte(n) {
		if c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (i == 0 || c < '0' || c > '9') {
			n = ""
			break
		}
	}
	if n == "" || len(n) > 32 {
		return t.fail(from, start+length+1, "this is no name", "use letters, digits and _, 32 at most, not a digit first")
	}
	for _, other := range t.names {
		if other == n {
			return t.fail(from, start+length+1, "there is a capture of that name already", "give each its own name")
		}
	}
	t.at = start + length + 1
	return t.capture(from, n)
}

// capture opens a capture group.
func (t *translator) capture(from int, name string) error {
	if len(t.names) == MaxCaptures {
		return t.fail(from, t.at, fmt.Sprintf("a regular expression may have %d captures at most", MaxCaptures), "use (?:...) where nothing needs to be captured")
	}
	t.groups = append(t.groups, len(t.names))
	t.names = append(t.names, name)
	t.outer = append(t.outer, outer{t.lines, t.fold, from})
	t.out.WriteByte('(')
	return nil
}

// inline translates (?flags) and (?flags:...), the latter with no flags too.
func (t *translator) inline(from int) error {
	t.at += 2
	start, lines, fold, on := t.at, t.lines, t.fold, true
	for ; ; t.at++ {
		switch c := t.peek(0); c {
		case 'i':
			fold = on
		case 's', 'U':
		case 'm':
			lines = on
		case '-':
			if !on {
				return t.fail(from, t.at+1, "one - is enough", "")
			}
			on = false
		case ':', ')':
			flags := strings.TrimSuffix(t.src[start:t.at], "-")
			t.at++
			if c == ':' {
				t.outer = append(t.outer, outer{t.lines, t.fold, from})
				t.lines, t.fold = lines, fold
				t.out.WriteString("(?" + flags + ":")
				return nil
			}
			t.lines, t.fold = lines, fold
			if flags != "" {
				t.out.WriteString("(?" + flags + ")")
			}
			return nil
		case 'x', 'J':
			return t.fail(from, t.at+1, "this flag cannot be set inside", `x is an option of ngx.re: ngx.re.match(s, re, "x"); J is refused`)
		case '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', '+':
			return t.fail(from, t.at+1, "recursion is refused: it cannot be matched in bounded time", "string.find with %b() matches balanced pairs")
		default:
			return t.fail(from, t.at+1, "no such group", "use (...), (?:...), (?<name>...) or flags such as (?i)")
		}
	}
}

func (t *translator) closeGroup() error {
	last := len(t.outer) - 1
	if last < 0 {
		return t.fail(t.at, t.at+1, "no group is open here", `write \) for the character`)
	}
	t.lines, t.fold, t.outer = t.outer[last].lines, t.outer[last].fold, t.outer[:last]
	t.out.WriteByte(')')
	t.at++
	t.atom = true
	return nil
}
