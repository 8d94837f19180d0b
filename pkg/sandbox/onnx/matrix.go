package onnx

import "fmt"

// gemm adds a·b to c, all row-major: a is rows×inner, b is inner×cols. Four rows of b are taken at a time, so that
// each element of c is loaded and stored once for four multiplications.
func gemm(c, a, b []float32, rows, inner, cols int) {
	if cols == 1 {
		gemv(c, a, b, rows, inner)
		return
	}
	for r := range rows {
		out, row := c[r*cols:(r+1)*cols], a[r*inner:(r+1)*inner]
		k := 0
		for ; k+4 <= inner; k += 4 {
			axpy4(out, b[k*cols:], row[k], row[k+1], row[k+2], row[k+3])
		}
		for ; k < inner; k++ {
			w := row[k]
			for j, v := range b[k*cols : (k+1)*cols] {
				out[j] += w * v
			}
		}
	}
}

// axpy4 adds four scaled rows, which follow one another in b, to out.
func axpy4(out, b []float32, w0, w1, w2, w3 float32) {
	n := len(out)
	b0, b1, b2, b3 := b[:n], b[n:2*n], b[2*n:3*n], b[3*n:4*n]
	b1, b2, b3 = b1[:len(b0)], b2[:len(b0)], b3[:len(b0)]
	out = out[:len(b0)]
	for j, v := range b0 {
		out[j] += w0*v + w1*b1[j] + w2*b2[j] + w3*b3[j]
	}
}

func gemv(c, a, b []float32, rows, inner int) {
	b = b[:inner]
	for r := range rows {
		var s0, s1, s2, s3 float32
		row := a[r*inner : (r+1)*inner]
		k := 0
		for ; k+4 <= inner; k += 4 {
			x, y := row[k:k+4:k+4], b[k:k+4:k+4]
			s0 += x[0] * y[0]
			s1 += x[1] * y[1]
			s2 += x[2] * y[2]
			s3 += x[3] * y[3]
		}
		for ; k < inner; k++ {
			s0 += row[k] * b[k]
		}
		c[r] += s0 + s1 + s2 + s3
	}
}

func makeMatMul(*compiler, *node) (kernel, error) {
	return func(in []*Tensor, _ bool, l limits) (*Tensor, error) {
		a, b := in[0], in[1]
		if len(a.Shape) < 2 || len(b.Shape) != 2 {
			return nil, fmt.Errorf("shapes %v and %v: only a matrix on the right, and at least one on the left, are supported", a.Shape, b.Shape)
		}
		inner := a.Shape[len(a.Shape)-1]
		if inner != b.Shape[0] {
			return nil, fmt.Errorf("shapes %v and %v do not go together", a.Shape, b.Shape)
		}
		rows, cols := product(a.Shape[:len(a.Shape)-1]), b.Shape[1]
		shape := append(append(make([]int, 0, len(a.Shape)), a.Shape[:len(a.Shape)-1]...), cols)
		y, err := newTensor(l, shape...)
		if err != nil {
			return nil, err
		}
		if err := l.afford(rows, inner, cols); err != nil {
			return nil, err
		}
		gemm(y.Data, a.Data, b.Data, rows, inner, cols)
		return y, nil
	}, nil
}

// afford refuses work beyond the limit.
func (l limits) afford(factors ...int) error {
	if n, err := elements(factors, l.work); err != nil {
		return fmt.Errorf("too much work: more than %d multiplications", l.work)
	} else if n > l.work {
		return fmt.Errorf("too much work: %d multiplications", n)
	}
	return nil
}

func makeGemm(_ *compiler, n *node) (kernel, error) {
	alpha, beta := float32(1), float32(1)
	if a, ok := n.attrs["alpha"]; ok {
		alpha = a.f
	}
	if a, ok := n.attrs["beta"]; ok {
		beta = a.f
	}
	transA, transB := n.intAttr("transA", 0) != 0, n.intAttr("transB", 0) != 0
	return func(in []*Tensor, _ bool, l limits) (*Tensor, error) {
		a, b := in[0], in[1]
		if len(a.Shape) != 2 || len(b.Shape) != 2 {
			return nil, fmt.Errorf("shapes %v and %v are no matrices", a.Shape, b.Shape)
		}
		if transA {
			a = transpose(a)
		}
		if transB {
			b = transpose(b)
		}
		rows, inner, cols := a.Shape[0], a.Shape[1], b.Shape[1]
		if inner != b.Shape[0] {
			return nil, fmt.Errorf("shapes %v and %v do not go together", a.Shape, b.Shape)
		}
		if err := l.afford(rows, inner, cols); err != nil {
			return nil, err
		}
		y, err := newTensor(l, rows, cols)
		if err != nil {
			return nil, err
		}
		gemm(y.Data, a.Data, b.Data, rows, inner, cols)
		if alpha != 1 {
			for i := range y.Data {
				y.Data[i] *= alpha
			}
		}
		if len(in) < 3 || in[2] == nil {
			return y, nil
		}
		return addBias(y, in[2], beta, l)
	}, nil
}

// addBias adds beta·c to y. c is broadcast to the shape of y, never the other way round.
func addBias(y, c *Tensor, beta float32, l limits) (*Tensor, error) {
	if shape, err := broadcastShape(y.Shape, c.Shape); err != nil || product(shape) != len(y.Data) || len(shape) != 2 {
		return nil, fmt.Errorf("the bias of shape %v cannot be added to %v", c.Shape, y.Shape)
	}
	return broadcast(y, c, true, l, func(a, b float32) float32 { return a + beta*b })
}

func transpose(x *Tensor) *Tensor {
	rows, cols := x.Shape[0], x.Shape[1]
	y := &Tensor{Shape: []int{cols, rows}, Data: make([]float32, len(x.Data))}
	for r := range rows {
		for c, v := range x.Data[r*cols : (r+1)*cols] {
			y.Data[c*rows+r] = v
		}
	}
	return y
}
