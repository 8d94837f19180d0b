package luavm

import (
	"math"
	"math/rand/v2"

	lua "github.com/yuin/gopher-lua"
)

// one makes a library function of a function of one number.
func one(f func(float64) float64) lua.LGFunction {
	return func(L *lua.LState) int { return pushNumber(L, f(argNumber(L, 1))) }
}

func two(f func(a, b float64) float64) lua.LGFunction {
	return func(L *lua.LState) int { return pushNumber(L, f(argNumber(L, 1), argNumber(L, 2))) }
}

// stringArith makes arithmetic on strings read them as Lua does. (The interpreter itself takes "010" for 8.)
var stringArith = map[string]lua.LGFunction{
	"__add": arith(func(a, b float64) float64 { return a + b }),
	"__sub": arith(func(a, b float64) float64 { return a - b }),
	"__mul": arith(func(a, b float64) float64 { return a * b }),
	"__div": arith(func(a, b float64) float64 { return a / b }),
	"__mod": arith(modulo),
	"__pow": arith(math.Pow),
	"__unm": arith(func(a, _ float64) float64 { return -a }),
}

func arith(f func(a, b float64) float64) lua.LGFunction {
	return func(L *lua.LState) int {
		a, ok1 := toNumber(L.Get(1))
		b, ok2 := 0.0, true
		if L.GetTop() > 1 {
			b, ok2 = toNumber(L.Get(2))
		}
		if !ok1 || !ok2 {
			bad := L.Get(1)
			if ok1 {
				bad = L.Get(2)
			}
			if bad.Type() == lua.LTString {
				L.RaiseError("attempt to calculate with %s, which is no number", quote(show(bad)))
			}
			L.RaiseError("attempt to calculate with a %s value", bad.Type())
		}
		return pushNumber(L, f(a, b))
	}
}

// modulo is Lua's %, whose sign is that of the divisor.
func modulo(a, b float64) float64 {
	m := math.Mod(a, b)
	if m*b < 0 {
		m += b
	}
	return m
}

func mathLib() *lua.LTable {
	t := funcs(map[string]lua.LGFunction{
		"abs": one(math.Abs), "acos": one(math.Acos), "asin": one(math.Asin), "atan": one(math.Atan), "atan2": two(math.Atan2),
		"ceil": one(math.Ceil), "cos": one(math.Cos), "cosh": one(math.Cosh), "deg": one(func(f float64) float64 { return f * 180 / math.Pi }),
		"exp": one(math.Exp), "floor": one(math.Floor), "fmod": two(math.Mod), "mod": two(math.Mod), "frexp": mathFrexp, "ldexp": mathLdexp,
		"log": one(math.Log), "log10": one(math.Log10), "max": mathMax, "min": mathMin, "modf": mathModf, "pow": two(math.Pow),
		"rad": one(func(f float64) float64 { return f * math.Pi / 180 }), "random": mathRandom, "sin": one(math.Sin),
		"sinh": one(math.Sinh), "sqrt": one(math.Sqrt), "tan": one(math.Tan), "tanh": one(math.Tanh),
	})
	t.RawSetString("pi", lua.LNumber(math.Pi))
	t.RawSetString("huge", lua.LNumber(math.Inf(1)))
	return t
}

func mathFrexp(L *lua.LState) int {
	f, exp := math.Frexp(argNumber(L, 1))
	return pushNumber(L, f) + pushNumber(L, float64(exp))
}

func mathLdexp(L *lua.LState) int {
	return pushNumber(L, math.Ldexp(argNumber(L, 1), argInt(L, 2)))
}

func mathModf(L *lua.LState) int {
	whole, part := math.Modf(argNumber(L, 1))
	return pushNumber(L, whole) + pushNumber(L, part)
}

func mathMax(L *lua.LState) int {
	f := argNumber(L, 1)
	for i := 2; i <= L.GetTop(); i++ {
		f = max(f, argNumber(L, i))
	}
	return pushNumber(L, f)
}

func mathMin(L *lua.LState) int {
	f := argNumber(L, 1)
	for i := 2; i <= L.GetTop(); i++ {
		f = min(f, argNumber(L, i))
	}
	return pushNumber(L, f)
}

func mathRandom(L *lua.LState) int {
	if L.GetTop() == 0 {
		return pushNumber(L, rand.Float64())
	}
	low, high := 1, argInt(L, 1)
	if L.GetTop() > 1 {
		low, high = high, argInt(L, 2)
	}
	if low > high {
		argError(L, L.GetTop(), "interval is empty")
	}
	return pushNumber(L, float64(low+rand.IntN(high-low+1)))
}
