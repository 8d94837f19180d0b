package onnx

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// operators is everything this package can compute, beside Constant.
var operators map[string]operator

func init() { // a map literal would refer to itself through Ops
	operators = map[string]operator{
		"Add":      elementwise(func(a, b float32) float32 { return a + b }),
		"Sub":      elementwise(func(a, b float32) float32 { return a - b }),
		"Mul":      elementwise(func(a, b float32) float32 { return a * b }),
		"Div":      elementwise(func(a, b float32) float32 { return a / b }),
		"Relu":     unary(func(v float32) float32 { return max(v, 0) }),
		"Sigmoid":  unary(func(v float32) float32 { return float32(1 / (1 + math.Exp(-float64(v)))) }),
		"Tanh":     unary(func(v float32) float32 { return float32(math.Tanh(float64(v))) }),
		"Identity": {min: 1, max: 1, alias: true, make: makeIdentity},
		"Cast":     {min: 1, max: 1, attrs: []string{"to", "saturate"}, alias: true, make: makeCast},
		"Flatten":  {min: 1, max: 1, attrs: []string{"axis"}, alias: true, make: makeFlatten},
		"Reshape":  {min: 2, max: 2, attrs: []string{"allowzero"}, alias: true, make: makeReshape},
		"Softmax":  {min: 1, max: 1, attrs: []string{"axis"}, mutates: true, make: makeSoftmax},
		"MatMul":   {min: 2, max: 2, make: makeMatMul},
		"Gemm":     {min: 2, max: 3, attrs: []string{"alpha", "beta", "transA", "transB"}, make: makeGemm},
		"Conv":     {min: 2, max: 3, attrs: windowAttrs("group"), make: makeConv},
		"MaxPool":  {min: 1, max: 1, attrs: windowAttrs("ceil_mode", "storage_order"), make: makeMaxPool},
		"AveragePool": {
			min: 1, max: 1, attrs: windowAttrs("ceil_mode", "count_include_pad"), make: makeAveragePool,
		},
		"GlobalAveragePool": {min: 1, max: 1, make: makeGlobalAveragePool},
	}
}

// refuse reports an integer attribute that is set to anything but its harmless value.
func (n *node) refuse(name string, harmless int64) error {
	if a, ok := n.attrs[name]; ok && a.i != harmless {
		return fmt.Errorf("attribute %s=%d is not supported; only %d is", name, a.i, harmless)
	}
	return nil
}

func (n *node) intAttr(name string, missing int64) int64 {
	if a, ok := n.attrs[name]; ok {
		return a.i
	}
	return missing
}

// newTensor makes a tensor of zeros, within limits.
func newTensor(l limits, shape ...int) (*Tensor, error) {
	n, err := elements(shape, l.elements)
	if err != nil {
		return nil, err
	}
	return &Tensor{Shape: shape, Data: make([]float32, n)}, nil
}

func unary(f func(float32) float32) operator {
	return operator{min: 1, max: 1, mutates: true, make: func(*compiler, *node) (kernel, error) {
		return func(in []*Tensor, inPlace bool, l limits) (*Tensor, error) {
			x := in[0]
			y := x
			if !inPlace {
				y = &Tensor{Shape: x.Shape, Data: make([]float32, len(x.Data))}
			}
			out := y.Data[:len(x.Data)]
			for i, v := range x.Data {
				out[i] = f(v)
			}
			return y, nil
		}, nil
	}}
}

func makeIdentity(*compiler, *node) (kernel, error) {
	return func(in []*Tensor, _ bool, _ limits) (*Tensor, error) { return in[0], nil }, nil
}

func makeCast(_ *compiler, n *node) (kernel, error) {
	if to := n.intAttr("to", 0); to != typeFloat {
		return nil, fmt.Errorf("attribute to=%d is not supported; only float32 (1) is", to)
	}
	return makeIdentity(nil, nil)
}

func makeFlatten(_ *compiler, n *node) (kernel, error) {
	axis := n.intAttr("axis", 1)
	return func(in []*Tensor, _ bool, _ limits) (*Tensor, error) {
		x := in[0]
		at := axis
		if at < 0 {
			at += int64(len(x.Shape))
		}
		if at < 0 || at > int64(len(x.Shape)) {
			return nil, fmt.Errorf("axis %d is out of range for shape %v", axis, x.Shape)
		}
		rows := product(x.Shape[:at])
		return &Tensor{Shape: []int{rows, product(x.Shape[at:])}, Data: x.Data}, nil
	}, nil
}

// product is for shapes of tensors that exist, so it cannot overflow.
func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

func makeReshape(c *compiler, n *node) (kernel, error) {
	if err := n.refuse("allowzero", 0); err != nil {
		return nil, err
	}
	want, ok := c.ints[n.inputs[1]]
	if !ok {
		return nil, fmt.Errorf("the shape %q must be an int64 constant", n.inputs[1])
	}
	if len(want) > maxRank {
		return nil, fmt.Errorf("shape of %d dimensions, more than %d", len(want), maxRank)
	}
	return func(in []*Tensor, _ bool, _ limits) (*Tensor, error) {
		shape, err := reshaped(in[0], want)
		if err != nil {
			return nil, err
		}
		return &Tensor{Shape: shape, Data: in[0].Data}, nil
	}, nil
}

// reshaped resolves 0 (as it was) and -1 (what is left) in want.
func reshaped(x *Tensor, want []int64) ([]int, error) {
	shape := make([]int, len(want))
	rest := -1
	for i, d := range want {
		switch {
		case d == 0 && i < len(x.Shape):
			shape[i] = x.Shape[i]
		case d == -1 && rest < 0:
			rest, shape[i] = i, 1
		case d > 0 && d <= maxDim:
			shape[i] = int(d)
		default:
			return nil, fmt.Errorf("shape %v cannot be applied to %v", want, x.Shape)
		}
	}
	n, err := elements(shape, maxElements)
	if err != nil {
		return nil, err
	}
	if rest >= 0 && n > 0 && len(x.Data)%n == 0 {
		shape[rest] = len(x.Data) / n
		n = len(x.Data)
	}
	if n != len(x.Data) {
		return nil, fmt.Errorf("shape %v cannot be applied to %v", want, x.Shape)
	}
	return shape, nil
}

func makeSoftmax(_ *compiler, n *node) (kernel, error) {
	axis := n.intAttr("axis", -1)
	return func(in []*Tensor, inPlace bool, _ limits) (*Tensor, error) {
		x := in[0]
		at := axis
		if at < 0 {
			at += int64(len(x.Shape))
		}
		if at < 0 || at >= int64(len(x.Shape)) {
			return nil, fmt.Errorf("axis %d is out of range for shape %v", axis, x.Shape)
		}
		y := x
		if !inPlace {
			y = &Tensor{Shape: x.Shape, Data: slices.Clone(x.Data)}
		}
		size, inner := x.Shape[at], product(x.Shape[at+1:])
		for base := 0; base < len(y.Data); base += size * inner {
			for i := range inner {
				softmax(y.Data[base+i:], size, inner)
			}
		}
		return y, nil
	}, nil
}

// softmax works on n elements that are step apart.
func softmax(v []float32, n, step int) {
	top := float32(math.Inf(-1))
	for i := range n {
		top = max(top, v[i*step])
	}
	var sum float64
	for i := range n {
		e := math.Exp(float64(v[i*step] - top))
		v[i*step] = float32(e)
		sum += e
	}
	for i := range n {
		v[i*step] = float32(float64(v[i*step]) / sum)
	}
}

var errBroadcast = errors.New("shapes do not go together")

// elementwise makes an operator of two inputs that are broadcast to a common shape.
func elementwise(f func(a, b float32) float32) operator {
	return operator{min: 2, max: 2, mutates: true, make: func(*compiler, *node) (kernel, error) {
		return func(in []*Tensor, inPlace bool, l limits) (*Tensor, error) {
			return broadcast(in[0], in[1], inPlace, l, f)
		}, nil
	}}
}

func broadcast(a, b *Tensor, inPlace bool, l limits, f func(a, b float32) float32) (*Tensor, error) {
	shape, full := a.Shape, covers(a.Shape, b.Shape)
	var err error
	if !full {
		if shape, err = broadcastShape(a.Shape, b.Shape); err != nil {
			return nil, err
		}
	}
	y := a
	if !inPlace || !full {
		if y, err = newTensor(l, shape...); err != nil {
			return nil, err
		}
	}
	if full && len(b.Data) > 0 && repeats(shape, b.Shape) {
		for base := 0; base < len(y.Data); base += len(b.Data) {
			out, row := y.Data[base:base+len(b.Data)], a.Data[base:base+len(b.Data)]
			for i, v := range b.Data {
				out[i] = f(row[i], v)
			}
		}
		return y, nil
	}
	pa, pb := strides(shape, a.Shape), strides(shape, b.Shape)
	index := make([]int, len(shape))
	ia, ib := 0, 0
	for o := range y.Data {
		y.Data[o] = f(a.Data[ia], b.Data[ib])
		for d := len(shape) - 1; d >= 0; d-- {
			index[d]++
			ia, ib = ia+pa[d], ib+pb[d]
			if index[d] < shape[d] {
				break
			}
			ia, ib = ia-pa[d]*shape[d], ib-pb[d]*shape[d]
			index[d] = 0
		}
	}
	return y, nil
}

// covers reports whether broadcasting b to a leaves a's shape as it is.
func covers(a, b []int) bool {
	off := len(a) - len(b)
	if off < 0 {
		return false
	}
	for i, d := range b {
		if d != 1 && d != a[off+i] {
			return false
		}
	}
	return true
}

func broadcastShape(a, b []int) ([]int, error) {
	if len(a) < len(b) {
		a, b = b, a
	}
	shape := slices.Clone(a)
	off := len(a) - len(b)
	for i, d := range b {
		switch {
		case shape[off+i] == d || d == 1:
		case shape[off+i] == 1:
			shape[off+i] = d
		default:
			return nil, fmt.Errorf("%w: %v and %v", errBroadcast, a, b)
		}
	}
	return shape, nil
}

// repeats reports whether small, leading ones aside, is how shape ends: then it is one run of elements over and over.
func repeats(shape, small []int) bool {
	for len(small) > 0 && small[0] == 1 {
		small = small[1:]
	}
	return len(small) <= len(shape) && slices.Equal(shape[len(shape)-len(small):], small)
}

// strides gives, for each dimension of shape, how far one step goes in a tensor of shape part; 0 where it is broadcast.
func strides(shape, part []int) []int {
	s := make([]int, len(shape))
	step := 1
	for i := len(part) - 1; i >= 0; i-- {
		if part[i] != 1 {
			s[len(shape)-len(part)+i] = step
		}
		step *= part[i]
	}
	return s
}
