//go:build race

package luavm

// raceFactor is how much slower runs may be under the race detector.
const raceFactor = 20
