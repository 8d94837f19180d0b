package inference

import "context"

// Handler takes a call one step further. It returns nil once the call has been answered
// (see Call.Send), else a *fault.Fault or the error of ctx.
type Handler func(ctx context.Context, c *Call) error

// Stage is one step of the pipeline. Outer stages see everything inner ones do.
type Stage struct {
	Name string
	// Wrap runs for every call: for a unary request, and for each message of a stream.
	Wrap func(next Handler) Handler
	// Open, where set, runs once when a client stream opens, around its whole life; the call it
	// gets has no request and stands for the stream (Call.Opening).
	Open func(next Handler) Handler
	// After names stages that must stand further out, because this one needs what they find out.
	After []string
}
