package sandbox

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// message receives a message that may be garbage. Without it the gRPC library would answer garbage itself, in its own words.
type message struct {
	to  any
	err error
}

// codec is the protobuf codec with an eye on garbage.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(*message); ok {
		m.err = c.CodecV2.Unmarshal(data, m.to)
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// tolerant lets the handlers of a service see garbage and answer it.
func tolerant(desc grpc.ServiceDesc) grpc.ServiceDesc {
	methods := make([]grpc.MethodDesc, len(desc.Methods))
	for i, m := range desc.Methods {
		methods[i] = grpc.MethodDesc{MethodName: m.MethodName, Handler: func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			return m.Handler(srv, ctx, func(v any) error {
				msg := &message{to: v}
				if err := dec(msg); err != nil {
					return err
				}
				if msg.err != nil {
					return status.Error(codes.Internal, "Unable to parse request")
				}
				return nil
			}, interceptor)
		}}
	}
	desc.Methods = methods
	return desc
}
