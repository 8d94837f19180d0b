package rest

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// parameters reads an object of parameters. take is asked first and tells whether it has used a value up;
// all others become InferParameters: bool, int64 (uint64 above it), double for numbers with a fraction or
// exponent, string.
func (s *scanner) parameters(where string, take func(name string, v jsontext.Value) (bool, error)) (map[string]*tritonpb.InferParameter, error) {
	where += ": parameters"
	v, err := s.value(where)
	if err != nil {
		return nil, err
	}
	if v.Kind() != '{' {
		return nil, badRequest("%s: expected an object, found %s", where, snippet(v))
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(v))
	if _, err := d.ReadToken(); err != nil {
		return nil, badRequest("%s: %v", where, reason(err))
	}
	var all map[string]*tritonpb.InferParameter
	for d.PeekKind() == '"' {
		key, err := d.ReadToken()
		if err != nil {
			return nil, badRequest("%s: %v", where, reason(err))
		}
		name := key.String()
		v, err := d.ReadValue()
		if err != nil {
			return nil, badRequest("%s: %v", where, reason(err))
		}
		if taken, err := take(name, v); err != nil {
			return nil, err
		} else if taken {
			continue
		}
		p, err := parameter(where, name, v)
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = make(map[string]*tritonpb.InferParameter)
		}
		if all[name] = p; len(all) > maxParameters {
			return nil, badRequest("%s: more than %d entries", where, maxParameters)
		}
	}
	return all, nil
}

func parameter(where, name string, v jsontext.Value) (*tritonpb.InferParameter, error) {
	switch v.Kind() {
	case 't', 'f':
		return &tritonpb.InferParameter{ParameterChoice: &tritonpb.InferParameter_BoolParam{BoolParam: v.Kind() == 't'}}, nil
	case '"':
		text, err := jsontext.AppendUnquote(nil, v)
		if err != nil {
			return nil, badRequest("%s: %q is not a valid string: %v", where, name, reason(err))
		}
		return &tritonpb.InferParameter{ParameterChoice: &tritonpb.InferParameter_StringParam{StringParam: string(text)}}, nil
	case '0':
		return number(where, name, v)
	default:
	}
	return nil, badRequest("%s: %q is %s; parameters are booleans, numbers or strings", where, name, snippet(v))
}

func number(where, name string, v jsontext.Value) (*tritonpb.InferParameter, error) {
	if bytes.ContainsAny(v, ".eE") {
		f, err := strconv.ParseFloat(string(v), 64)
		if err != nil {
			return nil, badRequest("%s: %q is %s, which no double can hold", where, name, snippet(v))
		}
		return &tritonpb.InferParameter{ParameterChoice: &tritonpb.InferParameter_DoubleParam{DoubleParam: f}}, nil
	}
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return &tritonpb.InferParameter{ParameterChoice: &tritonpb.InferParameter_Int64Param{Int64Param: n}}, nil
	}
	n, err := strconv.ParseUint(string(v), 10, 64)
	if err != nil {
		return nil, badRequest("%s: %q is %s, which does not fit in 64 bits", where, name, snippet(v))
	}
	return &tritonpb.InferParameter{ParameterChoice: &tritonpb.InferParameter_Uint64Param{Uint64Param: n}}, nil
}

// flag reads a boolean parameter.
func flag(where, name string, v jsontext.Value) (bool, error) {
	if k := v.Kind(); k == 't' || k == 'f' {
		return k == 't', nil
	}
	return false, badRequest("%s: parameters: %q is %s; expected true or false", where, name, snippet(v))
}
