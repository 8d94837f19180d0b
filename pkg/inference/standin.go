package inference

import (
	"fmt"
	"slices"
)

// Mismatch is what keeps one model from answering in the place of another: a tensor of the two that is not the same. The zero
// Mismatch is nothing that is known.
type Mismatch struct {
	input      bool
	counts     [2]int // of inputs, where these differ
	missing    bool   // the other has no output of that name
	own, other Tensor
}

// Found reports whether there is one.
func (m Mismatch) Found() bool { return m.missing || m.counts != [2]int{} || m.own.Datatype != "" }

// String says what it is, of the other model: "whose output S is FP64 [-1 2], and that of this model is FP32 [-1 2]".
func (m Mismatch) String() string {
	kind := "output"
	if m.input {
		kind = "input"
	}
	switch {
	case !m.Found():
		return ""
	case m.counts != [2]int{}:
		return fmt.Sprintf("which has %d inputs, and this model has %d", m.counts[1], m.counts[0])
	case m.missing:
		return fmt.Sprintf("which has no %s %.80q, as this model has", kind, m.own.Name)
	}
	return fmt.Sprintf("whose %s %.80q is %.20s %v, and %.80q of this model is %.20s %v", kind, m.other.Name, m.other.Datatype, m.other.Shape, m.own.Name, m.own.Datatype, m.own.Shape)
}

// TensorsOf is what is known of a target's tensors: as its model m declares them, else as its upstream has said.
func TensorsOf(m *Model, t *Target) Tensors {
	var known Tensors
	if d, ok := t.Pool.(Describer); ok {
		known = d.Tensors()
	}
	if m.Tensors == nil {
		return known
	}
	declared := *m.Tensors
	if len(declared.Outputs) == 0 {
		declared.Outputs = known.Outputs
	}
	return declared
}

// MismatchOf compares t with the tensors of what is to answer in its model's place, as far as both are known: the output that
// answers, and the inputs. For Predict, whose tensors have no names, it goes by their order; for KServe (predict is false)
// by their names, and what only one of them takes is left to the model to refuse.
func (t *Tensors) MismatchOf(other *Tensors, predict bool) Mismatch {
	if predict {
		if len(t.Inputs) > 0 && len(other.Inputs) > 0 && len(t.Inputs) != len(other.Inputs) {
			return Mismatch{input: true, counts: [2]int{len(t.Inputs), len(other.Inputs)}}
		}
		for i := range min(len(t.Inputs), len(other.Inputs)) {
			if !alike(&t.Inputs[i], &other.Inputs[i]) {
				return Mismatch{input: true, own: t.Inputs[i], other: other.Inputs[i]}
			}
		}
	} else {
		for i := range t.Inputs {
			if j := named(other.Inputs, t.Inputs[i].Name); j >= 0 && !alike(&t.Inputs[i], &other.Inputs[j]) {
				return Mismatch{input: true, own: t.Inputs[i], other: other.Inputs[j]}
			}
		}
	}
	own, theirs := t.Answering(), other.Answering()
	if own.Datatype == "" || theirs.Datatype == "" {
		return Mismatch{}
	}
	if !predict {
		j := named(other.Outputs, own.Name)
		if j < 0 {
			return Mismatch{missing: true, own: own}
		}
		theirs = other.Outputs[j]
	}
	if !alike(&own, &theirs) {
		return Mismatch{own: own, other: theirs}
	}
	return Mismatch{}
}

func named(all []Tensor, name string) int {
	return slices.IndexFunc(all, func(t Tensor) bool { return t.Name == name })
}

// alike reports whether two tensors have one datatype and may have one shape. A shape that is not known is like any other.
func alike(a, b *Tensor) bool {
	if a.Datatype != "" && b.Datatype != "" && a.Datatype != b.Datatype {
		return false
	}
	if len(a.Shape) == 0 || len(b.Shape) == 0 {
		return true
	}
	if len(a.Shape) != len(b.Shape) {
		return false
	}
	for i, d := range a.Shape {
		if e := b.Shape[i]; d > 0 && e > 0 && d != e {
			return false
		}
	}
	return true
}
