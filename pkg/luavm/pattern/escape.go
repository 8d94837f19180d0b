package pattern

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// What \s, \h and \v stand for, as ranges inside a set, and all that they do not. RE2 has no \h, its \s leaves out the
// vertical tab, and its \v is that alone.
const (
	space       = `\t-\r `
	notSpace    = `\x00-\x08\x0e-\x1f!-\x{10ffff}`
	blankU      = `\t \x{a0}\x{1680}\x{180e}\x{2000}-\x{200a}\x{202f}\x{205f}\x{3000}`
	notBlankU   = `\x00-\x08\x0a-\x1f!-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{180d}\x{180f}-\x{1fff}\x{200b}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff}`
	verticalU   = `\n-\r\x{85}\x{2028}\x{2029}`
	notVertU    = `\x00-\x09\x0e-\x{84}\x{86}-\x{2027}\x{202a}-\x{10ffff}`
	blankB      = `\t \x{7a0}` // byte 0xa0
	notBlankB   = `\x00-\x08\x0a-\x1f!-\x{79f}\x{7a1}-\x{7ff}`
	verticalB   = `\n-\r\x{785}` // byte 0x85
	notVertB    = `\x00-\x09\x0e-\x{784}\x{786}-\x{7ff}`
	refusedBack = "back-references are refused: they cannot be matched in bounded time"
	twice       = "capture twice, and compare in Lua"
)

// ranges is what the class \c is inside a set, "" if it is none of those that have to be spelled out.
func (t *translator) ranges(c byte) string {
	switch c {
	case 's':
		return space
	case 'S':
		return notSpace
	}
	if t.utf8 {
		return map[byte]string{'h': blankU, 'H': notBlankU, 'v': verticalU, 'V': notVertU}[c]
	}
	return map[byte]string{'h': blankB, 'H': notBlankB, 'v': verticalB, 'V': notVertB}[c]
}

// escape translates a backslash outside sets, and what follows it.
func (t *translator) escape() error {
	from, c := t.at, t.peek(1)
	t.at += 2
	switch c {
	case 'b', 'B', 'A', 'z':
		t.out.WriteString(t.src[from:t.at])
		return nil
	case 'Z':
		t.dollar()
		return nil
	case 'E': // the end of a quotation that did not begin
		return nil
	case 'Q':
		t.quotation()
		return nil
	case 'N':
		t.out.WriteString(`[^\n]`)
		t.atom = true
		return nil
	case '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return t.fail(from, t.at, refusedBack, twice)
	case 'g', 'k':
		return t.fail(from, t.at, refusedBack, twice)
	case 'K':
		return t.fail(from, t.at, `\K is refused`, "capture what you need")
	case 'G':
		return t.fail(from, t.at, `\G is refused`, `option "a" of ngx.re matches where the search starts only`)
	case 'R':
		return t.fail(from, t.at, `\R is refused`, `write (?:\r\n|\n|\r)`)
	case 'C', 'X':
		return t.fail(from, t.at, "this escape is refused", `use . (with option "u" it takes a character)`)
	}
	t.atom = true
	if r := t.ranges(c); r != "" {
		t.out.WriteString("[" + r + "]")
		return nil
	}
	return t.common(from, c)
}

// quotation translates \Q...\E, of which t.at is behind the \Q.
func (t *translator) quotation() {
	for t.at < len(t.src) {
		if strings.HasPrefix(t.src[t.at:], `\E`) {
			t.at += 2
			return
		}
		t.literal(t.src[t.at])
		t.at++
		t.atom = true
	}
}

// common translates escapes that mean the same inside and outside sets. t.at is behind \c.
func (t *translator) common(from int, c byte) error {
	switch {
	case from+1 >= len(t.src):
		return t.fail(from, t.at, "a regular expression cannot end with a backslash", `write \\ for the character`)
	case c == 'd' || c == 'D' || c == 'w' || c == 'W':
		t.out.WriteString(t.src[from : from+2])
		return nil
	case c == 'p' || c == 'P':
		return t.unicodeClass(from)
	case c == 'x':
		return t.hex(from)
	case c == '0':
		end := t.at
		for end < len(t.src) && end < t.at+2 && t.src[end] >= '0' && t.src[end] <= '7' {
			end++
		}
		return t.number(from, t.src[t.at-1:end], 8, end)
	case c == 'c':
		ch := t.peek(0)
		if ch < ' ' || ch >= utf8.RuneSelf-1 {
			return t.fail(from, t.at+1, `\c needs a letter`, `such as \cA`)
		}
		if ch >= 'a' && ch <= 'z' {
			ch -= 'a' - 'A'
		}
		t.at++
		t.literal(ch ^ 0x40)
		return nil
	}
	if i := strings.IndexByte("aefnrt", c); i >= 0 && c != 0 {
		t.literal("\a\x1b\f\n\r\t"[i])
		return nil
	}
	if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
		return t.fail(from, t.at, "no such escape", "leave out the backslash if the character is meant")
	}
	t.literal(c)
	return nil
}

// hex translates \xhh and \x{h...}.
func (t *translator) hex(from int) error {
	if t.peek(0) == '{' {
		end := strings.IndexByte(t.src[t.at:], '}')
		if end < 0 {
			return t.fail(from, len(t.src), "this brace is never closed", `such as \x{e9}`)
		}
		return t.number(from, t.src[t.at+1:t.at+end], 16, t.at+end+1)
	}
	end := t.at
	for end < len(t.src) && end < t.at+2 && strings.IndexByte("0123456789abcdefABCDEF", t.src[end]) >= 0 {
		end++
	}
	return t.number(from, "0"+t.src[t.at:end], 16, end)
}

// number writes the character with the code digits; end is behind it.
func (t *translator) number(from int, digits string, base, end int) error {
	t.at = end
	n, err := strconv.ParseUint(digits, base, 32)
	if err != nil {
		return t.fail(from, end, "this is no number of a character", "")
	}
	return t.code(from, n)
}

// unicodeClass translates \pL and \p{Letter}, of which t.at is behind the p.
func (t *translator) unicodeClass(from int) error {
	if !t.utf8 {
		return t.fail(from, t.at, "classes of characters need characters", `use option "u" of ngx.re`)
	}
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
	if end > len(t.src) {
		return t.fail(from, len(t.src), "the class is missing", `such as \pL`)
	}
	t.out.WriteString(t.src[from:end])
	t.at = end
	return nil
}

// place says what a - would mean at some place in a set.
type place uint8

const (
	loose   place = iota // the character: nothing is there that a range could begin with
	begun                // the sign of a range that begins with the character before
	pending              // the sign is written, and the end of the range comes next
)

// after is the place behind a single character.
func (p place) after() place {
	if p == pending {
		return loose
	}
	return begun
}

// class translates a set, from its [ to its ].
func (t *translator) class() error {
	from, where := t.at, loose
	t.out.WriteByte('[')
	t.at++
	if t.peek(0) == '^' {
		t.out.WriteByte('^')
		t.at++
	}
	for first := true; ; first = false {
		if t.at >= len(t.src) {
			return t.fail(from, len(t.src), "this set is never closed", `write ] where it ends, or \[ for the character`)
		}
		var err error
		c := t.src[t.at]
		switch {
		case c == ']' && !first:
			t.out.WriteByte(']')
			t.at++
			return nil
		case c == '[' && (t.peek(1) == ':' || t.peek(1) == '.' || t.peek(1) == '='):
			where, err = t.posix(where)
		case c == '\\':
			where, err = t.classEscape(where)
		case c == '-' && where == begun && t.rangeFollows():
			t.out.WriteByte('-')
			t.at++
			where = pending
		default:
			t.literal(c)
			t.at++
			if !t.utf8 || utf8.RuneStart(c) { // else it is the rest of a character
				where = where.after()
			}
		}
		if err != nil {
			return err
		}
	}
}

// rangeFollows tells whether what follows the - at t.at can be the end of a range.
func (t *translator) rangeFollows() bool {
	switch next := t.peek(1); next {
	case ']', 0:
		return false
	case '[':
		return t.peek(2) != ':'
	case '\\':
		c := t.peek(2)
		return c == 0 || strings.IndexByte("dDwWsShHvVpPE", c) < 0
	}
	return true
}

// posix translates [:name:] in a set.
func (t *translator) posix(where place) (place, error) {
	kind := t.peek(1)
	end := strings.Index(t.src[t.at+2:], string(kind)+"]")
	if end < 0 || strings.IndexByte(t.src[t.at+2:t.at+2+end], ']') >= 0 {
		t.literal('[')
		t.at++
		return where.after(), nil
	}
	from := t.at
	t.at += 2 + end + 2
	if kind != ':' {
		return loose, t.fail(from, t.at, "collating elements are refused", "write the characters")
	}
	name := strings.TrimPrefix(t.src[from+2:from+2+end], "^")
	switch name {
	case "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word", "xdigit":
		t.out.WriteString(t.src[from:t.at])
		return loose, nil
	}
	return loose, t.fail(from, t.at, "no such class", "such as [:alpha:]")
}

// classEscape translates a backslash in a set, and what follows it.
func (t *translator) classEscape(where place) (place, error) {
	from, c := t.at, t.peek(1)
	t.at += 2
	switch c {
	case 'b':
		t.literal('\b')
		return where.after(), nil
	case 'E':
		return where, nil
	case 'Q':
		t.quotation()
		return loose, nil
	case 'd', 'D', 'w', 'W', 'p', 'P':
		return loose, t.common(from, c)
	case '1', '2', '3', '4', '5', '6', '7':
		t.at-- // in sets they are octal codes
		end := t.at
		for end < len(t.src) && end < t.at+3 && t.src[end] >= '0' && t.src[end] <= '7' {
			end++
		}
		return where.after(), t.number(from, t.src[t.at:end], 8, end)
	}
	if r := t.ranges(c); r != "" {
		t.out.WriteString(r)
		return loose, nil
	}
	return where.after(), t.common(from, c)
}
