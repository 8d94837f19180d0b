//go:build race

package split

const users = 50_000
