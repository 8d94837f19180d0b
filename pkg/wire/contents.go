package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// maxTyped bounds in bytes what typed contents may grow to: a small number takes one byte there and up to eight here.
const maxTyped = 64 << 20

// member is the field of InferTensorContents that holds a datatype, and how its numbers are written.
type member struct {
	num protowire.Number
	typ protowire.Type
}

func memberOf(datatype string) (member, bool) {
	switch datatype {
	case "BOOL":
		return member{1, protowire.VarintType}, true
	case "INT8", "INT16", "INT32":
		return member{2, protowire.VarintType}, true
	case "INT64":
		return member{3, protowire.VarintType}, true
	case "UINT8", "UINT16", "UINT32":
		return member{4, protowire.VarintType}, true
	case "UINT64":
		return member{5, protowire.VarintType}, true
	case "FP32":
		return member{6, protowire.Fixed32Type}, true
	case "FP64":
		return member{7, protowire.Fixed64Type}, true
	case "BYTES":
		return member{8, protowire.BytesType}, true
	}
	return member{}, false // FP16 and BF16 have no field there
}

// encodeContents gives the raw bytes of an output whose elements came one by one.
func encodeContents(f inference.Frame, o *output) ([]byte, error) {
	b, whole, err := encodeUpTo(f, o, maxTyped)
	if err == nil && !whole {
		return nil, errTyped
	}
	return b, err
}

// encodeUpTo is encodeContents for as many elements as fit into most bytes; whole says that these are all.
func encodeUpTo(f inference.Frame, o *output, most int) (raw []byte, whole bool, err error) {
	want, ok := memberOf(string(o.datatype))
	if !ok {
		return nil, false, fmt.Errorf("output %q of datatype %q has contents that are not raw", o.name, o.datatype)
	}
	e := encoder{member: want, size: DatatypeSize(string(o.datatype)), flag: string(o.datatype) == "BOOL", most: most}
	for _, s := range o.contents {
		c := newCursorAt(f, s.off, s.n)
		for c.more() {
			switch err := e.next(&c); {
			case errors.Is(err, errTyped):
				return e.raw, false, nil
			case err != nil:
				return nil, false, err
			}
		}
	}
	return e.raw, true, nil
}

type encoder struct {
	member
	size int
	flag bool
	most int // bytes that raw may grow to
	raw  []byte
}

// next reads one field of InferTensorContents: a single element, or a packed run of them.
func (e *encoder) next(c *cursor) error {
	f, err := c.field()
	if err != nil {
		return err
	}
	switch {
	case f.num != e.num:
		c.pass(f)
		return nil
	case e.typ == protowire.BytesType:
		if err := f.want(e.typ, "bytes_contents"); err != nil {
			return err
		}
		if len(e.raw)+f.n+4 > e.most {
			return errTyped
		}
		e.raw = binary.LittleEndian.AppendUint32(e.raw, uint32(f.n))
		e.raw = append(e.raw, c.view(f.n)...)
		return nil
	case f.typ == e.typ:
		return e.add(f.v)
	case f.typ != protowire.BytesType:
		return f.want(e.typ, "the contents of an output")
	}
	outer := c.enter(f.n)
	for c.more() {
		var v uint64
		switch e.typ {
		case protowire.Fixed32Type:
			v, err = c.fixed(4)
		case protowire.Fixed64Type:
			v, err = c.fixed(8)
		default:
			v, err = c.varint()
		}
		if err == nil {
			err = e.add(v)
		}
		if err != nil {
			return err
		}
	}
	c.end = outer
	return nil
}

var errTyped = fmt.Errorf("the contents of an output are larger than %d bytes", maxTyped)

func (e *encoder) add(v uint64) error {
	if len(e.raw)+e.size > e.most {
		return errTyped
	}
	if e.flag && v != 0 {
		v = 1
	}
	e.raw = appendElement(e.raw, v, e.size)
	return nil
}
