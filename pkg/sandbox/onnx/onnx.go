// Package onnx evaluates small ONNX models in float32: perceptrons, convolutional networks, linear models.
//
// It knows about two dozen operators. Load refuses everything else by name, and every attribute it would not
// honour, so that a model that loads computes what its file says. Files are read with all lengths checked and
// never bring the process down. A loaded Model is immutable and may run on any number of goroutines at once.
package onnx

import (
	"fmt"
	"maps"
	"slices"
)

// Opsets of the default domain whose operators this package implements.
const (
	minOpset = 13
	maxOpset = 23
)

// Limits of one run, so that a few bytes of a foreign file cannot ask for all memory or an hour of work.
const (
	maxElements = 1 << 27 // of one tensor: 512 MiB
	maxWork     = 1 << 38 // multiplications of one operator
)

// Tensor is a dense row-major float32 tensor. len(Data) is the product of Shape.
type Tensor struct {
	Shape []int
	Data  []float32
}

// Info describes an input or output: -1 in Shape stands for a dimension of any size.
type Info struct {
	Name  string
	Shape []int
}

// Model is a loaded model.
type Model struct {
	Inputs  []Info
	Outputs []Info

	steps   []step
	preset  []*Tensor // constants by slot, nil where a value is computed
	inputs  []int     // slots
	outputs []int
	limits  limits
}

type limits struct{ elements, work int }

// step computes one node.
type step struct {
	label   string
	in      []int // slots; -1 is an optional input left out
	out     int
	run     kernel
	inPlace bool // the first input is not needed any more and may be overwritten
}

// kernel computes a node's output of its inputs; nil stands for an optional input left out.
type kernel func(in []*Tensor, inPlace bool, l limits) (*Tensor, error)

// Load reads a model file. The error names the first operator, attribute or type that is not supported.
func Load(data []byte) (*Model, error) {
	g, err := readModel(data)
	if err != nil {
		return nil, fmt.Errorf("onnx: %w", err)
	}
	if g.opset < minOpset || g.opset > maxOpset {
		return nil, fmt.Errorf("onnx: the model is of opset %d; this evaluator knows %d to %d", g.opset, minOpset, maxOpset)
	}
	c := &compiler{graph: g, slots: map[string]int{}, ints: map[string][]int64{}, model: &Model{limits: limits{maxElements, maxWork}}}
	if err := c.compile(); err != nil {
		return nil, fmt.Errorf("onnx: %w", err)
	}
	return c.model, nil
}

// Run computes all outputs. Every input of Inputs must be there, of a fitting shape; the tensors are not kept
// and not written. The outputs belong to the caller.
func (m *Model) Run(in map[string]*Tensor) (map[string]*Tensor, error) {
	slots := slices.Clone(m.preset)
	for i, info := range m.Inputs {
		t := in[info.Name]
		if t == nil {
			return nil, fmt.Errorf("onnx: input %q is missing", info.Name)
		}
		if err := info.check(t); err != nil {
			return nil, err
		}
		slots[m.inputs[i]] = t
	}
	var args [3]*Tensor
	for i := range m.steps {
		s := &m.steps[i]
		for j, slot := range s.in {
			args[j] = nil
			if slot >= 0 {
				args[j] = slots[slot]
			}
		}
		t, err := s.run(args[:len(s.in)], s.inPlace, m.limits)
		if err != nil {
			return nil, fmt.Errorf("onnx: %s: %w", s.label, err)
		}
		slots[s.out] = t
	}
	out := make(map[string]*Tensor, len(m.Outputs))
	for i, info := range m.Outputs {
		out[info.Name] = slots[m.outputs[i]]
	}
	return out, nil
}

func (info Info) check(t *Tensor) error {
	fits := len(t.Shape) == len(info.Shape)
	for i := 0; fits && i < len(t.Shape); i++ {
		fits = info.Shape[i] < 0 || info.Shape[i] == t.Shape[i]
	}
	if !fits {
		return fmt.Errorf("onnx: input %q has shape %v, the model expects %v", info.Name, t.Shape, info.Shape)
	}
	n, err := elements(t.Shape, maxElements)
	if err != nil {
		return fmt.Errorf("onnx: input %q: %w", info.Name, err)
	}
	if n != len(t.Data) {
		return fmt.Errorf("onnx: input %q: shape %v needs %d elements, got %d", info.Name, t.Shape, n, len(t.Data))
	}
	return nil
}

// Ops lists the operators this package knows, sorted.
func Ops() []string { return slices.Sorted(maps.Keys(operators)) }
