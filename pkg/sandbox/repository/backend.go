package repository

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"

	"google.golang.org/grpc/codes"

	"github.com/model-gateway/model-gateway/pkg/sandbox/onnx"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// Tensor is a tensor as it travels: raw little-endian elements in row order; BYTES elements each have a 4-byte length before
// them. Shape has the batch first where the model batches.
type Tensor struct {
	Name     string
	Datatype string
	Shape    []int64
	Data     []byte
}

// Sequence is the sequence a request belongs to.
type Sequence struct {
	ID         any // int64 or string; nil for a request on its own
	Start, End bool
	State      *any // kept from one request of the sequence to the next; a new one at START
}

// Request is one request as a model sees it.
type Request struct {
	Context    context.Context // ends when the caller is gone
	ID         string
	Version    int64
	Inputs     []Tensor
	Parameters map[string]any // string, int64, bool or float64
	Outputs    []string       // what was asked for; all outputs when nothing was named
	Sequence   Sequence
	Rows       int // of the batch; 1 for models that do not batch

	// Send gives one answer: outputs, or an error. With final it is the last one; only a decoupled model may send others,
	// or a last one with neither outputs nor error. It must not be called again after the last one.
	Send func(outputs []Tensor, err *Error, final bool)
}

// Input finds an input by name, nil when it is not there.
func (r *Request) Input(name string) *Tensor {
	for i := range r.Inputs {
		if r.Inputs[i].Name == name {
			return &r.Inputs[i]
		}
	}
	return nil
}

// Backend runs one version of a model.
type Backend interface {
	// Execute answers all requests of a batch, each through its Send, and returns when the instance is free for the next
	// batch: a decoupled model may return before it has answered. Several instances call it at once.
	Execute(batch []*Request)
}

func newBackend(src *source, c *tritonpb.ModelConfig, version int64) (Backend, error) {
	switch c.Backend {
	case backendONNX:
		return newONNX(src, c, version)
	case backendPython:
		return newTwin(src, c, version)
	}
	return nil, fmt.Errorf("unable to find backend library for backend '%s', try specifying runtime on the model configuration.", c.Backend) //nolint:staticcheck // the server's own words
}

// onnxBackend runs a batch as one evaluation.
type onnxBackend struct {
	model   *onnx.Model
	batches bool
	outputs []string
}

func newONNX(src *source, c *tritonpb.ModelConfig, version int64) (Backend, error) {
	name := strconv.FormatInt(version, 10) + "/" + c.DefaultModelFilename
	data, err := src.read(name, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no file %s", name)
	} else if err != nil {
		return nil, err
	}
	m, err := onnx.Load(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	b := &onnxBackend{model: m, batches: c.MaxBatchSize > 0}
	for _, o := range c.Output {
		b.outputs = append(b.outputs, o.Name)
	}
	return b, b.agrees(c)
}

// agrees checks the file against the configuration, at load rather than at the first request.
func (b *onnxBackend) agrees(c *tritonpb.ModelConfig) error {
	names := func(infos []onnx.Info) (out []string) {
		for _, i := range infos {
			out = append(out, i.Name)
		}
		slices.Sort(out)
		return out
	}
	var declared []string
	for _, in := range c.Input {
		if in.DataType != tritonpb.DataType_TYPE_FP32 {
			return fmt.Errorf("input %q is %s; the sandbox evaluates FP32 only", in.Name, Datatype(in.DataType))
		}
		declared = append(declared, in.Name)
	}
	slices.Sort(declared)
	if have := names(b.model.Inputs); !slices.Equal(have, declared) {
		return fmt.Errorf("the configuration has inputs %q, the file %q", declared, have)
	}
	have := names(b.model.Outputs)
	for _, o := range c.Output {
		if !slices.Contains(have, o.Name) || o.DataType != tritonpb.DataType_TYPE_FP32 {
			return fmt.Errorf("output %q of the configuration must be FP32 and one of the file's %q", o.Name, have)
		}
	}
	return nil
}

// Execute implements Backend.
func (b *onnxBackend) Execute(batch []*Request) {
	outs, err := b.run(batch)
	if err != nil {
		for _, r := range batch {
			r.Send(nil, &Error{Code: codes.InvalidArgument, Msg: err.Error()}, true)
		}
		return
	}
	for i, r := range batch {
		r.Send(outs[i], nil, true)
	}
}

func (b *onnxBackend) run(batch []*Request) ([][]Tensor, error) {
	feeds := make(map[string]*onnx.Tensor, len(b.model.Inputs))
	for _, info := range b.model.Inputs {
		t, err := b.join(batch, info.Name)
		if err != nil {
			return nil, err
		}
		feeds[info.Name] = t
	}
	got, err := b.model.Run(feeds)
	if err != nil {
		return nil, err
	}
	outs := make([][]Tensor, len(batch))
	for _, name := range b.outputs {
		if err := b.split(outs, batch, name, got[name]); err != nil {
			return nil, err
		}
	}
	return outs, nil
}

// join puts the rows of one input of all requests behind one another.
func (b *onnxBackend) join(batch []*Request, name string) (*onnx.Tensor, error) {
	size, rows := 0, 0
	for _, r := range batch {
		in := r.Input(name)
		if in == nil {
			return nil, fmt.Errorf("input %q is missing", name)
		}
		size += len(in.Data) / 4
		rows += r.Rows
	}
	first := batch[0].Input(name)
	t := &onnx.Tensor{Shape: make([]int, len(first.Shape)), Data: make([]float32, 0, size)}
	for i, d := range first.Shape {
		t.Shape[i] = int(d)
	}
	if b.batches {
		t.Shape[0] = rows
	}
	for _, r := range batch {
		t.Data = appendFloats(t.Data, r.Input(name).Data)
	}
	return t, nil
}

// split gives each request its rows of an output.
func (b *onnxBackend) split(outs [][]Tensor, batch []*Request, name string, t *onnx.Tensor) error {
	shape := make([]int64, len(t.Shape))
	for i, d := range t.Shape {
		shape[i] = int64(d)
	}
	if !b.batches {
		outs[0] = append(outs[0], Tensor{name, "FP32", shape, floatBytes(t.Data)})
		return nil
	}
	rows := 0
	for _, r := range batch {
		rows += r.Rows
	}
	if len(t.Shape) == 0 || t.Shape[0] != rows {
		return fmt.Errorf("output %q has shape %v for %d rows", name, t.Shape, rows)
	}
	per := len(t.Data) / max(rows, 1)
	at := 0
	for i, r := range batch {
		mine := slices.Clone(shape)
		mine[0] = int64(r.Rows)
		outs[i] = append(outs[i], Tensor{name, "FP32", mine, floatBytes(t.Data[at : at+per*r.Rows])})
		at += per * r.Rows
	}
	return nil
}

func appendFloats(to []float32, raw []byte) []float32 {
	for ; len(raw) >= 4; raw = raw[4:] {
		to = append(to, math.Float32frombits(binary.LittleEndian.Uint32(raw)))
	}
	return to
}

func floatBytes(v []float32) []byte {
	b := make([]byte, 4*len(v))
	for i, f := range v {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(f))
	}
	return b
}
