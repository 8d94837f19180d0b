package luavm

import (
	"sort"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

var tableFuncs = map[string]lua.LGFunction{
	"concat": tableConcat, "getn": tableGetN, "insert": tableInsert, "maxn": tableMaxN, "remove": tableRemove, "sort": tableSort,
}

func tableConcat(L *lua.LState) int {
	r := runOf(L)
	t := argTable(L, 1)
	sep := optText(L, 2, "")
	from, to := optInt(L, 3, 1), optInt(L, 4, length(r, t))
	if n := to - from + 1; n > maxEntries {
		r.end(Memory, "table.concat of %d values; at most %d are allowed", n, maxEntries)
	}
	var b strings.Builder
	for i := from; i <= to; i++ {
		s, ok := text(t.RawGetInt(i))
		if !ok {
			L.RaiseError("invalid value (%s) at index %d in table for 'concat'", t.RawGetInt(i).Type(), i)
		}
		if b.WriteString(s); i < to {
			b.WriteString(sep)
		}
		if b.Len() > maxString {
			r.made(b.Len())
		}
		r.spend(1)
	}
	return pushText(r, L, b.String())
}

func tableGetN(L *lua.LState) int {
	return pushNumber(L, float64(length(runOf(L), argTable(L, 1))))
}

func tableMaxN(L *lua.LState) int {
	r := runOf(L)
	r.spend(1 + r.holes/slowHoles)
	return pushNumber(L, float64(argTable(L, 1).MaxN()))
}

func tableInsert(L *lua.LState) int {
	r := runOf(L)
	t := argTable(L, 1)
	r.writable(L, t)
	n := length(r, t)
	switch L.GetTop() {
	case 2:
		r.rawSet(L, t, lua.LNumber(n+1), L.Get(2))
	case 3:
		at := argInt(L, 2)
		if at < 1 || at > n+1 {
			argError(L, 2, "position out of bounds")
		}
		r.spend(1 + (n-at)/8)
		for i := n; i >= at; i-- {
			r.rawSet(L, t, lua.LNumber(i+1), t.RawGetInt(i))
		}
		r.rawSet(L, t, lua.LNumber(at), L.Get(3))
	default:
		L.RaiseError("wrong number of arguments to 'insert'")
	}
	return 0
}

func tableRemove(L *lua.LState) int {
	r := runOf(L)
	t := argTable(L, 1)
	r.writable(L, t)
	n := length(r, t)
	at := optInt(L, 2, n)
	if n == 0 || at < 1 || at > n {
		L.Push(lua.LNil)
		return 1
	}
	r.spend(1 + (n-at)/8)
	L.Push(t.Remove(at))
	return 1
}

func tableSort(L *lua.LState) int {
	r := runOf(L)
	t := argTable(L, 1)
	r.writable(L, t)
	if L.Get(2) != lua.LNil {
		argFunction(L, 2)
	}
	s := &sorter{r: r, L: L, less: L.Get(2), values: make([]lua.LValue, length(r, t))}
	r.grow(16 * len(s.values))
	for i := range s.values {
		s.values[i] = t.RawGetInt(i + 1)
	}
	sort.Sort(s)
	for i, v := range s.values {
		t.RawSetInt(i+1, v)
	}
	return 0
}

// sorter sorts values. How often it compares is bounded whatever the comparison says.
type sorter struct {
	r      *run
	L      *lua.LState
	less   lua.LValue
	values []lua.LValue
}

func (s *sorter) Len() int      { return len(s.values) }
func (s *sorter) Swap(i, j int) { s.values[i], s.values[j] = s.values[j], s.values[i] }

func (s *sorter) Less(i, j int) bool {
	if s.less == lua.LNil {
		s.r.spend(1)
		return s.L.LessThan(s.values[i], s.values[j])
	}
	return lua.LVAsBool(call1(s.L, s.less, s.values[i], s.values[j]))
}
