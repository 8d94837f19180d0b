package onnx

import (
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// field is one field of a protobuf message. num holds varints and fixed-size numbers, bytes the rest.
type field struct {
	no    protowire.Number
	typ   protowire.Type
	num   uint64
	bytes []byte
}

var errWire = errors.New("not a valid protobuf message")

// each walks the fields of one message. It stops at the first error, its own or that of visit.
func each(b []byte, visit func(f field) error) error {
	for len(b) > 0 {
		no, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errWire
		}
		b = b[n:]
		f := field{no: no, typ: typ}
		switch typ {
		case protowire.VarintType:
			f.num, n = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			var v uint32
			v, n = protowire.ConsumeFixed32(b)
			f.num = uint64(v)
		case protowire.Fixed64Type:
			f.num, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
		default:
			return fmt.Errorf("%w: wire type %d", errWire, typ)
		}
		if n < 0 {
			return errWire
		}
		b = b[n:]
		if err := visit(f); err != nil {
			return err
		}
	}
	return nil
}

// ints appends the integers of f, packed or not.
func (f field) ints(to []int64) ([]int64, error) {
	switch f.typ {
	case protowire.VarintType:
		return append(to, int64(f.num)), nil
	case protowire.BytesType:
		for b := f.bytes; len(b) > 0; {
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return nil, errWire
			}
			to, b = append(to, int64(v)), b[n:]
		}
		return to, nil
	}
	return nil, errWire
}

// floats appends the 32-bit floats of f, packed or not.
func (f field) floats(to []float32) ([]float32, error) {
	switch f.typ {
	case protowire.Fixed32Type:
		return append(to, math.Float32frombits(uint32(f.num))), nil
	case protowire.BytesType:
		if len(f.bytes)%4 != 0 {
			return nil, errWire
		}
		for b := f.bytes; len(b) > 0; {
			v, n := protowire.ConsumeFixed32(b)
			to, b = append(to, math.Float32frombits(v)), b[n:]
		}
		return to, nil
	}
	return nil, errWire
}
