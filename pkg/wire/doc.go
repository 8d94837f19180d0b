// Package wire reads and changes messages that stay as they came off the wire. It peeks the few fields the gateway
// needs, puts fields behind a message to override what it says, and turns the users' Predict messages into KServe v2
// ones and back around the same tensor bytes.
//
// Nothing is decoded and no tensor byte is copied: what a function costs does not grow with the tensor, but for a few
// nanoseconds a buffer. All bytes are taken to be hostile: every size and count is bounded, every message is walked to
// its end, and what is malformed gives a *fault.Fault that names the field. A function that fails leaves the frame it
// was given as it was.
package wire
