package httpfront

import (
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/fault"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// unquote gives the text of a JSON string.
func unquote(v jsontext.Value) (string, bool) {
	if v.Kind() != '"' {
		return "", false
	}
	b, err := jsontext.AppendUnquote(nil, v)
	return string(b), err == nil
}

// repositoryParameters reads the parameters of load and unload. A name that begins with file: has
// a file in base64; others are booleans, whole numbers or strings.
func repositoryParameters(body []byte) (map[string]*tritonpb.ModelRepositoryParameter, error) {
	var v struct {
		Parameters map[string]jsontext.Value `json:"parameters"`
	}
	if err := parse(body, &v); err != nil {
		return nil, err
	}
	all := make(map[string]*tritonpb.ModelRepositoryParameter, len(v.Parameters))
	for name, v := range v.Parameters {
		p := &tritonpb.ModelRepositoryParameter{}
		text, isText := unquote(v)
		switch {
		case isText && strings.HasPrefix(name, "file:"):
			b, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				return nil, fault.New(fault.InvalidArgument, "parameters: %q is not base64, as files are sent", clip(name))
			}
			p.ParameterChoice = &tritonpb.ModelRepositoryParameter_BytesParam{BytesParam: b}
		case isText:
			p.ParameterChoice = &tritonpb.ModelRepositoryParameter_StringParam{StringParam: text}
		case v.Kind() == 't' || v.Kind() == 'f':
			p.ParameterChoice = &tritonpb.ModelRepositoryParameter_BoolParam{BoolParam: v.Kind() == 't'}
		default:
			n, err := signed("parameters: "+strconv.Quote(clip(name)), v)
			if err != nil {
				return nil, err
			}
			p.ParameterChoice = &tritonpb.ModelRepositoryParameter_Int64Param{Int64Param: n}
		}
		all[name] = p
	}
	return all, nil
}

func traceRead(x *exchange) error {
	return x.answer("TraceSetting", &tritonpb.TraceSettingRequest{ModelName: x.vars["model"]}, nil, traceAnswer)
}

// traceWrite changes trace settings: a string, a list of strings, or null to go back to the default.
func traceWrite(x *exchange) error {
	request := &tritonpb.TraceSettingRequest{ModelName: x.vars["model"], Settings: map[string]*tritonpb.TraceSettingRequest_SettingValue{}}
	return x.answer("TraceSetting", request, func(body []byte) error {
		var all map[string]jsontext.Value
		if err := parse(body, &all); err != nil {
			return err
		}
		for name, v := range all {
			values, err := traceValues(name, v)
			if err != nil {
				return err
			}
			request.Settings[name] = &tritonpb.TraceSettingRequest_SettingValue{Value: values}
		}
		return nil
	}, traceAnswer)
}

func traceValues(name string, v jsontext.Value) ([]string, error) {
	switch v.Kind() {
	case 'n':
		return nil, nil
	case '"':
		text, _ := unquote(v)
		return []string{text}, nil
	case '[':
		var list []string
		if err := parse(v, &list); err == nil {
			return list, nil
		}
	case '0':
		return []string{string(v)}, nil // clients forget the quotes, and there is only one way to read it
	default:
	}
	return nil, fault.New(fault.InvalidArgument, "trace setting %q is a string, a list of strings, or null", clip(name))
}

// traceAnswer renders settings by name; trace_level is always a list, others where they have not just one value.
func traceAnswer(m proto.Message) ([]byte, error) {
	r, err := as[*tritonpb.TraceSettingResponse](m)
	if err != nil {
		return nil, err
	}
	b := []byte{'{'}
	for _, name := range slices.Sorted(maps.Keys(r.Settings)) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, name)
		b = append(b, ':')
		values := r.Settings[name].GetValue()
		if name != "trace_level" && len(values) == 1 {
			b, _ = jsontext.AppendQuote(b, values[0])
			continue
		}
		b = append(b, '[')
		for i, v := range values {
			if i > 0 {
				b = append(b, ',')
			}
			b, _ = jsontext.AppendQuote(b, v)
		}
		b = append(b, ']')
	}
	return append(b, '}'), nil
}

func logRead(x *exchange) error {
	return x.answer("LogSettings", &tritonpb.LogSettingsRequest{}, nil, logAnswer)
}

// logWrite changes log settings: booleans, whole numbers below 2^32, strings.
func logWrite(x *exchange) error {
	request := &tritonpb.LogSettingsRequest{Settings: map[string]*tritonpb.LogSettingsRequest_SettingValue{}}
	return x.answer("LogSettings", request, func(body []byte) error {
		var all map[string]jsontext.Value
		if err := parse(body, &all); err != nil {
			return err
		}
		for name, v := range all {
			s := &tritonpb.LogSettingsRequest_SettingValue{}
			if text, ok := unquote(v); ok {
				s.ParameterChoice = &tritonpb.LogSettingsRequest_SettingValue_StringParam{StringParam: text}
			} else if v.Kind() == 't' || v.Kind() == 'f' {
				s.ParameterChoice = &tritonpb.LogSettingsRequest_SettingValue_BoolParam{BoolParam: v.Kind() == 't'}
			} else if n, err := strconv.ParseUint(string(v), 10, 32); err == nil {
				s.ParameterChoice = &tritonpb.LogSettingsRequest_SettingValue_Uint32Param{Uint32Param: uint32(n)}
			} else {
				return fault.New(fault.InvalidArgument, "log setting %q is %s; it must be true, false, a whole number or a string", clip(name), clip(string(v)))
			}
			request.Settings[name] = s
		}
		return nil
	}, logAnswer)
}

func logAnswer(m proto.Message) ([]byte, error) {
	r, err := as[*tritonpb.LogSettingsResponse](m)
	if err != nil {
		return nil, err
	}
	b := []byte{'{'}
	for _, name := range slices.Sorted(maps.Keys(r.Settings)) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, name)
		b = append(b, ':')
		switch v := r.Settings[name].GetParameterChoice().(type) {
		case *tritonpb.LogSettingsResponse_SettingValue_BoolParam:
			b = strconv.AppendBool(b, v.BoolParam)
		case *tritonpb.LogSettingsResponse_SettingValue_Uint32Param:
			b = strconv.AppendUint(b, uint64(v.Uint32Param), 10)
		case *tritonpb.LogSettingsResponse_SettingValue_StringParam:
			b, _ = jsontext.AppendQuote(b, v.StringParam)
		default:
			b = append(b, "null"...)
		}
	}
	return append(b, '}'), nil
}
