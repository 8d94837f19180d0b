package wire

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// paramRegion is the parameter of a tensor whose bytes are in shared memory.
const paramRegion = "shared_memory_region"

// UsesSharedMemory reports whether a ModelInferRequest has an input, or wants an output, in shared memory. Such a request
// cannot be sent twice: the second answer would be written over the first. What cannot be read counts as such.
func UsesSharedMemory(f inference.Frame) bool {
	c := newCursor(f)
	for c.more() {
		fd, err := c.field()
		if err != nil {
			return true
		}
		switch {
		case fd.num == 5 && fd.typ == protowire.BytesType: // inputs
			if c.shared(fd.n, 4) {
				return true
			}
		case fd.num == 6 && fd.typ == protowire.BytesType: // outputs
			if c.shared(fd.n, 2) {
				return true
			}
		default:
			c.pass(fd)
		}
	}
	return false
}

// shared looks for the parameter among those of the tensor in the next n bytes, which are its fields number num.
func (c *cursor) shared(n int, num protowire.Number) bool {
	outer := c.enter(n)
	for c.more() {
		fd, err := c.field()
		if err != nil {
			return true
		}
		if fd.num != num {
			c.pass(fd)
			continue
		}
		entry, err := c.param(fd)
		if err != nil || string(entry.key) == paramRegion {
			return true
		}
	}
	c.end = outer
	return false
}
