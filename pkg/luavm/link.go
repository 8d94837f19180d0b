package luavm

import (
	"slices"

	lua "github.com/yuin/gopher-lua"
)

// link puts constants into a compiled script, and lets go of what the compiler had in reserve.
func link(p *lua.FunctionProto, constants map[string]lua.LValue) {
	for i, c := range p.Constants {
		if s, ok := c.(lua.LString); ok {
			if v := constants[string(s)]; v != nil {
				p.Constants[i] = v
			}
		}
	}
	p.Code = slices.Clone(p.Code)
	p.DbgSourcePositions = slices.Clone(p.DbgSourcePositions)
	p.Constants = slices.Clone(p.Constants)
	p.DbgLocals = slices.Clone(p.DbgLocals)
	p.DbgCalls = slices.Clone(p.DbgCalls)
	p.DbgUpvalues = slices.Clone(p.DbgUpvalues)
	p.FunctionPrototypes = slices.Clone(p.FunctionPrototypes)
	for _, f := range p.FunctionPrototypes {
		link(f, constants)
	}
}

// protoSize estimates the bytes of compiled code.
func protoSize(p *lua.FunctionProto) int64 {
	n := 400 + 4*len(p.Code) + 8*len(p.DbgSourcePositions) + 24*len(p.DbgCalls) + 48*len(p.DbgLocals) + 16*len(p.DbgUpvalues)
	n += 16 * max(32, len(p.Constants))
	for _, c := range p.Constants {
		n += 32
		if s, ok := c.(lua.LString); ok {
			n += len(s)
		}
	}
	size := int64(n)
	for _, f := range p.FunctionPrototypes {
		size += protoSize(f)
	}
	return size
}
