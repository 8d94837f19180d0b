//go:build race

package gateway

// Under the race detector pools forget at random, and what is allocated says nothing.
const raceDetector = true
