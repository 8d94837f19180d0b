package luavm

import (
	"reflect"
	"strings"
	"unsafe"

	lua "github.com/yuin/gopher-lua"
)

// protect calls what is on the stack with so many arguments. An error that a script may catch is given back as its value;
// one that it may not goes on.
//
// When something fails, the interpreter parts all functions on the stack from the local variables around them, also those
// that go on. With a handler of errors it parts none; those that do not go on are parted by the return of some function
// that takes their place. It forgets that it has a handler when another call has been protected inside, so it is told again.
func protect(L *lua.LState, nargs int) (failure lua.LValue, ok bool) {
	r := runOf(L)
	err := L.PCall(nargs, lua.MultRet, handler)
	*(*bool)(unsafe.Add(unsafe.Pointer(L), hasHandler)) = true
	if r.fatal != OK || r.cancelled != nil {
		r.abort()
	}
	if err == nil {
		return nil, true
	}
	L.Push(nothing)
	L.Call(0, 0)
	r.spend(slice / 8)
	if ae, ok := err.(*lua.ApiError); ok { //nolint:errorlint // the interpreter returns it bare
		return ae.Object, false
	}
	return lua.LString(err.Error()), false
}

// hasHandler is where an interpreter keeps whether it has a handler of errors. Should a later version of it have no such
// place, every program that uses it says so at its start, and every test.
var hasHandler = func() uintptr {
	f, ok := reflect.TypeFor[lua.LState]().FieldByName("hasErrorFunc")
	if !ok || f.Type.Kind() != reflect.Bool {
		panic("luavm: this version of gopher-lua keeps its state in another way; see protect")
	}
	return f.Offset
}()

// handler is called where an error happened, before anything is unwound, to see which line that is. It also spares the
// interpreter from writing down the whole stack.
var handler = function(func(L *lua.LState) int {
	r := runOf(L)
	text, _ := L.Get(1).(lua.LString)
	if r.fatal == OK && strings.HasPrefix(string(text), "runtime error: ") {
		r.fatal, r.why = Error, "the interpreter failed: "+string(text) // its state is not to be trusted any more
	}
	if r.fatal == OK || r.line == 0 {
		if r.line = lineOf(string(text), r.script.Name); r.line == 0 {
			r.line = lineNow(L, r.script.Name)
		}
	}
	return 1
})

// nothing is a function of Lua that does nothing.
var nothing = func() *lua.LFunction {
	proto, err := lua.Compile(nil, "")
	if err != nil {
		panic(err)
	}
	return &lua.LFunction{Proto: proto, Env: library}
}()

// lineNow gives the line of the script that is being run.
func lineNow(L *lua.LState, name string) int {
	for level := range 8 {
		if line := lineOf(L.Where(level), name); line > 0 {
			return line
		}
	}
	return 0
}

func basePcall(L *lua.LState) int {
	argAny(L, 1)
	failure, ok := protect(L, L.GetTop()-1)
	if !ok {
		L.Push(lua.LFalse)
		L.Push(failure)
		return 2
	}
	L.Insert(lua.LTrue, 1)
	return L.GetTop()
}

// baseXpcall calls the handler once the error has been left: it could not look at the stack anyway.
func baseXpcall(L *lua.LState) int {
	argAny(L, 1)
	f := argFunction(L, 2)
	L.SetTop(2)
	L.Push(L.Get(1))
	failure, ok := protect(L, 0)
	if !ok {
		v := call1(L, f, failure)
		L.Push(lua.LFalse)
		L.Push(v)
		return 2
	}
	L.Replace(2, lua.LTrue)
	return L.GetTop() - 1
}
