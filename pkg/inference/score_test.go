package inference

import (
	"encoding/hex"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestAScoreIsWrittenInEveryDatatype(t *testing.T) {
	for _, tt := range []struct {
		datatype string
		score    float64
		want     string
		holds    bool
	}{
		{"FP64", 0.5, "000000000000e03f", true},
		{"FP32", 0.5, "0000003f", true},
		{"FP32", 1e39, "ffff7f7f", false},
		{"FP16", 0.5, "0038", true},
		{"FP16", -2, "00c0", true},
		{"FP16", 1, "003c", true},
		{"FP16", 65504, "ff7b", true},
		{"FP16", 1e6, "ff7b", false},
		{"FP16", 2047.0 / 2048, "ff3b", true},
		{"FP16", 4095.0 / 4096, "003c", true}, // rounds up into the next exponent
		{"FP16", math.Ldexp(1, -24), "0100", true},
		{"FP16", math.Ldexp(1023.9, -24), "0004", true},
		{"FP16", 0, "0000", true},
		{"BF16", 0.5, "003f", true},
		{"BF16", 1.0 / 3, "ab3e", true},
		{"BF16", 1e39, "7f7f", false},
		{"INT8", 0.5, "01", false},
		{"INT8", -0.5, "ff", false},
		{"INT8", 300, "7f", false},
		{"INT8", -300, "80", false},
		{"INT16", 258, "0201", true},
		{"INT32", -2, "feffffff", true},
		{"INT64", 1e30, "ffffffffffffff7f", false},
		{"INT64", -1 << 63, "0000000000000080", true},
		{"UINT8", 255, "ff", true},
		{"UINT8", -1, "00", false},
		{"UINT16", 1, "0100", true},
		{"UINT32", 1e12, "ffffffff", false},
		{"UINT64", 1 << 63, "0000000000000080", true},
		{"UINT64", 1e30, "ffffffffffffffff", false},
		{"BOOL", 0.5, "01", false},
		{"BOOL", 0.4, "00", false},
		{"BOOL", 1, "01", true},
		{"BYTES", 0.5, "03000000302e35", true},
		{"STRING", 0.5, "", false},
	} {
		if got := hex.EncodeToString(AppendScore(nil, tt.datatype, tt.score)); got != tt.want {
			t.Errorf("%v as %s is %s, want %s", tt.score, tt.datatype, got, tt.want)
		}
		if got := HoldsScore(tt.datatype, tt.score); got != tt.holds {
			t.Errorf("%s holds %v: %v", tt.datatype, tt.score, got)
		}
	}
	if HoldsScore("FP64", math.NaN()) || HoldsScore("BYTES", math.Inf(1)) {
		t.Error("what is no number is held")
	}
}

func TestHalfPrecisionIsTheNearestNumberThereIs(t *testing.T) {
	value := func(bits uint16) float64 { // of a positive number
		exponent, fraction := int(bits>>10), float64(bits&0x3ff)
		if exponent == 0 {
			return math.Ldexp(fraction, -24)
		}
		return math.Ldexp(1024+fraction, exponent-25)
	}
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Float64Range(0, maxFloat16).Draw(t, "v")
		bits := float16(v)
		got := math.Abs(value(bits) - v)
		for _, other := range []uint16{bits - 1, bits + 1} {
			if other <= 0x7bff && math.Abs(value(other)-v) < got {
				t.Fatalf("%v is %#x, and %#x is nearer", v, bits, other)
			}
		}
	})
}

func TestEveryDatatypeIsAsLongAsItSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		score := rapid.Float64().Draw(t, "score")
		datatype := rapid.SampledFrom([]string{"BOOL", "INT8", "UINT8", "INT16", "UINT16", "FP16", "BF16", "INT32", "UINT32", "FP32", "INT64", "UINT64", "FP64"}).Draw(t, "datatype")
		if got := len(AppendScore(nil, datatype, score)); got != DatatypeSize(datatype) {
			t.Fatalf("%s has %d bytes", datatype, got)
		}
	})
}
