package wire

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

const (
	maxInputs   = 256
	maxRank     = 32
	maxSize     = 1 << 40 // bytes or elements of a tensor, far beyond any message
	maxElements = 1 << 20 // of a BYTES tensor, since each has to be visited
)

// input is an input of a model on the way to a shape and a size that fit the bytes there are.
type input struct {
	name, datatype string
	shape          []int64 // the open dimension is -1 until it is known; owned by the input
	elem           int     // bytes an element has; 0 for BYTES
	unit           int     // elements there are when the open dimension is 1
	open           int     // index in shape of the open dimension, -1 for none
	size           int     // bytes of the tensor
}

// fit appends to inputs the tensors that the h.TensorLen bytes at h.TensorOff of f are, with whole shapes.
func fit(inputs []input, f inference.Frame, h inference.Head, declared []inference.Tensor) ([]input, error) {
	if len(declared) == 0 || len(declared) > maxInputs {
		return nil, fault.New(fault.Internal, "the model has %d known inputs, Predict needs 1 to %d; "+
			"declare tensors.inputs of the model, or use KServe v2", len(declared), maxInputs)
	}
	texts := false
	for i := range declared {
		in, err := newInput(declared[i], h.Metadata)
		if err != nil {
			return nil, err
		}
		texts = texts || in.elem == 0
		inputs = append(inputs, in)
	}
	if h.TensorLen == 0 {
		return nil, fault.New(fault.BadTensor, "input_tensor is empty; the model needs %s", describe(inputs))
	}
	var err error
	if texts {
		err = divideTexts(inputs, newCursorAt(f, h.TensorOff, h.TensorLen))
	} else {
		err = divide(inputs, h.TensorLen)
	}
	return inputs, err
}

// newInput takes a declared tensor, with its shape from metadata where there is one.
func newInput(t inference.Tensor, metadata map[string]string) (input, error) {
	in := input{name: t.Name, datatype: t.Datatype, elem: DatatypeSize(t.Datatype), unit: 1, open: -1}
	if in.elem < 0 {
		return in, fault.New(fault.Internal, "input %s of the model has the unknown datatype %q", t.Name, t.Datatype)
	}
	if len(t.Shape) > maxRank {
		return in, fault.New(fault.Internal, "input %s of the model has %d dimensions, at most %d are served", t.Name, len(t.Shape), maxRank)
	}
	in.shape = append(make([]int64, 0, len(t.Shape)), t.Shape...)
	if len(metadata) > 0 {
		if s, ok := metadata["tensor."+t.Name+".shape"]; ok {
			if err := in.reshape(s); err != nil {
				return in, err
			}
		}
	}
	for i, d := range in.shape {
		switch {
		case d == -1 && in.open >= 0:
			return in, fault.New(fault.BadTensor, "%v leaves more than one dimension open; "+
				"send its shape as metadata[\"tensor.%s.shape\"], such as %q", in, t.Name, "1,16")
		case d == -1:
			in.open = i
		case d <= 0:
			return in, fault.New(fault.Internal, "%v of the model has a dimension that is neither positive nor -1", in)
		default:
			var ok bool
			if in.unit, ok = product(in.unit, d); !ok {
				return in, fault.New(fault.BadTensor, "%v is larger than any message", in)
			}
		}
	}
	return in, nil
}

// reshape sets the shape that the caller sent, dimensions with commas between. One that the model does not allow is
// refused with the shape as declared.
func (in *input) reshape(sent string) error {
	key := "tensor." + in.name + ".shape"
	shape := make([]int64, 0, len(in.shape))
	fits := true
	for part := range strings.SplitSeq(sent, ",") {
		d, err := strconv.ParseInt(strings.TrimSpace(part), 10, 64)
		if err != nil || d <= 0 {
			return fault.New(fault.InvalidArgument, "metadata[%q] is %.80q; send positive numbers with commas between, such as %q", key, sent, "1,16")
		}
		i := len(shape)
		if fits = fits && i < len(in.shape) && (in.shape[i] == -1 || in.shape[i] == d); fits {
			shape = append(shape, d)
		}
	}
	if !fits || len(shape) < len(in.shape) {
		return fault.New(fault.BadTensor, "metadata[%q] is [%.80s]; the model expects %v", key, sent, *in)
	}
	in.shape = shape
	return nil
}

// divide solves fixed + n*each = total for n, the open dimension of every input that has one.
func divide(inputs []input, total int) error {
	fixed, each, opens, leading := 0, 0, 0, true
	for i := range inputs {
		in := &inputs[i]
		in.size = in.unit * in.elem
		if in.open < 0 {
			fixed += in.size
			continue
		}
		opens++
		each += in.size
		leading = leading && in.open == 0
	}
	if opens > 1 && !leading {
		return ambiguous(inputs)
	}
	rest := total - fixed
	if opens == 0 {
		if rest != 0 {
			return misfit(inputs, total, fmt.Sprintf("exactly %d", fixed))
		}
		return nil
	}
	if rest <= 0 || rest%each != 0 {
		needs := fmt.Sprintf("a multiple of %d", each)
		if fixed > 0 {
			needs = fmt.Sprintf("%d and a multiple of %d", fixed, each)
		}
		return misfit(inputs, total, needs)
	}
	for i := range inputs {
		inputs[i].settle(rest / each)
	}
	return nil
}

// settle gives the open dimension its size n; without one it does nothing.
func (in *input) settle(n int) {
	if in.open >= 0 {
		in.shape[in.open] = int64(n)
		in.size = in.unit * in.elem * n
	}
}

// divideTexts does it where BYTES inputs are among them, whose size only their bytes tell: it walks the inputs front to
// back. One of them may be open, with none of BYTES behind it.
func divideTexts(inputs []input, c cursor) error {
	total, start := c.end-c.pos, c.pos
	open := false
	for i := range inputs {
		in := &inputs[i]
		if open && (in.open >= 0 || in.elem == 0) {
			return ambiguous(inputs)
		}
		open = open || in.open >= 0
		in.size = in.unit * in.elem
	}
	for i := range inputs {
		in := &inputs[i]
		left := c.end - c.pos
		if in.open >= 0 { // it has what those behind it leave
			for _, later := range inputs[i+1:] {
				left -= later.size
			}
		}
		if left <= 0 {
			return misfit(inputs, total, "more")
		}
		if err := in.walk(&c, left); err != nil {
			return err
		}
	}
	if c.more() {
		return misfit(inputs, total, fmt.Sprintf("%d", c.pos-start))
	}
	return nil
}

// walk passes over the tensor of in, which has all of the next left bytes if it is open, else a part of them.
func (in *input) walk(c *cursor, left int) error {
	if in.elem > 0 {
		each := in.unit * in.elem
		if in.open >= 0 && left%each != 0 {
			return fault.New(fault.BadTensor, "input_tensor has %d bytes for %v; it needs a multiple of %d", left, *in, each)
		}
		if in.open < 0 && left < each {
			return fault.New(fault.BadTensor, "input_tensor has %d bytes for %v; it needs %d", left, *in, each)
		}
		in.settle(left / each)
		c.skip(in.size)
		return nil
	}
	limit := maxElements
	if in.open < 0 {
		limit = in.unit
	}
	from := c.pos
	n, err := in.count(c, c.pos+left, limit)
	if err != nil {
		return err
	}
	switch {
	case in.open < 0 && n < in.unit, in.open >= 0 && n%in.unit != 0:
		needs := "%d"
		if in.open >= 0 {
			needs = "a multiple of %d"
		}
		return fault.New(fault.BadTensor, "input_tensor has %d elements for %v; it needs "+needs, n, *in, in.unit)
	case in.open >= 0:
		in.shape[in.open] = int64(n / in.unit)
	}
	in.size = c.pos - from
	return nil
}

// count visits at most limit elements of a BYTES tensor, up to offset end.
func (in *input) count(c *cursor, end, limit int) (int, error) {
	if limit > maxElements {
		return 0, fault.New(fault.BadTensor, "%v has more than %d elements; use KServe v2", *in, maxElements)
	}
	n := 0
	for n < limit && c.pos < end {
		size, left := uint64(0), end-c.pos-4
		if left >= 0 {
			size, _ = c.fixed(4)
		}
		if left < 0 || size > uint64(left) {
			return n, fault.New(fault.BadTensor, "element %d of %v is cut: it has %d bytes, %d are left; "+
				"an element is its length in 4 bytes, little-endian, and then its bytes", n, *in, size, max(left, 0))
		}
		c.skip(int(size))
		n++
	}
	if n == maxElements && c.pos < end && in.open >= 0 {
		return n, fault.New(fault.BadTensor, "input_tensor has more than %d elements for %v; use KServe v2", maxElements, *in)
	}
	return n, nil
}

func misfit(inputs []input, total int, needs string) error {
	verb := " needs "
	if len(inputs) > 1 {
		verb = " together need "
	}
	return fault.New(fault.BadTensor, "input_tensor has %d bytes; %s%s%s", total, describe(inputs), verb, needs)
}

func ambiguous(inputs []input) error {
	return fault.New(fault.BadTensor, "the length of input_tensor does not tell the shapes of %s; "+
		"send metadata[\"tensor.<name>.shape\"], such as %q, for all of them but one", describe(inputs), "1,16")
}

// describe names inputs as the model declares them, the first 16 of them.
func describe(inputs []input) string {
	var b strings.Builder
	for i := range inputs {
		rest := len(inputs) - i
		switch {
		case i == 0:
		case rest == 1 || i == 16:
			b.WriteString(" and ")
		default:
			b.WriteString(", ")
		}
		if i == 16 && rest > 1 {
			fmt.Fprintf(&b, "%d more", rest)
			break
		}
		b.WriteString(inputs[i].String())
	}
	return b.String()
}

// String is such as "INPUT FP32 [-1,16]".
func (in input) String() string {
	b := append([]byte(in.name), ' ')
	b = append(append(b, in.datatype...), " ["...)
	for i, d := range in.shape {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, d, 10)
	}
	return string(append(b, ']'))
}

// product multiplies sizes; it reports whether the product is one that a message could have.
func product(a int, b int64) (int, bool) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return int(lo), hi == 0 && lo <= maxSize
}
