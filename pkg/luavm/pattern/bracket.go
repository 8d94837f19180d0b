package pattern

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// bracket is a set of a regular expression while it is read. Of bytes it is worked out here; of characters it is written
// as RE2 reads it.
type bracket struct {
	t     *translator
	bytes set
	text  strings.Builder
}

func newClass(t *translator) *bracket { return &bracket{t: t} }

// shorthand tells whether \c stands for a set.
func shorthand(c byte) bool { return c != 0 && strings.IndexByte("dDwWsShHvVpP", c) >= 0 }

// maxFolded bounds how many characters regexp/syntax goes through one by one to add those of the other case.
const maxFolded = 32 << 10

// class translates a set, from its [ to its ]. The first character is part of it even if it is ].
func (t *translator) class() error {
	from, b := t.at, newClass(t)
	t.at++
	negated := t.peek(0) == '^'
	if negated {
		t.at++
	}
	for first := true; ; first = false {
		switch {
		case t.at >= len(t.src):
			return t.fail(from, len(t.src), "this set is never closed", `write ] where it ends, or \[ for the character`)
		case t.src[t.at] == ']' && !first:
			t.at++
			b.emit(negated)
			return nil
		}
		if err := b.element(); err != nil {
			return err
		}
	}
}

// element reads one character, range or class.
func (b *bracket) element() error {
	t := b.t
	from := t.at
	if kind := t.peek(1); t.src[t.at] == '[' && (kind == ':' || kind == '.' || kind == '=') {
		if done, err := b.posix(kind); done || err != nil {
			return err
		}
	}
	if c := t.peek(1); t.src[t.at] == '\\' {
		switch {
		case shorthand(c):
			t.at += 2
			return b.addShorthand(from, c)
		case c == 'E':
			t.at += 2
			return nil
		case c == 'Q':
			for t.at += 2; t.at < len(t.src) && !strings.HasPrefix(t.src[t.at:], `\E`); {
				r := t.literal()
				b.add(r, r)
			}
			return nil
		}
	}
	lo, err := b.character()
	if err != nil {
		return err
	}
	hi := lo
	if t.peek(0) == '-' && b.rangeFollows() {
		t.at++
		if hi, err = b.character(); err != nil {
			return err
		}
		if hi < lo {
			return t.fail(from, t.at, "this range ends before it begins", `write \- for the character`)
		}
	}
	if t.fold && t.utf8 && hi != lo {
		if t.folded += int(hi - lo); t.folded > maxFolded {
			return t.fail(from, t.at, `large ranges take too long without regard to case`, `leave out option "i" for it: (?-i:[...])`)
		}
	}
	b.add(lo, hi)
	return nil
}

// character reads one, as it stands or escaped.
func (b *bracket) character() (rune, error) {
	t := b.t
	if t.src[t.at] != '\\' {
		return t.literal(), nil
	}
	from, c := t.at, t.peek(1)
	t.at += 2
	switch {
	case c == 'b':
		return '\b', nil
	case c >= '1' && c <= '7': // no back-references in sets
		return t.octal(from, from+1)
	}
	return t.code(from, c)
}

// rangeFollows tells whether what follows the - at t.at can be the end of a range.
func (b *bracket) rangeFollows() bool {
	switch next := b.t.peek(1); next {
	case ']', 0:
		return false
	case '[':
		return b.t.peek(2) != ':'
	case '\\':
		c := b.t.peek(2)
		return c != 0 && c != 'E' && c != 'Q' && !shorthand(c)
	}
	return true
}

// add adds the characters from lo to hi.
func (b *bracket) add(lo, hi rune) {
	if !b.t.utf8 {
		b.bytes.addRange(byte(lo), byte(hi))
		return
	}
	fmt.Fprintf(&b.text, `\x{%x}`, lo)
	if hi > lo {
		fmt.Fprintf(&b.text, `-\x{%x}`, hi)
	}
}

// posix reads [:name:]. done is false if it is none, but a [ that stands for itself.
func (b *bracket) posix(kind byte) (done bool, err error) {
	t := b.t
	end := strings.Index(t.src[t.at+2:], string(kind)+"]")
	if end < 0 || strings.IndexByte(t.src[t.at+2:t.at+2+end], ']') >= 0 {
		return false, nil
	}
	from, name := t.at, t.src[t.at+2:t.at+2+end]
	t.at += 2 + end + 2
	if kind != ':' {
		return true, t.fail(from, t.at, "collating elements are refused", "write the characters")
	}
	s, ok := posixClass(strings.TrimPrefix(name, "^"))
	if !ok {
		return true, t.fail(from, t.at, "no such class", "such as [:alpha:]")
	}
	if name[0] == '^' {
		s = s.complement()
	}
	b.bytes.addSet(&s)
	b.text.WriteString(t.src[from:t.at])
	return true, nil
}

// posixClass is the set of bytes of a name.
func posixClass(name string) (set, bool) {
	letters := map[string]byte{
		"alnum": 'w', "alpha": 'a', "cntrl": 'c', "digit": 'd', "graph": 'g', "lower": 'l', "print": 'g', "punct": 'p',
		"space": 's', "upper": 'u', "word": 'w', "xdigit": 'x',
	}
	s, ok := class(letters[name])
	switch name {
	case "ascii":
		s.addRange(0, 127)
	case "blank":
		s.add(' ')
		s.add('\t')
	case "print":
		s.add(' ')
	case "word":
		s.add('_')
	default:
		return s, ok
	}
	return s, true
}

// What the shorthands stand for among characters, as RE2 reads it inside a set; \s, \w and \d are of ASCII only. RE2's
// own \s lacks the vertical tab, and it has no \h and \v.
var shorthands = map[byte]string{
	'd': `\d`, 'D': `\D`, 'w': `\w`, 'W': `\W`, 's': `[:space:]`, 'S': `[:^space:]`,
	'h': `\t \x{a0}\x{1680}\x{180e}\x{2000}-\x{200a}\x{202f}\x{205f}\x{3000}`,
	'v': `\n-\r\x{85}\x{2028}\x{2029}`,
}

// addShorthand adds what \c stands for. t.at is behind it.
func (b *bracket) addShorthand(from int, c byte) error {
	t := b.t
	if !t.utf8 {
		s, _ := class(c | 0x20) // of \p \h and \v see below
		switch c | 0x20 {
		case 'p':
			return t.fail(from, t.at, "classes of characters need characters", `use option "u" of ngx.re`)
		case 'w':
			s.add('_')
		case 'h':
			s.add('\t')
			s.add(' ')
			s.add(0xa0)
		case 'v':
			s.addRange('\n', '\r')
			s.add(0x85)
		}
		if c < 'a' {
			s = s.complement()
		}
		b.bytes.addSet(&s)
		return nil
	}
	switch c {
	case 'p', 'P':
		return b.unicodeClass(from)
	case 'H', 'V':
		return t.fail(from, t.at, "this escape is refused among characters", `write [^\h] or [^\v]`)
	}
	b.text.WriteString(shorthands[c])
	return nil
}

// unicodeClass reads \pL and \p{Letter}, of which t.at is behind the p.
func (b *bracket) unicodeClass(from int) error {
	t := b.t
	if t.classes++; t.classes > maxUnicodeClasses {
		return t.fail(from, t.at, "there are too many classes of characters", "use 8 at most")
	}
	end := t.at + 1
	if t.peek(0) == '{' {
		length := strings.IndexByte(t.src[t.at:], '}')
		if length < 0 {
			return t.fail(from, len(t.src), "this brace is never closed", `such as \p{Greek}`)
		}
		end = t.at + length + 1
	}
	if end > len(t.src) || t.peek(0) >= utf8.RuneSelf {
		return t.fail(from, len(t.src), "the class is missing", `such as \pL`)
	}
	b.text.WriteString(t.src[from:end])
	t.at = end
	return nil
}

// emit writes the set.
func (b *bracket) emit(negated bool) {
	t := b.t
	if t.utf8 {
		t.out.WriteByte('[')
		if negated {
			t.out.WriteByte('^')
		}
		t.out.WriteString(b.text.String())
		t.out.WriteByte(']')
		return
	}
	s := b.bytes
	if t.fold {
		s.fold()
	}
	if negated {
		s = s.complement()
	}
	// What regexp/syntax would do for the other case is done, and would take long.
	t.out.WriteString("(?-i:[")
	if s == (set{}) {
		t.out.WriteString(`^\x00-\x{10ffff}`)
	}
	for lo := 0; lo < 256; lo++ {
		if !s.has(byte(lo)) {
			continue
		}
		hi := lo
		for hi < 255 && s.has(byte(hi+1)) {
			hi++
		}
		t.write(rune(lo))
		if hi > lo {
			t.out.WriteByte('-')
			t.write(rune(hi))
		}
		lo = hi
	}
	t.out.WriteString("])")
}
