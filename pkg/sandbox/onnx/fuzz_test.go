package onnx

import (
	"os"
	"testing"
)

// FuzzLoad reads arbitrary files. Whatever is in them, Load must answer with a model or an error, and a model that was accepted
// must answer with outputs of sound shapes or an error.
func FuzzLoad(f *testing.F) {
	g := readGolden(f)
	for _, c := range g.Cases {
		f.Add(c.Model)
	}
	for _, c := range g.Refused {
		f.Add(c.Model)
	}
	for _, p := range []string{"fraud/1", "fraud/2"} {
		b, err := os.ReadFile("../../../triton-models/" + p + "/model.onnx")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Load(data)
		if err != nil {
			return
		}
		m.limits = limits{elements: 1 << 16, work: 1 << 20} // each operator in little time and memory
		in := map[string]*Tensor{}
		for _, info := range m.Inputs {
			shape := make([]int, len(info.Shape))
			for i, d := range info.Shape {
				if shape[i] = d; d < 0 {
					shape[i] = 2
				}
			}
			n, err := elements(shape, 1<<16)
			if err != nil {
				return
			}
			in[info.Name] = &Tensor{Shape: shape, Data: make([]float32, n)}
		}
		out, err := m.Run(in)
		if err != nil {
			return
		}
		for _, info := range m.Outputs {
			o := out[info.Name]
			if n, err := elements(o.Shape, maxElements); err != nil || n != len(o.Data) {
				t.Errorf("output %q has shape %v and %d elements", info.Name, o.Shape, len(o.Data))
			}
		}
	})
}
