package wire

import (
	"bytes"
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Bounds on what is compared of two answers.
const (
	maxCompared    = 4096             // elements of an output
	maxComparedAll = 16 * maxCompared // elements of all outputs together
	maxComparedRaw = 8 * maxCompared  // bytes of an output whose elements are no numbers
)

// CompareInfer tells how the ModelInferResponse mirrored differs from answer. Outputs are matched by name, whatever their
// order; of each its first 4,096 elements are compared where they lie, of all together 65,536. Numbers count as the same
// where they are no further apart than Tolerance of their datatype times the larger of them, or 1 where both are smaller;
// integers and strings must be equal. Scores are what a Predict would give as confidence by t.
// The error is a fault of kind UpstreamFailed: one of them is malformed.
func CompareInfer(answer, mirrored inference.Frame, t inference.Tensors) (inference.Difference, error) {
	a, err := scanAnswer(answer)
	if err != nil {
		return inference.Difference{}, malformedAnswer("ModelInferResponse", err)
	}
	b, err := scanAnswer(mirrored)
	if err != nil {
		return inference.Difference{}, malformedAnswer("ModelInferResponse", err)
	}
	d := differ{left: maxComparedAll}
	for i := range a.outputs {
		o := &a.outputs[i]
		other := b.matching(o)
		if other == nil {
			d.found(inference.OutputMissing, o.name)
			continue
		}
		if err := d.outputs(answer, mirrored, &a, &b, o, other); err != nil {
			return d.Difference, malformedAnswer("ModelInferResponse", err)
		}
	}
	for i := range b.outputs {
		if o := &b.outputs[i]; a.matching(o) == nil {
			d.found(inference.OutputMissing, o.name)
		}
	}
	x, okX := a.score(answer, t)
	y, okY := b.score(mirrored, t)
	if okX && okY {
		d.scores(x, y)
	}
	return d.Difference, nil
}

// ComparePredict is CompareInfer for two PredictionResponses, whose tensors came from outputs of the datatypes given; ""
// is one that is not known, and then bytes are compared. Their confidences are scores, and must be as near as numbers of
// the tensor must.
func ComparePredict(answer, mirrored inference.Frame, datatype, mirroredType string) (inference.Difference, error) {
	a, err := scanPredict(answer)
	if err != nil {
		return inference.Difference{}, malformedAnswer("PredictionResponse", err)
	}
	b, err := scanPredict(mirrored)
	if err != nil {
		return inference.Difference{}, malformedAnswer("PredictionResponse", err)
	}
	d := differ{left: maxComparedAll}
	if datatype != mirroredType {
		d.found(inference.ShapeDiffers, outputTensor)
	} else {
		x := content{cursor: newCursorAt(answer, a.tensor.off, a.tensor.n), whole: true}
		y := content{cursor: newCursorAt(mirrored, b.tensor.off, b.tensor.n), whole: true}
		d.contents(outputTensor, datatype, x, y)
	}
	if kind, _ := apart(float64(a.confidence), float64(b.confidence), max(Tolerance(datatype), Tolerance("FP32"))); kind != inference.Same {
		d.found(kind, []byte("confidence"))
	}
	d.scores(a.confidence, b.confidence)
	return d.Difference, nil
}

var outputTensor = []byte("output_tensor")

// Tolerance is how far apart numbers of a datatype may be and still count as the same: relative to the larger of the two,
// absolute where both are below 1. It is some units in the last place, which is what another kernel or batch size makes of
// the same model, and 0 for datatypes that are exact.
func Tolerance(datatype string) float64 {
	switch datatype {
	case "FP32", "FP64": // models that answer FP64 compute in FP32 more often than not
		return 1e-6
	case "FP16":
		return 1.0 / 512
	case "BF16":
		return 1.0 / 64
	}
	return 0
}

// differ gathers what is found.
type differ struct {
	inference.Difference
	left int // elements that may still be compared
}

// found notes what was found in an output; the gravest of all stays, and the first of its kind.
func (d *differ) found(kind inference.DifferenceKind, output []byte) {
	if kind > d.Kind {
		d.Kind, d.Output = kind, string(output)
	}
}

func (d *differ) scores(x, y float32) {
	if finite(float64(x)) && finite(float64(y)) {
		d.Scored, d.Score, d.MirroredScore = true, float64(x), float64(y)
	}
}

// outputs compares two outputs of one name.
func (d *differ) outputs(fa, fb inference.Frame, a, b *answer, x, y *output) error {
	if !bytes.Equal(x.datatype, y.datatype) || !sameShape(fa, fb, x, y) {
		d.found(inference.ShapeDiffers, x.name)
		return nil
	}
	cx, err := a.content(fa, x)
	if err != nil {
		return err
	}
	cy, err := b.content(fb, y)
	if err != nil {
		return err
	}
	d.contents(x.name, nameOf(x.datatype), cx, cy)
	return nil
}

// contents compares the elements of two outputs of one datatype.
func (d *differ) contents(name []byte, datatype string, x, y content) {
	size := DatatypeSize(datatype)
	if size <= 0 {
		d.bytes(name, x, y)
		return
	}
	if x.whole && y.whole && x.len() != y.len() {
		d.found(inference.ShapeDiffers, name)
		return
	}
	n := min(x.len()/size, y.len()/size, maxCompared, d.left)
	d.left -= n
	d.Compared += n
	tolerance := Tolerance(datatype)
	for n > 0 {
		run := min(n, 64, len(x.data)/size, len(y.data)/size)
		if run == 0 { // an element spans two buffers
			bx, _ := x.fixed(size) // that many are there
			by, _ := y.fixed(size)
			d.element(name, datatype, bx, by, tolerance)
			n--
			continue
		}
		dx, dy := x.data[:run*size], y.data[:run*size]
		switch {
		case bytes.Equal(dx, dy):
		case datatype == "FP32": // what nearly all outputs are
			d.run32(name, dx, dy, tolerance)
		default:
			for i := 0; i < len(dx); i += size {
				d.element(name, datatype, bitsOf(dx[i:i+size]), bitsOf(dy[i:i+size]), tolerance)
			}
		}
		x.skip(run * size)
		y.skip(run * size)
		n -= run
	}
}

// run32 compares FP32 numbers that lie in one buffer each.
func (d *differ) run32(name, dx, dy []byte, tolerance float64) {
	for i := 0; i < len(dx); i += 4 {
		x := float64(math.Float32frombits(binary.LittleEndian.Uint32(dx[i:])))
		y := float64(math.Float32frombits(binary.LittleEndian.Uint32(dy[i:])))
		kind, far := apart(x, y, tolerance)
		d.numbers(name, kind, far, x, y)
	}
}

// bitsOf reads a little-endian number of 1 to 8 bytes.
func bitsOf(b []byte) (v uint64) {
	for i := range b {
		v |= uint64(b[i]) << (8 * i)
	}
	return v
}

// element compares two numbers.
func (d *differ) element(name []byte, datatype string, bx, by uint64, tolerance float64) {
	if bx == by {
		return
	}
	x, y := number(datatype, bx), number(datatype, by)
	kind, far := apart(x, y, tolerance)
	if far == 0 && x == y && tolerance == 0 && datatype != "BOOL" {
		kind, far = inference.ValuesDiffer, 1 // 64-bit integers whose difference a float64 cannot hold
	}
	d.numbers(name, kind, far, x, y)
}

// numbers notes what was found of two numbers.
func (d *differ) numbers(name []byte, kind inference.DifferenceKind, far, x, y float64) {
	if kind > d.Kind {
		d.found(kind, name)
	}
	if far > d.MaxAbs {
		d.MaxAbs, d.Value, d.Mirrored = far, x, y
	}
}

// apart compares two numbers. far is their distance where both are finite.
func apart(x, y, tolerance float64) (kind inference.DifferenceKind, far float64) {
	switch {
	case x == y || math.IsNaN(x) && math.IsNaN(y):
		return inference.Same, 0
	case !finite(x) || !finite(y):
		return inference.NotFinite, 0
	}
	far = min(math.Abs(x-y), math.MaxFloat64)
	if far > tolerance*max(1, math.Abs(x), math.Abs(y)) {
		return inference.ValuesDiffer, far
	}
	return inference.Same, far
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// bytes compares outputs whose elements are no numbers.
func (d *differ) bytes(name []byte, x, y content) {
	if x.whole && y.whole && x.len() != y.len() {
		d.found(inference.ValuesDiffer, name)
		return
	}
	for n := min(x.len(), y.len(), maxComparedRaw); n > 0; {
		x.load()
		y.load()
		run := min(n, len(x.data), len(y.data))
		if !bytes.Equal(x.data[:run], y.data[:run]) {
			d.found(inference.ValuesDiffer, name)
			return
		}
		x.skip(run)
		y.skip(run)
		n -= run
	}
}

// content is where the bytes of an output are.
type content struct {
	cursor
	whole bool // all of them; else the first ones
}

func (c *content) len() int { return c.end - c.pos }

// content finds the bytes of o. Of typed contents the first are encoded as raw ones would be.
func (a *answer) content(f inference.Frame, o *output) (content, error) {
	if !o.typed() || len(a.raws) > 0 {
		c, err := a.tensor(f, o)
		return content{cursor: c, whole: true}, err
	}
	b, whole, err := encodeUpTo(f, o, maxComparedRaw)
	return content{cursor: newCursor(inference.NewFrame(b)), whole: whole}, err
}

// matching finds the output of o's name, in o's place if it is there.
func (a *answer) matching(o *output) *output {
	if o.index < len(a.outputs) && bytes.Equal(a.outputs[o.index].name, o.name) {
		return &a.outputs[o.index]
	}
	for i := range a.outputs {
		if bytes.Equal(a.outputs[i].name, o.name) {
			return &a.outputs[i]
		}
	}
	return nil
}

// score is the confidence that a Predict would give; ok is false without an output that has one.
func (a *answer) score(f inference.Frame, t inference.Tensors) (score float32, ok bool) {
	name := t.Output
	if t.Confidence.Output != "" {
		name = t.Confidence.Output
	}
	o, err := a.choose(name)
	if err != nil || o == nil || DatatypeSize(string(o.datatype)) <= 0 {
		return 0, false
	}
	c, err := a.content(f, o)
	if err != nil || c.len() == 0 {
		return 0, false
	}
	return reduce(c.cursor, string(o.datatype), o.row, t.Confidence.Reduce), true
}

// sameShape reports whether two outputs have the same dimensions.
func sameShape(fa, fb inference.Frame, x, y *output) bool {
	if x.rank != y.rank || x.row != y.row {
		return false
	}
	var dx, dy [maxRank]int64
	shapeOf(fa, x, &dx)
	shapeOf(fb, y, &dy)
	return dx == dy
}

// shapeOf reads the shape of an output that has been read before, and is well-formed therefore.
func shapeOf(f inference.Frame, o *output, dims *[maxRank]int64) {
	n := 0
	c := newCursorAt(f, o.at.off, o.at.n)
	for c.more() {
		m, err := c.field()
		if err != nil {
			return
		}
		switch {
		case m.num != 3:
			c.pass(m)
		case m.typ == protowire.VarintType:
			dims[n] = int64(m.v)
			n++
		default:
			outer := c.enter(m.n)
			for c.more() {
				v, _ := c.varint()
				dims[n] = int64(v)
				n++
			}
			c.end = outer
		}
	}
}

// predicted is what was read of a PredictionResponse.
type predicted struct {
	tensor     span
	confidence float32
}

func scanPredict(f inference.Frame) (predicted, error) {
	var p predicted
	c := newCursor(f)
	for c.more() {
		m, err := c.field()
		if err != nil {
			return p, err
		}
		switch m.num {
		case 1:
			p.tensor = span{c.pos, m.n}
			err = m.want(protowire.BytesType, "output_tensor")
		case 2:
			p.confidence = math.Float32frombits(uint32(m.v))
			err = m.want(protowire.Fixed32Type, "confidence")
		}
		if err != nil {
			return p, err
		}
		c.pass(m)
	}
	return p, nil
}
