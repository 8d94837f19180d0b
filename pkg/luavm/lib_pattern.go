package luavm

import (
	"errors"

	lua "github.com/yuin/gopher-lua"

	"github.com/model-gateway/model-gateway/pkg/luavm/pattern"
)

// matched counts a match before it is made: it may take as long as pattern and subject are.
func (r *run) matched(subject, pat string) {
	r.spend(4 + min(len(subject), pattern.MaxSubject)*(1+min(len(pat), pattern.MaxPattern))/64)
}

// compiled gives a pattern; one that cannot be used is an error of the script.
func compiled(L *lua.LState, pat string) *pattern.Pattern {
	p, err := pattern.Cached(pat)
	if err != nil {
		L.RaiseError("%s", err.Error())
	}
	return p
}

// failed raises an error of a match.
func (r *run) failed(L *lua.LState, err error) {
	r.bounded(err)
	L.RaiseError("%s", err.Error())
}

// bounded ends the run when a match, or what came of it, was too much.
func (r *run) bounded(err error) {
	switch {
	case errors.Is(err, pattern.ErrResult):
		r.end(r.blame(Memory), "%s", err.Error())
	case errors.Is(err, pattern.ErrSubject) && r.blame(Error) == TooLong, errors.Is(err, pattern.ErrUTF8) && r.given > 0:
		r.end(TooLong, "%s", err.Error())
	case errors.Is(err, pattern.ErrWork):
		r.end(Timeout, "%s", err.Error())
	}
}

// pushCaptures pushes what a match gives to a script: its captures, or the whole.
func pushCaptures(L *lua.LState, subject string, m pattern.Match, whole bool) int {
	if len(m.Captures) == 0 && whole {
		pushCapture(L, subject, m.Whole())
		return 1
	}
	for _, c := range m.Captures {
		pushCapture(L, subject, c)
	}
	return len(m.Captures)
}

func pushCapture(L *lua.LState, subject string, c pattern.Capture) {
	if c.Position {
		L.Push(lua.LNumber(c.Start + 1))
		return
	}
	L.Push(lua.LString(c.Text(subject)))
}

func stringFind(L *lua.LState) int {
	r := runOf(L)
	s, pat := argText(L, 1), argText(L, 2)
	init := pattern.Init(optInt(L, 3, 1), len(s))
	if L.ToBool(4) {
		r.work(len(s) + len(pat))
		start, end, ok := pattern.Plain(s, pat, init)
		if !ok {
			L.Push(lua.LNil)
			return 1
		}
		return pushNumber(L, float64(start+1)) + pushNumber(L, float64(end))
	}
	p := compiled(L, pat)
	r.matched(s, pat)
	m, ok, err := p.Find(s, init)
	if err != nil {
		r.failed(L, err)
	}
	if !ok {
		L.Push(lua.LNil)
		return 1
	}
	return pushNumber(L, float64(m.Start+1)) + pushNumber(L, float64(m.End)) + pushCaptures(L, s, m, false)
}

func stringMatch(L *lua.LState) int {
	r := runOf(L)
	s, pat := argText(L, 1), argText(L, 2)
	p := compiled(L, pat)
	r.matched(s, pat)
	m, ok, err := p.Find(s, pattern.Init(optInt(L, 3, 1), len(s)))
	if err != nil {
		r.failed(L, err)
	}
	if !ok {
		L.Push(lua.LNil)
		return 1
	}
	return pushCaptures(L, s, m, true)
}

func stringGmatch(L *lua.LState) int {
	r := runOf(L)
	s, pat := argText(L, 1), argText(L, 2)
	p := compiled(L, pat)
	r.matched(s, pat)
	it, err := p.Gmatch(s)
	if err != nil {
		r.failed(L, err)
	}
	r.grow(it.Size())
	L.Push(function(func(L *lua.LState) int {
		r := runOf(L)
		r.matched(s, pat)
		m, ok, err := it.Next()
		if err != nil {
			r.failed(L, err)
		}
		if !ok {
			L.Push(lua.LNil)
			return 1
		}
		return pushCaptures(L, s, m, true)
	}))
	return 1
}

func stringGsub(L *lua.LState) int {
	r := runOf(L)
	s, pat := argText(L, 1), argText(L, 2)
	most := optInt(L, 4, -1)
	if L.Get(4) != lua.LNil {
		most = max(most, 0)
	}
	p := compiled(L, pat)
	r.matched(s, pat)
	var (
		out string
		n   int
		err error
	)
	switch repl := L.Get(3).(type) {
	case lua.LString, lua.LNumber:
		out, n, err = p.GsubString(s, show(repl), most, maxString)
	case *lua.LTable:
		out, n, err = p.Gsub(s, most, maxString, func(m pattern.Match) (string, bool, error) {
			return replacement(L, L.GetTable(repl, lua.LString(m.First().Text(s))))
		})
	case *lua.LFunction:
		out, n, err = p.Gsub(s, most, maxString, func(m pattern.Match) (string, bool, error) {
			L.Push(repl)
			L.Call(pushCaptures(L, s, m, true), 1)
			v := L.Get(-1)
			L.Pop(1)
			return replacement(L, v)
		})
	default:
		argError(L, 3, "string, table or function expected")
	}
	if err != nil {
		r.failed(L, err)
	}
	return pushText(r, L, out) + pushNumber(L, float64(n))
}

// replacement is what gsub's table or function gave for a match.
func replacement(L *lua.LState, v lua.LValue) (string, bool, error) {
	if lua.LVIsFalse(v) {
		return "", true, nil
	}
	s, ok := text(v)
	if !ok {
		L.RaiseError("invalid replacement value (a %s)", v.Type())
	}
	return s, false, nil
}
