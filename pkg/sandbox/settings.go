package sandbox

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// settings are the trace and log settings. They are kept and given back, and change nothing: the sandbox neither
// traces nor logs requests.
type settings struct {
	mu     sync.Mutex
	trace  map[string][]string            // the server's
	models map[string]map[string][]string // what single models have of their own
	log    map[string]*tritonpb.LogSettingsResponse_SettingValue
}

func newSettings() *settings {
	return &settings{
		trace: map[string][]string{
			"trace_file": {""}, "trace_level": {"OFF"}, "trace_rate": {"1000"}, "trace_count": {"-1"},
			"log_frequency": {"0"}, "trace_mode": {"triton"},
		},
		models: map[string]map[string][]string{},
		log: map[string]*tritonpb.LogSettingsResponse_SettingValue{
			"log_file": logString(""), "log_format": logString("default"), "log_info": logBool(true),
			"log_warning": logBool(true), "log_error": logBool(true), "log_verbose_level": logNumber(0),
		},
	}
}

func logString(v string) *tritonpb.LogSettingsResponse_SettingValue {
	return &tritonpb.LogSettingsResponse_SettingValue{ParameterChoice: &tritonpb.LogSettingsResponse_SettingValue_StringParam{StringParam: v}}
}

func logBool(v bool) *tritonpb.LogSettingsResponse_SettingValue {
	return &tritonpb.LogSettingsResponse_SettingValue{ParameterChoice: &tritonpb.LogSettingsResponse_SettingValue_BoolParam{BoolParam: v}}
}

func logNumber(v uint32) *tritonpb.LogSettingsResponse_SettingValue {
	return &tritonpb.LogSettingsResponse_SettingValue{ParameterChoice: &tritonpb.LogSettingsResponse_SettingValue_Uint32Param{Uint32Param: v}}
}

// traceDefaults are what a setting of the server goes back to when it is cleared.
var traceDefaults = newSettings().trace

// TraceSetting changes and tells the trace settings of the server or of one model.
func (s *Server) TraceSetting(_ context.Context, req *tritonpb.TraceSettingRequest) (*tritonpb.TraceSettingResponse, error) {
	if req.ModelName != "" {
		if _, err := s.models.find(req.ModelName, -1); err != nil {
			return nil, invalid("Request for unknown model : %s", req.ModelName)
		}
	}
	t := s.settings
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range slices.Sorted(maps.Keys(req.Settings)) {
		if err := checkTrace(k, req.Settings[k].GetValue()); err != nil {
			return nil, err
		}
	}
	for k, v := range req.Settings {
		t.setTrace(req.ModelName, k, v.GetValue())
	}
	resp := &tritonpb.TraceSettingResponse{Settings: map[string]*tritonpb.TraceSettingResponse_SettingValue{}}
	for k, v := range t.trace {
		if own, ok := t.models[req.ModelName][k]; ok {
			v = own
		}
		resp.Settings[k] = &tritonpb.TraceSettingResponse_SettingValue{Value: v}
	}
	return resp, nil
}

func checkTrace(k string, values []string) error {
	if len(values) == 0 {
		return nil // cleared
	}
	switch k {
	case "trace_file":
		return status.Error(codes.Unimplemented, "trace file location can not be updated through network protocol")
	case "trace_rate", "trace_count", "log_frequency":
		if _, err := strconv.ParseInt(values[0], 10, 32); err != nil {
			return invalid("Unable to parse '%s', got: %s", k, values[0])
		}
	case "trace_level":
		if slices.Contains(values, "TIMESTAMPS") || slices.Contains(values, "TENSORS") {
			return invalid("Attempting to set invalid trace setting :trace file name is not given")
		}
	}
	return nil
}

func (t *settings) setTrace(model, k string, values []string) {
	_, known := t.trace[k]
	if !known || k == "trace_mode" || k == "trace_level" {
		return // no level is on without a file, and the mode is fixed
	}
	switch {
	case model == "" && len(values) == 0:
		t.trace[k] = traceDefaults[k]
	case model == "":
		t.trace[k] = values[:1]
	case len(values) == 0:
		delete(t.models[model], k)
	default:
		if t.models[model] == nil {
			t.models[model] = map[string][]string{}
		}
		t.models[model][k] = values[:1]
	}
}

// LogSettings changes and tells the log settings.
func (s *Server) LogSettings(_ context.Context, req *tritonpb.LogSettingsRequest) (*tritonpb.LogSettingsResponse, error) {
	t := s.settings
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range slices.Sorted(maps.Keys(req.Settings)) {
		v, err := logSetting(k, req.Settings[k])
		if err != nil {
			return nil, err
		}
		if v != nil {
			t.log[k] = v
		}
	}
	return &tritonpb.LogSettingsResponse{Settings: maps.Clone(t.log)}, nil
}

// logSetting reads one new value; nil for a setting that does not exist, which is ignored.
func logSetting(k string, v *tritonpb.LogSettingsRequest_SettingValue) (*tritonpb.LogSettingsResponse_SettingValue, error) {
	switch k {
	case "log_file":
		return nil, status.Error(codes.Unimplemented, "log file location can not be updated through network protocol")
	case "log_info", "log_warning", "log_error":
		if p, ok := v.GetParameterChoice().(*tritonpb.LogSettingsRequest_SettingValue_BoolParam); ok {
			return logBool(p.BoolParam), nil
		}
		return nil, invalid("expect boolean for '%s'", k)
	case "log_verbose_level":
		if p, ok := v.GetParameterChoice().(*tritonpb.LogSettingsRequest_SettingValue_Uint32Param); ok {
			return logNumber(p.Uint32Param), nil
		}
		return nil, invalid("expect int32 for '%s'", k)
	case "log_format":
		p, ok := v.GetParameterChoice().(*tritonpb.LogSettingsRequest_SettingValue_StringParam)
		if !ok {
			return nil, invalid("expect string for '%s'", k)
		}
		if p.StringParam != "default" && p.StringParam != "ISO8601" {
			return nil, invalid("invalid argument for log_format, got: %s", p.StringParam)
		}
		return logString(p.StringParam), nil
	}
	return nil, nil
}
