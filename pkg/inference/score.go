package inference

import (
	"encoding/binary"
	"math"
	"strconv"
)

// AppendScore appends a score as one element of a tensor of that datatype, in the form of raw contents: integers are
// rounded, halves away from zero, what is beyond a datatype becomes its largest or smallest number, and BOOL is
// whether the score rounds to something else than 0. BYTES get the score as text. An unknown datatype appends nothing.
func AppendScore(dst []byte, datatype string, score float64) []byte {
	le := binary.LittleEndian
	switch datatype {
	case "FP64":
		return le.AppendUint64(dst, math.Float64bits(score))
	case "FP32":
		return le.AppendUint32(dst, math.Float32bits(clampFloat32(score)))
	case "FP16":
		return le.AppendUint16(dst, float16(score))
	case "BF16":
		return le.AppendUint16(dst, bfloat16(score))
	case "BYTES":
		text := strconv.FormatFloat(score, 'g', -1, 64)
		return append(le.AppendUint32(dst, uint32(len(text))), text...)
	case "BOOL":
		if math.Round(score) != 0 {
			return append(dst, 1)
		}
		return append(dst, 0)
	}
	bits, signed := integer(datatype)
	if bits == 0 {
		return dst
	}
	v := wholeNumber(score, bits, signed)
	for n := bits / 8; n > 0; n-- {
		dst, v = append(dst, byte(v)), v>>8
	}
	return dst
}

// HoldsScore reports whether a datatype can hold a score: within its bounds and, for integers, whole. BOOL holds 0 and 1;
// BYTES hold every score, as text.
func HoldsScore(datatype string, score float64) bool {
	if math.IsNaN(score) || math.IsInf(score, 0) {
		return false
	}
	switch datatype {
	case "FP64", "BYTES":
		return true
	case "FP32":
		return math.Abs(score) <= math.MaxFloat32
	case "FP16":
		return math.Abs(score) <= maxFloat16
	case "BF16":
		return math.Abs(score) <= maxBfloat16
	case "BOOL":
		return score == 0 || score == 1
	}
	bits, signed := integer(datatype)
	if bits == 0 || score != math.Trunc(score) {
		return false
	}
	low, high := 0.0, math.Ldexp(1, bits) // the first number that is too large
	if signed {
		low, high = -math.Ldexp(1, bits-1), math.Ldexp(1, bits-1)
	}
	return score >= low && score < high
}

const maxFloat16 = 65504

var maxBfloat16 = float64(math.Float32frombits(0x7f7f0000))

// integer tells an integer datatype's size; 0 bits for what is none.
func integer(datatype string) (bits int, signed bool) {
	switch datatype {
	case "INT8", "INT16", "INT32", "INT64":
		bits, _ = strconv.Atoi(datatype[len("INT"):])
		return bits, true
	case "UINT8", "UINT16", "UINT32", "UINT64":
		bits, _ = strconv.Atoi(datatype[len("UINT"):])
	}
	return bits, false
}

// wholeNumber is the integer nearest to v that so many bits hold, as its bits.
func wholeNumber(v float64, bits int, signed bool) uint64 {
	v = math.Round(v)
	switch {
	case math.IsNaN(v):
		return 0
	case signed && v >= math.Ldexp(1, bits-1):
		return 1<<(bits-1) - 1
	case signed && v < -math.Ldexp(1, bits-1):
		return 1 << (bits - 1)
	case signed:
		return uint64(int64(v))
	case v <= 0:
		return 0
	case v >= math.Ldexp(1, bits):
		return math.MaxUint64 >> (64 - bits)
	}
	return uint64(v)
}

func clampFloat32(v float64) float32 {
	return float32(max(-math.MaxFloat32, min(v, math.MaxFloat32)))
}

// bfloat16 rounds to the nearest, ties to even.
func bfloat16(v float64) uint16 {
	v = max(-maxBfloat16, min(v, maxBfloat16))
	b := math.Float32bits(float32(v))
	if v != v { //nolint:gocritic // NaN
		return uint16(b>>16) | 1
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// float16 rounds to the nearest half-precision number, ties to even.
func float16(v float64) uint16 {
	var sign uint16
	if math.Signbit(v) {
		sign, v = 0x8000, -v
	}
	switch {
	case math.IsNaN(v):
		return sign | 0x7e00
	case v >= maxFloat16:
		return sign | 0x7bff
	case v < math.Ldexp(1, -14): // a multiple of the smallest number, and rounding up to 2^-14 gives its bits
		return sign | uint16(math.RoundToEven(math.Ldexp(v, 24)))
	}
	fraction, exponent := math.Frexp(v) // fraction in [0.5, 1)
	n := uint16(math.RoundToEven(math.Ldexp(fraction, 11)))
	return sign | (uint16(exponent+14-1)<<10 + n) // a fraction that rounds up to 2048 carries into the exponent, as it must
}
