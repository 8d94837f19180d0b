package grpcfront

import "runtime"

// A call needs some 12 KiB of stack on its way through the pipeline and gRPC's client. A goroutine that starts with 2 KiB grows
// there in three steps, each of which copies a stack that is deep by then: a quarter of all CPU in a profile of small calls.
//
// Handlers therefore run on workers that stay, few enough for their stacks to stay in the cache; the garbage collector
// shrinks the stacks of those that wait, and calls beyond the workers get goroutines of their own, so each handler begins by
// growing in one step, while the stack is still shallow. Measured together: 0.7 of the CPU of a call without either.
func streamWorkers() uint32 { return uint32(64 * runtime.GOMAXPROCS(0)) } //nolint:gosec // a small number

// growStack makes the stack of the calling goroutine large enough for a call. It writes to the array so that the
// compiler keeps it.
//
//go:noinline
func growStack(i int) byte {
	var frame [9 << 10]byte
	frame[i] = 1
	return frame[i/2]
}
