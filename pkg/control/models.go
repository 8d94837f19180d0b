package control

import (
	"context"
	"slices"
	"unicode/utf8"

	"google.golang.org/grpc"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

func (s *Service) serverMetadata() *tritonpb.ServerMetadataResponse {
	return &tritonpb.ServerMetadataResponse{
		Name: "model-gateway", Version: s.Version,
		Extensions: []string{
			"binary_tensor_data", "classification", "sequence", "parameters", "statistics", "model_configuration", "model_repository",
			"model_repository(unload_dependents)", "schedule_policy", "system_shared_memory", "cuda_shared_memory", "trace", "logging",
		},
	}
}

// target gives the target that a question about a model and version is about. Whether the caller may see the model is
// settled before anything is looked up.
func (s *Service) target(ctx context.Context, caller *inference.Caller, name, version string) (*inference.Target, error) {
	if !utf8.ValidString(name) {
		return nil, fault.New(fault.InvalidArgument, "the model's name is not UTF-8")
	}
	if name == "" {
		return nil, fault.New(fault.InvalidArgument, "the model's name is empty; name the model asked about")
	}
	if err := s.maySee(caller, name); err != nil {
		return nil, err
	}
	m, err := s.View.Model(ctx, name)
	if err != nil {
		return nil, err
	}
	pinned, ok := inference.ParseVersion(version)
	if !ok {
		return nil, fault.NotAVersion(version)
	}
	if pinned != "" {
		return m.Pin(ctx, pinned)
	}
	if m.Stable != nil {
		return m.Stable, nil
	}
	return m.Choose(ctx)
}

// modelReady tells whether a call to the model could be served now. An unknown model is not ready, which is no error; so
// is one that is hidden from the caller.
func (s *Service) modelReady(ctx context.Context, caller *inference.Caller, r *tritonpb.ModelReadyRequest) (*tritonpb.ModelReadyResponse, error) {
	t, err := s.target(ctx, caller, r.Name, r.Version)
	if err != nil {
		switch f := fault.Of(err); f.Kind {
		case fault.InvalidArgument, fault.BadVersion, fault.Forbidden, fault.AuthMissing, fault.Cancelled, fault.Deadline:
			return nil, err
		default:
			return &tritonpb.ModelReadyResponse{}, nil
		}
	}
	ready := t.Pool.Ready()
	if !ready { // nobody may have looked yet
		_ = s.askTarget(ctx, t, func(ctx context.Context, client tritonpb.GRPCInferenceServiceClient) error {
			answer, err := client.ModelReady(ctx, &tritonpb.ModelReadyRequest{Name: t.Model, Version: t.Version})
			ready = answer.GetReady()
			return err
		})
	}
	return &tritonpb.ModelReadyResponse{Ready: ready}, nil
}

func (s *Service) modelMetadata(ctx context.Context, caller *inference.Caller, r *tritonpb.ModelMetadataRequest) (*tritonpb.ModelMetadataResponse, error) {
	t, err := s.target(ctx, caller, r.Name, r.Version)
	if err != nil {
		return nil, err
	}
	answer := new(tritonpb.ModelMetadataResponse)
	err = s.askTarget(ctx, t, func(ctx context.Context, client tritonpb.GRPCInferenceServiceClient) (err error) {
		answer, err = client.ModelMetadata(ctx, &tritonpb.ModelMetadataRequest{Name: t.Model, Version: t.Version})
		return err
	})
	if err != nil {
		return nil, err
	}
	answer.Name = r.Name
	if unpinned(r.Version) {
		if all := s.versions(ctx, r.Name, t); len(all) > 0 {
			answer.Versions = all
		}
	}
	return answer, nil
}

// versions lists those that callers may name: of a model with declared targets theirs, else what the upstream has ready.
// It is nil where the upstream does not tell.
func (s *Service) versions(ctx context.Context, name string, t *inference.Target) []string {
	m, err := s.View.Model(ctx, name)
	if err != nil {
		return nil
	}
	var all []string
	if len(m.Targets) > 0 {
		for _, other := range m.Targets {
			if other.Version != "" && !slices.Contains(all, other.Version) {
				all = append(all, other.Version)
			}
		}
		slices.SortFunc(all, inference.CompareVersions)
		return all
	}
	_ = s.askTarget(ctx, t, func(ctx context.Context, client tritonpb.GRPCInferenceServiceClient) error {
		answer, err := client.ModelMetadata(ctx, &tritonpb.ModelMetadataRequest{Name: t.Model})
		all = answer.GetVersions()
		return err
	})
	return all
}

// unpinned reports whether a question leaves the version to the gateway.
func unpinned(version string) bool { return version == "" || version == "0" }

func (s *Service) modelConfig(ctx context.Context, caller *inference.Caller, r *tritonpb.ModelConfigRequest) (*tritonpb.ModelConfigResponse, error) {
	t, err := s.target(ctx, caller, r.Name, r.Version)
	if err != nil {
		return nil, err
	}
	answer := new(tritonpb.ModelConfigResponse)
	err = s.askTarget(ctx, t, func(ctx context.Context, client tritonpb.GRPCInferenceServiceClient) (err error) {
		answer, err = client.ModelConfig(ctx, &tritonpb.ModelConfigRequest{Name: t.Model, Version: t.Version})
		return err
	})
	if err != nil {
		return nil, err
	}
	if answer.Config != nil {
		answer.Config.Name = r.Name
	}
	return answer, nil
}

// askTarget asks an endpoint that serves t.
func (s *Service) askTarget(ctx context.Context, t *inference.Target, ask func(ctx context.Context, client tritonpb.GRPCInferenceServiceClient) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, questionTimeout, late)
	defer cancel()
	for _, up := range s.View.Upstreams() {
		if up.Name() == t.Upstream {
			return up.Any(ctx, t.Model, t.Version, func(ctx context.Context, _ string, conn grpc.ClientConnInterface) error {
				return ask(ctx, tritonpb.NewGRPCInferenceServiceClient(conn))
			})
		}
	}
	return fault.New(fault.NoEndpoint, "upstream %q is no longer configured; try again", t.Upstream)
}
