package wire

import (
	"encoding/binary"
	"math"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// DatatypeSize is the size in bytes of an element of a KServe datatype: 0 for BYTES, whose elements carry their own
// length, and -1 for a name that is no datatype.
func DatatypeSize(name string) int { return inference.DatatypeSize(name) }

// nameOf is a KServe datatype's name without a copy of it, "" for what is none.
func nameOf(datatype []byte) string {
	for _, name := range [...]string{"FP32", "FP64", "FP16", "BF16", "INT64", "INT32", "INT16", "INT8", "UINT64", "UINT32", "UINT16", "UINT8", "BOOL", "BYTES"} {
		if string(datatype) == name {
			return name
		}
	}
	return ""
}

// floating reports whether a datatype is a floating-point one.
func floating(datatype string) bool {
	switch datatype {
	case "FP16", "BF16", "FP32", "FP64":
		return true
	}
	return false
}

// number is the value of an element of datatype, given as its little-endian bits.
func number(datatype string, bits uint64) float64 {
	switch datatype {
	case "BOOL":
		return float64(min(bits, 1))
	case "INT8":
		return float64(int8(bits))
	case "INT16":
		return float64(int16(bits))
	case "INT32":
		return float64(int32(bits))
	case "INT64":
		return float64(int64(bits))
	case "FP16":
		return half(uint16(bits))
	case "BF16":
		return float64(math.Float32frombits(uint32(bits) << 16))
	case "FP32":
		return float64(math.Float32frombits(uint32(bits)))
	case "FP64":
		return math.Float64frombits(bits)
	}
	return float64(bits) // the unsigned ones
}

// half is the value of an IEEE 754 half-precision number.
func half(bits uint16) float64 {
	exponent, fraction := int(bits>>10&0x1f), float64(bits&0x3ff)
	var v float64
	switch exponent {
	case 0:
		v = math.Ldexp(fraction, -24)
	case 0x1f:
		if v = math.Inf(1); fraction != 0 {
			v = math.NaN()
		}
	default:
		v = math.Ldexp(1024+fraction, exponent-25)
	}
	if bits&0x8000 != 0 {
		return -v
	}
	return v
}

// appendElement appends the low size bytes of bits, little-endian.
func appendElement(dst []byte, bits uint64, size int) []byte {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], bits)
	return append(dst, b[:size]...)
}
