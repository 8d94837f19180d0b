package control

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

func TestWhatChangesServersIsToldAndWhatOnlyAsksIsNot(t *testing.T) {
	var fails error
	answers := map[string]proto.Message{
		"RepositoryModelLoad": &tritonpb.RepositoryModelLoadResponse{}, "RepositoryModelUnload": &tritonpb.RepositoryModelUnloadResponse{},
		"SystemSharedMemoryStatus": &tritonpb.SystemSharedMemoryStatusResponse{}, "SystemSharedMemoryRegister": &tritonpb.SystemSharedMemoryRegisterResponse{},
		"CudaSharedMemoryUnregister": &tritonpb.CudaSharedMemoryUnregisterResponse{},
		"TraceSetting":               &tritonpb.TraceSettingResponse{}, "LogSettings": &tritonpb.LogSettingsResponse{},
	}
	v := view{
		ups:  []Upstream{&up{name: "a", endpoints: []conn{func(method string, _ proto.Message) (proto.Message, error) { return answers[method], fails }}}},
		open: []inference.Kind{inference.Repository, inference.SharedMemory, inference.Trace, inference.Log},
	}
	on := map[string]*tritonpb.TraceSettingRequest_SettingValue{"trace_level": {Value: []string{"TIMESTAMPS"}}}
	verbose := map[string]*tritonpb.LogSettingsRequest_SettingValue{"log_verbose_level": {}}
	for _, c := range []struct {
		kind    inference.Kind
		method  string
		request proto.Message
		want    []Change
	}{
		{inference.Repository, "RepositoryModelLoad", &tritonpb.RepositoryModelLoadRequest{ModelName: "fraud"}, []Change{{"RepositoryModelLoad", "a", "fraud"}}},
		{inference.Repository, "RepositoryModelUnload", &tritonpb.RepositoryModelUnloadRequest{ModelName: "fraud"}, []Change{{"RepositoryModelUnload", "a", "fraud"}}},
		{inference.SharedMemory, "SystemSharedMemoryStatus", &tritonpb.SystemSharedMemoryStatusRequest{}, nil},
		{inference.SharedMemory, "SystemSharedMemoryRegister", &tritonpb.SystemSharedMemoryRegisterRequest{Name: "r"}, []Change{{"SystemSharedMemoryRegister", "a", "r"}}},
		{inference.SharedMemory, "CudaSharedMemoryUnregister", &tritonpb.CudaSharedMemoryUnregisterRequest{}, []Change{{"CudaSharedMemoryUnregister", "a", ""}}},
		{inference.Trace, "TraceSetting", &tritonpb.TraceSettingRequest{}, nil},
		{inference.Trace, "TraceSetting", &tritonpb.TraceSettingRequest{ModelName: "m", Settings: on}, []Change{{"TraceSetting", "a", "m"}}},
		{inference.Log, "LogSettings", &tritonpb.LogSettingsRequest{}, nil},
		{inference.Log, "LogSettings", &tritonpb.LogSettingsRequest{Settings: verbose}, []Change{{"LogSettings", "a", ""}}},
	} {
		for _, fails = range []error{nil, fault.New(fault.UpstreamFailed, "no")} {
			var told []Change
			s := &Service{View: v, Changed: func(_ *inference.Call, change Change, err error) {
				if (err == nil) != (fails == nil) {
					t.Errorf("%s: told %v", c.method, err)
				}
				told = append(told, change)
			}}
			_, _ = s.Do(t.Context(), &inference.Call{Kind: c.kind}, c.method, c.request)
			if !slices.Equal(told, c.want) {
				t.Errorf("%s %v: told %v", c.method, c.request, told)
			}
		}
	}
}
