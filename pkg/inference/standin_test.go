package inference

import "testing"

func TestAnotherModelStandsInOnlyWhereNothingKnownOfItsTensorsDiffers(t *testing.T) {
	tensor := func(name, datatype string, shape ...int64) Tensor { return Tensor{name, datatype, shape} }
	x, s := tensor("X", "FP32", -1, 16), tensor("S", "FP32", -1, 2)
	of := func(in, out Tensor) *Tensors { return &Tensors{Inputs: []Tensor{in}, Outputs: []Tensor{out}} }
	mine := of(x, s)
	for name, w := range map[string]struct {
		other       *Tensors
		predict, v2 string
	}{
		"the same":           {of(x, s), "", ""},
		"nothing known":      {&Tensors{}, "", ""},
		"any batch or size":  {of(tensor("X", "FP32", 8, -1), tensor("S", "FP32", -1, -1)), "", ""},
		"other names":        {of(tensor("Y", "FP32", -1, 16), tensor("T", "FP32", -1, 2)), "", `which has no output "S", as this model has`},
		"an input's rank":    {of(tensor("X", "FP32", -1, 4, 4), s), `whose input "X" is FP32 [-1 4 4], and "X" of this model is FP32 [-1 16]`, "*"},
		"an input's width":   {of(tensor("X", "FP32", -1, 8), s), `whose input "X" is FP32 [-1 8], and "X" of this model is FP32 [-1 16]`, "*"},
		"an input's type":    {of(tensor("X", "INT32", -1, 16), s), `whose input "X" is INT32 [-1 16], and "X" of this model is FP32 [-1 16]`, "*"},
		"the output's type":  {of(x, tensor("S", "FP64", -1, 2)), `whose output "S" is FP64 [-1 2], and "S" of this model is FP32 [-1 2]`, "*"},
		"the output's rank":  {of(x, tensor("S", "FP32", -1)), `whose output "S" is FP32 [-1], and "S" of this model is FP32 [-1 2]`, "*"},
		"how many inputs":    {&Tensors{Inputs: []Tensor{x, x}}, "which has 2 inputs, and this model has 1", ""},
		"another one before": {&Tensors{Outputs: []Tensor{tensor("A", "FP64", -1), s}}, `whose output "A" is FP64 [-1], and "S" of this model is FP32 [-1 2]`, ""},
		"the one that is so": {&Tensors{Output: "S", Outputs: []Tensor{tensor("A", "FP64", -1), s}}, "", ""},
		"an output by name":  {&Tensors{Output: "S"}, "", ""},
	} {
		if w.v2 == "*" {
			w.v2 = w.predict
		}
		if p, v := mine.MismatchOf(w.other, true).String(), mine.MismatchOf(w.other, false).String(); p != w.predict || v != w.v2 {
			t.Errorf("%s: over predict %q, over v2 %q", name, p, v)
		}
	}
	if n := testing.AllocsPerRun(100, func() { _ = mine.MismatchOf(mine, false).Found() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
