//go:build !race

package split

// users that a test places: a million, where each costs its time only.
const users = 1_000_000
