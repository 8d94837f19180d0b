package wire

import (
	"fmt"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// InferToPredict turns the ModelInferResponse in f into a PredictionResponse, in place and around the same bytes of
// the output that answers: t.Output, else the first floating-point one, else the first. An output that came as typed
// contents is encoded as raw bytes would be. Confidence is computed as t.Confidence says; latency is rounded up to
// milliseconds. It returns the datatype of that output, "" without one or for a datatype that is not KServe's.
// The error is a fault of kind UpstreamFailed, and the frame is then as it was.
func InferToPredict(f *inference.Frame, t inference.Tensors, status string, latency time.Duration) (datatype string, err error) {
	a, err := scanAnswer(*f)
	if err != nil {
		return "", malformedAnswer("ModelInferResponse", err)
	}
	chosen, err := a.choose(t.Output)
	if err != nil {
		return "", err
	}
	judged := chosen
	if t.Confidence.Output != "" {
		if judged, err = a.choose(t.Confidence.Output); err != nil {
			return "", err
		}
	}
	if chosen == nil { // a model may answer with no outputs at all
		reshape(f, []piece{{head: appendAnswer(nil, 0, status, latency)}})
		return "", nil
	}
	datatype = nameOf(chosen.datatype) // a view into the frame, which is about to change
	tensor, err := a.tensor(*f, chosen)
	if err != nil {
		return "", malformedAnswer("ModelInferResponse", err)
	}
	basis := tensor
	if judged != chosen {
		if basis, err = a.tensor(*f, judged); err != nil {
			return "", malformedAnswer("ModelInferResponse", err)
		}
	}
	confidence := reduce(basis, string(judged.datatype), judged.row, t.Confidence.Reduce)
	n := tensor.end - tensor.pos
	head := appendAnswer(make([]byte, 0, len(status)+40), confidence, status, latency)
	head = protowire.AppendTag(head, 1, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(n))
	if chosen.typed() {
		reshape(f, []piece{{head: append(head, tensor.view(n)...)}})
		return datatype, nil
	}
	reshape(f, []piece{{head: head, span: span{tensor.pos, n}}})
	return datatype, nil
}

// PredictAnswer is a PredictionResponse made by the gateway itself; tensor is copied.
func PredictAnswer(tensor []byte, confidence float32, status string, latency time.Duration) inference.Frame {
	b := appendAnswer(make([]byte, 0, len(status)+len(tensor)+40), confidence, status, latency)
	if len(tensor) > 0 {
		b = protowire.AppendBytes(protowire.AppendTag(b, 1, protowire.BytesType), tensor)
	}
	return inference.NewFrame(b)
}

// PredictError is a PredictionResponse for a message of a stream that failed: its status is "ERROR: " and reason.
func PredictError(reason string, latency time.Duration) inference.Frame {
	return PredictAnswer(nil, 0, "ERROR: "+strings.ToValidUTF8(reason, "\uFFFD"), latency)
}

// appendAnswer appends everything of a PredictionResponse but its tensor.
func appendAnswer(b []byte, confidence float32, status string, latency time.Duration) []byte {
	if bits := math.Float32bits(confidence); bits != 0 {
		b = protowire.AppendFixed32(protowire.AppendTag(b, 2, protowire.Fixed32Type), bits)
	}
	if status != "" {
		b = appendText(b, 3, status)
	}
	if ms := (max(latency, 0) + time.Millisecond - 1) / time.Millisecond; ms > 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, 4, protowire.VarintType), uint64(ms))
	}
	return b
}

// answer is what was read of a ModelInferResponse.
type answer struct {
	outputs []output
	raws    []span
}

// output is an output and where its contents are. Its views are good as long as the frame is.
type output struct {
	name, datatype []byte
	row            int    // elements in a row: the product of all dimensions but the first
	rank           int    // dimensions seen
	index          int    // among the outputs
	raw            bool   // its bytes are among the raw ones
	contents       []span // its typed contents, which merge
	at             span   // all of it in the frame
}

func (o *output) typed() bool { return !o.raw && len(o.contents) > 0 }

func scanAnswer(f inference.Frame) (answer, error) {
	var a answer
	c := newCursor(f)
	for c.more() {
		fd, err := c.field()
		if err != nil {
			return a, err
		}
		switch fd.num {
		case 5:
			if len(a.outputs) == maxOutputs {
				return a, fmt.Errorf("it has more than %d outputs", maxOutputs)
			}
			o, err := c.output(fd)
			if err != nil {
				return a, err
			}
			o.index = len(a.outputs)
			a.outputs = append(a.outputs, o)
		case 6:
			if err := fd.want(protowire.BytesType, "raw_output_contents"); err != nil {
				return a, err
			}
			if len(a.raws) == maxOutputs {
				return a, fmt.Errorf("it has more than %d raw_output_contents", maxOutputs)
			}
			a.raws = append(a.raws, span{c.pos, fd.n})
			c.pass(fd)
		default:
			c.pass(fd)
		}
	}
	for i := range a.outputs {
		a.outputs[i].raw = i < len(a.raws)
	}
	return a, nil
}

// output reads the InferOutputTensor that f is.
func (c *cursor) output(f field) (output, error) {
	o := output{row: 1}
	if err := f.want(protowire.BytesType, "outputs"); err != nil {
		return o, err
	}
	o.at = span{c.pos, f.n}
	outer := c.enter(f.n)
	for c.more() {
		m, err := c.field()
		if err != nil {
			return o, err
		}
		switch m.num {
		case 1:
			o.name, err = c.text(m, "the name of an output", maxModel)
		case 2:
			o.datatype, err = c.text(m, "the datatype of an output", maxKey)
		case 3:
			err = c.dims(&o, m)
		case 5:
			if err = m.want(protowire.BytesType, "the contents of an output"); err == nil && m.n > 0 {
				if len(o.contents) == maxOutputs {
					return o, fmt.Errorf("an output has its contents in more than %d parts", maxOutputs)
				}
				o.contents = append(o.contents, span{c.pos, m.n})
			}
			c.pass(m)
		default:
			c.pass(m)
		}
		if err != nil {
			return o, err
		}
	}
	c.end = outer
	return o, nil
}

// dims reads shape, packed or one dimension at a time.
func (c *cursor) dims(o *output, f field) error {
	if f.typ == protowire.VarintType {
		return o.dim(int64(f.v))
	}
	if err := f.want(protowire.BytesType, "the shape of an output"); err != nil {
		return err
	}
	outer := c.enter(f.n)
	for c.more() {
		d, err := c.varint()
		if err == nil {
			err = o.dim(int64(d))
		}
		if err != nil {
			return err
		}
	}
	c.end = outer
	return nil
}

// dim counts one more dimension in. The size of a row is capped, not refused: the bytes there are bound it anyway.
func (o *output) dim(d int64) error {
	if o.rank++; o.rank == 1 {
		return nil
	}
	if o.rank > maxRank {
		return fmt.Errorf("an output has more than %d dimensions", maxRank)
	}
	var ok bool
	if o.row, ok = product(o.row, max(d, 0)); !ok {
		o.row = maxSize
	}
	return nil
}

// choose finds the output of that name; for "" the first floating-point one, else the first, else nil.
func (a *answer) choose(name string) (*output, error) {
	for i := range a.outputs {
		o := &a.outputs[i]
		if name != "" && string(o.name) == name || name == "" && floating(string(o.datatype)) {
			return o, nil
		}
	}
	if name != "" {
		var has strings.Builder
		if len(a.outputs) == 0 {
			has.WriteString(" none")
		}
		for i := range a.outputs[:min(len(a.outputs), 16)] {
			fmt.Fprintf(&has, " %q", a.outputs[i].name)
		}
		f := fault.New(fault.UpstreamFailed, "the model answered without the output %q that its configuration names; it has%s", name, has.String())
		f.Upstream = true
		return nil, f
	}
	if len(a.outputs) > 0 {
		return &a.outputs[0], nil
	}
	return nil, nil
}

// tensor reads the bytes of o: in the frame, or in a buffer of their own when they came as typed contents.
func (a *answer) tensor(f inference.Frame, o *output) (cursor, error) {
	switch {
	case o.raw:
		return newCursorAt(f, a.raws[o.index].off, a.raws[o.index].n), nil
	case len(a.raws) > 0:
		return cursor{}, fmt.Errorf("it has %d outputs but only %d raw_output_contents", len(a.outputs), len(a.raws))
	case o.typed():
		b, err := encodeContents(f, o)
		return newCursor(inference.NewFrame(b)), err
	}
	return cursor{}, nil
}
