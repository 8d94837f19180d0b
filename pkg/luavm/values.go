package luavm

import (
	"math"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// clip cuts a text that is told to people.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const dots = "..."
	return strings.ToValidUTF8(s[:n-len(dots)], "") + dots
}

// text gives the bytes of a string or of a number, which Lua takes for one another.
func text(v lua.LValue) (string, bool) {
	switch v := v.(type) {
	case lua.LString:
		return string(v), true
	case lua.LNumber:
		return numberText(float64(v)), true
	}
	return "", false
}

// numberText writes a number as Lua 5.1 does: with 14 digits.
func numberText(f float64) string {
	switch {
	case f == math.Trunc(f) && math.Abs(f) < 1e14:
		return strconv.FormatInt(int64(f), 10)
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	return strconv.FormatFloat(f, 'g', 14, 64)
}

// show is tostring without metamethods. Things that are no text have no address: a decision must not depend on one.
func show(v lua.LValue) string {
	switch v := v.(type) {
	case lua.LString:
		return string(v)
	case lua.LNumber:
		return numberText(float64(v))
	case lua.LBool:
		return strconv.FormatBool(bool(v))
	case *lua.LNilType:
		return "nil"
	}
	if v == null {
		return "null"
	}
	return v.Type().String()
}

// parseNumber reads a number as Lua does: decimal whatever zeros it begins with, or hexadecimal.
func parseNumber(s string) (float64, bool) {
	s = strings.Trim(s, " \t\n\v\f\r")
	if len(s) > 64 {
		return 0, false
	}
	digits := strings.TrimLeft(s, "+-")
	if len(s)-len(digits) > 1 || digits == "" {
		return 0, false
	}
	if hex, ok := strings.CutPrefix(strings.ToLower(digits), "0x"); ok {
		n, err := strconv.ParseUint(hex, 16, 64)
		if s[0] == '-' {
			return -float64(n), err == nil
		}
		return float64(n), err == nil
	}
	if c := digits[0]; c != '.' && (c < '0' || c > '9') || strings.ContainsAny(digits, "_xXpP") {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

// toNumber gives the number that a value is, or says.
func toNumber(v lua.LValue) (float64, bool) {
	switch v := v.(type) {
	case lua.LNumber:
		return float64(v), true
	case lua.LString:
		return parseNumber(string(v))
	}
	return 0, false
}

// toInt cuts a number to an integer that arithmetic on positions does not overflow.
func toInt(f float64) int {
	const most = 1 << 40
	if math.IsNaN(f) {
		return 0
	}
	return int(max(-most, min(most, f)))
}

// argError raises an error about an argument of the library function that is being called.
func argError(L *lua.LState, i int, message string) {
	name := "?"
	if dbg, ok := L.GetStack(0); ok {
		if fn, err := L.GetInfo("f", dbg, lua.LNil); err == nil {
			if f, ok := fn.(*lua.LFunction); ok && names[f] != "" {
				name = names[f]
			}
		}
	}
	L.RaiseError("bad argument #%d to '%s' (%s)", i, name, message)
}

func typeError(L *lua.LState, i int, want lua.LValueType) {
	argError(L, i, want.String()+" expected, got "+L.Get(i).Type().String())
}

func argTable(L *lua.LState, i int) *lua.LTable {
	t, ok := L.Get(i).(*lua.LTable)
	if !ok {
		typeError(L, i, lua.LTTable)
	}
	return t
}

func argFunction(L *lua.LState, i int) *lua.LFunction {
	f, ok := L.Get(i).(*lua.LFunction)
	if !ok {
		typeError(L, i, lua.LTFunction)
	}
	return f
}

func argAny(L *lua.LState, i int) lua.LValue {
	if i > L.GetTop() {
		argError(L, i, "value expected")
	}
	return L.Get(i)
}

// Arguments of a library function. Each raises an error that names the argument.

func argText(L *lua.LState, i int) string {
	s, ok := text(L.Get(i))
	if !ok {
		typeError(L, i, lua.LTString)
	}
	return s
}

func argNumber(L *lua.LState, i int) float64 {
	f, ok := toNumber(L.Get(i))
	if !ok {
		typeError(L, i, lua.LTNumber)
	}
	return f
}

func argInt(L *lua.LState, i int) int { return toInt(argNumber(L, i)) }

func optInt(L *lua.LState, i, otherwise int) int {
	if L.Get(i) == lua.LNil {
		return otherwise
	}
	return argInt(L, i)
}

func optText(L *lua.LState, i int, otherwise string) string {
	if L.Get(i) == lua.LNil {
		return otherwise
	}
	return argText(L, i)
}

// pushText pushes a string that was made, counted.
func pushText(r *run, L *lua.LState, s string) int {
	r.made(len(s))
	L.Push(lua.LString(s))
	return 1
}

func pushNumber(L *lua.LState, f float64) int {
	L.Push(lua.LNumber(f))
	return 1
}
