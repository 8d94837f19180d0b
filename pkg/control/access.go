package control

import (
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// maySee refuses a caller that may not know of a model.
func (s *Service) maySee(caller *inference.Caller, name string) error {
	if s.Access == nil || s.Access.Allows(caller, name, inference.Metadata) {
		return nil
	}
	return s.Access.Refusal(caller, name, inference.Metadata)
}

// seen gives the names under which a caller may know a model of an upstream.
func (s *Service) seen(caller *inference.Caller, up Upstream, model string) []string {
	names := s.View.NamesOf(up.Name(), model)
	if s.Access == nil {
		return names
	}
	var seen []string // names belongs to the snapshot
	for _, name := range names {
		if s.Access.Allows(caller, name, inference.Metadata) {
			seen = append(seen, name)
		}
	}
	return seen
}

// mayChange refuses a caller that may not load or unload a model. Clients name models here as the upstream does. One that
// has several names here takes access to all of them, since all of them change with it; one that has none, or a request
// that takes other models along, takes access to everything. So does a load with parameters: they bring a configuration and
// files, which may be any program, or an ensemble that loads other models.
func (s *Service) mayChange(caller *inference.Caller, up Upstream, request proto.Message) error {
	if s.Access == nil {
		return nil
	}
	var model string
	var more, own bool
	switch r := request.(type) {
	case *tritonpb.RepositoryModelLoadRequest:
		model, own = r.ModelName, len(r.Parameters) > 0
	case *tritonpb.RepositoryModelUnloadRequest:
		model, more = r.ModelName, r.Parameters[unloadDependents].GetBoolParam()
	default:
		return nil
	}
	if s.Access.Everything(caller, inference.Repository) {
		return nil
	}
	names := s.View.NamesOf(up.Name(), model)
	refused := func(name string) bool { return !s.Access.Allows(caller, name, inference.Repository) }
	if len(names) == 0 || more || slices.ContainsFunc(names, refused) {
		return s.Access.Refusal(caller, model, inference.Repository)
	}
	if own {
		return fault.MayNot(caller.Name, "load files or a configuration of its own into", model)
	}
	return nil
}

// stays refuses to load what would be written outside of the model's folder, whoever asks: model servers have made files of
// names as they came.
func stays(request proto.Message) error {
	r, ok := request.(*tritonpb.RepositoryModelLoadRequest)
	if !ok {
		return nil
	}
	if leads(r.ModelName) {
		return fault.New(fault.InvalidArgument, "model name %.80q leads out of the model repository; send the plain name of a model", r.ModelName)
	}
	for name := range r.Parameters {
		if file, ok := strings.CutPrefix(name, "file:"); ok && (file == "" || leads(file)) {
			return fault.New(fault.InvalidArgument, "parameter %.80q leads out of the model's folder; name files like file:1/model.onnx", name)
		}
	}
	return nil
}

// leads reports whether a path leads elsewhere than below where it begins.
func leads(path string) bool {
	return strings.ContainsAny(path, "\\\x00") || path != "" && !filepath.IsLocal(path)
}

// unloadDependents is the parameter that unloads with a model those that it is made of.
const unloadDependents = "unload_dependents"
