package wire

import (
	"math"
	"testing"
)

func TestEveryDatatypeHasItsSize(t *testing.T) {
	for name, want := range map[string]int{
		"BOOL": 1, "INT8": 1, "INT16": 2, "INT32": 4, "INT64": 8, "UINT8": 1, "UINT16": 2, "UINT32": 4, "UINT64": 8,
		"FP16": 2, "BF16": 2, "FP32": 4, "FP64": 8, "BYTES": 0, "": -1, "fp32": -1, "TYPE_FP32": -1, "STRING": -1,
	} {
		if got := DatatypeSize(name); got != want {
			t.Errorf("DatatypeSize(%q) = %d, want %d", name, got, want)
		}
	}
}

func TestNumbersAreReadAsTheirDatatypeHasThem(t *testing.T) {
	for _, c := range []struct {
		datatype string
		bits     uint64
		want     float64
	}{
		{"BOOL", 2, 1},
		{"BOOL", 0, 0},
		{"INT8", 0xff, -1},
		{"INT16", 0x8000, -32768},
		{"INT32", 0xffffffff, -1},
		{"INT64", math.MaxUint64, -1},
		{"UINT8", 0xff, 255},
		{"UINT16", 0xffff, 65535},
		{"UINT32", 0xffffffff, 4294967295},
		{"UINT64", math.MaxUint64, math.MaxUint64},
		{"FP16", 0x3c00, 1},
		{"FP16", 0xc000, -2},
		{"FP16", 0x0001, math.Ldexp(1, -24)},
		{"FP16", 0x03ff, math.Ldexp(1023, -24)},
		{"FP16", 0x7bff, 65504},
		{"FP16", 0x3555, 0.333251953125},
		{"FP16", 0x7c00, math.Inf(1)},
		{"FP16", 0xfc00, math.Inf(-1)},
		{"BF16", 0x3f80, 1},
		{"BF16", 0xc040, -3},
		{"FP32", 0x3f000000, 0.5},
		{"FP64", 0xbff0000000000000, -1},
	} {
		if got := number(c.datatype, c.bits); got != c.want {
			t.Errorf("number(%s, %#x) = %v, want %v", c.datatype, c.bits, got, c.want)
		}
	}
	if !math.IsNaN(number("FP16", 0x7e00)) || !math.IsNaN(number("BF16", 0x7fc0)) {
		t.Error("NaN is lost")
	}
	if v := number("FP16", 0x8000); v != 0 || !math.Signbit(v) {
		t.Error("-0 is lost")
	}
}
