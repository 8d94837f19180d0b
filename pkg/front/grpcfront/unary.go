package grpcfront

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/room"
	"github.com/model-gateway/model-gateway/pkg/wire"
)

var methods = map[inference.Protocol]string{
	inference.Predict:       "/" + predictName + "/Predict",
	inference.PredictStream: "/" + predictName + "/PredictStream",
	inference.KServe:        "/" + kserveName + "/ModelInfer",
	inference.KServeStream:  "/" + kserveName + "/ModelStreamInfer",
}

// unary handles Predict and ModelInfer: the whole path of a call can be read here. gRPC reads the message of a unary method
// before it calls anybody, whoever sent it, so to gRPC these are streams of one message each way, which is the same on the wire.
func (f *Front) unary(protocol inference.Protocol) grpc.StreamHandler {
	method := methods[protocol]
	peek := peekOf(protocol)
	return func(_ any, ss grpc.ServerStream) error {
		growStack(-1)
		ctx := ss.Context()
		o := &oneMessage{peek: peek}
		o.init(ctx, f, ss)
		defer o.hold.Free()
		c := &o.call
		f.begin(ctx, c, protocol)
		c.Method, c.Source = method, o
		err := f.opts.Pipeline.Do(ctx, c)
		c.Request.Free()
		sendHeader(ctx, c)
		if err != nil {
			c.Answer.Free()
			return toStatus(err)
		}
		f.holdAnswer(ctx, &c.Answer)
		o.hold.Free()
		return ss.SendMsg(wire.Give{Frame: &c.Answer})
	}
}

// oneMessage is a unary call and where its message comes from, in one allocation.
type oneMessage struct {
	call inference.Call
	reader
	hold room.Hold
	peek func(inference.Frame) (inference.Head, error)
}

// Read implements inference.Source.
func (o *oneMessage) Read(c *inference.Call) (err error) {
	if err := o.receive(c, &o.hold); err != nil {
		return err
	}
	c.Head, err = o.peek(c.Request)
	return err
}

// receive reads the one message of a unary call.
func (r *reader) receive(c *inference.Call, hold *room.Hold) error {
	err := r.read(r.stream.Context(), &c.Request, hold)
	if errors.Is(err, io.EOF) {
		return fault.New(fault.InvalidArgument, "the call has no message; send one")
	}
	if err == nil {
		c.Start = time.Now()
	}
	return err
}

func peekOf(p inference.Protocol) func(inference.Frame) (inference.Head, error) {
	if p.SpeaksPredict() {
		return wire.PeekPredict
	}
	return wire.PeekInfer
}

// newCall starts a call with what gRPC knows of it.
func (f *Front) newCall(ctx context.Context, protocol inference.Protocol) *inference.Call {
	c := new(inference.Call)
	f.begin(ctx, c, protocol)
	return c
}

func (f *Front) begin(ctx context.Context, c *inference.Call, protocol inference.Protocol) {
	c.Protocol, c.Start = protocol, time.Now()
	c.Incoming, _ = ctx.Value(metadataKey{}).(metadata.MD)
	if p, ok := peer.FromContext(ctx); ok {
		c.Peer = p.Addr
		if info, ok := p.AuthInfo.(*linked); ok {
			c.TLS = info.tls
		}
	}
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

// readFault turns an error of reading a message into a fault; io.EOF stays what it is.
func (f *Front) readFault(err error) error {
	if err == io.EOF { //nolint:errorlint // gRPC's streams end with it as it is
		return err
	}
	s, ok := status.FromError(err)
	if !ok {
		return fault.Wrap(fault.InvalidArgument, err, "the request could not be read")
	}
	switch s.Code() {
	case codes.ResourceExhausted:
		return f.tooLarge(err)
	case codes.Canceled, codes.DeadlineExceeded:
		return &fault.Fault{Kind: fault.Cancelled, Msg: "the caller went away while its request was being read", Cause: err}
	}
	return fault.Wrap(fault.InvalidArgument, err, "the request could not be read: %s", s.Message())
}

func (f *Front) tooLarge(err error) error {
	return fault.Wrap(fault.TooLarge, err, "the message is larger than the %d bytes accepted here; send smaller batches, or ask the operator to raise listen.max_message", f.opts.MaxMessage)
}
