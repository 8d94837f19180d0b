package luavm

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

var stringFuncs = map[string]lua.LGFunction{
	"byte": stringByte, "char": stringChar, "find": stringFind, "format": stringFormat, "gmatch": stringGmatch, "gsub": stringGsub,
	"len": stringLen, "lower": stringLower, "match": stringMatch, "rep": stringRep, "reverse": stringReverse, "sub": stringSub,
	"upper": stringUpper,
}

// span turns positions from 1, or from the end if negative, into a range of bytes.
func span(n, from, to int) (int, int) {
	if from < 0 {
		from = max(n+from+1, 1)
	}
	if to < 0 {
		to = n + to + 1
	}
	from, to = max(from, 1), min(to, n)
	if from > to {
		return 0, 0
	}
	return from - 1, to
}

func stringSub(L *lua.LState) int {
	s := argText(L, 1)
	from, to := span(len(s), optInt(L, 2, 1), optInt(L, 3, -1))
	L.Push(lua.LString(s[from:to]))
	return 1
}

func stringByte(L *lua.LState) int {
	s := argText(L, 1)
	first := optInt(L, 2, 1)
	from, to := span(len(s), first, optInt(L, 3, first))
	n := results(L, to-from)
	for i := from; i < to; i++ {
		L.Push(lua.LNumber(s[i]))
	}
	return n
}

func stringChar(L *lua.LState) int {
	r := runOf(L)
	b := make([]byte, L.GetTop())
	for i := range b {
		n := argInt(L, i+1)
		if n < 0 || n > 255 {
			argError(L, i+1, "value out of range")
		}
		b[i] = byte(n)
	}
	return pushText(r, L, string(b))
}

func stringLen(L *lua.LState) int { return pushNumber(L, float64(len(argText(L, 1)))) }

func stringLower(L *lua.LState) int {
	return pushText(runOf(L), L, mapASCII(argText(L, 1), 'A', 'Z', 'a'-'A'))
}

func stringUpper(L *lua.LState) int {
	return pushText(runOf(L), L, mapASCII(argText(L, 1), 'a', 'z', 'A'-'a'))
}

// mapASCII moves the letters from low to high, as C's locale does; other bytes stay.
func mapASCII(s string, low, high byte, by int) string {
	b := []byte(s)
	for i, c := range b {
		if low <= c && c <= high {
			b[i] = byte(int(c) + by)
		}
	}
	return string(b)
}

func stringReverse(L *lua.LState) int {
	s := argText(L, 1)
	b := make([]byte, len(s))
	for i := range len(s) {
		b[len(s)-1-i] = s[i]
	}
	return pushText(runOf(L), L, string(b))
}

func stringRep(L *lua.LState) int {
	r := runOf(L)
	s, n := argText(L, 1), argInt(L, 2)
	if n <= 0 || s == "" {
		L.Push(lua.LString(""))
		return 1
	}
	r.fits(len(s) * min(n, maxString+1))
	return pushText(r, L, strings.Repeat(s, n))
}

func stringFormat(L *lua.LState) int {
	r := runOf(L)
	format := argText(L, 1)
	var b strings.Builder
	arg := 1
	for {
		before, rest, ok := strings.Cut(format, "%")
		b.WriteString(before)
		if !ok {
			break
		}
		if next, ok := strings.CutPrefix(rest, "%"); ok {
			b.WriteByte('%')
			format = next
			continue
		}
		d, next := readDirective(L, rest)
		arg++
		d.write(r, L, &b, arg)
		if b.Len() > maxString {
			r.made(b.Len())
		}
		r.spend(2)
		format = next
	}
	return pushText(r, L, b.String())
}

// directive is what stands behind a % of a format. Width and precision have two digits at most, as in Lua.
type directive struct {
	flags            string
	width, precision int // -1: none
	verb             byte
}

func readDirective(L *lua.LState, s string) (directive, string) {
	d := directive{width: -1, precision: -1}
	n := 0
	for n < len(s) && strings.IndexByte("-+ #0", s[n]) >= 0 {
		n++
	}
	if n > 5 {
		L.RaiseError("invalid format (repeated flags)")
	}
	d.flags, s = s[:n], s[n:]
	d.width, s = readDigits(L, s)
	if after, ok := strings.CutPrefix(s, "."); ok {
		if d.precision, s = readDigits(L, after); d.precision < 0 {
			d.precision = 0
		}
	}
	if s == "" {
		L.RaiseError("invalid option '%%' to 'format': a format ends too early")
	}
	d.verb = s[0]
	return d, s[1:]
}

func readDigits(L *lua.LState, s string) (int, string) {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	if n > 2 {
		L.RaiseError("invalid format (width or precision too long)")
	}
	if n == 0 {
		return -1, s
	}
	v, _ := strconv.Atoi(s[:n])
	return v, s[n:]
}

// write adds argument i as the directive has it.
func (d directive) write(r *run, L *lua.LState, b *strings.Builder, i int) {
	if i > L.GetTop() {
		argError(L, i, "no value")
	}
	switch d.verb {
	case 'd', 'i':
		d.number(b, 'd', whole(argNumber(L, i)))
	case 'u':
		d.number(b, 'd', whole(argNumber(L, i)))
	case 'o', 'x', 'X':
		d.number(b, d.verb, uint64(whole(argNumber(L, i))))
	case 'c':
		d.pad(b, string([]byte{byte(argInt(L, i))}))
	case 'e', 'E', 'f', 'F', 'g', 'G':
		f := argNumber(L, i)
		if math.IsInf(f, 0) || math.IsNaN(f) {
			d.pad(b, numberText(f))
			return
		}
		if d.precision < 0 {
			d.precision = 6
		}
		d.number(b, d.verb, f)
	case 'q':
		b.WriteString(quoteLua(argText(L, i)))
	case 's':
		v := L.Get(i)
		s := show(v)
		if f := L.GetMetaField(v, "__tostring"); f != lua.LNil {
			s = show(call1(L, f, v))
		}
		if d.precision >= 0 && d.precision < len(s) {
			s = s[:d.precision]
		}
		r.work(len(s))
		d.pad(b, s)
	default:
		L.RaiseError("invalid option '%%%s' to 'format'", string(rune(d.verb)))
	}
}

// whole cuts a number to what a C long holds.
func whole(f float64) int64 {
	switch {
	case math.IsNaN(f):
		return math.MinInt64
	case f >= math.MaxInt64:
		return math.MaxInt64
	case f <= math.MinInt64:
		return math.MinInt64
	}
	return int64(f)
}

func (d directive) number(b *strings.Builder, verb byte, v any) {
	format := "%" + d.flags
	if d.width >= 0 {
		format += strconv.Itoa(d.width)
	}
	if d.precision >= 0 {
		format += "." + strconv.Itoa(d.precision)
	}
	fmt.Fprintf(b, format+string(rune(verb)), v)
}

func (d directive) pad(b *strings.Builder, s string) {
	space := strings.Repeat(" ", max(d.width-len(s), 0))
	if strings.Contains(d.flags, "-") {
		b.WriteString(s + space)
	} else {
		b.WriteString(space + s)
	}
}

// quoteLua writes s so that Lua reads it back.
func quoteLua(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\', '\n':
			b.WriteByte('\\')
			b.WriteByte(c)
		case '\r':
			b.WriteString(`\r`)
		case 0:
			b.WriteString(`\000`)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
