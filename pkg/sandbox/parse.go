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
