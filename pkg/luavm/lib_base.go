package luavm

import (
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

var baseFuncs = map[string]lua.LGFunction{
	"assert": baseAssert, "error": baseError, "getmetatable": baseGetMetatable, "ipairs": baseIpairs, "next": baseNext,
	"pairs": basePairs, "pcall": basePcall, "rawequal": baseRawEqual, "rawget": baseRawGet, "rawset": baseRawSet,
	"select": baseSelect, "setmetatable": baseSetMetatable, "tonumber": baseToNumber, "tostring": baseToString,
	"type": baseType, "unpack": baseUnpack, "xpcall": baseXpcall,
}

func baseAssert(L *lua.LState) int {
	if argAny(L, 1); L.ToBool(1) {
		return L.GetTop()
	}
	switch v := L.Get(2).(type) {
	case *lua.LNilType:
		L.RaiseError("assertion failed!")
	case lua.LString:
		L.Error(v, 1)
	default:
		L.Error(v, 0)
	}
	return 0
}

// baseError raises its argument; a text is told where: by the function that calls error, or by the one that many levels up.
func baseError(L *lua.LState) int {
	level := optInt(L, 2, 1)
	message, ok := text(L.Get(1))
	if !ok || level <= 0 || level > maxCalls {
		L.Error(L.Get(1), 0)
		return 0
	}
	if where := L.Where(level); lineOf(where+" ", runOf(L).script.Name) > 0 {
		message = where + " " + message
	}
	L.Error(lua.LString(message), 0)
	return 0
}

func baseGetMetatable(L *lua.LState) int {
	L.Push(L.GetMetatable(argAny(L, 1)))
	return 1
}

func baseSetMetatable(L *lua.LState) int {
	t := argTable(L, 1)
	if v := L.Get(2); v != lua.LNil && v.Type() != lua.LTTable {
		argError(L, 2, "nil or table expected")
	}
	runOf(L).writable(L, t)
	if old, ok := t.Metatable.(*lua.LTable); ok && old.RawGetString("__metatable") != lua.LNil {
		L.RaiseError("cannot change a protected metatable")
	}
	if mt, ok := L.Get(2).(*lua.LTable); ok && frozen[mt] {
		L.RaiseError("not a metatable of your own")
	}
	t.Metatable = L.Get(2)
	L.SetTop(1)
	return 1
}

var ipairsNext = function(func(L *lua.LState) int {
	t := argTable(L, 1)
	i := argInt(L, 2) + 1
	v := t.RawGetInt(i)
	if v == lua.LNil {
		L.Push(lua.LNil)
		return 1
	}
	L.Push(lua.LNumber(i))
	L.Push(v)
	return 2
})

func baseIpairs(L *lua.LState) int {
	t := iterable(L)
	L.Push(ipairsNext)
	L.Push(t)
	L.Push(lua.LNumber(0))
	return 3
}

// iterable is the table to be walked over: what the call has is read for it.
func iterable(L *lua.LState) *lua.LTable {
	t := argTable(L, 1)
	if f, ok := materials[t]; ok {
		return f(runOf(L), L)
	}
	return t
}

func baseNext(L *lua.LState) int {
	r := runOf(L)
	t := argTable(L, 1)
	r.spend(1 + r.holes/slowHoles) // it steps over all that was taken out
	key := L.Get(2)
	if key != lua.LNil && t.RawGet(key) == lua.LNil {
		if _, array := key.(lua.LNumber); !array && r.holes == 0 {
			L.RaiseError("invalid key to 'next'")
		}
	}
	key, value := t.Next(key)
	if key == lua.LNil {
		L.Push(lua.LNil)
		return 1
	}
	L.Push(key)
	L.Push(value)
	return 2
}

var pairsNext = function(baseNext)

func basePairs(L *lua.LState) int {
	t := iterable(L)
	L.Push(pairsNext)
	L.Push(t)
	L.Push(lua.LNil)
	return 3
}

func baseRawEqual(L *lua.LState) int {
	L.Push(lua.LBool(L.RawEqual(argAny(L, 1), argAny(L, 2))))
	return 1
}

func baseRawGet(L *lua.LState) int {
	L.Push(argTable(L, 1).RawGet(argAny(L, 2)))
	return 1
}

func baseRawSet(L *lua.LState) int {
	r := runOf(L)
	t := argTable(L, 1)
	r.writable(L, t)
	r.rawSet(L, t, L.Get(2), L.Get(3))
	L.SetTop(1)
	return 1
}

func baseSelect(L *lua.LState) int {
	n := L.GetTop() - 1
	if L.Get(1) == lua.LString("#") {
		return pushNumber(L, float64(n))
	}
	i := argInt(L, 1)
	switch {
	case i < 0:
		i += n
	case i > n:
		return 0
	default:
		i--
	}
	if i < 0 {
		argError(L, 1, "index out of range")
	}
	return n - i
}

func baseToNumber(L *lua.LState) int {
	v := argAny(L, 1)
	base := optInt(L, 2, 10)
	if base == 10 {
		f, ok := toNumber(v)
		if !ok {
			L.Push(lua.LNil)
			return 1
		}
		return pushNumber(L, f)
	}
	if base < 2 || base > 36 {
		argError(L, 2, "base out of range")
	}
	s := strings.ToLower(strings.TrimSpace(argText(L, 1)))
	if base == 16 {
		s = strings.TrimPrefix(s, "0x")
	}
	n, err := strconv.ParseInt(s, base, 64)
	if err != nil || strings.Contains(s, "_") {
		L.Push(lua.LNil)
		return 1
	}
	return pushNumber(L, float64(n))
}

func baseToString(L *lua.LState) int {
	v := argAny(L, 1)
	if f := L.GetMetaField(v, "__tostring"); f != lua.LNil {
		L.Push(call1(L, f, v))
		return 1
	}
	if s, ok := v.(lua.LString); ok {
		L.Push(s)
		return 1
	}
	return pushText(runOf(L), L, show(v))
}

func baseType(L *lua.LState) int {
	L.Push(lua.LString(argAny(L, 1).Type().String()))
	return 1
}

func baseUnpack(L *lua.LState) int {
	t := argTable(L, 1)
	from, to := optInt(L, 2, 1), 0
	if L.Get(3) == lua.LNil {
		to = length(runOf(L), t)
	} else {
		to = argInt(L, 3)
	}
	n := results(L, to-from+1)
	for i := from; i <= to; i++ {
		L.Push(t.RawGetInt(i))
	}
	return n
}

// results counts n results of a library function.
func results(L *lua.LState, n int) int {
	if n <= 0 {
		return 0
	}
	if n > maxValues {
		L.RaiseError("%d results; at most %d are allowed at once", n, maxValues)
	}
	runOf(L).spend(1 + n/8)
	return n
}

// length is #t.
func length(r *run, t *lua.LTable) int {
	r.spend(1 + r.holes/slowHoles)
	return t.Len()
}
