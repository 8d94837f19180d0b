package wire

import (
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// StatusDegraded is the status of a PredictionResponse that the call's own target did not give, and ParamDegraded the
// parameter of KServe's answers that says the same.
const (
	StatusDegraded = "DEGRADED"
	ParamDegraded  = "gateway_degraded"
)

const (
	maxDegraded  = 8 << 20 // bytes of a tensor made here; requests may claim any number of rows
	scoreOutput  = "score" // the output's name where nobody knows one
	paramClasses = "classification"
)

// DegradedAnswer makes the answer to c, in the message of its protocol, of a score: a PredictionResponse whose tensor and
// confidence it is, or a ModelInferResponse in which every element of every output that c asks for is the score, in the
// output's datatype and in the shape that it would have for c's rows. t is what is known of the model's tensors; where
// that is nothing, the answer is one FP32. It returns the datatype of a PredictionResponse's tensor.
//
// The error is a fault: BadTensor or InvalidArgument where c would have been refused by a model of these tensors, else
// Internal, where no score can be the answer. c is only read.
func DegradedAnswer(c *inference.Call, t inference.Tensors, score float64) (inference.Frame, string, error) {
	rows, err := rowsOf(c, t.Inputs)
	if err != nil {
		return inference.Frame{}, "", err
	}
	if c.Protocol.SpeaksPredict() {
		out, err := filledWith(answering(t), rows, score)
		if err != nil {
			return inference.Frame{}, "", err
		}
		raw := out.appendTo(make([]byte, 0, out.size()))
		return PredictAnswer(raw, float32(score), StatusDegraded, time.Since(c.Start)), out.Datatype, nil
	}
	outputs, err := wanted(c.Request, t)
	if err != nil {
		return inference.Frame{}, "", err
	}
	b, err := inferAnswer(c, outputs, rows, score)
	if err != nil {
		return inference.Frame{}, "", err
	}
	if c.Protocol == inference.KServeStream {
		head := protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.BytesType), uint64(len(b)))
		f := inference.NewFrame(head)
		f.Append(b)
		return f, "", nil
	}
	return inference.NewFrame(b), "", nil
}

// MarkDegraded marks an answer in the message of protocol p as degraded: one that another target gave.
func MarkDegraded(f *inference.Frame, p inference.Protocol) {
	if p.SpeaksPredict() {
		f.Append(appendText(nil, 3, StatusDegraded))
		return
	}
	mark := appendParam(make([]byte, 0, len(ParamDegraded)+16), ParamDegraded, boolParam, 1, "")
	if p == inference.KServeStream {
		mark = protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), mark)
	}
	f.Append(mark)
}

// rowsOf is the batch of c: what the first input, where its first dimension is open, has there. It is 1 where inputs are
// not known or have no batch.
func rowsOf(c *inference.Call, inputs []inference.Tensor) (int64, error) {
	if len(inputs) == 0 || len(inputs[0].Shape) == 0 || inputs[0].Shape[0] != -1 {
		return 1, nil
	}
	switch {
	case !c.Protocol.SpeaksPredict():
		return max(c.Head.Rows, 1), nil
	case c.Rewritten != nil: // a ModelInferRequest by now
		head, err := PeekInfer(c.Request)
		return max(head.Rows, 1), err
	}
	fitted, err := fit(nil, c.Request, c.Head, inputs)
	if err != nil {
		return 0, err
	}
	return fitted[0].shape[0], nil
}

// answering is the output that becomes output_tensor: one FP32 where that is not known.
func answering(t inference.Tensors) inference.Tensor {
	o := t.Answering()
	if DatatypeSize(o.Datatype) < 0 {
		return inference.Tensor{Datatype: "FP32", Shape: []int64{1}}
	}
	return o
}

// wanted gives the outputs that the ModelInferRequest f asks for, in its order, else all that t knows. A score is no answer
// to one that wants classes, or an output in shared memory.
func wanted(f inference.Frame, t inference.Tensors) ([]inference.Tensor, error) {
	names, err := requestedOutputs(f)
	if err != nil {
		return nil, err
	}
	known := t.Outputs
	if len(known) == 0 {
		if len(names) == 0 {
			names = []string{t.Output}
			if t.Output == "" {
				names[0] = scoreOutput
			}
		}
		for _, name := range names {
			known = append(known, inference.Tensor{Name: name, Datatype: "FP32", Shape: []int64{1}})
		}
		return known, nil
	}
	if len(names) == 0 {
		return known, nil
	}
	outputs := make([]inference.Tensor, 0, len(names))
	for _, name := range names {
		i := slices.IndexFunc(known, func(o inference.Tensor) bool { return o.Name == name })
		if i < 0 {
			return nil, fault.New(fault.InvalidArgument, "the model has no output %.80q; its outputs are %s", name, namesOf(known))
		}
		outputs = append(outputs, known[i])
	}
	return outputs, nil
}

func namesOf(tensors []inference.Tensor) string {
	names := ""
	for i, t := range tensors[:min(len(tensors), 16)] {
		if i > 0 {
			names += ", "
		}
		names += t.Name
	}
	return names
}

// requestedOutputs reads the names in outputs of a ModelInferRequest.
func requestedOutputs(f inference.Frame) (names []string, err error) {
	c := newCursor(f)
	for c.more() {
		fd, err := c.field()
		if err != nil {
			return nil, malformed("ModelInferRequest", err)
		}
		if fd.num != 6 || fd.typ != protowire.BytesType {
			c.pass(fd)
			continue
		}
		if len(names) == maxOutputs {
			return nil, fault.New(fault.InvalidArgument, "the request asks for more than %d outputs", maxOutputs)
		}
		name, plain, err := c.requested(fd.n)
		switch {
		case err != nil:
			return nil, malformed("ModelInferRequest", err)
		case !plain:
			return nil, fault.New(fault.Internal, "no score can be output %.80q, which is asked for in shared memory or as classes", name)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// requested reads the InferRequestedOutputTensor in the next n bytes. plain says that it is asked for as the tensor that it is.
func (c *cursor) requested(n int) (name string, plain bool, err error) {
	plain = true
	outer := c.enter(n)
	for c.more() {
		fd, err := c.field()
		if err != nil {
			return "", false, err
		}
		switch fd.num {
		case 1:
			text, err := c.text(fd, "the name of an output", maxModel)
			if err != nil {
				return "", false, err
			}
			name = string(text)
		case 2:
			entry, err := c.param(fd)
			if err != nil {
				return "", false, err
			}
			plain = plain && string(entry.key) != paramRegion && string(entry.key) != paramClasses
		default:
			c.pass(fd)
		}
	}
	c.end = outer
	return name, plain, nil
}

// filled is an output that is to be filled with the score.
type filled struct {
	inference.Tensor        // with a whole shape
	element          []byte // the score in its datatype
	count            int    // elements
}

// filledWith gives t with so many rows, every other open dimension being 1.
func filledWith(t inference.Tensor, rows int64, score float64) (filled, error) {
	if DatatypeSize(t.Datatype) < 0 || len(t.Shape) > maxRank {
		return filled{}, fault.New(fault.Internal, "output %.80q of datatype %.80q can be no score", t.Name, t.Datatype)
	}
	s := filled{Tensor: t, element: inference.AppendScore(nil, t.Datatype, score), count: 1}
	s.Shape = slices.Clone(t.Shape)
	size := int64(len(s.element))
	for i, d := range s.Shape {
		switch {
		case d == -1 && i == 0:
			d = rows
		case d < 0:
			d = 1
		}
		if s.Shape[i] = d; d > 0 && size > maxDegraded/d {
			return filled{}, tooLargeToDegrade(t.Name)
		}
		s.count *= int(d)
		size *= max(d, 1)
	}
	return s, nil
}

// size is how many bytes appendTo appends.
func (s *filled) size() int { return s.count * len(s.element) }

func (s *filled) appendTo(b []byte) []byte {
	for range s.count {
		b = append(b, s.element...)
	}
	return b
}

func tooLargeToDegrade(output string) error {
	return fault.New(fault.Internal, "output %.80q has more for so many rows than the %d bytes that a fallback makes", output, maxDegraded)
}

// inferAnswer is the ModelInferResponse.
func inferAnswer(c *inference.Call, outputs []inference.Tensor, rows int64, score float64) ([]byte, error) {
	room := len(c.Head.Model) + len(c.Head.ID) + 128
	all := make([]filled, len(outputs))
	for i := range outputs {
		var err error
		if all[i], err = filledWith(outputs[i], rows, score); err != nil {
			return nil, err
		}
		if room += all[i].size() + len(outputs[i].Name) + 10*len(outputs[i].Shape) + 32; room > 2*maxDegraded {
			return nil, tooLargeToDegrade(outputs[i].Name)
		}
	}
	version := ""
	if c.Target != nil {
		version = c.Target.Version
	}
	b := appendText(make([]byte, 0, room), 1, c.Head.Model)
	b = appendText(b, 2, version)
	b = appendText(b, 3, c.Head.ID)
	b = appendParam(b, ParamDegraded, boolParam, 1, "")
	if c.Protocol == inference.KServeStream {
		b = appendParam(b, paramFinal, boolParam, 1, "")
	}
	for i := range all {
		in := input{name: all[i].Name, datatype: all[i].Datatype, shape: all[i].Shape}
		b = in.appendTo(b) // outputs have the fields of inputs, under the same number
	}
	for i := range all {
		b = protowire.AppendVarint(protowire.AppendTag(b, 6, protowire.BytesType), uint64(all[i].size()))
		b = all[i].appendTo(b)
	}
	return b, nil
}
