package luavm

import (
	lua "github.com/yuin/gopher-lua"

	"github.com/model-gateway/model-gateway/pkg/luavm/pattern"
)

// ngx.re, whose functions give an error as their last result instead of raising it.
var reFuncs = map[string]lua.LGFunction{"match": reMatch, "find": reFind, "gmatch": reGmatch, "sub": reSub(1), "gsub": reSub(-1)}

// regex gives the regular expression at argument 2 with the options at argument i, and the subject.
func (r *run) regex(L *lua.LState, i int) (subject string, re *pattern.Regex, err error) {
	subject, source := argText(L, 1), argText(L, 2)
	re, err = pattern.CachedRegex(source, optText(L, i, ""))
	r.matched(subject, source)
	return subject, re, err
}

// search finds the first match, from the position in the context table at argument i on; the table is given the
// position behind it.
func (r *run) search(L *lua.LState, i int) (string, *pattern.Regex, pattern.Match, bool, error) {
	s, re, err := r.regex(L, 3)
	if err != nil {
		return s, re, pattern.Match{}, false, err
	}
	ctx, _ := L.Get(i).(*lua.LTable)
	init := 0
	if ctx != nil {
		if pos, ok := toNumber(ctx.RawGetString("pos")); ok {
			init = pattern.Init(toInt(pos), len(s))
		}
	}
	m, ok, err := re.Find(s, init)
	r.bounded(err)
	if ctx != nil && ok {
		r.writable(L, ctx)
		r.rawSet(L, ctx, lua.LString("pos"), lua.LNumber(m.End+1))
	}
	return s, re, m, ok, err
}

// results pushes n nils and err, as functions of ngx.re do that failed; without err one nil.
func reFailed(L *lua.LState, n int, err error) int {
	if err == nil {
		n = 1
	}
	for range n {
		L.Push(lua.LNil)
	}
	if err == nil {
		return n
	}
	L.Push(lua.LString(err.Error()))
	return n + 1
}

func reMatch(L *lua.LState) int {
	r := runOf(L)
	s, re, m, ok, err := r.search(L, 4)
	if err != nil || !ok {
		return reFailed(L, 1, err)
	}
	L.Push(r.captures(s, re, m))
	return 1
}

func reFind(L *lua.LState) int {
	r := runOf(L)
	_, _, m, ok, err := r.search(L, 4)
	if err != nil || !ok {
		return reFailed(L, 2, err)
	}
	c := m.Whole()
	if nth := optInt(L, 5, 0); nth > 0 {
		if nth > len(m.Captures) || m.Captures[nth-1].Unset() {
			return reFailed(L, 1, nil)
		}
		c = m.Captures[nth-1]
	}
	return pushNumber(L, float64(c.Start+1)) + pushNumber(L, float64(c.End))
}

// captures makes the table of a match: the whole at 0, captures by number and by name, false for those without a part.
func (r *run) captures(s string, re *pattern.Regex, m pattern.Match) *lua.LTable {
	t := newTable()
	r.entry(1 + 2*len(m.Captures))
	t.RawSetInt(0, lua.LString(s[m.Start:m.End]))
	names := re.Names()
	for i, c := range m.Captures {
		v := lua.LValue(lua.LFalse)
		if !c.Unset() {
			v = lua.LString(c.Text(s))
		}
		t.RawSetInt(i+1, v)
		if names[i] != "" {
			t.RawSetString(names[i], v)
		}
	}
	return t
}

func reGmatch(L *lua.LState) int {
	r := runOf(L)
	s, re, err := r.regex(L, 3)
	if err != nil {
		return reFailed(L, 1, err)
	}
	it, err := re.Gmatch(s)
	r.bounded(err)
	if err != nil {
		return reFailed(L, 1, err)
	}
	r.grow(it.Size())
	cost := len(re.String())
	L.Push(function(func(L *lua.LState) int {
		r := runOf(L)
		r.spend(4 + len(s)*(1+cost)/64)
		m, ok, err := it.Next()
		r.bounded(err)
		if err != nil || !ok {
			return reFailed(L, 1, err)
		}
		L.Push(r.captures(s, re, m))
		return 1
	}))
	return 1
}

// reSub makes ngx.re.sub and gsub, which replace so many matches.
func reSub(most int) lua.LGFunction {
	return func(L *lua.LState) int {
		r := runOf(L)
		s, re, err := r.regex(L, 4)
		if err != nil {
			return reFailed(L, 2, err)
		}
		var (
			out string
			n   int
		)
		switch repl := L.Get(3).(type) {
		case lua.LString, lua.LNumber:
			out, n, err = re.GsubString(s, show(repl), most, maxString)
		case *lua.LFunction:
			out, n, err = re.Gsub(s, most, maxString, func(m pattern.Match) (string, bool, error) {
				return replacement(L, call1(L, repl, r.captures(s, re, m)))
			})
		default:
			argError(L, 3, "string or function expected")
		}
		r.bounded(err)
		if err != nil {
			return reFailed(L, 2, err)
		}
		return pushText(r, L, out) + pushNumber(L, float64(n))
	}
}
