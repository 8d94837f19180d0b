package sandbox

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/sandbox/repository"
	"github.com/model-gateway/model-gateway/pkg/sandbox/schedule"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// request is a ModelInferRequest that has been checked, in the order and with the words of the real server.
type request struct {
	served     *served
	job        *schedule.Job
	emptyFinal bool           // the caller wants an empty last answer from a decoupled model
	classify   map[string]int // outputs to be given as that many best classes
	named      []string       // the outputs that were asked for; nil when all are wanted
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// invalidFor is invalid for the part of the server whose messages begin with the request's id.
func invalidFor(id, format string, args ...any) error {
	return invalid("[request id: %s] %s", schedule.RequestID(id), fmt.Sprintf(format, args...))
}

// parse checks everything about a request that needs no running of the model.
func (s *Server) parse(req *tritonpb.ModelInferRequest, stream bool) (*request, error) {
	version, err := parseVersion(req.ModelVersion)
	if err != nil {
		return nil, err
	}
	v, err := s.models.find(req.ModelName, version)
	if err != nil {
		return nil, err
	}
	if !stream && v.config.GetModelTransactionPolicy().GetDecoupled() {
		return nil, status.Error(codes.Unimplemented, "ModelInfer RPC doesn't support models with decoupled transaction policy")
	}
	r := &request{served: v, job: &schedule.Job{}}
	r.job.ID, r.job.Version = req.Id, v.version
	for _, step := range []func(*tritonpb.ModelInferRequest) error{
		r.parameters, r.unique, r.data, r.requestedParameters, r.requested, r.count, r.batch, r.tensors,
	} {
		if err := step(req); err != nil {
			return nil, err
		}
	}
	return r, nil
}

const emptyFinalKey = "triton_enable_empty_final_response"

// parameters sorts the request's parameters into those that steer the server and those for the model.
func (r *request) parameters(req *tritonpb.ModelInferRequest) error {
	r.job.Parameters = map[string]any{}
	keys := slices.Sorted(maps.Keys(req.Parameters))
	for _, k := range keys {
		if strings.HasPrefix(k, "triton_") && k != emptyFinalKey {
			return invalid("parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting with 'triton_' are allowed: %s", emptyFinalKey)
		}
	}
	for _, k := range keys {
		if err := r.parameter(k, req.Parameters[k]); err != nil {
			return err
		}
	}
	return nil
}

func (r *request) parameter(k string, p *tritonpb.InferParameter) error {
	wrong := func(want string) error {
		return invalid("invalid value type for '%s' parameter, expected %s.", k, want)
	}
	isInt, isBool := false, false
	switch p.GetParameterChoice().(type) {
	case *tritonpb.InferParameter_Int64Param:
		isInt = true
	case *tritonpb.InferParameter_BoolParam:
		isBool = true
	}
	switch k {
	case "sequence_id":
		switch id := p.GetParameterChoice().(type) {
		case *tritonpb.InferParameter_Int64Param:
			r.job.Sequence.ID = id.Int64Param
		case *tritonpb.InferParameter_StringParam:
			r.job.Sequence.ID = id.StringParam
		default:
			return wrong("int64_param or string_param")
		}
	case "sequence_start", "sequence_end", emptyFinalKey:
		if !isBool {
			return wrong("bool_param")
		}
		*map[string]*bool{"sequence_start": &r.job.Sequence.Start, "sequence_end": &r.job.Sequence.End, emptyFinalKey: &r.emptyFinal}[k] = p.GetBoolParam()
	case "priority":
		return r.priority(p)
	case "timeout":
		if !isInt {
			return wrong("int64_param")
		}
		r.job.Timeout = microseconds(p.GetInt64Param())
	default:
		v := parameterValue(p)
		if v == nil {
			return wrong("int64_param, bool_param, or string_param")
		}
		r.job.Parameters[k] = v
	}
	return nil
}

func (r *request) priority(p *tritonpb.InferParameter) error {
	switch v := p.GetParameterChoice().(type) {
	case *tritonpb.InferParameter_Int64Param:
		if v.Int64Param < 0 {
			return invalid("invalid value for 'priority', expected value >= 0.")
		}
		r.job.Priority = uint64(v.Int64Param)
	case *tritonpb.InferParameter_Uint64Param:
		r.job.Priority = v.Uint64Param
	default:
		return invalid("invalid value type for 'priority' parameter, expected int64_param or uint64_param.")
	}
	return nil
}

// parameterValue gives what a model sees of a parameter; nil where a model may not see it.
func parameterValue(p *tritonpb.InferParameter) any {
	switch v := p.GetParameterChoice().(type) {
	case *tritonpb.InferParameter_BoolParam:
		return v.BoolParam
	case *tritonpb.InferParameter_Int64Param:
		return v.Int64Param
	case *tritonpb.InferParameter_StringParam:
		return v.StringParam
	case *tritonpb.InferParameter_DoubleParam:
		return v.DoubleParam
	}
	return nil
}

func (r *request) unique(req *tritonpb.ModelInferRequest) error {
	for i, in := range req.Inputs {
		for _, before := range req.Inputs[:i] {
			if before.Name == in.Name {
				return invalidFor(req.Id, "input '%s' already exists in request", in.Name)
			}
		}
	}
	return nil
}

// data finds the bytes of every input: raw, or typed contents.
func (r *request) data(req *tritonpb.ModelInferRequest) error {
	raw := req.RawInputContents
	for _, in := range req.Inputs {
		t := repository.Tensor{Name: in.Name, Datatype: in.Datatype, Shape: in.Shape}
		if repository.ElementSize(t.Datatype) < 0 {
			t.Datatype = "<invalid>"
		}
		if p, ok := in.Parameters["shared_memory_region"]; ok {
			if _, sized := in.Parameters["shared_memory_byte_size"]; !sized {
				return invalid("'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for tensor '%s'", in.Name)
			}
			return noRegion(p)
		}
		var err error
		switch {
		case in.Contents != nil && len(req.RawInputContents) > 0:
			return invalid("contents field must not be specified when using raw_input_contents for '%s' for model '%s'", in.Name, req.ModelName)
		case in.Contents != nil:
			t.Data, err = contents(in, t.Datatype, req.ModelName)
		case len(raw) == 0:
			err = invalid("unable to find data for input tensor '%s' for model '%s' in request.", in.Name, req.ModelName)
		default:
			t.Data, raw = raw[0], raw[1:]
		}
		if err != nil {
			return err
		}
		r.job.Inputs = append(r.job.Inputs, t)
	}
	return nil
}

// requestedParameters reads how outputs are wanted.
func (r *request) requestedParameters(req *tritonpb.ModelInferRequest) error {
	for _, out := range req.Outputs {
		if p, ok := out.Parameters["shared_memory_region"]; ok {
			return noRegion(p)
		}
		p, ok := out.Parameters["classification"]
		if !ok {
			continue
		}
		n, isInt := p.GetParameterChoice().(*tritonpb.InferParameter_Int64Param)
		if !isInt {
			return invalid("invalid value type for 'classification' parameter, expected int64_param")
		}
		if n.Int64Param <= 0 {
			return invalid("invalid value for 'classification' parameter, expected >= 0")
		}
		if r.classify == nil {
			r.classify = map[string]int{}
		}
		r.classify[out.Name] = int(min(n.Int64Param, 1<<20))
	}
	return nil
}

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
