package grpcfront

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/wire"
)

var methods = map[inference.Protocol]string{
	inference.Predict:       "/" + predictName + "/Predict",
	inference.PredictStream: "/" + predictName + "/PredictStream",
	inference.KServe:        "/" + kserveName + "/ModelInfer",
	inference.KServeStream:  "/" + kserveName + "/ModelStreamInfer",
}

// unary handles Predict and ModelInfer: the whole path of a call can be read here.
func (f *Front) unary(protocol inference.Protocol) grpc.MethodHandler {
	method := methods[protocol]
	peek := peekOf(protocol)
	return func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		growStack(1)
		c := f.newCall(ctx, protocol)
		c.Method = method
		if err := decode(&c.Request); err != nil {
			return nil, f.refuse(ctx, c, f.readFault(err))
		}
		c.Start = time.Now()
		head, err := peek(c.Request)
		c.Head = head
		if err != nil {
			c.Free()
			return nil, f.refuse(ctx, c, err)
		}
		err = f.opts.Pipeline.Do(ctx, c)
		c.Request.Free()
		sendHeader(ctx, c)
		if err != nil {
			c.Answer.Free()
			return nil, toStatus(err)
		}
		return wire.Give{Frame: &c.Answer}, nil
	}
}

func peekOf(p inference.Protocol) func(inference.Frame) (inference.Head, error) {
	if p.SpeaksPredict() {
		return wire.PeekPredict
	}
	return wire.PeekInfer
}

// newCall starts a call with what gRPC knows of it.
func (f *Front) newCall(ctx context.Context, protocol inference.Protocol) *inference.Call {
	c := &inference.Call{Protocol: protocol, Start: time.Now()}
	c.Incoming, _ = ctx.Value(metadataKey{}).(metadata.MD)
	if p, ok := peer.FromContext(ctx); ok {
		c.Peer = p.Addr
		if info, ok := p.AuthInfo.(*tlsInfo); ok {
			c.TLS = &info.State
		}
	}
	return c
}

type metadataKey struct{}

// tap sees a call before it begins. It remembers the client's metadata as gRPC read it. metadata.FromIncomingContext would copy it, value by
// value, for every call; nobody else reads it here, so the call may have it and change it.
func (f *Front) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	if size := sizeOf(info.Header); size > maxHeaderBytes {
		c := f.newCall(ctx, inference.KServe)
		c.Method, c.Incoming = info.FullMethodName, info.Header
		return nil, toStatus(f.opts.Pipeline.Refuse(ctx, c, fault.New(fault.TooLarge, "the metadata has %d bytes; at most %d are taken, send less of it", size, maxHeaderBytes)))
	}
	return context.WithValue(ctx, metadataKey{}, info.Header), nil
}

// sizeOf is the size of metadata as HTTP/2 counts it.
func sizeOf(md metadata.MD) int {
	size := 0
	for name, values := range md {
		for _, v := range values {
			size += len(name) + len(v) + 32
		}
	}
	return size
}

// refuse ends a call that could not be read.
func (f *Front) refuse(ctx context.Context, c *inference.Call, err error) error {
	err = f.opts.Pipeline.Refuse(ctx, c, err)
	sendHeader(ctx, c)
	return toStatus(err)
}

// readFault turns an error of reading a message into a fault, for metrics and logs: by now gRPC itself has
// told the client, in its own words, which for a message over the cap name the cap.
func (f *Front) readFault(err error) error {
	s, ok := status.FromError(err)
	if !ok {
		return fault.Wrap(fault.InvalidArgument, err, "the request could not be read")
	}
	switch s.Code() {
	case codes.ResourceExhausted:
		return fault.Wrap(fault.TooLarge, err, "the message is larger than the %d bytes accepted here; send smaller batches, or ask the operator to raise listen.max_message", f.opts.MaxMessage)
	case codes.Canceled, codes.DeadlineExceeded:
		return &fault.Fault{Kind: fault.Cancelled, Msg: "the caller went away while its request was being read", Cause: err}
	}
	return fault.Wrap(fault.InvalidArgument, err, "the request could not be read: %s", s.Message())
}
