package grpcfront

import "runtime"

// A call needs some 12 KiB of stack on its way through the pipeline and gRPC's client. A goroutine that starts with 2 KiB grows
// there in three steps, each of which copies a stack that is deep by then: a quarter of all CPU in a profile of small calls.
//
// Handlers therefore run on workers that stay, few enough for their stacks to stay in the cache; the garbage collector
// shrinks the stacks of those that wait, and calls beyond the workers get goroutines of their own, so each handler begins by
// growing in one step, while the stack is still shallow. Measured together: 0.7 of the CPU of a call without either.
func streamWorkers() uint32 { return uint32(64 * runtime.GOMAXPROCS(0)) } //nolint:gosec // a small number

// growStack makes the stack of the calling goroutine large enough for a call; at is below zero. The frame of a function is
// made before its first line, so the array makes the stack grow without being used, and is not cleared for each call,
// which was 1 % of a small one. Only the caller knows that it is not used, so the compiler keeps it.
//
//go:noinline
func growStack(at int) byte {
	if at < 0 {
		return 0
	}
	var frame [9 << 10]byte
	frame[at] = 1
	return frame[at/2]
}
