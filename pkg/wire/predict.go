package wire

import (
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// PredictToInfer turns the PredictionRequest in f, whose head is h, into a ModelInferRequest for version of model, in
// place and around the same tensor bytes. The inputs of t, in their order, share the bytes of input_tensor; at most
// one dimension may be left open (-1), or the leading ones of several inputs, which then are the same batch.
// metadata["tensor.<name>.shape"], such as "1,16", gives a shape that cannot be inferred.
//
// The error is a fault: BadTensor where the bytes do not fit the inputs, InvalidArgument for a malformed shape in
// metadata, Internal where t itself is unusable. The frame is then as it was.
func PredictToInfer(f *inference.Frame, h inference.Head, model, version string, t inference.Tensors) error {
	if h.TensorOff < 0 || h.TensorLen < 0 || h.TensorOff+h.TensorLen > f.Len() {
		return fault.New(fault.Internal, "the head does not belong to this PredictionRequest")
	}
	var store [4]input
	inputs, err := fit(store[:0], *f, h, t.Inputs)
	if err != nil {
		return err
	}
	// One allocation has all bytes of ours; marks are where the next input's tensor goes between them.
	b := make([]byte, 0, requestSize(h, model, version, inputs))
	b = appendHead(b, h, model, version)
	for i := range inputs {
		b = inputs[i].appendTo(b)
	}
	var pieceStore [4]piece
	pieces := pieceStore[:0]
	off, start := h.TensorOff, 0
	for i := range inputs {
		b = protowire.AppendTag(b, 7, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(inputs[i].size))
		pieces = append(pieces, piece{head: b[start:len(b):len(b)], span: span{off, inputs[i].size}})
		off, start = off+inputs[i].size, len(b)
	}
	reshape(f, pieces)
	return nil
}

// requestSize bounds what appendHead, appendTo and the heads of the raw contents append, so that b never moves: the
// pieces are slices of it.
func requestSize(h inference.Head, model, version string, inputs []input) int {
	n := len(model) + len(version) + len(h.ID) + len(h.Sequence.ID) + 160
	for i := range inputs {
		in := &inputs[i]
		n += len(in.name) + len(in.datatype) + 10*len(in.shape) + 48
	}
	return n
}

// appendHead appends everything of a ModelInferRequest but its tensors.
func appendHead(b []byte, h inference.Head, model, version string) []byte {
	b = appendText(b, 1, model)
	if version != "" {
		b = appendText(b, 2, version)
	}
	if h.ID != "" {
		b = appendText(b, 3, h.ID)
	}
	if s := h.Sequence; s.ID != "" {
		b = appendSequenceID(b, s.ID)
	}
	if h.Sequence.Start {
		b = appendParam(b, paramSequenceStart, boolParam, 1, "")
	}
	if h.Sequence.End {
		b = appendParam(b, paramSequenceEnd, boolParam, 1, "")
	}
	if h.EmptyFinal {
		b = appendParam(b, paramEmptyFinal, boolParam, 1, "")
	}
	return b
}

// appendSequenceID writes digits as a number and anything else as text, since servers take either and a model
// expects one of them. What an int64 cannot hold is text: Triton refuses uint64_param.
func appendSequenceID(b []byte, id string) []byte {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != id {
		return appendParam(b, paramSequenceID, stringParam, 0, id)
	}
	return appendParam(b, paramSequenceID, int64Param, uint64(n), "")
}

// appendTo appends the InferInputTensor of in as field 5.
func (in *input) appendTo(b []byte) []byte {
	dims := 0
	for _, d := range in.shape {
		dims += protowire.SizeVarint(uint64(d))
	}
	n := textSize(in.name) + textSize(in.datatype)
	if dims > 0 {
		n += 1 + protowire.SizeBytes(dims)
	}
	b = protowire.AppendTag(b, 5, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(n))
	b = appendText(b, 1, in.name)
	b = appendText(b, 2, in.datatype)
	if dims > 0 {
		b = protowire.AppendTag(b, 3, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(dims))
		for _, d := range in.shape {
			b = protowire.AppendVarint(b, uint64(d))
		}
	}
	return b
}
