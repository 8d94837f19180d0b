package onnx

import (
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Limits of a file. A model of the sandbox is small; what is larger is refused rather than read for minutes.
const (
	maxFile  = 256 << 20
	maxNodes = 10_000
	maxRank  = 8
	maxDim   = 1 << 31
)

// Numbers of the file format's element types.
const (
	typeFloat = 1
	typeInt64 = 7
)

// graph is a model file as read: names and numbers, not yet checked against what the operators need.
type graph struct {
	opset   int64
	nodes   []node
	consts  map[string]constant
	inputs  []valueInfo
	outputs []valueInfo
}

type node struct {
	name, op, domain string
	inputs, outputs  []string
	attrs            map[string]attribute
}

// label names a node in messages.
func (n *node) label() string {
	if n.name != "" {
		return fmt.Sprintf("%s %q", n.op, n.name)
	}
	return n.op
}

type attribute struct {
	f      float32
	i      int64
	s      string
	ints   []int64
	tensor *constant
}

// constant is a tensor of the file: float32 or int64 elements.
type constant struct {
	name   string
	shape  []int
	floats []float32
	ints   []int64
	isInt  bool
}

// valueInfo is a declared input or output; -1 stands for a dimension of any size.
type valueInfo struct {
	name  string
	elem  int64
	shape []int
}

func readModel(data []byte) (*graph, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("the file has %d bytes, more than the %d this evaluator reads", len(data), maxFile)
	}
	g := &graph{consts: map[string]constant{}}
	seen := false
	err := each(data, func(f field) error {
		switch {
		case f.no == 7 && f.typ == protowire.BytesType:
			if seen {
				return errors.New("the file has two graphs")
			}
			seen = true
			return g.read(f.bytes)
		case f.no == 8 && f.typ == protowire.BytesType:
			return g.readOpset(f.bytes)
		case f.no == 25:
			return errors.New("the file defines functions of its own, which this evaluator does not read")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if !seen {
		return nil, errors.New("the file has no graph: it is no ONNX model")
	}
	return g, nil
}

func (g *graph) readOpset(b []byte) error {
	var domain string
	var version int64
	err := each(b, func(f field) error {
		switch f.no {
		case 1:
			domain = string(f.bytes)
		case 2:
			version = int64(f.num)
		}
		return nil
	})
	if err == nil && (domain == "" || domain == "ai.onnx") {
		g.opset = version
	}
	return err
}

func (g *graph) read(b []byte) error {
	return each(b, func(f field) error {
		if f.typ != protowire.BytesType {
			return nil
		}
		switch f.no {
		case 1:
			n, err := readNode(f.bytes)
			if err != nil {
				return err
			}
			if len(g.nodes) == maxNodes {
				return fmt.Errorf("the graph has more than %d nodes", maxNodes)
			}
			g.nodes = append(g.nodes, n)
		case 5:
			c, err := readTensor(f.bytes)
			if err != nil {
				return err
			}
			g.consts[c.name] = *c
		case 11:
			v, err := readValueInfo(f.bytes)
			g.inputs = append(g.inputs, v)
			return err
		case 12:
			v, err := readValueInfo(f.bytes)
			g.outputs = append(g.outputs, v)
			return err
		case 15:
			return errors.New("sparse initializers are not supported")
		}
		return nil
	})
}

func readNode(b []byte) (node, error) {
	n := node{attrs: map[string]attribute{}}
	err := each(b, func(f field) error {
		switch f.no {
		case 1:
			n.inputs = append(n.inputs, string(f.bytes))
		case 2:
			n.outputs = append(n.outputs, string(f.bytes))
		case 3:
			n.name = string(f.bytes)
		case 4:
			n.op = string(f.bytes)
		case 5:
			name, a, err := readAttribute(f.bytes)
			if err != nil {
				return fmt.Errorf("%s: attribute %q: %w", n.label(), name, err)
			}
			n.attrs[name] = a
		case 7:
			n.domain = string(f.bytes)
		}
		return nil
	})
	return n, err
}

func readAttribute(b []byte) (string, attribute, error) {
	var name string
	var a attribute
	err := each(b, func(f field) (err error) {
		switch f.no {
		case 1:
			name = string(f.bytes)
		case 2:
			a.f = math.Float32frombits(uint32(f.num))
		case 3:
			a.i = int64(f.num)
		case 4:
			a.s = string(f.bytes)
		case 5:
			a.tensor, err = readTensor(f.bytes)
		case 8:
			a.ints, err = f.ints(a.ints)
		case 6, 10, 11:
			err = errors.New("graphs and lists of tensors are not supported")
		}
		return err
	})
	return name, a, err
}

func readTensor(b []byte) (*constant, error) {
	c := &constant{}
	var elem int64
	var dims []int64
	var raw []byte
	err := each(b, func(f field) (err error) {
		switch f.no {
		case 1:
			dims, err = f.ints(dims)
		case 2:
			elem = int64(f.num)
		case 4:
			c.floats, err = f.floats(c.floats)
		case 7:
			c.ints, err = f.ints(c.ints)
		case 8:
			c.name = string(f.bytes)
		case 9:
			raw = f.bytes
		case 13:
			err = errors.New("its data is in another file; save the model with its data inside")
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", c.name, err)
	}
	if err := c.fill(elem, dims, raw); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", c.name, err)
	}
	return c, nil
}

// fill checks dims and takes the elements out of raw, where they came that way.
func (c *constant) fill(elem int64, dims []int64, raw []byte) error {
	shape, err := toShape(dims)
	if err != nil {
		return err
	}
	c.shape = shape
	want, err := elements(shape, maxFile/4)
	if err != nil {
		return err
	}
	have := 0
	switch elem {
	case typeFloat:
		if raw != nil {
			if c.floats, err = (field{typ: protowire.BytesType, bytes: raw}).floats(nil); err != nil {
				return errors.New("raw data is no whole number of 4-byte floats")
			}
		}
		have = len(c.floats)
	case typeInt64:
		c.isInt = true
		if len(raw)%8 != 0 {
			return errors.New("raw data is no whole number of 8-byte integers")
		}
		for ; len(raw) >= 8; raw = raw[8:] {
			v, _ := protowire.ConsumeFixed64(raw)
			c.ints = append(c.ints, int64(v))
		}
		have = len(c.ints)
	default:
		return fmt.Errorf("element type %d is not supported; float32 (1) and int64 (7) are", elem)
	}
	if have != want {
		return fmt.Errorf("shape %v needs %d elements, the file has %d", shape, want, have)
	}
	return nil
}

func readValueInfo(b []byte) (valueInfo, error) {
	v := valueInfo{}
	err := each(b, func(f field) error {
		switch f.no {
		case 1:
			v.name = string(f.bytes)
		case 2:
			return each(f.bytes, func(f field) error {
				if f.no != 1 {
					return errors.New("only dense tensors are supported")
				}
				return v.readTensorType(f.bytes)
			})
		}
		return nil
	})
	if err != nil {
		return v, fmt.Errorf("value %q: %w", v.name, err)
	}
	return v, nil
}

func (v *valueInfo) readTensorType(b []byte) error {
	return each(b, func(f field) error {
		switch f.no {
		case 1:
			v.elem = int64(f.num)
		case 2:
			return each(f.bytes, func(f field) error {
				if f.no != 1 {
					return nil
				}
				d, err := readDim(f.bytes)
				if err != nil {
					return err
				}
				if len(v.shape) == maxRank {
					return fmt.Errorf("more than %d dimensions", maxRank)
				}
				v.shape = append(v.shape, d)
				return nil
			})
		}
		return nil
	})
}

// readDim gives a dimension's size, -1 for a named or missing one.
func readDim(b []byte) (int, error) {
	d := int64(-1)
	err := each(b, func(f field) error {
		if f.no == 1 {
			d = int64(f.num)
		}
		return nil
	})
	if err == nil && (d < -1 || d > maxDim) {
		err = fmt.Errorf("dimension %d is out of range", d)
	}
	return int(d), err
}

func toShape(dims []int64) ([]int, error) {
	if len(dims) > maxRank {
		return nil, fmt.Errorf("%d dimensions, more than %d", len(dims), maxRank)
	}
	shape := make([]int, len(dims))
	for i, d := range dims {
		if d < 0 || d > maxDim {
			return nil, fmt.Errorf("dimension %d is out of range", d)
		}
		shape[i] = int(d)
	}
	return shape, nil
}

// elements multiplies a shape out; an error when that is more than limit. An empty tensor may not have other dimensions
// that are too large either, so that no product of a few of them overflows.
func elements(shape []int, limit int) (int, error) {
	n, empty := 1, false
	for _, d := range shape {
		switch {
		case d < 0:
			return 0, fmt.Errorf("shape %v has a negative dimension", shape)
		case d == 0:
			empty = true
		case n > limit/d:
			return 0, fmt.Errorf("shape %v has more than %d elements", shape, limit)
		default:
			n *= d
		}
	}
	if empty {
		return 0, nil
	}
	return n, nil
}
