package sandbox

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/sandbox/repository"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// ServerLive is always true.
func (s *Server) ServerLive(context.Context, *tritonpb.ServerLiveRequest) (*tritonpb.ServerLiveResponse, error) {
	return &tritonpb.ServerLiveResponse{Live: true}, nil
}

// ServerReady is false while any model loads, and after one failed to.
func (s *Server) ServerReady(context.Context, *tritonpb.ServerReadyRequest) (*tritonpb.ServerReadyResponse, error) {
	return &tritonpb.ServerReadyResponse{Ready: s.options.LaxReadiness || s.models.ready() && !s.Faults.anyUnready()}, nil
}

// Check says SERVING of every service, known or not.
func (s *Server) Check(context.Context, *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

// serverVersion is the version of the server whose answers this one gives.
const serverVersion = "2.51.0"

// ServerMetadata names the server and what it can do.
func (s *Server) ServerMetadata(context.Context, *tritonpb.ServerMetadataRequest) (*tritonpb.ServerMetadataResponse, error) {
	return &tritonpb.ServerMetadataResponse{
		Name: "triton", Version: serverVersion,
		Extensions: []string{
			"classification", "sequence", "model_repository", "model_repository(unload_dependents)", "schedule_policy",
			"model_configuration", "system_shared_memory", "cuda_shared_memory", "binary_tensor_data", "parameters",
			"statistics", "trace", "logging",
		},
	}, nil
}

// ModelReady tells whether a version can serve; of an unknown model it is false, and no error.
func (s *Server) ModelReady(_ context.Context, req *tritonpb.ModelReadyRequest) (*tritonpb.ModelReadyResponse, error) {
	version, err := parseVersion(req.Version)
	if err != nil {
		return nil, err
	}
	_, err = s.models.find(req.Name, version)
	return &tritonpb.ModelReadyResponse{Ready: err == nil}, nil
}

// lookup finds the version that a question is about.
func (s *Server) lookup(name, version string) (*served, error) {
	n, err := parseVersion(version)
	if err != nil {
		return nil, err
	}
	return s.models.find(name, n)
}

// ModelMetadata tells a model's ready versions, inputs and outputs.
func (s *Server) ModelMetadata(_ context.Context, req *tritonpb.ModelMetadataRequest) (*tritonpb.ModelMetadataResponse, error) {
	v, err := s.lookup(req.Name, req.Version)
	if err != nil {
		return nil, err
	}
	c := v.config
	resp := &tritonpb.ModelMetadataResponse{Name: req.Name, Platform: c.Platform}
	if resp.Platform == "" {
		resp.Platform = c.Backend
	}
	for _, o := range s.models.snapshot() {
		if o.model == req.Name && o.state == stateReady && (req.Version == "" || o.version == v.version) {
			resp.Versions = append(resp.Versions, strconv.FormatInt(o.version, 10))
		}
	}
	shape := func(dims []int64) []int64 {
		if c.MaxBatchSize > 0 {
			return append([]int64{-1}, dims...)
		}
		return dims
	}
	for _, in := range c.Input {
		resp.Inputs = append(resp.Inputs, &tritonpb.ModelMetadataResponse_TensorMetadata{Name: in.Name, Datatype: repository.Datatype(in.DataType), Shape: shape(in.Dims)})
	}
	for _, out := range c.Output {
		resp.Outputs = append(resp.Outputs, &tritonpb.ModelMetadataResponse_TensorMetadata{Name: out.Name, Datatype: repository.Datatype(out.DataType), Shape: shape(out.Dims)})
	}
	return resp, nil
}

// ModelConfig gives a model's completed configuration.
func (s *Server) ModelConfig(_ context.Context, req *tritonpb.ModelConfigRequest) (*tritonpb.ModelConfigResponse, error) {
	v, err := s.lookup(req.Name, req.Version)
	if err != nil {
		return nil, err
	}
	return &tritonpb.ModelConfigResponse{Config: v.config}, nil
}

// ModelStatistics gives the counts of all ready versions, of one model or of all.
func (s *Server) ModelStatistics(_ context.Context, req *tritonpb.ModelStatisticsRequest) (*tritonpb.ModelStatisticsResponse, error) {
	version, err := parseVersion(req.Version)
	if err != nil {
		return nil, err
	}
	resp := &tritonpb.ModelStatisticsResponse{}
	ready := false
	for _, v := range s.models.snapshot() {
		if v.state != stateReady || req.Name != "" && v.model != req.Name {
			continue
		}
		ready = true
		if version < 0 || v.version == version {
			resp.ModelStats = append(resp.ModelStats, v.run.Statistics())
		}
	}
	switch {
	case req.Name != "" && !ready:
		return nil, invalid("requested model '%s' is not available", req.Name)
	case req.Name != "" && len(resp.ModelStats) == 0:
		return nil, invalid("requested model version is not available for model '%s'", req.Name)
	}
	return resp, nil
}

func noRepositoryName(name string) error {
	if name != "" {
		return status.Error(codes.Unimplemented, "'repository_name' specification is not supported")
	}
	return nil
}

// RepositoryIndex lists every model of the repository; without a version and state where it was never loaded.
func (s *Server) RepositoryIndex(_ context.Context, req *tritonpb.RepositoryIndexRequest) (*tritonpb.RepositoryIndexResponse, error) {
	if err := noRepositoryName(req.RepositoryName); err != nil {
		return nil, err
	}
	names, err := s.models.repo.Names()
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	index := map[string][]*tritonpb.RepositoryIndexResponse_ModelIndex{}
	for _, v := range s.models.snapshot() {
		if !slices.Contains(names, v.model) {
			continue // loaded from pushed files only
		}
		state, reason := v.state, v.reason
		if state == stateReady && s.Faults.unready(v.model, v.version) {
			state = stateLoading
		}
		index[v.model] = append(index[v.model], &tritonpb.RepositoryIndexResponse_ModelIndex{
			Name: v.model, Version: strconv.FormatInt(v.version, 10), State: state, Reason: reason,
		})
	}
	for _, n := range names {
		if index[n] == nil {
			index[n] = []*tritonpb.RepositoryIndexResponse_ModelIndex{{Name: n}}
		}
	}
	resp := &tritonpb.RepositoryIndexResponse{}
	for _, n := range slices.Sorted(maps.Keys(index)) {
		for _, m := range index[n] {
			if !req.Ready || m.State == stateReady {
				resp.Models = append(resp.Models, m)
			}
		}
	}
	return resp, nil
}

func (s *Server) mayControl() error {
	if s.options.NoControl {
		return status.Error(codes.Unavailable, "explicit model load / unload is not allowed if polling is enabled")
	}
	return nil
}

// RepositoryModelLoad loads a model, or loads it again, and returns when it is ready.
func (s *Server) RepositoryModelLoad(ctx context.Context, req *tritonpb.RepositoryModelLoadRequest) (*tritonpb.RepositoryModelLoadResponse, error) {
	if err := noRepositoryName(req.RepositoryName); err != nil {
		return nil, err
	}
	if err := s.mayControl(); err != nil {
		return nil, err
	}
	o := repository.Override{}
	for _, k := range slices.Sorted(maps.Keys(req.Parameters)) {
		p := req.Parameters[k]
		switch file, isFile := strings.CutPrefix(k, "file:"); {
		case k == "config":
			v, ok := p.GetParameterChoice().(*tritonpb.ModelRepositoryParameter_StringParam)
			if !ok {
				return nil, invalid("invalid value type for load parameter '%s', expected string_param.", k)
			}
			o.Config = v.StringParam
		case isFile:
			v, ok := p.GetParameterChoice().(*tritonpb.ModelRepositoryParameter_BytesParam)
			if !ok {
				return nil, invalid("invalid value type for load parameter '%s', expected bytes_param.", k)
			}
			if o.Files == nil {
				o.Files = map[string][]byte{}
			}
			o.Files[file] = v.BytesParam
		default:
			return nil, invalid("unrecognized load parameter '%s'.", k)
		}
	}
	if err := s.models.load(ctx, req.ModelName, o); err != nil {
		return nil, err
	}
	return &tritonpb.RepositoryModelLoadResponse{}, nil
}

// RepositoryModelUnload takes a model out of service and returns at once. An unknown model is no error.
func (s *Server) RepositoryModelUnload(_ context.Context, req *tritonpb.RepositoryModelUnloadRequest) (*tritonpb.RepositoryModelUnloadResponse, error) {
	if err := noRepositoryName(req.RepositoryName); err != nil {
		return nil, err
	}
	if err := s.mayControl(); err != nil {
		return nil, err
	}
	if p, ok := req.Parameters["unload_dependents"]; ok {
		if _, ok := p.GetParameterChoice().(*tritonpb.ModelRepositoryParameter_BoolParam); !ok {
			return nil, invalid("invalid value type for 'unload_dependents' parameter, expected bool_param.")
		}
	}
	s.models.unload(req.ModelName)
	return &tritonpb.RepositoryModelUnloadResponse{}, nil
}
