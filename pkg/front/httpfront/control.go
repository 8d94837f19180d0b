package httpfront

import (
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// ask has control answer one question. read, where set, fills the request from the body.
func (x *exchange) ask(method string, request proto.Message, read func(body []byte) error) (proto.Message, error) {
	c := x.newCall(kindOf(method), inference.HTTPKServe)
	ctx, cancel, err := x.headers()
	defer cancel()
	if err != nil {
		return nil, x.refuse(ctx, err)
	}
	if read != nil {
		x.read = func() error {
			body, err := x.body()
			if err != nil {
				return err
			}
			return read(body)
		}
		c.Source = x
	}
	return x.front.Control.Do(ctx, c, method, request)
}

// answer asks and renders the answer, as it is or by render.
func (x *exchange) answer(method string, request proto.Message, read func([]byte) error, render func(proto.Message) ([]byte, error)) error {
	msg, err := x.ask(method, request, read)
	if err != nil {
		return err
	}
	body, err := render(msg)
	if err != nil {
		return err
	}
	x.write(http.StatusOK, jsonType, body, false)
	return nil
}

// asItIs renders a message with all its fields.
func asItIs(m proto.Message) ([]byte, error) {
	return appendMessage(nil, m.ProtoReflect()), nil
}

// nothing renders the empty answer of what has been done.
func nothing(proto.Message) ([]byte, error) { return nil, nil }

// as gives the message that control answers a method with.
func as[T proto.Message](m proto.Message) (T, error) {
	t, ok := m.(T)
	if !ok {
		return t, fault.New(fault.Internal, "internal error of the gateway: a question was answered with another one's message")
	}
	return t, nil
}

// parse reads a JSON object into v; an empty body is an empty object.
func parse(body []byte, v any) error {
	if len(body) == 0 {
		return nil
	}
	if err := json.Unmarshal(body, v, json.RejectUnknownMembers(true)); err != nil {
		return fault.Wrap(fault.InvalidArgument, err, "the body is not what this path takes: %v", err)
	}
	return nil
}

func serverMetadata(x *exchange) error {
	return x.answer("ServerMetadata", &tritonpb.ServerMetadataRequest{}, nil, asItIs)
}

func modelMetadata(x *exchange) error {
	return x.answer("ModelMetadata", &tritonpb.ModelMetadataRequest{Name: x.vars["model"], Version: x.vars["version"]}, nil, asItIs)
}

// modelConfig answers with the config itself, without the message around it.
func modelConfig(x *exchange) error {
	request := &tritonpb.ModelConfigRequest{Name: x.vars["model"], Version: x.vars["version"]}
	return x.answer("ModelConfig", request, nil, func(m proto.Message) ([]byte, error) {
		r, err := as[*tritonpb.ModelConfigResponse](m)
		if err != nil {
			return nil, err
		}
		return asItIs(r.GetConfig())
	})
}

func modelStatistics(x *exchange) error {
	return x.answer("ModelStatistics", &tritonpb.ModelStatisticsRequest{Name: x.vars["model"], Version: x.vars["version"]}, nil, asItIs)
}

// modelReady answers by its status alone: 200, or 400 as Triton does.
func modelReady(x *exchange) error {
	m, err := x.ask("ModelReady", &tritonpb.ModelReadyRequest{Name: x.vars["model"], Version: x.vars["version"]}, nil)
	if err != nil {
		return err
	}
	r, err := as[*tritonpb.ModelReadyResponse](m)
	if err != nil {
		return err
	}
	if !r.Ready {
		x.writeError(http.StatusBadRequest, fault.ModelNotReady.Reason(), "no endpoint can serve this model and version now")
		return nil
	}
	x.write(http.StatusOK, "", nil, false)
	return nil
}

// repositoryIndex answers with a list; version, state and reason are left out where they are empty.
func repositoryIndex(x *exchange) error {
	request := &tritonpb.RepositoryIndexRequest{RepositoryName: x.vars["repository"]}
	read := func(body []byte) error {
		var v struct {
			Ready bool `json:"ready"`
		}
		err := parse(body, &v)
		request.Ready = v.Ready
		return err
	}
	return x.answer("RepositoryIndex", request, read, func(m proto.Message) ([]byte, error) {
		r, err := as[*tritonpb.RepositoryIndexResponse](m)
		if err != nil {
			return nil, err
		}
		b := []byte{'['}
		for i, model := range r.Models {
			if i > 0 {
				b = append(b, ',')
			}
			b, _ = jsontext.AppendQuote(append(b, `{"name":`...), model.Name)
			for _, f := range [...]struct{ key, value string }{{"version", model.Version}, {"state", model.State}, {"reason", model.Reason}} {
				if f.value != "" {
					b, _ = jsontext.AppendQuote(append(b, `,"`+f.key+`":`...), f.value)
				}
			}
			b = append(b, '}')
		}
		return append(b, ']'), nil
	})
}

func modelLoad(x *exchange) error {
	request := &tritonpb.RepositoryModelLoadRequest{RepositoryName: x.vars["repository"], ModelName: x.vars["model"]}
	read := func(body []byte) (err error) {
		request.Parameters, err = repositoryParameters(body)
		return err
	}
	return x.answer("RepositoryModelLoad", request, read, nothing)
}

func modelUnload(x *exchange) error {
	request := &tritonpb.RepositoryModelUnloadRequest{RepositoryName: x.vars["repository"], ModelName: x.vars["model"]}
	read := func(body []byte) (err error) {
		request.Parameters, err = repositoryParameters(body)
		return err
	}
	return x.answer("RepositoryModelUnload", request, read, nothing)
}

// integer reads digits of a JSON number.
func integer[T int64 | uint64](name string, v jsontext.Value, bits func(string, int, int) (T, error)) (T, error) {
	n, err := bits(string(v), 10, 64)
	if err != nil {
		return 0, fault.New(fault.InvalidArgument, "%s is %s; it must be a whole number", name, clip(string(v)))
	}
	return n, nil
}

func signed(name string, v jsontext.Value) (int64, error) { return integer(name, v, strconv.ParseInt) }

func unsigned(name string, v jsontext.Value) (uint64, error) {
	return integer(name, v, strconv.ParseUint)
}
