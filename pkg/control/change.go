package control

import (
	"google.golang.org/protobuf/proto"

	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// Change is something that was asked of all endpoints of an upstream.
type Change struct {
	Method   string // RepositoryModelLoad
	Upstream string
	Object   string // the model's or memory region's name; "" where there is none
}

// changeOf says what a request of control changes; ok is false for one that only asks.
func changeOf(request proto.Message) (_ Change, ok bool) {
	switch r := request.(type) {
	case *tritonpb.RepositoryModelLoadRequest:
		return Change{Object: r.ModelName}, true
	case *tritonpb.RepositoryModelUnloadRequest:
		return Change{Object: r.ModelName}, true
	case *tritonpb.SystemSharedMemoryRegisterRequest:
		return Change{Object: r.Name}, true
	case *tritonpb.SystemSharedMemoryUnregisterRequest:
		return Change{Object: r.Name}, true
	case *tritonpb.CudaSharedMemoryRegisterRequest:
		return Change{Object: r.Name}, true
	case *tritonpb.CudaSharedMemoryUnregisterRequest:
		return Change{Object: r.Name}, true
	case *tritonpb.TraceSettingRequest:
		return Change{Object: r.ModelName}, len(r.Settings) > 0
	case *tritonpb.LogSettingsRequest:
		return Change{}, len(r.Settings) > 0
	}
	return Change{}, false
}
