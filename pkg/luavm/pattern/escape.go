package pattern

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	refusedBack = "back-references are refused: they cannot be matched in bounded time"
	twice       = "capture twice, and compare in Lua"
)

// write writes a character, or in a pattern of bytes a byte.
func (t *translator) write(r rune) {
	switch {
	case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z':
		t.out.WriteRune(r)
	case r >= utf8.RuneSelf && !t.utf8:
		t.out.WriteRune(highBytes + r)
	case r >= utf8.RuneSelf:
		fmt.Fprintf(&t.out, `\x{%x}`, r)
	default:
		fmt.Fprintf(&t.out, `\x%02x`, r)
	}
}

// literal reads the character at t.at, or in a pattern of bytes the byte.
func (t *translator) literal() rune {
	if t.utf8 {
		r, n := utf8.DecodeRuneInString(t.src[t.at:])
		t.at += n
		return r
	}
	t.at++
	return rune(t.src[t.at-1])
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
		for t.at < len(t.src) && !strings.HasPrefix(t.src[t.at:], `\E`) {
			t.write(t.literal())
			t.atom = true
		}
		t.at += 2
		return nil
	case 'N':
		t.out.WriteString(`[^\n]`)
		t.atom = true
		return nil
	case '1', '2', '3', '4', '5', '6', '7', '8', '9', 'g', 'k':
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
	if shorthand(c) {
		s := newClass(t)
		if err := s.addShorthand(from, c); err != nil {
			return err
		}
		if c|0x20 == 'p' {
			s.emit(false)
			return nil
		}
		t.out.WriteString("(?-i:") // RE2 counts the Kelvin sign as a K
		s.emit(false)
		t.out.WriteByte(')')
		return nil
	}
	r, err := t.code(from, c)
	if err != nil {
		return err
	}
	t.write(r)
	return nil
}

// code reads the rest of an escape that stands for one character. t.at is behind \c.
func (t *translator) code(from int, c byte) (rune, error) {
	switch {
	case from+1 >= len(t.src):
		return 0, t.fail(from, t.at, "a regular expression cannot end with a backslash", `write \\ for the character`)
	case c >= utf8.RuneSelf:
		t.at--
		return t.literal(), nil
	case c == 'x':
		return t.hex(from)
	case c == '0':
		return t.octal(from, t.at-1)
	case c == 'c':
		ch := t.peek(0)
		if ch < ' ' || ch >= utf8.RuneSelf-1 {
			return 0, t.fail(from, t.at+1, `\c needs a letter`, `such as \cA`)
		}
		t.at++
		if ch >= 'a' && ch <= 'z' {
			ch -= 'a' - 'A'
		}
		return rune(ch ^ 0x40), nil
	case c == 0:
		return 0, nil
	}
	if i := strings.IndexByte("aefnrt", c); i >= 0 {
		return rune("\a\x1b\f\n\r\t"[i]), nil
	}
	if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
		return 0, t.fail(from, t.at, "no such escape", "leave out the backslash if the character is meant")
	}
	return rune(c), nil
}

// hex reads \xhh and \x{h...}.
func (t *translator) hex(from int) (rune, error) {
	if t.peek(0) == '{' {
		end := strings.IndexByte(t.src[t.at:], '}')
		if end < 0 {
			return 0, t.fail(from, len(t.src), "this brace is never closed", `such as \x{e9}`)
		}
		return t.number(from, t.src[t.at+1:t.at+end], 16, t.at+end+1)
	}
	end := t.at
	for end < len(t.src) && end < t.at+2 && strings.IndexByte("0123456789abcdefABCDEF", t.src[end]) >= 0 {
		end++
	}
	return t.number(from, "0"+t.src[t.at:end], 16, end)
}

// octal reads up to three digits from begin on.
func (t *translator) octal(from, begin int) (rune, error) {
	end := begin
	for end < len(t.src) && end < begin+3 && t.src[end] >= '0' && t.src[end] <= '7' {
		end++
	}
	return t.number(from, t.src[begin:end], 8, end)
}

// number gives the character whose code the digits are; end is behind it.
func (t *translator) number(from int, digits string, base, end int) (rune, error) {
	t.at = end
	n, err := strconv.ParseUint(digits, base, 32)
	switch {
	case err != nil || n > unicode.MaxRune || t.utf8 && !utf8.ValidRune(rune(n)):
		return 0, t.fail(from, end, "this is no number of a character", "")
	case !t.utf8 && n > 0xff:
		return 0, t.fail(from, end, "this is no byte", `use option "u" of ngx.re for characters`)
	}
	return rune(n), nil
}
