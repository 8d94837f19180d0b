package rest

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

const (
	requestRawField = 7 // ModelInferRequest.raw_input_contents
	inlineRaw       = 4 << 10
	region          = "shared_memory_region" // the parameter of tensors whose bytes do not travel
)

// Request makes a ModelInferRequest of the body of POST /v2/models/{model}[/versions/{version}]/infer.
//
// headLen is the value of Inference-Header-Content-Length, -1 when absent: so many bytes of body are JSON, the
// rest are raw tensors in the order of the inputs that have binary_data_size. The message is at most max bytes
// (0: 2 GiB). Every error is a *fault.Fault with HTTP status 400 or 413.
//
// The frame refers to body, which must not be written any more. Wanted goes to Answer.
func Request(body []byte, headLen int, model, version string, limit int) (inference.Frame, Wanted, error) {
	if limit <= 0 {
		limit = 1<<31 - 1
	}
	r := request{scanner: scanner{b: body}, limit: limit, msg: &tritonpb.ModelInferRequest{ModelName: model, ModelVersion: version}}
	if err := r.cut(headLen); err != nil {
		return inference.Frame{}, Wanted{}, err
	}
	if err := r.head(); err != nil {
		return inference.Frame{}, Wanted{}, err
	}
	if len(r.tail) > 0 {
		return inference.Frame{}, Wanted{}, badTensor("%d bytes are left behind the last binary tensor; the binary_data_size of the inputs must add up to what follows the JSON", len(r.tail))
	}
	f, err := r.frame()
	return f, r.wanted, err
}

// request is a body being read.
type request struct {
	scanner
	binary bool   // the client named the length of the JSON
	tail   []byte // raw bytes that no input has claimed yet
	limit  int    // bytes of the message
	size   int    // bytes of the tensors read so far
	msg    *tritonpb.ModelInferRequest
	raw    [][]byte // raw_input_contents
	names  map[string]bool
	wanted Wanted
}

// cut separates the JSON from the raw bytes behind it.
func (r *request) cut(headLen int) error {
	switch {
	case headLen < 0:
		return nil
	case headLen == 0:
		return badRequest("%s is 0: a body of nothing but raw bytes is not served; send a JSON head with the input's name, shape, datatype and binary_data_size", HeadLength)
	case headLen > len(r.b):
		return badRequest("%s is %d and the body has %d bytes; it must be the length of the JSON in front of the raw tensors", HeadLength, headLen, len(r.b))
	}
	r.binary = true
	r.b, r.tail = r.b[:headLen], r.b[headLen:]
	return nil
}

func (r *request) head() error {
	if r.next() == 0 && r.at >= len(r.b) {
		return badRequest("the body is empty; send a JSON object with inputs")
	}
	var seen [4]bool // a repeated key would leave open which one counts
	err := r.object("request", func(key string) (err error) {
		which := -1
		switch key {
		case "id":
			which = 0
			r.msg.Id, err = r.text("id")
		case "parameters":
			which = 1
			r.msg.Parameters, err = r.parameters("request", r.option)
		case "inputs":
			which = 2
			err = r.array("inputs", r.input)
		case "outputs":
			which = 3
			err = r.array("outputs", r.output)
		default:
			_, err = r.value(snippet([]byte(key)))
		}
		if err == nil && which >= 0 {
			if seen[which] {
				return badRequest("%q stands twice in the request", key)
			}
			seen[which] = true
		}
		return err
	})
	if err != nil {
		return err
	}
	if len(r.msg.Inputs) == 0 {
		return badTensor("the request has no inputs; send inputs: [{name, shape, datatype, data}]")
	}
	return r.end()
}

// option takes the parameters of a request that are about its answer.
func (r *request) option(name string, v jsontext.Value) (taken bool, err error) {
	if name != "binary_data_output" {
		return false, nil
	}
	r.wanted.Binary, err = flag("request", name, v)
	return true, err
}

// output reads one entry of outputs.
func (r *request) output() error {
	where := fmt.Sprintf("outputs[%d]", len(r.msg.Outputs))
	if len(r.msg.Outputs) == maxTensors {
		return badRequest("more than %d outputs", maxTensors)
	}
	out := &tritonpb.ModelInferRequest_InferRequestedOutputTensor{}
	var binary, said bool
	err := r.object(where, func(key string) (err error) {
		switch key {
		case "name":
			out.Name, err = r.text(where + ": name")
		case "parameters":
			out.Parameters, err = r.parameters(where, func(name string, v jsontext.Value) (bool, error) {
				if name != "binary_data" {
					return false, nil
				}
				said = true
				binary, err = flag(where, name, v)
				return true, err
			})
		default:
			_, err = r.value(where)
		}
		return err
	})
	if err != nil {
		return err
	}
	if out.Name == "" {
		return badRequest("%s: name is missing", where)
	}
	if said {
		if r.wanted.Outputs == nil {
			r.wanted.Outputs = make(map[string]bool)
		}
		r.wanted.Outputs[out.Name] = binary
	}
	if _, ok := out.Parameters[region]; ok {
		if r.wanted.Shared == nil {
			r.wanted.Shared = make(map[string]bool)
		}
		r.wanted.Shared[out.Name] = true
	}
	r.msg.Outputs = append(r.msg.Outputs, out)
	return nil
}

// frame puts the message together: what is not tensor first, then the tensors, large ones by reference.
func (r *request) frame() (inference.Frame, error) {
	head, err := proto.Marshal(r.msg)
	if err != nil {
		return inference.Frame{}, badRequest("the request cannot be sent on: %v", err)
	}
	var f inference.Frame
	f.Buf = make(mem.BufferSlice, 0, 2*len(r.raw)+1+inference.Headroom)
	total := len(head)
	for _, raw := range r.raw {
		total += protowire.SizeTag(requestRawField) + protowire.SizeBytes(len(raw))
		head = protowire.AppendTag(head, requestRawField, protowire.BytesType)
		head = protowire.AppendVarint(head, uint64(len(raw)))
		if len(raw) <= inlineRaw {
			head = append(head, raw...)
			continue
		}
		f.Buf = append(f.Buf, mem.SliceBuffer(head), mem.SliceBuffer(raw))
		head = nil
	}
	if len(head) > 0 {
		f.Buf = append(f.Buf, mem.SliceBuffer(head))
	}
	if total > r.limit {
		return inference.Frame{}, r.tooLarge()
	}
	return f, nil
}

func (r *request) tooLarge() error {
	return fault.New(fault.TooLarge, "the request is larger than %d bytes as a message (listen.max_message); send fewer rows at a time", r.limit)
}
