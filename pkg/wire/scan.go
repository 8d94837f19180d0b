package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// What may be wrong with the bytes of a message, beside what is wrong with one field.
var (
	errCut    = errors.New("it ends in the middle of a field")
	errVarint = errors.New("a number is longer than 64 bits")
	errNumber = errors.New("a field number is out of range")
	errGroup  = errors.New("it holds a group, which this protocol does not have")
	errFields = fmt.Errorf("it has more than %d fields", maxFields)
)

// maxFields bounds the fields of a message, nested ones that are read included: a message of nothing but tiny fields
// would cost a thousand times what one of the same size with a tensor does.
const maxFields = 1 << 20

// malformed is the fault of a client whose message cannot be read.
func malformed(message string, err error) error {
	return fault.New(fault.InvalidArgument, "malformed %s: %v", message, err)
}

// malformedAnswer is the fault of an upstream whose message cannot be read.
func malformedAnswer(message string, err error) error {
	f := fault.New(fault.UpstreamFailed, "the upstream sent a malformed %s: %v", message, err)
	f.Upstream = true
	return f
}

// cursor reads protobuf from the buffers of a frame, front to back and without copying.
type cursor struct {
	rest mem.BufferSlice // the buffers behind the current one
	data []byte          // what is unread of the current one
	pos  int             // offset in the frame of the next byte
	end  int             // offset at which the message being read ends; never beyond the frame
	seen int             // fields read so far
}

func newCursor(f inference.Frame) cursor {
	return cursor{rest: f.Buf, end: f.Len()}
}

// newCursorAt reads the n bytes at off of f as a message of their own; they must be within f.
func newCursorAt(f inference.Frame, off, n int) cursor {
	c := cursor{rest: f.Buf}
	c.skip(off)
	c.end = off + n
	return c
}

// more reports whether the message goes on.
func (c *cursor) more() bool { return c.pos < c.end }

// enter makes the next n bytes the message being read; put what it returns back into c.end to leave it.
func (c *cursor) enter(n int) (outer int) {
	outer = c.end
	c.end = c.pos + n
	return outer
}

// load makes data the next buffer that has bytes. The caller knows that there is one.
func (c *cursor) load() {
	for len(c.data) == 0 {
		c.data, c.rest = c.rest[0].ReadOnlyData(), c.rest[1:]
	}
}

// field is the start of a field: for numbers the value, for bytes their length.
type field struct {
	num protowire.Number
	typ protowire.Type
	v   uint64 // of a varint, fixed32 or fixed64
	n   int    // of bytes, which follow at the cursor and are within the message
}

// field reads the start of the next field. The bytes of one of type bytes are next: skip, view or enter them.
func (c *cursor) field() (field, error) {
	tag, err := c.varint()
	if err != nil {
		return field{}, err
	}
	if c.seen++; c.seen > maxFields {
		return field{}, errFields
	}
	if tag>>3 == 0 || tag>>3 > uint64(protowire.MaxValidNumber) {
		return field{}, errNumber
	}
	f := field{num: protowire.Number(tag >> 3), typ: protowire.Type(tag & 7)}
	switch f.typ {
	case protowire.VarintType:
		f.v, err = c.varint()
	case protowire.BytesType:
		var n uint64
		if n, err = c.varint(); err == nil && n > uint64(c.end-c.pos) {
			err = errCut
		}
		f.n = int(n)
	case protowire.Fixed32Type:
		f.v, err = c.fixed(4)
	case protowire.Fixed64Type:
		f.v, err = c.fixed(8)
	default:
		err = errGroup
	}
	return f, err
}

func (c *cursor) varint() (uint64, error) {
	if c.pos < c.end && len(c.data) > 0 && c.data[0] < 0x80 {
		v := uint64(c.data[0])
		c.data = c.data[1:]
		c.pos++
		return v, nil
	}
	return c.longVarint()
}

func (c *cursor) longVarint() (uint64, error) {
	var v uint64
	for i := range 10 {
		if c.pos == c.end {
			return 0, errCut
		}
		c.load()
		b := c.data[0]
		c.data = c.data[1:]
		c.pos++
		if i == 9 && b > 1 {
			return 0, errVarint
		}
		v |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			return v, nil
		}
	}
	return 0, errVarint
}

// fixed reads a little-endian number of 1 to 8 bytes.
func (c *cursor) fixed(n int) (uint64, error) {
	if n > c.end-c.pos {
		return 0, errCut
	}
	if n == 4 && len(c.data) >= 4 {
		v := binary.LittleEndian.Uint32(c.data)
		c.data = c.data[4:]
		c.pos += 4
		return uint64(v), nil
	}
	var v uint64
	for i := range n {
		c.load()
		v |= uint64(c.data[0]) << (8 * i)
		c.data = c.data[1:]
		c.pos++
	}
	return v, nil
}

// skip passes over n bytes, which must be within the frame.
func (c *cursor) skip(n int) {
	c.pos += n
	for n > len(c.data) {
		n -= len(c.data)
		c.data, c.rest = c.rest[0].ReadOnlyData(), c.rest[1:]
	}
	c.data = c.data[n:]
}

// pass passes over what field left unread of f.
func (c *cursor) pass(f field) {
	if f.n > 0 {
		c.skip(f.n)
	}
}

// view gives the next n bytes, which must be within the frame: as they lie in a buffer, or assembled where they span
// several. They are good only as long as the frame is.
func (c *cursor) view(n int) []byte {
	if n == 0 {
		return nil
	}
	c.load()
	if n <= len(c.data) {
		v := c.data[:n:n]
		c.data = c.data[n:]
		c.pos += n
		return v
	}
	v := make([]byte, 0, n)
	for len(v) < n {
		c.load()
		k := min(n-len(v), len(c.data))
		v = append(v, c.data[:k]...)
		c.data = c.data[k:]
	}
	c.pos += n
	return v
}

// text gives the string that f is, as view does; name and limit in bytes are for the error.
func (c *cursor) text(f field, name string, limit int) ([]byte, error) {
	if err := f.want(protowire.BytesType, name); err != nil {
		return nil, err
	}
	if f.n > limit {
		return nil, fmt.Errorf("%s is %d bytes long, at most %d are allowed", name, f.n, limit)
	}
	v := c.view(f.n)
	if !utf8.Valid(v) {
		return nil, fmt.Errorf("%s is not valid UTF-8", name)
	}
	return v, nil
}

// want says whether f has the type that the protocol gives to the field of that name.
func (f field) want(typ protowire.Type, name string) error {
	if f.typ != typ {
		return fmt.Errorf("%s has wire type %d instead of %d", name, f.typ, typ)
	}
	return nil
}
