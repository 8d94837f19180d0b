package grpcfront

import (
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/room"
	"github.com/model-gateway/model-gateway/pkg/wire"
	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

const (
	predictName = "ml.inference.InferenceService"
	kserveName  = "inference.GRPCInferenceService"
)

// predictService is the users' service on raw frames.
func (f *Front) predictService() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: predictName, HandlerType: (*any)(nil), Metadata: inferencepb.InferenceService_ServiceDesc.Metadata,
		Streams: []grpc.StreamDesc{
			method("Predict", f.unary(inference.Predict)),
			method("PredictStream", f.stream(inference.PredictStream)),
		},
	}
}

// kserveService is Triton's service: inference on raw frames, everything else as the messages it is.
func (f *Front) kserveService() *grpc.ServiceDesc {
	desc := &grpc.ServiceDesc{
		ServiceName: kserveName, HandlerType: (*any)(nil), Metadata: tritonpb.GRPCInferenceService_ServiceDesc.Metadata,
		Streams: []grpc.StreamDesc{
			method("ModelInfer", f.unary(inference.KServe)),
			method("ModelStreamInfer", f.stream(inference.KServeStream)),
		},
	}
	for name, what := range questions {
		desc.Streams = append(desc.Streams, method(name, f.question(name, what)))
	}
	return desc
}

// method makes a method whose handler reads its messages itself, when it wants them.
func method(name string, handler grpc.StreamHandler) grpc.StreamDesc {
	return grpc.StreamDesc{StreamName: name, ClientStreams: true, ServerStreams: true, Handler: handler}
}

// question is an RPC that is not an inference: what kind of access it takes and which message asks it.
type question struct {
	kind    inference.Kind
	request func() proto.Message
}

func message[T any, P interface {
	*T
	proto.Message
}]() func() proto.Message {
	return func() proto.Message { return P(new(T)) }
}

var questions = map[string]question{
	"ServerLive":                   {inference.Metadata, message[tritonpb.ServerLiveRequest]()},
	"ServerReady":                  {inference.Metadata, message[tritonpb.ServerReadyRequest]()},
	"ServerMetadata":               {inference.Metadata, message[tritonpb.ServerMetadataRequest]()},
	"ModelReady":                   {inference.Metadata, message[tritonpb.ModelReadyRequest]()},
	"ModelMetadata":                {inference.Metadata, message[tritonpb.ModelMetadataRequest]()},
	"ModelConfig":                  {inference.Metadata, message[tritonpb.ModelConfigRequest]()},
	"ModelStatistics":              {inference.Metadata, message[tritonpb.ModelStatisticsRequest]()},
	"RepositoryIndex":              {inference.Metadata, message[tritonpb.RepositoryIndexRequest]()},
	"RepositoryModelLoad":          {inference.Repository, message[tritonpb.RepositoryModelLoadRequest]()},
	"RepositoryModelUnload":        {inference.Repository, message[tritonpb.RepositoryModelUnloadRequest]()},
	"SystemSharedMemoryStatus":     {inference.SharedMemory, message[tritonpb.SystemSharedMemoryStatusRequest]()},
	"SystemSharedMemoryRegister":   {inference.SharedMemory, message[tritonpb.SystemSharedMemoryRegisterRequest]()},
	"SystemSharedMemoryUnregister": {inference.SharedMemory, message[tritonpb.SystemSharedMemoryUnregisterRequest]()},
	"CudaSharedMemoryStatus":       {inference.SharedMemory, message[tritonpb.CudaSharedMemoryStatusRequest]()},
	"CudaSharedMemoryRegister":     {inference.SharedMemory, message[tritonpb.CudaSharedMemoryRegisterRequest]()},
	"CudaSharedMemoryUnregister":   {inference.SharedMemory, message[tritonpb.CudaSharedMemoryUnregisterRequest]()},
	"TraceSetting":                 {inference.Trace, message[tritonpb.TraceSettingRequest]()},
	"LogSettings":                  {inference.Log, message[tritonpb.LogSettingsRequest]()},
}

// modelOf is the model that a question names, for logs; "" when it names none.
func modelOf(request proto.Message) string {
	switch r := request.(type) {
	case interface{ GetModelName() string }:
		return r.GetModelName()
	case *tritonpb.ModelReadyRequest:
		return r.Name
	case *tritonpb.ModelMetadataRequest:
		return r.Name
	case *tritonpb.ModelConfigRequest:
		return r.Name
	case *tritonpb.ModelStatisticsRequest:
		return r.Name
	}
	return ""
}

// question handles one of them.
func (f *Front) question(method string, q question) grpc.StreamHandler {
	return func(_ any, ss grpc.ServerStream) error {
		ctx := ss.Context()
		c := f.newCall(ctx, inference.KServe)
		c.Kind, c.Method = q.kind, "/"+kserveName+"/"+method
		request := q.request()
		a := &asking{request: request}
		a.init(ctx, f, ss)
		defer a.hold.Free()
		c.Source = a
		answer, err := f.opts.Control.Do(ctx, c, method, request)
		sendHeader(ctx, c)
		if err != nil {
			return toStatus(err)
		}
		return ss.SendMsg(answer)
	}
}

// asking reads a question.
type asking struct {
	reader
	hold    room.Hold
	request proto.Message
}

// Read implements inference.Source.
func (a *asking) Read(c *inference.Call) error {
	if err := a.receive(c, &a.hold); err != nil {
		return err
	}
	err := wire.Codec{}.Unmarshal(c.Request.Buf, a.request)
	c.Request.Free()
	if err != nil {
		return fault.Wrap(fault.InvalidArgument, err, "malformed %s: %v", a.request.ProtoReflect().Descriptor().Name(), err)
	}
	c.Head.Model = modelOf(a.request)
	return nil
}
