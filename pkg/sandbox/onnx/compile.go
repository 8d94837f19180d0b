package onnx

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// operator is what the compiler must know of an operator.
type operator struct {
	min, max int      // how many inputs it takes
	attrs    []string // attributes it honours; any other is refused
	alias    bool     // the output shares its input's elements
	mutates  bool     // may write its result over its first input
	// make checks the attributes and gives the kernel.
	make func(c *compiler, n *node) (kernel, error)
}

// compiler turns names into slots and nodes into steps.
type compiler struct {
	graph *graph
	model *Model
	slots map[string]int     // of every value known so far
	ints  map[string][]int64 // integer constants: shapes, never tensors of a run
	root  []int              // the slot whose elements a slot shares
}

func (c *compiler) compile() error {
	if err := c.constants(); err != nil {
		return err
	}
	if err := c.declareInputs(); err != nil {
		return err
	}
	for i := range c.graph.nodes {
		n := &c.graph.nodes[i]
		if err := c.node(n); err != nil {
			return err
		}
	}
	if err := c.declareOutputs(); err != nil {
		return err
	}
	c.reuse()
	return nil
}

// slot makes a place for a value.
func (c *compiler) slot(name string) (int, error) {
	if name == "" {
		return 0, errors.New("a value has no name")
	}
	if _, twice := c.slots[name]; twice || c.ints[name] != nil {
		return 0, fmt.Errorf("value %q is defined twice", name)
	}
	s := len(c.model.preset)
	c.slots[name] = s
	c.model.preset = append(c.model.preset, nil)
	c.root = append(c.root, s)
	return s, nil
}

func (c *compiler) constants() error {
	for _, name := range slices.Sorted(maps.Keys(c.graph.consts)) {
		if err := c.constant(name, c.graph.consts[name]); err != nil {
			return err
		}
	}
	return nil
}

func (c *compiler) constant(name string, v constant) error {
	if v.isInt {
		if _, twice := c.slots[name]; twice || c.ints[name] != nil {
			return fmt.Errorf("value %q is defined twice", name)
		}
		c.ints[name] = append([]int64{}, v.ints...)
		return nil
	}
	s, err := c.slot(name)
	if err == nil {
		c.model.preset[s] = &Tensor{Shape: v.shape, Data: v.floats}
	}
	return err
}

func (c *compiler) declareInputs() error {
	for _, v := range c.graph.inputs {
		if _, initialized := c.graph.consts[v.name]; initialized {
			continue // older files list their weights as inputs too
		}
		if v.elem != typeFloat {
			return fmt.Errorf("input %q has element type %d; only float32 (1) is supported", v.name, v.elem)
		}
		s, err := c.slot(v.name)
		if err != nil {
			return err
		}
		c.model.Inputs = append(c.model.Inputs, Info{Name: v.name, Shape: v.shape})
		c.model.inputs = append(c.model.inputs, s)
	}
	return nil
}

func (c *compiler) declareOutputs() error {
	for _, v := range c.graph.outputs {
		s, ok := c.slots[v.name]
		if !ok {
			return fmt.Errorf("output %q is computed by no node", v.name)
		}
		c.model.Outputs = append(c.model.Outputs, Info{Name: v.name, Shape: v.shape})
		c.model.outputs = append(c.model.outputs, s)
	}
	if len(c.model.Outputs) == 0 {
		return errors.New("the graph has no outputs")
	}
	return nil
}

func (c *compiler) node(n *node) error {
	if n.domain != "" && n.domain != "ai.onnx" {
		return fmt.Errorf("operator %s of domain %q is not supported", n.op, n.domain)
	}
	if n.op == "Constant" {
		return c.constantNode(n)
	}
	op, ok := operators[n.op]
	if !ok {
		return fmt.Errorf("operator %s is not supported; supported are %v", n.op, Ops())
	}
	for name := range n.attrs {
		if !slices.Contains(op.attrs, name) {
			return fmt.Errorf("%s: attribute %q is not supported", n.label(), name)
		}
	}
	if len(n.inputs) < op.min || len(n.inputs) > op.max {
		return fmt.Errorf("%s has %d inputs, wants %d to %d", n.label(), len(n.inputs), op.min, op.max)
	}
	if len(n.outputs) != 1 {
		return fmt.Errorf("%s has %d outputs; only one is supported", n.label(), len(n.outputs))
	}
	run, err := op.make(c, n)
	if err != nil {
		return fmt.Errorf("%s: %w", n.label(), err)
	}
	return c.step(n, &op, run)
}

func (c *compiler) step(n *node, op *operator, run kernel) error {
	st := step{label: n.label(), run: run}
	for i, name := range n.inputs {
		s := -1
		if _, isInt := c.ints[name]; isInt && n.op == "Reshape" && i == 1 {
			continue // the shape is in the kernel already
		}
		if name != "" {
			var ok bool
			if s, ok = c.slots[name]; !ok {
				return fmt.Errorf("%s: input %q is no float32 value computed before", n.label(), name)
			}
		} else if i < op.min {
			return fmt.Errorf("%s: input %d is missing", n.label(), i)
		}
		st.in = append(st.in, s)
	}
	out, err := c.slot(n.outputs[0])
	if err != nil {
		return fmt.Errorf("%s: %w", n.label(), err)
	}
	st.out = out
	st.inPlace = op.mutates
	if op.alias {
		c.root[out] = c.root[st.in[0]]
	}
	c.model.steps = append(c.model.steps, st)
	return nil
}

func (c *compiler) constantNode(n *node) error {
	v := n.attrs["value"].tensor
	if v == nil || len(n.attrs) != 1 || len(n.outputs) != 1 {
		return fmt.Errorf("%s: only the attribute value with a tensor is supported", n.label())
	}
	return c.constant(n.outputs[0], *v)
}

// reuse finds the steps that may overwrite their first input: its elements are computed ones,
// no output of the model, and this step is the last that reads them.
func (c *compiler) reuse() {
	last := make([]int, len(c.root))
	for i, st := range c.model.steps {
		for _, s := range st.in {
			if s >= 0 {
				last[c.root[s]] = i
			}
		}
	}
	keep := make([]bool, len(c.root))
	for s, t := range c.model.preset {
		keep[s] = t != nil
	}
	for _, s := range slices.Concat(c.model.inputs, c.model.outputs) {
		keep[c.root[s]] = true
	}
	for i := range c.model.steps {
		st := &c.model.steps[i]
		if st.inPlace {
			r := c.root[st.in[0]]
			st.inPlace = !keep[r] && last[r] == i && !c.sharesOthers(st, r)
		}
	}
}

// sharesOthers reports whether a later input of st shares the elements of root.
func (c *compiler) sharesOthers(st *step, root int) bool {
	return slices.ContainsFunc(st.in[1:], func(s int) bool { return s >= 0 && c.root[s] == root })
}
