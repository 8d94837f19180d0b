package httpfront

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

func answerWith(m proto.Message) *control {
	return &control{do: func(c *inference.Call, _ string, _ proto.Message) (proto.Message, error) {
		c.RequestID = "id-1"
		return m, nil
	}}
}

func stat(n uint64) *tritonpb.StatisticDuration {
	return &tritonpb.StatisticDuration{Count: n, Ns: n << 60}
}

// questions are the requests of Triton's REST with their messages, and its answers byte for byte.
var questions = []struct {
	name, verb, path, body string
	method                 string
	kind                   inference.Kind
	request, answer        proto.Message
	want                   string
}{
	{
		"server metadata", "GET", "/v2", "", "ServerMetadata", inference.Metadata,
		&tritonpb.ServerMetadataRequest{},
		&tritonpb.ServerMetadataResponse{Name: "model-gateway", Version: "1.0", Extensions: []string{"statistics"}},
		`{"name":"model-gateway","version":"1.0","extensions":["statistics"]}`,
	},
	{
		"model metadata", "GET", "/v2/models/team%2Fbert/versions/3", "", "ModelMetadata", inference.Metadata,
		&tritonpb.ModelMetadataRequest{Name: "team/bert", Version: "3"},
		&tritonpb.ModelMetadataResponse{
			Name: "team/bert", Versions: []string{"2", "3"}, Platform: "onnxruntime_onnx",
			Inputs: []*tritonpb.ModelMetadataResponse_TensorMetadata{{Name: "I", Datatype: "FP32", Shape: []int64{-1, 16}}},
		},
		`{"name":"team/bert","versions":["2","3"],"platform":"onnxruntime_onnx","inputs":[{"name":"I","datatype":"FP32","shape":[-1,16]}],"outputs":[]}`,
	},
	{
		"config", "GET", "/v2/models/echo/config", "", "ModelConfig", inference.Metadata,
		&tritonpb.ModelConfigRequest{Name: "echo"},
		&tritonpb.ModelConfigResponse{Config: &tritonpb.ModelConfig{
			Name: "echo", Backend: "python", DefaultModelFilename: "model.py",
			VersionPolicy: &tritonpb.ModelVersionPolicy{PolicyChoice: &tritonpb.ModelVersionPolicy_Latest_{Latest: &tritonpb.ModelVersionPolicy_Latest{NumVersions: 1}}},
			Input:         []*tritonpb.ModelInput{{Name: "DATA", DataType: tritonpb.DataType_TYPE_UINT8, Dims: []int64{-1}}},
			Output:        []*tritonpb.ModelOutput{{Name: "DATA_OUT", DataType: tritonpb.DataType_TYPE_UINT8, Dims: []int64{-1}}},
			Optimization: &tritonpb.ModelOptimizationPolicy{
				InputPinnedMemory:  &tritonpb.ModelOptimizationPolicy_PinnedMemoryBuffer{Enable: true},
				OutputPinnedMemory: &tritonpb.ModelOptimizationPolicy_PinnedMemoryBuffer{Enable: true},
			},
			InstanceGroup: []*tritonpb.ModelInstanceGroup{{Name: "echo_0", Kind: tritonpb.ModelInstanceGroup_KIND_CPU, Count: 1}},
		}},
		`{"name":"echo","platform":"","backend":"python","runtime":"","version_policy":{"latest":{"num_versions":1}},"max_batch_size":0,` +
			`"input":[{"name":"DATA","data_type":"TYPE_UINT8","format":"FORMAT_NONE","dims":[-1],"is_shape_tensor":false,"allow_ragged_batch":false,"optional":false,"is_non_linear_format_io":false}],` +
			`"output":[{"name":"DATA_OUT","data_type":"TYPE_UINT8","dims":[-1],"label_filename":"","is_shape_tensor":false,"is_non_linear_format_io":false}],"batch_input":[],"batch_output":[],` +
			`"optimization":{"priority":"PRIORITY_DEFAULT","input_pinned_memory":{"enable":true},"output_pinned_memory":{"enable":true},"gather_kernel_buffer_threshold":0,"eager_batching":false},` +
			`"instance_group":[{"name":"echo_0","kind":"KIND_CPU","count":1,"gpus":[],"secondary_devices":[],"profile":[],"passive":false,"host_policy":""}],` +
			`"default_model_filename":"model.py","cc_model_filenames":{},"metric_tags":{},"parameters":{},"model_warmup":[]}`,
	},
	{
		"statistics", "GET", "/v2/models/echo/versions/1/stats", "", "ModelStatistics", inference.Metadata,
		&tritonpb.ModelStatisticsRequest{Name: "echo", Version: "1"},
		&tritonpb.ModelStatisticsResponse{ModelStats: []*tritonpb.ModelStatistics{{
			Name: "echo", Version: "1", LastInference: 1790000000000, InferenceCount: 18446744073709551615,
			InferenceStats: &tritonpb.InferStatistics{
				Success: stat(1), Fail: stat(0), Queue: stat(0), ComputeInput: stat(0), ComputeInfer: stat(0), ComputeOutput: stat(0), CacheHit: stat(0), CacheMiss: stat(0),
			},
		}}},
		`{"model_stats":[{"name":"echo","version":"1","last_inference":1790000000000,"inference_count":18446744073709551615,"execution_count":0,"inference_stats":{` +
			`"success":{"count":1,"ns":1152921504606846976},"fail":{"count":0,"ns":0},"queue":{"count":0,"ns":0},"compute_input":{"count":0,"ns":0},"compute_infer":{"count":0,"ns":0},` +
			`"compute_output":{"count":0,"ns":0},"cache_hit":{"count":0,"ns":0},"cache_miss":{"count":0,"ns":0}},"batch_stats":[],"memory_usage":[],"response_stats":{}}]}`,
	},
	{
		"statistics of all", "GET", "/v2/models/stats", "", "ModelStatistics", inference.Metadata,
		&tritonpb.ModelStatisticsRequest{}, &tritonpb.ModelStatisticsResponse{}, `{"model_stats":[]}`,
	},
	{
		"index", "POST", "/v2/repository/index", "", "RepositoryIndex", inference.Metadata,
		&tritonpb.RepositoryIndexRequest{},
		&tritonpb.RepositoryIndexResponse{Models: []*tritonpb.RepositoryIndexResponse_ModelIndex{
			{Name: "boom"}, {Name: "echo", Version: "1", State: "READY"}, {Name: "old", Version: "1", State: "UNAVAILABLE", Reason: "unloaded"},
		}},
		`[{"name":"boom"},{"name":"echo","version":"1","state":"READY"},{"name":"old","version":"1","state":"UNAVAILABLE","reason":"unloaded"}]`,
	},
	{
		"index of what is ready", "POST", "/v2/repository/models/index", `{"ready":true}`, "RepositoryIndex", inference.Metadata,
		&tritonpb.RepositoryIndexRequest{RepositoryName: "models", Ready: true}, &tritonpb.RepositoryIndexResponse{}, `[]`,
	},
	{
		"load", "POST", "/v2/repository/models/echo/load", `{"parameters":{"config":"{}","file:1/model.onnx":"AAH/","n":3,"b":true}}`, "RepositoryModelLoad", inference.Repository,
		&tritonpb.RepositoryModelLoadRequest{ModelName: "echo", Parameters: map[string]*tritonpb.ModelRepositoryParameter{
			"config":            {ParameterChoice: &tritonpb.ModelRepositoryParameter_StringParam{StringParam: "{}"}},
			"file:1/model.onnx": {ParameterChoice: &tritonpb.ModelRepositoryParameter_BytesParam{BytesParam: []byte{0, 1, 0xff}}},
			"n":                 {ParameterChoice: &tritonpb.ModelRepositoryParameter_Int64Param{Int64Param: 3}},
			"b":                 {ParameterChoice: &tritonpb.ModelRepositoryParameter_BoolParam{BoolParam: true}},
		}},
		&tritonpb.RepositoryModelLoadResponse{}, "",
	},
	{
		"load without body", "POST", "/v2/repository/r/models/echo/load", "", "RepositoryModelLoad", inference.Repository,
		&tritonpb.RepositoryModelLoadRequest{RepositoryName: "r", ModelName: "echo"}, &tritonpb.RepositoryModelLoadResponse{}, "",
	},
	{
		"unload", "POST", "/v2/repository/models/echo/unload", `{"parameters":{"unload_dependents":false}}`, "RepositoryModelUnload", inference.Repository,
		&tritonpb.RepositoryModelUnloadRequest{ModelName: "echo", Parameters: map[string]*tritonpb.ModelRepositoryParameter{
			"unload_dependents": {ParameterChoice: &tritonpb.ModelRepositoryParameter_BoolParam{}},
		}},
		&tritonpb.RepositoryModelUnloadResponse{}, "",
	},
	{
		"system regions", "GET", "/v2/systemsharedmemory/status", "", "SystemSharedMemoryStatus", inference.SharedMemory,
		&tritonpb.SystemSharedMemoryStatusRequest{},
		&tritonpb.SystemSharedMemoryStatusResponse{Regions: map[string]*tritonpb.SystemSharedMemoryStatusResponse_RegionStatus{
			"b": {Name: "b", Key: "/b", Offset: 1, ByteSize: 2}, "a": {Name: "a", Key: "/a"},
		}},
		`[{"name":"a","key":"/a","offset":0,"byte_size":0},{"name":"b","key":"/b","offset":1,"byte_size":2}]`,
	},
	{
		"register a system region", "POST", "/v2/systemsharedmemory/region/a%2Fb/register", `{"key":"/k","offset":8,"byte_size":18446744073709551615}`, "SystemSharedMemoryRegister", inference.SharedMemory,
		&tritonpb.SystemSharedMemoryRegisterRequest{Name: "a/b", Key: "/k", Offset: 8, ByteSize: 18446744073709551615}, &tritonpb.SystemSharedMemoryRegisterResponse{}, "",
	},
	{
		"unregister a system region", "POST", "/v2/systemsharedmemory/region/a/unregister", "", "SystemSharedMemoryUnregister", inference.SharedMemory,
		&tritonpb.SystemSharedMemoryUnregisterRequest{Name: "a"}, &tritonpb.SystemSharedMemoryUnregisterResponse{}, "",
	},
	{
		"device region", "GET", "/v2/cudasharedmemory/region/a/status", "", "CudaSharedMemoryStatus", inference.SharedMemory,
		&tritonpb.CudaSharedMemoryStatusRequest{Name: "a"},
		&tritonpb.CudaSharedMemoryStatusResponse{Regions: map[string]*tritonpb.CudaSharedMemoryStatusResponse_RegionStatus{"a": {Name: "a", DeviceId: 1, ByteSize: 2}}},
		`[{"name":"a","device_id":1,"byte_size":2}]`,
	},
	{
		"register a device region", "POST", "/v2/cudasharedmemory/region/a/register", `{"raw_handle":{"b64":"AAH/"},"device_id":0,"byte_size":64}`, "CudaSharedMemoryRegister", inference.SharedMemory,
		&tritonpb.CudaSharedMemoryRegisterRequest{Name: "a", RawHandle: []byte{0, 1, 0xff}, ByteSize: 64}, &tritonpb.CudaSharedMemoryRegisterResponse{}, "",
	},
	{
		"unregister all device regions", "POST", "/v2/cudasharedmemory/unregister", "", "CudaSharedMemoryUnregister", inference.SharedMemory,
		&tritonpb.CudaSharedMemoryUnregisterRequest{}, &tritonpb.CudaSharedMemoryUnregisterResponse{}, "",
	},
	{
		"trace settings", "GET", "/v2/trace/setting", "", "TraceSetting", inference.Trace,
		&tritonpb.TraceSettingRequest{},
		&tritonpb.TraceSettingResponse{Settings: map[string]*tritonpb.TraceSettingResponse_SettingValue{
			"trace_level": {Value: []string{"OFF"}}, "trace_rate": {Value: []string{"1000"}}, "trace_file": {Value: []string{""}},
		}},
		`{"trace_file":"","trace_level":["OFF"],"trace_rate":"1000"}`,
	},
	{
		"change trace settings of a model", "POST", "/v2/models/echo/trace/setting", `{"trace_level":["TIMESTAMPS","TENSORS"],"trace_rate":"5","trace_count":7,"log_frequency":null}`, "TraceSetting", inference.Trace,
		&tritonpb.TraceSettingRequest{ModelName: "echo", Settings: map[string]*tritonpb.TraceSettingRequest_SettingValue{
			"trace_level": {Value: []string{"TIMESTAMPS", "TENSORS"}}, "trace_rate": {Value: []string{"5"}}, "trace_count": {Value: []string{"7"}}, "log_frequency": {},
		}},
		&tritonpb.TraceSettingResponse{}, `{}`,
	},
	{
		"log settings", "GET", "/v2/logging", "", "LogSettings", inference.Log,
		&tritonpb.LogSettingsRequest{},
		&tritonpb.LogSettingsResponse{Settings: map[string]*tritonpb.LogSettingsResponse_SettingValue{
			"log_file":          {ParameterChoice: &tritonpb.LogSettingsResponse_SettingValue_StringParam{StringParam: "a\"b"}},
			"log_info":          {ParameterChoice: &tritonpb.LogSettingsResponse_SettingValue_BoolParam{BoolParam: true}},
			"log_verbose_level": {ParameterChoice: &tritonpb.LogSettingsResponse_SettingValue_Uint32Param{Uint32Param: 2}},
		}},
		`{"log_file":"a\"b","log_info":true,"log_verbose_level":2}`,
	},
	{
		"change log settings", "POST", "/v2/logging", `{"log_file":"x","log_info":false,"log_verbose_level":1}`, "LogSettings", inference.Log,
		&tritonpb.LogSettingsRequest{Settings: map[string]*tritonpb.LogSettingsRequest_SettingValue{
			"log_file":          {ParameterChoice: &tritonpb.LogSettingsRequest_SettingValue_StringParam{StringParam: "x"}},
			"log_info":          {ParameterChoice: &tritonpb.LogSettingsRequest_SettingValue_BoolParam{}},
			"log_verbose_level": {ParameterChoice: &tritonpb.LogSettingsRequest_SettingValue_Uint32Param{Uint32Param: 1}},
		}},
		&tritonpb.LogSettingsResponse{}, `{}`,
	},
}

func TestQuestionsAreAskedAndAnsweredAsTritonDoes(t *testing.T) {
	for _, q := range questions {
		t.Run(q.name, func(t *testing.T) {
			ctl := answerWith(q.answer)
			w := send(front(Config{Control: ctl}), q.verb, q.path, q.body)
			wantBody(t, w, q.want)
			if ctl.method != q.method || ctl.call.Kind != q.kind {
				t.Errorf("asked %s of kind %s, want %s of %s", ctl.method, ctl.call.Kind, q.method, q.kind)
			}
			if diff := cmp.Diff(q.request, ctl.got, protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
			if w.Header().Get("Content-Type") != "application/json" || w.Header().Get("X-Request-Id") != "id-1" {
				t.Errorf("headers %v", w.Header())
			}
		})
	}
}

func TestMapsWithNumbersAsKeysAreInTheirOrder(t *testing.T) {
	policy := &tritonpb.ModelQueuePolicy{}
	m := &tritonpb.ModelDynamicBatching{PriorityQueuePolicy: map[uint64]*tritonpb.ModelQueuePolicy{10: policy, 2: policy, 1: policy}}
	b := string(appendMessage(nil, m.ProtoReflect()))
	const p = `{"timeout_action":"REJECT","default_timeout_microseconds":0,"allow_timeout_override":false,"max_queue_size":0}`
	want := `{"preferred_batch_size":[],"max_queue_delay_microseconds":0,"preserve_ordering":false,"priority_levels":0,"default_priority_level":0,"priority_queue_policy":{"1":` + p + `,"2":` + p + `,"10":` + p + `}}`
	if b != want {
		t.Errorf("%s\nwant %s", b, want)
	}
}

func TestModelReadyAnswersByItsStatus(t *testing.T) {
	for _, path := range []string{"/v2/models/m/ready", "/v2/models/m/versions/1/ready"} {
		w := send(front(Config{Control: answerWith(&tritonpb.ModelReadyResponse{Ready: true})}), "GET", path, "")
		wantBody(t, w, "")
		wantStatus(t, send(front(Config{Control: answerWith(&tritonpb.ModelReadyResponse{})}), "GET", path, ""), 400, "MODEL_NOT_READY")
	}
}

func TestClosedControlIsA403(t *testing.T) { // O-18
	ctl := &control{do: func(*inference.Call, string, proto.Message) (proto.Message, error) {
		return nil, fault.New(fault.ControlOff, "closed")
	}}
	for _, path := range []string{"/v2/repository/models/m/unload", "/v2/systemsharedmemory/unregister", "/v2/trace/setting", "/v2/logging"} {
		wantStatus(t, send(front(Config{Control: ctl}), "POST", path, ""), 403, `{"error":"closed","reason":"CONTROL_OFF"}`)
	}
}

func TestBadQuestionsAreRefusedAndCounted(t *testing.T) {
	for _, c := range []struct{ path, body, says string }{
		{"/v2/repository/index", `{"rdy":true}`, "rdy"},
		{"/v2/repository/index", `[]`, "not what this path takes"},
		{"/v2/repository/models/m/load", `{"parameters":{"file:1/a":"***"}}`, "base64"},
		{"/v2/repository/models/m/load", `{"parameters":{"a":null}}`, `\"a\"`},
		{"/v2/repository/models/m/load", `{"parameters":{"a":1.5}}`, "whole number"},
		{"/v2/systemsharedmemory/region/a/register", `{"key":"/k"}`, "byte_size"},
		{"/v2/systemsharedmemory/region/a/register", `{"key":"/k","byte_size":-1}`, "byte_size is -1"},
		{"/v2/cudasharedmemory/region/a/register", `{"device_id":0,"byte_size":1}`, "raw_handle"},
		{"/v2/trace/setting", `{"trace_rate":{}}`, "trace_rate"},
		{"/v2/logging", `{"log_info":null}`, "log_info"},
		{"/v2/logging", `{"log_verbose_level":-1}`, "whole number"},
	} {
		ctl := answerWith(nil)
		wantStatus(t, send(front(Config{Control: ctl}), "POST", c.path, c.body), 400, c.says)
		if len(ctl.refused) != 1 || ctl.call != nil {
			t.Errorf("%s %s: %d refusals, want 1", c.path, c.body, len(ctl.refused))
		}
	}
}
