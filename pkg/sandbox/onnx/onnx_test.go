package onnx

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

type golden struct {
	Cases []struct {
		Name            string
		Model           []byte
		Inputs, Outputs map[string]*Tensor
	}
	Refused []struct {
		Name, Names string
		Model       []byte
	}
}

func readGolden(t testing.TB) golden {
	t.Helper()
	b, err := os.ReadFile("testdata/ops.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(b, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

// diff is the largest difference, relative where numbers are large.
func diff(t testing.TB, got, want *Tensor) float64 {
	t.Helper()
	if got == nil || !slices.Equal(got.Shape, want.Shape) || len(got.Data) != len(want.Data) {
		t.Fatalf("got %+v, want shape %v", got, want.Shape)
	}
	worst := 0.0
	for i := range want.Data {
		d := math.Abs(float64(got.Data[i]-want.Data[i])) / max(1, math.Abs(float64(want.Data[i])))
		if !(d <= worst) { // catches NaN too
			worst = d
		}
	}
	return worst
}

func TestEveryOperatorAnswersAsOnnxruntimeDoes(t *testing.T) {
	g := readGolden(t)
	if len(g.Cases) < 50 {
		t.Fatalf("only %d cases", len(g.Cases))
	}
	for _, c := range g.Cases {
		t.Run(c.Name, func(t *testing.T) {
			m, err := Load(c.Model)
			if err != nil {
				t.Fatal(err)
			}
			before := map[string][]float32{}
			for name, in := range c.Inputs {
				before[name] = slices.Clone(in.Data)
			}
			for range 2 { // a second run shows whether the first wrote over the model's weights
				got, err := m.Run(c.Inputs)
				if err != nil {
					t.Fatal(err)
				}
				for name, want := range c.Outputs {
					if d := diff(t, got[name], want); !(d <= 1e-5) {
						t.Errorf("%s differs by %g", name, d)
					}
				}
			}
			for name, in := range c.Inputs {
				if !slices.Equal(in.Data, before[name]) {
					t.Errorf("input %s was written to", name)
				}
			}
		})
	}
}

func TestWhatIsNotHonouredIsRefusedByName(t *testing.T) {
	for _, c := range readGolden(t).Refused {
		_, err := Load(c.Model)
		if err == nil || !strings.Contains(err.Error(), c.Names) {
			t.Errorf("%s: error %v does not name %q", c.Name, err, c.Names)
		}
	}
}

// modelCase is one of the goldens beside the models of the repository.
type modelCase struct {
	Name, Version   string
	Inputs, Outputs map[string]struct {
		Shape    []int
		Data     []float32
		Constant *float32
		LCG      *uint32
	}
}

func readCases(t testing.TB, model string) []modelCase {
	t.Helper()
	b, err := os.ReadFile("../../../triton-models/" + model + "/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g struct{ Cases []modelCase }
	if err := json.Unmarshal(b, &g); err != nil {
		t.Fatal(err)
	}
	return g.Cases
}

func (c modelCase) tensors() map[string]*Tensor {
	in := map[string]*Tensor{}
	for name, v := range c.Inputs {
		x := &Tensor{Shape: v.Shape, Data: v.Data}
		if x.Data == nil {
			x.Data = make([]float32, product(v.Shape))
		}
		for i := range x.Data {
			switch {
			case v.Constant != nil:
				x.Data[i] = *v.Constant
			case v.LCG != nil:
				*v.LCG = *v.LCG*1664525 + 1013904223
				x.Data[i] = float32(*v.LCG>>8) / (1 << 24)
			}
		}
		in[name] = x
	}
	return in
}

func loadModel(t testing.TB, model, version string) *Model {
	t.Helper()
	b, err := os.ReadFile("../../../triton-models/" + model + "/" + version + "/model.onnx")
	if err != nil {
		t.Fatal(err)
	}
	m, err := Load(b)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestTheModelsOfTheRepositoryAnswerAsOnnxruntimeDoes(t *testing.T) {
	for _, model := range []string{"fraud", "cnn"} {
		for _, c := range readCases(t, model) {
			got, err := loadModel(t, model, c.Version).Run(c.tensors())
			if err != nil {
				t.Fatalf("%s %s: %v", model, c.Name, err)
			}
			for name, want := range c.Outputs {
				if d := diff(t, got[name], &Tensor{Shape: want.Shape, Data: want.Data}); !(d <= 1e-5) {
					t.Errorf("%s %s: %s differs by %g", model, c.Name, name, d)
				}
			}
		}
	}
}

func BenchmarkFraud(b *testing.B) { benchmark(b, "fraud", "1", 1, 16) }
func BenchmarkMLP(b *testing.B)   { benchmark(b, "fraud", "2", 1, 16) }
func BenchmarkCNN(b *testing.B)   { benchmark(b, "cnn", "1", 1, 3, 224, 224) }

func benchmark(b *testing.B, model, version string, shape ...int) {
	m := loadModel(b, model, version)
	in := map[string]*Tensor{m.Inputs[0].Name: {Shape: shape, Data: make([]float32, product(shape))}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Run(in); err != nil {
			b.Fatal(err)
		}
	}
}

func TestInputsThatDoNotFitAreNamed(t *testing.T) {
	m := loadModel(t, "fraud", "1")
	name := m.Inputs[0].Name
	for want, in := range map[string]map[string]*Tensor{
		"is missing":           {},
		"has shape [1 15]":     {name: {Shape: []int{1, 15}, Data: make([]float32, 15)}},
		"has shape [16]":       {name: {Shape: []int{16}, Data: make([]float32, 16)}},
		"needs 16 elements":    {name: {Shape: []int{1, 16}, Data: make([]float32, 4)}},
		"negative dimension":   {name: {Shape: []int{-1, 16}, Data: nil}},
		"more than 134217728 ": {name: {Shape: []int{1 << 40, 16}, Data: nil}},
	} {
		_, err := m.Run(in)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not say %q of %s", err, want, name)
		}
	}
}

func TestWorkBeyondTheLimitIsRefused(t *testing.T) {
	m := loadModel(t, "cnn", "1")
	in := map[string]*Tensor{m.Inputs[0].Name: {Shape: []int{1, 3, 224, 224}, Data: make([]float32, 3*224*224)}}
	m.limits.work = 1000
	if _, err := m.Run(in); err == nil || !strings.Contains(err.Error(), "too much work") {
		t.Errorf("work: %v", err)
	}
	m.limits = limits{elements: 1000, work: maxWork}
	if _, err := m.Run(in); err == nil || !strings.Contains(err.Error(), "more than 1000 elements") {
		t.Errorf("elements: %v", err)
	}
}

func TestAnEmptyBatchIsNoProblem(t *testing.T) {
	m := loadModel(t, "cnn", "1")
	out, err := m.Run(map[string]*Tensor{m.Inputs[0].Name: {Shape: []int{0, 3, 224, 224}}})
	if err != nil || !slices.Equal(out[m.Outputs[0].Name].Shape, []int{0, 10}) {
		t.Errorf("%v %v", out, err)
	}
}
