package inference

import "google.golang.org/grpc/mem"

// Frame is one message as it came off the wire: buffers counted by reference, never decoded.
//
// Who holds a Frame owns one reference to each of its buffers. Buffers are read-only for everybody.
// Ref before keeping a second Frame of the same buffers, Free when done; after Free the Frame is empty.
type Frame struct {
	Buf mem.BufferSlice
}

// NewFrame makes a Frame of bytes that nobody will write again. It needs no Free, but may get one.
func NewFrame(b []byte) Frame {
	return Frame{Buf: mem.BufferSlice{mem.SliceBuffer(b)}}
}

// Len is the size of the message in bytes.
func (f Frame) Len() int { return f.Buf.Len() }

// Empty reports whether there are no buffers at all. A message of no bytes may be Empty too.
func (f Frame) Empty() bool { return len(f.Buf) == 0 }

// Ref returns a second Frame of the same buffers, with references and a slice of its own.
func (f Frame) Ref() Frame {
	f.Buf.Ref()
	return Frame{Buf: append(make(mem.BufferSlice, 0, len(f.Buf)+Headroom), f.Buf...)}
}

// Free gives the references back.
func (f *Frame) Free() {
	f.Buf.Free()
	f.Buf = nil
}

// Headroom is how many further buffers a Frame from the codec has room for, so that a header or
// an appended field does not copy the list of buffers of a large message.
const Headroom = 4

// Append puts fields behind the message. In protobuf the last value of a field wins and entries of
// a map add up, so appending is how a message is changed without touching what is in it.
// The bytes must not be written again.
func (f *Frame) Append(fields []byte) {
	if len(fields) > 0 {
		f.Buf = append(f.Buf, mem.SliceBuffer(fields))
	}
}
