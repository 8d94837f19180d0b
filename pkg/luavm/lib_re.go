package luavm

import lua "github.com/yuin/gopher-lua"

var reFuncs = map[string]lua.LGFunction{}
