// Package tritontest is a model server for tests of the way upstream: each RPC does what a function field says, and
// every message in and out is a frame of counted buffers. It computes nothing; pkg/sandbox does.
package tritontest

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/wire"
	"github.com/model-gateway/model-gateway/proto/triton"
)

// Server is the model server of one address. Set the fields before the first call; a nil one answers as a server does
// that has one ready model of any name.
type Server struct {
	Live     func(context.Context) (bool, error)
	Ready    func(ctx context.Context, model, version string) (bool, error)
	Index    func(context.Context) ([]*tritonpb.RepositoryIndexResponse_ModelIndex, error)
	Metadata func(ctx context.Context, model, version string) (*tritonpb.ModelMetadataResponse, error)
	Config   func(ctx context.Context, model, version string) (*tritonpb.ModelConfig, error)
	// Infer answers a ModelInfer, by default with its own request as a response: names and id are the same fields in both.
	Infer func(ctx context.Context, request *tritonpb.ModelInferRequest) (*tritonpb.ModelInferResponse, error)
	// Raw, when set, answers a ModelInfer in place of Infer, undecoded. It owns the request.
	Raw func(ctx context.Context, request inference.Frame) (inference.Frame, error)
	// Stream serves a ModelStreamInfer.
	Stream func(s *Stream) error

	Options []grpc.ServerOption // beside its own

	Calls   atomic.Int64 // ModelInfer received
	Streams atomic.Int64 // ModelStreamInfer opened
	Open    atomic.Int64 // calls and streams under way

	mu       sync.Mutex
	listener *bufconn.Listener
	server   *grpc.Server
}

// Stream is one ModelStreamInfer.
type Stream struct {
	grpc.ServerStream
	sending sync.Mutex // one at a time: gRPC allows no more
}

// Recv gives the next request; io.EOF after the last.
func (s *Stream) Recv() (*tritonpb.ModelInferRequest, error) {
	m := new(tritonpb.ModelInferRequest)
	return m, s.RecvMsg(m)
}

// Send sends an answer. Several may do so at a time.
func (s *Stream) Send(answer *tritonpb.ModelStreamInferResponse) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.SendMsg(answer)
}

// Answer is what a model answers to request: one FP32 output of these values; final marks its last answer.
func Answer(request *tritonpb.ModelInferRequest, final bool, raw ...byte) *tritonpb.ModelStreamInferResponse {
	r := Response(request, raw...)
	r.Parameters = map[string]*tritonpb.InferParameter{"triton_final_response": {ParameterChoice: &tritonpb.InferParameter_BoolParam{BoolParam: final}}}
	return &tritonpb.ModelStreamInferResponse{InferResponse: r}
}

// Response is a unary answer to request with one UINT8 output.
func Response(request *tritonpb.ModelInferRequest, raw ...byte) *tritonpb.ModelInferResponse {
	r := &tritonpb.ModelInferResponse{ModelName: request.GetModelName(), ModelVersion: request.GetModelVersion(), Id: request.GetId()}
	if len(raw) > 0 {
		r.Outputs = []*tritonpb.ModelInferResponse_InferOutputTensor{{Name: "OUTPUT", Datatype: "UINT8", Shape: []int64{int64(len(raw))}}}
		r.RawOutputContents = [][]byte{raw}
	}
	return r
}

// End is the empty final answer of a decoupled model.
func End(request *tritonpb.ModelInferRequest) *tritonpb.ModelStreamInferResponse {
	return Answer(request, true)
}

// Failure is an error answer in a stream. Triton names the model in those that a model made, and then marks them.
func Failure(request *tritonpb.ModelInferRequest, text string, byModel bool) *tritonpb.ModelStreamInferResponse {
	a := &tritonpb.ModelStreamInferResponse{ErrorMessage: text, InferResponse: &tritonpb.ModelInferResponse{Id: request.GetId()}}
	if byModel {
		a.InferResponse = Answer(request, false).GetInferResponse()
	}
	return a
}

// Start serves until Stop.
func (s *Server) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener = bufconn.Listen(1 << 20)
	s.server = grpc.NewServer(append([]grpc.ServerOption{
		grpc.ForceServerCodecV2(wire.Codec{}), grpc.UnknownServiceHandler(s.handle),
		grpc.MaxRecvMsgSize(1 << 30), grpc.MaxSendMsgSize(1 << 30), grpc.WaitForHandlers(true),
	}, s.Options...)...)
	go func(g *grpc.Server, l net.Listener) { _ = g.Serve(l) }(s.server, s.listener)
}

// Stop breaks every connection and refuses further ones.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		s.server.Stop()
		s.server = nil
	}
}

// Leave refuses further connections, tells those there are to go away (GOAWAY), and returns when what is under way has
// been finished, as a process does that is asked to end.
func (s *Server) Leave() {
	s.mu.Lock()
	g := s.server
	s.server = nil
	s.mu.Unlock()
	if g != nil {
		g.GracefulStop()
	}
}

func (s *Server) dial(ctx context.Context) (net.Conn, error) {
	s.mu.Lock()
	l, up := s.listener, s.server != nil
	s.mu.Unlock()
	if !up {
		return nil, errors.New("connection refused")
	}
	return l.DialContext(ctx)
}

// Network finds servers by address.
type Network map[string]*Server

// Dial connects to a server of the network, for Options.Dial of an upstream.
func (n Network) Dial(ctx context.Context, address string) (net.Conn, error) {
	if s := n[address]; s != nil {
		return s.dial(ctx)
	}
	return nil, errors.New("no route to " + address)
}

func (s *Server) handle(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	ctx := stream.Context()
	switch method {
	case tritonpb.GRPCInferenceService_ModelInfer_FullMethodName:
		s.Calls.Add(1)
		s.Open.Add(1)
		defer s.Open.Add(-1)
		return s.infer(ctx, stream)
	case tritonpb.GRPCInferenceService_ModelStreamInfer_FullMethodName:
		s.Streams.Add(1)
		s.Open.Add(1)
		defer s.Open.Add(-1)
		if s.Stream == nil {
			return status.Error(codes.Unimplemented, "no streams")
		}
		return s.Stream(&Stream{ServerStream: stream})
	case tritonpb.GRPCInferenceService_ServerLive_FullMethodName:
		live, err := true, error(nil)
		if s.Live != nil {
			live, err = s.Live(ctx)
		}
		return reply(stream, new(tritonpb.ServerLiveRequest), &tritonpb.ServerLiveResponse{Live: live}, err)
	case tritonpb.GRPCInferenceService_RepositoryIndex_FullMethodName:
		answer, err := &tritonpb.RepositoryIndexResponse{}, error(nil)
		if s.Index != nil {
			answer.Models, err = s.Index(ctx)
		}
		return reply(stream, new(tritonpb.RepositoryIndexRequest), answer, err)
	}
	return s.describe(ctx, method, stream)
}

func (s *Server) describe(ctx context.Context, method string, stream grpc.ServerStream) error {
	// All of these requests are a name and a version.
	question := new(tritonpb.ModelMetadataRequest)
	if err := stream.RecvMsg(question); err != nil {
		return err
	}
	name, version := question.GetName(), question.GetVersion()
	switch method {
	case tritonpb.GRPCInferenceService_ModelReady_FullMethodName:
		ready, err := true, error(nil)
		if s.Ready != nil {
			ready, err = s.Ready(ctx, name, version)
		}
		return reply(stream, nil, &tritonpb.ModelReadyResponse{Ready: ready}, err)
	case tritonpb.GRPCInferenceService_ModelMetadata_FullMethodName:
		answer, err := &tritonpb.ModelMetadataResponse{
			Name: name, Versions: []string{"1"},
			Inputs:  []*tritonpb.ModelMetadataResponse_TensorMetadata{{Name: "INPUT", Datatype: "UINT8", Shape: []int64{-1}}},
			Outputs: []*tritonpb.ModelMetadataResponse_TensorMetadata{{Name: "OUTPUT", Datatype: "UINT8", Shape: []int64{-1}}},
		}, error(nil)
		if s.Metadata != nil {
			answer, err = s.Metadata(ctx, name, version)
		}
		return reply(stream, nil, answer, err)
	case tritonpb.GRPCInferenceService_ModelConfig_FullMethodName:
		config, err := &tritonpb.ModelConfig{Name: name}, error(nil)
		if s.Config != nil {
			config, err = s.Config(ctx, name, version)
		}
		return reply(stream, nil, &tritonpb.ModelConfigResponse{Config: config}, err)
	}
	return status.Errorf(codes.Unimplemented, "unknown method %s", method)
}

func reply(stream grpc.ServerStream, request, answer any, err error) error {
	if request != nil {
		if err := stream.RecvMsg(request); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	if err != nil {
		return err
	}
	return stream.SendMsg(answer)
}

func (s *Server) infer(ctx context.Context, stream grpc.ServerStream) error {
	if s.Raw != nil {
		var request inference.Frame
		if err := stream.RecvMsg(&request); err != nil {
			return err
		}
		answer, err := s.Raw(ctx, request)
		if err != nil {
			return err
		}
		return stream.SendMsg(wire.Give{Frame: &answer})
	}
	request := new(tritonpb.ModelInferRequest)
	if err := stream.RecvMsg(request); err != nil {
		return err
	}
	answer := Response(request, 1)
	if s.Infer != nil {
		var err error
		if answer, err = s.Infer(ctx, request); err != nil {
			return err
		}
	}
	return stream.SendMsg(answer)
}

// Incoming is the metadata of a call or stream.
func Incoming(ctx context.Context) map[string][]string {
	md, _ := metadata.FromIncomingContext(ctx)
	return md
}
