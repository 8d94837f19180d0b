package onnx

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// window is how a kernel slides over the two last dimensions of an image.
type window struct {
	size   [2]int // 0 when the file leaves it to the weights
	stride [2]int
	pad    [4]int // top, left, bottom, right
}

func windowAttrs(more ...string) []string {
	return append([]string{"kernel_shape", "strides", "pads", "dilations", "auto_pad"}, more...)
}

const maxWindow = 1 << 12

func readWindow(n *node) (window, error) {
	w := window{stride: [2]int{1, 1}}
	if a, ok := n.attrs["auto_pad"]; ok && a.s != "NOTSET" && a.s != "VALID" {
		return w, fmt.Errorf("attribute auto_pad=%q is not supported; write pads", a.s)
	} else if ok && a.s == "VALID" && len(n.attrs["pads"].ints) > 0 {
		return w, errors.New("attributes auto_pad and pads contradict each other")
	}
	if a, ok := n.attrs["dilations"]; ok && !slices.Equal(a.ints, []int64{1, 1}) {
		return w, fmt.Errorf("attribute dilations=%v is not supported; only [1 1] is", a.ints)
	}
	if err := fill(w.size[:], n, "kernel_shape", 1); err != nil {
		return w, err
	}
	if err := fill(w.stride[:], n, "strides", 1); err != nil {
		return w, err
	}
	return w, fill(w.pad[:], n, "pads", 0)
}

// fill copies a list attribute, where there is one, and checks its length and range.
func fill(to []int, n *node, name string, least int64) error {
	a, ok := n.attrs[name]
	if !ok {
		return nil
	}
	if len(a.ints) != len(to) {
		return fmt.Errorf("attribute %s=%v: %d values are supported (two-dimensional images)", name, a.ints, len(to))
	}
	for i, v := range a.ints {
		if v < least || v > maxWindow {
			return fmt.Errorf("attribute %s=%v is out of range", name, a.ints)
		}
		to[i] = int(v)
	}
	return nil
}

// over gives the output's height and width for an image of shape [N,C,H,W].
func (w window) over(shape []int) (oh, ow int, err error) {
	if len(shape) != 4 {
		return 0, 0, fmt.Errorf("shape %v is no batch of images [N,C,H,W]", shape)
	}
	oh = (shape[2]+w.pad[0]+w.pad[2]-w.size[0])/w.stride[0] + 1
	ow = (shape[3]+w.pad[1]+w.pad[3]-w.size[1])/w.stride[1] + 1
	if shape[2]+w.pad[0]+w.pad[2] < w.size[0] || shape[3]+w.pad[1]+w.pad[3] < w.size[1] {
		return 0, 0, fmt.Errorf("a window of %v does not fit into an image of shape %v", w.size, shape)
	}
	return oh, ow, nil
}

// span clips the window at output position o, along axis d, to an image of length n: from inclusive, to exclusive.
func (w window) span(d, o, n int) (from, to int) {
	from = o*w.stride[d] - w.pad[d]
	return max(from, 0), min(from+w.size[d], n)
}

func makeConv(_ *compiler, n *node) (kernel, error) {
	w, err := readWindow(n)
	if err != nil {
		return nil, err
	}
	groups := n.intAttr("group", 1)
	if groups < 1 || groups > 1<<16 {
		return nil, fmt.Errorf("attribute group=%d is out of range", groups)
	}
	return func(in []*Tensor, _ bool, l limits) (*Tensor, error) {
		var bias *Tensor
		if len(in) == 3 {
			bias = in[2]
		}
		return conv(in[0], in[1], bias, w, int(groups), l)
	}, nil
}

func conv(x, weights, bias *Tensor, w window, groups int, l limits) (*Tensor, error) {
	if len(x.Shape) != 4 || len(weights.Shape) != 4 {
		return nil, fmt.Errorf("shapes %v and %v: only images [N,C,H,W] and weights [M,C,h,w] are supported", x.Shape, weights.Shape)
	}
	maps, channels := weights.Shape[0], weights.Shape[1]
	kernelShape := [2]int{weights.Shape[2], weights.Shape[3]}
	if w.size != [2]int{} && w.size != kernelShape {
		return nil, fmt.Errorf("kernel_shape %v and weights of shape %v contradict each other", w.size, weights.Shape)
	}
	w.size = kernelShape
	if channels*groups != x.Shape[1] || maps%groups != 0 {
		return nil, fmt.Errorf("an image of shape %v, weights of shape %v and %d groups do not go together", x.Shape, weights.Shape, groups)
	}
	if bias != nil && !slices.Equal(bias.Shape, []int{maps}) {
		return nil, fmt.Errorf("bias of shape %v, want [%d]", bias.Shape, maps)
	}
	oh, ow, err := w.over(x.Shape)
	if err != nil {
		return nil, err
	}
	if err := l.afford(x.Shape[0], maps, channels, w.size[0], w.size[1], oh, ow); err != nil {
		return nil, err
	}
	y, err := newTensor(l, x.Shape[0], maps, oh, ow)
	if err != nil {
		return nil, err
	}
	if bias != nil {
		for i := 0; i < x.Shape[0]*maps && oh*ow > 0; i++ {
			fillWith(y.Data[i*oh*ow:(i+1)*oh*ow], bias.Data[i%maps])
		}
	}
	s := slide{window: w, channels: channels, height: x.Shape[2], width: x.Shape[3], oh: oh, ow: ow}
	if _, err := elements([]int{s.depth(), s.tile(), ow}, l.elements); err != nil {
		return nil, err
	}
	patch := make([]float32, s.depth()*s.tile()*ow)
	perGroup := maps / groups
	for g := range x.Shape[0] * groups { // images one after another, and their groups
		image := x.Data[g*channels*s.height*s.width : (g+1)*channels*s.height*s.width]
		out := y.Data[g*perGroup*oh*ow : (g+1)*perGroup*oh*ow]
		k := (g % groups) * perGroup * s.depth()
		s.convolve(out, image, weights.Data[k:k+perGroup*s.depth()], patch)
	}
	return y, nil
}

func fillWith(s []float32, v float32) {
	for i := range s {
		s[i] = v
	}
}

// slide is a convolution of one group of channels of one image.
type slide struct {
	window
	channels, height, width int
	oh, ow                  int
}

// depth is how many multiplications make one output element.
func (s *slide) depth() int { return s.channels * s.size[0] * s.size[1] }

// tile is how many output rows are computed at once: few enough for their patches to stay in the cache.
func (s *slide) tile() int {
	const cache = 1 << 15 // elements
	return min(max(cache/max(s.depth()*s.ow, 1), 1), max(s.oh, 1))
}

// convolve lays the patches under the window out as columns, a tile at a time, and multiplies by the weights.
func (s *slide) convolve(out, image, weights, patch []float32) {
	depth := s.depth()
	if depth == 0 {
		return
	}
	for top := 0; top < s.oh; top += s.tile() {
		rows := min(s.tile(), s.oh-top)
		cols := rows * s.ow
		s.patches(patch, image, top, rows)
		for m := range len(weights) / depth {
			plane := out[m*s.oh*s.ow+top*s.ow:]
			gemm(plane[:cols], weights[m*depth:(m+1)*depth], patch, 1, depth, cols)
		}
	}
}

// patches writes, for every element under the window, one row with its values at all positions of the tile.
func (s *slide) patches(patch, image []float32, top, rows int) {
	cols := rows * s.ow
	at := 0
	for c := range s.channels {
		plane := image[c*s.height*s.width : (c+1)*s.height*s.width]
		for ky := range s.size[0] {
			for kx := range s.size[1] {
				row := patch[at : at+cols]
				at += cols
				for r := range rows {
					to := row[r*s.ow : (r+1)*s.ow]
					y := (top+r)*s.stride[0] - s.pad[0] + ky
					if y < 0 || y >= s.height {
						clear(to)
						continue
					}
					s.line(to, plane[y*s.width:(y+1)*s.width], kx-s.pad[1])
				}
			}
		}
	}
}

// line copies what lies under one element of the window, zeros beyond the image's edges.
func (s *slide) line(to, from []float32, x int) {
	if s.stride[1] == 1 {
		lead := min(max(-x, 0), len(to))
		clear(to[:lead])
		n := 0
		if x+lead < len(from) {
			n = copy(to[lead:], from[x+lead:])
		}
		clear(to[lead+n:])
		return
	}
	for i := range to {
		to[i] = 0
		if x >= 0 && x < len(from) {
			to[i] = from[x]
		}
		x += s.stride[1]
	}
}

func poolWindow(n *node) (window, error) {
	w, err := readWindow(n)
	switch {
	case err != nil:
		return w, err
	case w.size == [2]int{}:
		return w, errors.New("attribute kernel_shape is missing")
	case w.pad[0] >= w.size[0] || w.pad[2] >= w.size[0] || w.pad[1] >= w.size[1] || w.pad[3] >= w.size[1]:
		return w, fmt.Errorf("pads %v are not smaller than the window %v", w.pad, w.size)
	}
	if err := n.refuse("storage_order", 0); err != nil {
		return w, err
	}
	return w, n.refuse("ceil_mode", 0)
}

func makeMaxPool(_ *compiler, n *node) (kernel, error) {
	w, err := poolWindow(n)
	if err != nil {
		return nil, err
	}
	return pool(w, func(plane []float32, width, y0, y1, x0, x1 int) float32 {
		top := float32(math.Inf(-1))
		for y := y0; y < y1; y++ {
			for _, v := range plane[y*width+x0 : y*width+x1] {
				top = max(top, v)
			}
		}
		return top
	}), nil
}

func makeAveragePool(_ *compiler, n *node) (kernel, error) {
	w, err := poolWindow(n)
	if err != nil {
		return nil, err
	}
	whole := n.intAttr("count_include_pad", 0) != 0
	return pool(w, func(plane []float32, width, y0, y1, x0, x1 int) float32 {
		var sum float32
		for y := y0; y < y1; y++ {
			for _, v := range plane[y*width+x0 : y*width+x1] {
				sum += v
			}
		}
		n := (y1 - y0) * (x1 - x0)
		if whole {
			n = w.size[0] * w.size[1]
		}
		return sum / float32(n)
	}), nil
}

// pool slides w over every plane; reduce gets the part of the window that lies within the image.
func pool(w window, reduce func(plane []float32, width, y0, y1, x0, x1 int) float32) kernel {
	return func(in []*Tensor, _ bool, l limits) (*Tensor, error) {
		x := in[0]
		oh, ow, err := w.over(x.Shape)
		if err != nil {
			return nil, err
		}
		if err := l.afford(x.Shape[0], x.Shape[1], oh, ow, w.size[0], w.size[1]); err != nil {
			return nil, err
		}
		y, err := newTensor(l, x.Shape[0], x.Shape[1], oh, ow)
		if err != nil {
			return nil, err
		}
		height, width := x.Shape[2], x.Shape[3]
		o := 0
		for p := range x.Shape[0] * x.Shape[1] {
			plane := x.Data[p*height*width : (p+1)*height*width]
			for i := range oh {
				y0, y1 := w.span(0, i, height)
				for j := range ow {
					x0, x1 := w.span(1, j, width)
					y.Data[o] = reduce(plane, width, y0, y1, x0, x1)
					o++
				}
			}
		}
		return y, nil
	}
}

func makeGlobalAveragePool(*compiler, *node) (kernel, error) {
	return func(in []*Tensor, _ bool, l limits) (*Tensor, error) {
		x := in[0]
		if len(x.Shape) != 4 {
			return nil, fmt.Errorf("shape %v is no batch of images [N,C,H,W]", x.Shape)
		}
		y, err := newTensor(l, x.Shape[0], x.Shape[1], 1, 1)
		if err != nil {
			return nil, err
		}
		size := x.Shape[2] * x.Shape[3]
		for i := range y.Data {
			var sum float64
			for _, v := range x.Data[i*size : (i+1)*size] {
				sum += float64(v)
			}
			y.Data[i] = float32(sum / float64(size))
		}
		return y, nil
	}, nil
}
