package sandbox

import (
	"fmt"
	"slices"
	"strings"

	"github.com/model-gateway/model-gateway/pkg/sandbox/repository"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// requested checks which outputs are wanted.
func (r *request) requested(req *tritonpb.ModelInferRequest) error {
	have := map[string]bool{}
	for _, o := range r.served.config.Output {
		have[o.Name] = true
	}
	for _, out := range req.Outputs {
		if !have[out.Name] {
			return invalid("unexpected inference output '%s' for model '%s'", out.Name, req.ModelName)
		}
		r.named = append(r.named, out.Name)
	}
	r.job.Outputs = r.named
	if r.named == nil {
		for _, o := range r.served.config.Output {
			r.job.Outputs = append(r.job.Outputs, o.Name)
		}
	}
	return nil
}

// count checks how many inputs there are, not yet which.
func (r *request) count(req *tritonpb.ModelInferRequest) error {
	got := map[string]bool{}
	var names, missing []string
	for _, in := range slices.Backward(req.Inputs) {
		got[in.Name] = true
		names = append(names, "'"+in.Name+"'")
	}
	least, most := 0, len(r.served.config.Input)
	for _, in := range r.served.config.Input {
		if in.Optional {
			continue
		}
		least++
		if !got[in.Name] {
			missing = append(missing, "'"+in.Name+"'")
		}
	}
	if n := len(req.Inputs); n >= least && n <= most {
		return nil
	}
	want := fmt.Sprintf("expected %d inputs", most)
	if least != most {
		want = fmt.Sprintf("expected number of inputs between %d and %d", least, most)
	}
	lacks := "]" // the real server's own slip where nothing is missing
	if len(missing) > 0 {
		lacks = "[" + strings.Join(missing, ",") + "]"
	}
	return invalidFor(req.Id, "%s but got %d inputs for model '%s'. Got input(s) [%s], but missing required input(s) %s. Please provide all required input(s).",
		want, len(req.Inputs), req.ModelName, strings.Join(names, ","), lacks)
}

// input finds an input of the model's configuration.
func (v *served) input(name string) *tritonpb.ModelInput {
	for _, in := range v.config.Input {
		if in.Name == name {
			return in
		}
	}
	return nil
}

// batch checks that the inputs are the model's, and agree on a batch size it takes.
func (r *request) batch(req *tritonpb.ModelInferRequest) error {
	most := r.served.config.MaxBatchSize
	r.job.Rows = 1
	for i, in := range req.Inputs {
		if r.served.input(in.Name) == nil {
			return invalid("unexpected inference input '%s' for model '%s'", in.Name, req.ModelName)
		}
		if most == 0 {
			continue
		}
		if len(in.Shape) == 0 {
			return invalidFor(req.Id, "input '%s' has no shape but model requires batch dimension for '%s'", in.Name, req.ModelName)
		}
		if in.Shape[0] != req.Inputs[0].Shape[0] && i > 0 {
			return invalidFor(req.Id, "input '%s' batch size does not match other inputs for '%s'", in.Name, req.ModelName)
		}
		if in.Shape[0] > int64(most) {
			return invalidFor(req.Id, "inference request batch-size must be <= %d for '%s'", most, req.ModelName)
		}
		r.job.Rows = int(max(in.Shape[0], 1))
	}
	return nil
}

// tensors checks datatype, shape and size of every input.
func (r *request) tensors(req *tritonpb.ModelInferRequest) error {
	for i := range r.job.Inputs {
		t := &r.job.Inputs[i]
		in := r.served.input(t.Name)
		if want := repository.Datatype(in.DataType); t.Datatype != want {
			return invalidFor(req.Id, "inference input '%s' data-type is '%s', but model '%s' expects '%s'", t.Name, t.Datatype, req.ModelName, want)
		}
		if err := r.shape(req, t, in); err != nil {
			return err
		}
		var err error
		if t.Datatype == "BYTES" {
			err = r.stringsFit(req, t)
		} else {
			err = r.sizeFits(req, t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *request) shape(req *tritonpb.ModelInferRequest, t *repository.Tensor, in *tritonpb.ModelInput) error {
	want, note := in.Dims, ""
	if r.served.config.MaxBatchSize > 0 {
		want = append([]int64{-1}, want...)
		note = "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each input shape. " +
			"If you want to specify the full shape including the batch dim in your input dims config, try setting max_batch_size to zero. " +
			"See the model configuration docs for more info on max_batch_size."
	}
	fits := len(want) == len(t.Shape)
	for i := 0; fits && i < len(want); i++ {
		fits = want[i] < 0 || want[i] == t.Shape[i]
	}
	if !fits {
		return invalidFor(req.Id, "unexpected shape for input '%s' for model '%s'. Expected %s, got %s. %s", t.Name, req.ModelName, dims(want), dims(t.Shape), note)
	}
	if r.served.config.MaxBatchSize == 0 && slices.Contains(t.Shape, -1) {
		return invalidFor(req.Id, "All input dimensions should be specified for input '%s' for model '%s', got %s", t.Name, req.ModelName, dims(t.Shape))
	}
	return nil
}

func dims(shape []int64) string {
	return strings.ReplaceAll(fmt.Sprint(shape), " ", ",")
}

// elements multiplies the shape out as the real server does: a batch of 0 counts as 1, a negative one as an unsigned
// number, and products wrap.
func (r *request) elements(t *repository.Tensor) int64 {
	n := int64(1)
	for i, d := range t.Shape {
		if i == 0 && r.served.config.MaxBatchSize > 0 {
			d = max(int64(uint32(d)), 1)
		}
		n *= d
	}
	return n
}

func (r *request) sizeFits(req *tritonpb.ModelInferRequest, t *repository.Tensor) error {
	want := r.elements(t) * int64(repository.ElementSize(t.Datatype))
	if want != int64(len(t.Data)) {
		return invalidFor(req.Id, "input byte size mismatch for input '%s' for model '%s'. Expected %d, got %d", t.Name, req.ModelName, want, len(t.Data))
	}
	return nil
}

// stringsFit checks a BYTES tensor: as many elements as the shape says, none cut short.
func (r *request) stringsFit(req *tritonpb.ModelInferRequest, t *repository.Tensor) error {
	want, n := r.elements(t), int64(0)
	for rest := t.Data; len(rest) > 0; n++ {
		if len(rest) < 4 {
			return invalidFor(req.Id, "incomplete string length indicator for inference input '%s' for model '%s', expecting 4 bytes but only %d bytes available. Please make sure the string length indicator is in one buffer.", t.Name, req.ModelName, len(rest))
		}
		length := int64(uint32(rest[0]) | uint32(rest[1])<<8 | uint32(rest[2])<<16 | uint32(rest[3])<<24)
		rest = rest[4:]
		if length > int64(len(rest)) {
			return invalid("incomplete string data for inference input '%s', expecting string of length %d but only %d bytes available", t.Name, length, len(rest))
		}
		if rest = rest[length:]; n == want {
			return invalidFor(req.Id, "unexpected number of string elements %d for inference input '%s' for model '%s', expecting %d", n+1, t.Name, req.ModelName, want)
		}
	}
	if n != want {
		return invalidFor(req.Id, "expected %d string elements for inference input '%s' for model '%s', got %d", want, t.Name, req.ModelName, n)
	}
	return nil
}
