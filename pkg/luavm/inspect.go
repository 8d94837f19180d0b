package luavm

type findings struct {
	errors, warnings Problems
	targets          []string
	ownGlobals       bool
}

func inspect(u *unit) findings { return findings{ownGlobals: true} }
