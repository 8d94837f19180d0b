package inference

import (
	"math"
	"testing"
)

func TestRowsHaveASizeOnlyWhereEveryInputFixesIt(t *testing.T) {
	in := func(datatype string, shape ...int64) Tensor { return Tensor{Datatype: datatype, Shape: shape} }
	for name, c := range map[string]struct {
		inputs []Tensor
		want   int64
	}{
		"one":            {[]Tensor{in("FP32", -1, 16)}, 64},
		"two":            {[]Tensor{in("FP32", -1, 16), in("INT64", -1, 2, 3)}, 112},
		"batch only":     {[]Tensor{in("UINT8", -1)}, 1},
		"fixed batch":    {[]Tensor{in("FP16", 8, 4)}, 8},
		"variable":       {[]Tensor{in("FP32", -1, -1)}, 0},
		"bytes":          {[]Tensor{in("BYTES", -1, 1)}, 0},
		"other batches":  {[]Tensor{in("FP32", -1, 1), in("FP32", 1, 1)}, 0},
		"no shape":       {[]Tensor{{Datatype: "FP32"}}, 0},
		"no datatype":    {[]Tensor{in("FLOAT", -1, 2)}, 0},
		"none":           {nil, 0},
		"would overflow": {[]Tensor{in("FP64", -1, math.MaxInt32, math.MaxInt32, math.MaxInt32)}, 0},
	} {
		if got := (&Tensors{Inputs: c.inputs}).RowBytes(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if (*Tensors)(nil).RowBytes() != 0 {
		t.Error("no tensors have rows")
	}
}
