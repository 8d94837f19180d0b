package pattern_test

import (
	"math/rand/v2"
	"strings"
)

// Patterns and subjects of the tests below are made of few letters, so that they match often, and in more than one way.
const letters = "aabbc01 -_.,()A]\xc3\xa9\x00"

func randomSubject(r *rand.Rand, most int) string {
	b := make([]byte, r.IntN(most+1))
	for i := range b {
		b[i] = letters[r.IntN(len(letters))]
	}
	return string(b)
}

func pick(r *rand.Rand, from ...string) string { return from[r.IntN(len(from))] }

// randomPattern is a Lua pattern of up to so many items. Most are well formed.
func randomPattern(r *rand.Rand, most int) string {
	var b strings.Builder
	if r.IntN(6) == 0 {
		b.WriteByte('^')
	}
	open := 0
	for range 1 + r.IntN(most) {
		switch n := r.IntN(20); {
		case n < 2:
			b.WriteByte('(')
			open++
		case n == 2:
			b.WriteString("()")
		case n < 5 && open > 0:
			b.WriteByte(')')
			open--
		case n == 5:
			b.WriteString(pick(r, "%b()", "%bab", "%baa", "%f[%w]", "%f[^a]", "%f[%z]"))
		case n == 6:
			b.WriteString(pick(r, "$", "^", "]", "-", "*", "+", "%", "%1", "[a", "[]", "[^]", ")"))
		default:
			b.WriteString(randomItem(r))
			b.WriteString(pick(r, "", "", "", "*", "+", "-", "?"))
		}
	}
	b.WriteString(strings.Repeat(")", open))
	if r.IntN(6) == 0 {
		b.WriteByte('$')
	}
	return b.String()
}

func randomItem(r *rand.Rand) string {
	switch r.IntN(4) {
	case 0:
		return pick(r, ".", "%a", "%d", "%w", "%s", "%p", "%l", "%u", "%c", "%x", "%z", "%A", "%D", "%W", "%S", "%P", "%L", "%U", "%C", "%X", "%Z", "%.", "%-", "%]", "%%")
	case 1:
		return pick(r, "[ab]", "[^a]", "[a-c]", "[%a_]", "[]a]", "[^]a]", "[a-]", "[-a]", "[^%s]", "[%w-_]", "[a%-c]", "[0-9%.]", "[\x80-\xff]", "[+-.]", "[a^]", "[%]]", "[a-%a]", "[.]", "[[]", "[^^]", "[]-a]")
	}
	return pick(r, "a", "a", "b", "b", "c", "0", "1", " ", "_", ",", "A", "\xc3", "\xa9")
}
