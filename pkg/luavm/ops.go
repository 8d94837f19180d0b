package luavm

import (
	"math"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// opConcatFunc is a .. b .. c.
func opConcatFunc(L *lua.LState) int {
	r := runOf(L)
	n := L.GetTop()
	size := 0
	for i := 1; i <= n; i++ {
		switch v := L.Get(i).(type) {
		case lua.LString:
			size += len(v)
		case lua.LNumber:
			size += 8
		default:
			return concatAny(r, L, n)
		}
	}
	if size > maxString+8*n {
		r.made(size)
	}
	var b strings.Builder
	b.Grow(size)
	for i := 1; i <= n; i++ {
		s, _ := text(L.Get(i))
		b.WriteString(s)
	}
	return pushText(r, L, b.String())
}

// concatAny is for operands that are not all strings: from the right, two at a time.
func concatAny(r *run, L *lua.LState, n int) int {
	acc := L.Get(n)
	for i := n - 1; i >= 1; i-- {
		left := L.Get(i)
		a, ok1 := text(left)
		b, ok2 := text(acc)
		if ok1 && ok2 {
			r.made(len(a) + len(b))
			acc = lua.LString(a + b)
			continue
		}
		f := L.GetMetaField(left, "__concat")
		if f == lua.LNil {
			f = L.GetMetaField(acc, "__concat")
		}
		if f == lua.LNil {
			bad := left
			if ok1 {
				bad = acc
			}
			if bad == lua.LNil && r.missing != "" {
				r.noKey() // the key is made of what the call does not have
			}
			L.RaiseError("attempt to concatenate a %s value", bad.Type())
		}
		acc = call1(L, f, left, acc)
	}
	L.Push(acc)
	return 1
}

// call1 calls f, for one result.
func call1(L *lua.LState, f lua.LValue, args ...lua.LValue) lua.LValue {
	L.Push(f)
	for _, a := range args {
		L.Push(a)
	}
	L.Call(len(args), 1)
	v := L.Get(-1)
	L.Pop(1)
	return v
}

// opSetFunc is t[k] = v.
func opSetFunc(L *lua.LState) int {
	runOf(L).set(L, L.Get(1), L.Get(2), L.Get(3))
	return 0
}

// set writes a field, with metamethods.
func (r *run) set(L *lua.LState, object, key, value lua.LValue) {
	for range lua.MaxTableGetLoop {
		t, isTable := object.(*lua.LTable)
		if isTable {
			if t.Metatable == lua.LNil {
				r.rawSet(L, t, key, value)
				return
			}
			r.writable(L, t)
			if t.RawGet(key) != lua.LNil {
				r.rawSet(L, t, key, value)
				return
			}
		}
		switch f := L.GetMetaField(object, "__newindex").(type) {
		case *lua.LNilType:
			if !isTable {
				L.RaiseError("attempt to write field %s of a %s value", quote(show(key)), object.Type())
			}
			r.rawSet(L, t, key, value)
			return
		case *lua.LFunction:
			L.Push(f)
			L.Push(object)
			L.Push(key)
			L.Push(value)
			L.Call(3, 0)
			return
		default:
			object = f
		}
	}
	L.RaiseError("too many __newindex in a row")
}

// writable refuses to write what all runs share, and what a call is.
func (r *run) writable(L *lua.LState, t *lua.LTable) {
	if mt, ok := t.Metatable.(*lua.LTable); ok && frozen[mt] {
		L.RaiseError("the library and the call are read-only; write to a table of your own")
	}
}

// rawSet writes an entry of a table within the bounds.
func (r *run) rawSet(L *lua.LState, t *lua.LTable, key, value lua.LValue) {
	index := 0
	switch k := key.(type) {
	case *lua.LNilType:
		L.RaiseError("table index is nil")
	case lua.LNumber:
		f := float64(k)
		switch {
		case math.IsNaN(f):
			L.RaiseError("table index is NaN")
		case f > maxEntries:
			r.end(Memory, "a table index of %s; at most %d is allowed", numberText(f), maxEntries)
		case f >= 1 && f == math.Trunc(f):
			index = int(f)
		}
	}
	old := t.RawGet(key)
	if value == lua.LNil {
		if old != lua.LNil {
			r.hole(1)
			t.RawSet(key, value)
		}
		return
	}
	if old == lua.LNil {
		r.entry(1)
		if index > 1 && t.RawGetInt(index-1) == lua.LNil {
			r.gap(t, index)
		}
	}
	t.RawSet(key, value)
}

// gap counts the empty places that are made below an index when a table is filled up to it.
func (r *run) gap(t *lua.LTable, index int) {
	r.spend(1 + r.holes/slowHoles)
	if n := index - 1 - t.MaxN(); n > 0 {
		r.hole(n)
		r.grow(32 * n)
	}
}

// opMadeFunc counts the fields of a table that was just made.
func opMadeFunc(L *lua.LState) int {
	runOf(L).entry(int(L.Get(2).(lua.LNumber)))
	L.SetTop(1)
	return 1
}

// opFillFunc is the rest of a constructor: fill(t, index, spec, ...), where spec has a k for a key and a value, a p for a
// value at the next index from index on, and an m for all values that are left.
func opFillFunc(L *lua.LState) int {
	r := runOf(L)
	t := L.Get(1).(*lua.LTable)
	index := int(L.Get(2).(lua.LNumber))
	spec := string(L.Get(3).(lua.LString))
	for _, keyed := range []bool{true, false} { // where both name one index, that without a key holds
		at := 4
		for _, c := range []byte(spec) {
			switch {
			case c == 'k':
				if keyed {
					r.rawSet(L, t, L.Get(at), L.Get(at+1))
				}
				at += 2
			case keyed:
				at++
			default:
				last := at
				if c == 'm' {
					last = L.GetTop()
				}
				for ; at <= last; at++ {
					r.rawSet(L, t, lua.LNumber(index), L.Get(at))
					index++
				}
			}
		}
	}
	L.SetTop(1)
	return 1
}

// opModFunc is a % b. For whole numbers, which is what hashes are, it is several times as fast as the interpreter's own.
func opModFunc(L *lua.LState) int {
	a, ok1 := L.Get(1).(lua.LNumber)
	b, ok2 := L.Get(2).(lua.LNumber)
	if ok1 && ok2 {
		if i, j := int64(a), int64(b); lua.LNumber(i) == a && lua.LNumber(j) == b && i >= 0 && j > 0 {
			return pushNumber(L, float64(i%j))
		}
		return pushNumber(L, modulo(float64(a), float64(b)))
	}
	f := L.GetMetaField(L.Get(1), "__mod")
	if f == lua.LNil {
		f = L.GetMetaField(L.Get(2), "__mod")
	}
	if f == lua.LNil {
		bad := L.Get(1)
		if ok1 {
			bad = L.Get(2)
		}
		L.RaiseError("attempt to calculate with a %s value", bad.Type())
	}
	L.Push(call1(L, f, L.Get(1), L.Get(2)))
	return 1
}
