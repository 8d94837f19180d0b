package rest

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// input is an entry of inputs while it is read; its keys may come in any order.
type input struct {
	*tritonpb.ModelInferRequest_InferInputTensor
	where   string
	hasData bool
	data    []byte // the list as text, where it came before datatype and shape
	out     []byte // the list as bytes
	size    int64  // binary_data_size
	hasSize bool
	shaped  bool
}

// input reads one entry of inputs and takes its tensor from data or from the raw bytes behind the JSON.
func (r *request) input() error {
	if len(r.msg.Inputs) == maxTensors {
		return badRequest("more than %d inputs", maxTensors)
	}
	in := input{
		ModelInferRequest_InferInputTensor: &tritonpb.ModelInferRequest_InferInputTensor{},
		where:                              fmt.Sprintf("inputs[%d]", len(r.msg.Inputs)),
	}
	if err := r.object(in.where, func(key string) error { return r.inputField(&in, key) }); err != nil {
		return err
	}
	if in.Name == "" {
		return badTensor("%s: name is missing", in.where)
	}
	if r.names[in.Name] {
		return badTensor("%s stands twice in inputs", in.where)
	}
	if r.names == nil {
		r.names = make(map[string]bool)
	}
	r.names[in.Name] = true
	if err := r.tensor(&in); err != nil {
		return err
	}
	r.msg.Inputs = append(r.msg.Inputs, in.ModelInferRequest_InferInputTensor)
	return nil
}

func (r *request) inputField(in *input, key string) (err error) {
	again := false
	switch key {
	case "name":
		again = in.Name != ""
		if in.Name, err = r.text(in.where + ": name"); in.Name != "" {
			in.where = fmt.Sprintf("input %q", snippet([]byte(in.Name)))
		}
	case "datatype":
		again = in.Datatype != ""
		in.Datatype, err = r.text(in.where + ": datatype")
	case "shape":
		again, in.shaped = in.shaped, true
		err = r.shape(in)
	case "parameters":
		again = in.Parameters != nil
		in.Parameters, err = r.parameters(in.where, in.option)
	case "data":
		again, in.hasData = in.hasData, true
		err = r.data(in)
	default:
		_, err = r.value(in.where)
	}
	if err == nil && again {
		return badTensor("%s: %q stands twice", in.where, key)
	}
	return err
}

// option takes the one parameter of an input that is about the body.
func (in *input) option(name string, v jsontext.Value) (taken bool, err error) {
	if name != "binary_data_size" {
		return false, nil
	}
	in.hasSize = true
	in.size, err = strconv.ParseInt(string(v), 10, 64)
	if err != nil || in.size < 0 {
		return true, badTensor("%s: binary_data_size is %s; it must be a number of bytes", in.where, snippet(v))
	}
	return true, nil
}

func (r *request) shape(in *input) error {
	return r.array(in.where+": shape", func() error {
		r.space()
		if len(in.Shape) == maxDims {
			return badTensor("%s: shape has more than %d dimensions", in.where, maxDims)
		}
		token, whole, ok := r.number()
		if !ok || !whole {
			return badTensor("%s: dimensions of shape are whole numbers; %s", in.where, r.found())
		}
		d, err := strconv.ParseInt(string(token), 10, 64)
		if err != nil {
			return badTensor("%s: shape has a dimension of %s, which does not fit in 64 bits", in.where, snippet(token))
		}
		in.Shape = append(in.Shape, d)
		return nil
	})
}

// data reads the list of an input, or keeps its text while it is not known yet what to make of it.
func (r *request) data(in *input) (err error) {
	if r.next() != '[' {
		return badTensor("%s: data must be a list; %s", in.where, r.found())
	}
	if in.Datatype != "" && in.shaped {
		in.out, err = r.list(in, &r.scanner)
		return err
	}
	start, ok := r.at, false
	if in.data, ok = r.skipList(); !ok {
		return badTensor("%s: the list data, at byte %d of the JSON, is broken off or holds an object", in.where, start)
	}
	return nil
}

// form checks datatype and shape, and gives the number of elements.
func (in *input) form() (dt datatype, n int64, err error) {
	dt, ok := datatypes[in.Datatype]
	switch {
	case in.Datatype == "":
		return dt, 0, badTensor("%s: datatype is missing; it is one of %s", in.where, datatypeList)
	case !ok:
		return dt, 0, badTensor("%s: datatype %q is unknown; it is one of %s", in.where, snippet([]byte(in.Datatype)), datatypeList)
	case !in.shaped:
		return dt, 0, badTensor("%s: shape is missing", in.where)
	}
	if n, ok = elements(in.Shape); !ok {
		return dt, 0, badTensor("%s: shape %s: dimensions must be 0 or more, here also where the model says -1, and their product must fit in 64 bits", in.where, shapeText(in.Shape))
	}
	return dt, n, nil
}

// tensor finds the bytes of an input, once all its keys are known.
func (r *request) tensor(in *input) error {
	dt, n, err := in.form()
	if err != nil {
		return err
	}
	_, shared := in.Parameters[region]
	switch {
	case shared && (in.hasData || in.hasSize):
		return badTensor("%s: shared_memory_region and data or binary_data_size exclude each other", in.where)
	case in.hasData && in.hasSize:
		return badTensor("%s: data and binary_data_size exclude each other", in.where)
	case shared:
		return nil // the bytes do not travel
	case in.hasSize:
		return r.rawTensor(in, dt, n)
	case in.data != nil:
		if in.out, err = r.list(in, &scanner{b: in.data}); err != nil {
			return err
		}
		return r.add(in.out)
	case in.hasData:
		return r.add(in.out)
	}
	return badTensor("%s has no data; send data, or binary_data_size and raw bytes behind the JSON", in.where)
}

// rawTensor takes the next bytes behind the JSON.
func (r *request) rawTensor(in *input, dt datatype, n int64) error {
	switch {
	case !r.binary:
		return badTensor("%s has binary_data_size, and the header %s is missing", in.where, HeadLength)
	case in.size > int64(len(r.tail)):
		return badTensor("%s: binary_data_size is %d and %d bytes are left in the body", in.where, in.size, len(r.tail))
	case dt.size > 0 && (n > in.size || n*int64(dt.size) != in.size):
		return badTensor("%s: binary_data_size is %d; shape %s of %s takes %s bytes", in.where, in.size, shapeText(in.Shape), dt.name, product(n, dt.size))
	}
	raw := r.tail[:in.size:in.size]
	r.tail = r.tail[in.size:]
	if dt.size == 0 {
		if got, ok := countBytes(raw); !ok || got != n {
			return badTensor("%s: shape %s takes %d BYTES elements; the raw bytes hold %d, and each must have its length in 4 bytes, little-endian, in front", in.where, shapeText(in.Shape), n, got)
		}
	}
	return r.add(raw)
}

// product prints n×size also where it does not fit.
func product(n int64, size int) string {
	if n > (1<<62)/int64(size) {
		return fmt.Sprintf("%d×%d", n, size)
	}
	return strconv.FormatInt(n*int64(size), 10)
}

// add appends one tensor to the message.
func (r *request) add(raw []byte) error {
	if r.size += len(raw); r.size > r.limit {
		return r.tooLarge()
	}
	r.raw = append(r.raw, raw)
	return nil
}

// countBytes counts elements of raw BYTES; ok is false when the last one is cut off.
func countBytes(raw []byte) (n int64, ok bool) {
	for len(raw) > 0 {
		if len(raw) < 4 {
			return n, false
		}
		size := uint64(binary.LittleEndian.Uint32(raw))
		if size > uint64(len(raw)-4) {
			return n, false
		}
		raw = raw[4+size:]
		n++
	}
	return n, true
}
