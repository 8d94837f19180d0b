package luavm

import lua "github.com/yuin/gopher-lua"

// The library. Its tables and functions are made once and shared by all interpreters; nobody writes to them any more:
// every write of a script passes run.writable.
var (
	library    = newTable() // what a script's globals are looked up in
	emptyTable = newTable()
	stringMeta = newTable() // of all strings
	readOnly   = newTable() // the metatable of tables that are not to be written
	globalMeta = newTable() // of a run's own globals

	// frozen holds the metatables of tables that are not to be written.
	frozen = map[*lua.LTable]bool{}
)

func newTable() *lua.LTable { return &lua.LTable{Metatable: lua.LNil} }

func function(f lua.LGFunction) *lua.LFunction { return &lua.LFunction{IsG: true, GFunction: f} }

// funcs makes a table of functions that is not to be written.
func funcs(fs map[string]lua.LGFunction) *lua.LTable {
	t := newTable()
	for name, f := range fs {
		t.RawSetString(name, function(f))
	}
	t.Metatable = readOnly
	return t
}

// indexed makes a metatable of things whose fields a function tells.
func indexed(index lua.LGFunction) *lua.LTable {
	mt := newTable()
	mt.RawSetString("__index", function(index))
	return mt
}

// proxy makes a table that looks empty and whose fields a function tells.
func proxy(index lua.LGFunction) *lua.LTable {
	mt := indexed(index)
	mt.RawSetString("__metatable", lua.LFalse)
	mt.Metatable = readOnly
	frozen[mt] = true
	t := newTable()
	t.Metatable = mt
	return t
}

// frozenProxy reports whether t was made by proxy.
func frozenProxy(t *lua.LTable) bool {
	mt, ok := t.Metatable.(*lua.LTable)
	return ok && frozen[mt] && mt != readOnly
}

// names tells the names of the library's functions, for errors about their arguments.
var names = map[*lua.LFunction]string{}

func nameAll(prefix string, t *lua.LTable) {
	t.ForEach(func(k, v lua.LValue) {
		switch v := v.(type) {
		case *lua.LFunction:
			names[v] = prefix + show(k)
		case *lua.LTable:
			nameAll(prefix+show(k)+".", v)
		}
	})
}

func init() {
	for _, mt := range []*lua.LTable{readOnly, stringMeta, globalMeta, headersMeta, statsMeta} {
		mt.RawSetString("__metatable", lua.LFalse)
		mt.Metatable = readOnly // no script gets hold of it; should one do, it cannot write to it
	}
	frozen[readOnly] = true
	frozen[stringMeta] = true
	globalMeta.RawSetString("__index", library)

	for name, f := range baseFuncs {
		library.RawSetString(name, function(f))
	}
	text := funcs(stringFuncs)
	stringMeta.RawSetString("__index", text)
	for name, f := range stringArith {
		stringMeta.RawSetString(name, function(f))
	}
	library.RawSetString("_VERSION", lua.LString("Lua 5.1"))
	library.RawSetString("string", text)
	library.RawSetString("table", funcs(tableFuncs))
	library.RawSetString("math", mathLib())
	library.RawSetString("ngx", ngxLib())
	library.RawSetString("call", callProxy)
	for name, f := range callFuncs {
		library.RawSetString(name, function(f))
	}
	library.Metatable = readOnly
	nameAll("", library)
}

// globals makes the globals of one run of a script that has some of its own.
func globals() *lua.LTable {
	env := newTable()
	env.RawSetString("_G", env)
	env.Metatable = globalMeta
	return env
}
