// Package rest translates between KServe v2 as REST speaks it (a JSON head, and behind it raw tensors of the
// binary data extension) and the protobuf messages that travel through the gateway.
//
// Tensors always become raw little-endian bytes; those that came raw are not copied. What does not fit (counts,
// shapes, sizes, types) is found here and answered with a fault that names the tensor and the remedy, because a
// model server answers most of it as if the server had failed. Nothing is allocated on a client's word: memory
// is bounded by the bytes that were sent.
package rest

import (
	"math"
	"strconv"

	"github.com/model-gateway/model-gateway/pkg/fault"
)

// Limits on the parts of one request. They are far above what models have, and keep a hostile body from
// becoming millions of small objects.
const (
	maxTensors    = 1024 // inputs, and outputs asked for
	maxParameters = 256  // of the request, of an input, of an output
	maxDims       = 32   // of a shape
	maxNesting    = 32   // of the lists in data
)

// HeadLength is the header that says how many bytes of a body are JSON; the rest are raw tensors.
const HeadLength = "Inference-Header-Content-Length"

// Wanted says in which form the outputs of a request go back.
type Wanted struct {
	Binary  bool            // form of outputs that Outputs does not name
	Outputs map[string]bool // by output name: raw bytes, else JSON
	Shared  map[string]bool // outputs that were asked for in shared memory: their bytes do not travel
}

// binary reports whether the output goes back as raw bytes.
func (w Wanted) binary(output string) bool {
	if b, ok := w.Outputs[output]; ok {
		return b
	}
	return w.Binary
}

// datatype is what the translation needs to know of a KServe datatype.
type datatype struct {
	name string
	size int // bytes of an element; 0 for BYTES, whose elements carry their lengths
}

var datatypes = map[string]datatype{
	"BOOL": {"BOOL", 1},
	"INT8": {"INT8", 1}, "INT16": {"INT16", 2}, "INT32": {"INT32", 4}, "INT64": {"INT64", 8},
	"UINT8": {"UINT8", 1}, "UINT16": {"UINT16", 2}, "UINT32": {"UINT32", 4}, "UINT64": {"UINT64", 8},
	"FP16": {"FP16", 2}, "BF16": {"BF16", 2}, "FP32": {"FP32", 4}, "FP64": {"FP64", 8},
	"BYTES": {"BYTES", 0},
}

const datatypeList = "BOOL, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, FP16, BF16, FP32, FP64, BYTES"

// elements multiplies the dimensions of a shape; ok is false when one is negative or the product does not fit.
func elements(shape []int64) (n int64, ok bool) {
	n = 1
	zero := false
	for _, d := range shape {
		switch {
		case d < 0:
			return 0, false
		case d == 0:
			zero = true
		case n > math.MaxInt64/d:
			n = math.MaxInt64 // too many, unless another dimension is 0
		default:
			n *= d
		}
	}
	if zero {
		return 0, true
	}
	return n, n < math.MaxInt64
}

// shapeText prints a shape as JSON has it.
func shapeText(shape []int64) string {
	b := []byte{'['}
	for i, d := range shape {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, d, 10)
	}
	return string(append(b, ']'))
}

func badTensor(format string, args ...any) error {
	return fault.New(fault.BadTensor, format, args...)
}

func badRequest(format string, args ...any) error {
	return fault.New(fault.InvalidArgument, format, args...)
}
