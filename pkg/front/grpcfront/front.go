// Package grpcfront is the gateway's gRPC server: ml.inference.InferenceService, inference.GRPCInferenceService, health
// and reflection. It reads messages as frames, peeks the few fields that decide, hands calls to the pipeline and
// renders answers and faults. Tensor bytes pass through it by reference.
package grpcfront

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // clients may send compressed messages
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/wire"
)

// Pipeline takes calls through the stages.
type Pipeline interface {
	// Do answers a unary call.
	Do(ctx context.Context, c *inference.Call) error
	// Open runs body, which serves a client stream, inside the stages that see a stream once.
	Open(ctx context.Context, c *inference.Call, body inference.Handler) error
	// Message answers one message of a stream.
	Message(ctx context.Context, c *inference.Call) error
	// Refuse ends a call that could not even be read, so that it is counted and has its ids.
	Refuse(ctx context.Context, c *inference.Call, err error) error
}

// Control answers questions about servers and models and does what changes them. method is a method
// of inference.GRPCInferenceService by its short name.
type Control interface {
	Do(ctx context.Context, c *inference.Call, method string, request proto.Message) (proto.Message, error)
}

// Options of a Front.
type Options struct {
	Pipeline   Pipeline
	Control    Control
	MaxMessage int // bytes of one message, either way
	Log        *slog.Logger
}

const (
	streamWindow     = 256 << 10
	connectionWindow = 1 << 20
	maxStreams       = 1000
	// Metadata of a call. gRPC ends the whole connection, other calls included, when its own limit is passed, so that one
	// is far away and this one is ours.
	maxHeaderBytes = 16 << 10
	maxHeaderList  = 1 << 20
	handshake      = 10 * time.Second
	// Clients may ping every 10 s, also while nothing is under way; twice as often is still forgiven.
	minPing = 5 * time.Second
	// Half-open connections of clients that vanished are found by the server's own pings.
	pingIdle, pingTimeout = 2 * time.Minute, 20 * time.Second
)

// Front is the gRPC server.
type Front struct {
	opts   Options
	server *grpc.Server
	health *health.Server
	// serving ends when the front drains, and with it the streams of services that have no end of their own.
	serving context.Context //nolint:containedctx // a life, not a call
	drain   context.CancelFunc
}

// New makes a Front that is not serving yet.
func New(opts Options) *Front {
	f := &Front{opts: opts, health: health.NewServer()}
	f.serving, f.drain = context.WithCancel(context.Background())
	f.server = grpc.NewServer(
		grpc.ForceServerCodecV2(wire.Codec{}), grpc.Creds(handshaken{insecure.NewCredentials()}),
		grpc.MaxRecvMsgSize(opts.MaxMessage), grpc.MaxSendMsgSize(opts.MaxMessage+sendSlack),
		grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(connectionWindow),
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeaderList),
		grpc.StreamInterceptor(f.endless), grpc.ConnectionTimeout(handshake), grpc.NumStreamWorkers(streamWorkers()), grpc.InTapHandle(f.tap),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingIdle, Timeout: pingTimeout}),
	)
	f.server.RegisterService(f.predictService(), nil)
	f.server.RegisterService(f.kserveService(), nil)
	healthpb.RegisterHealthServer(f.server, f.health)
	reflection.Register(f.server)
	f.SetServing(false)
	return f
}

// sendSlack lets an answer that the upstream's own cap let through out again, with what we put around it.
const sendSlack = 64 << 10

// Serve serves until Drain or Stop.
func (f *Front) Serve(l net.Listener) error { return f.server.Serve(l) }

// SetServing sets what grpc.health.v1 says, of the server and of each service.
func (f *Front) SetServing(serving bool) {
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if serving {
		status = healthpb.HealthCheckResponse_SERVING
	}
	for _, service := range []string{"", predictName, kserveName} {
		f.health.SetServingStatus(service, status)
	}
}

// endless ends streams of health and reflection when the front drains: a client that watches health would hold up
// the drain for as long as it may last.
func (f *Front) endless(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if !strings.HasPrefix(info.FullMethod, "/grpc.") {
		return handler(srv, ss)
	}
	ctx, cancel := context.WithCancel(ss.Context())
	defer cancel()
	defer context.AfterFunc(f.serving, cancel)()
	err := handler(srv, endingStream{ss, ctx})
	if f.serving.Err() != nil {
		return toStatus(fault.New(fault.ShuttingDown, "the gateway drains; connect anew"))
	}
	return err
}

// endingStream is a stream with a context of its own.
type endingStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // what the interface asks for
}

func (s endingStream) Context() context.Context { return s.ctx }

// Drain tells all clients to go away, lets calls under way finish, and returns when they have or ctx ends; what is
// left then is cut, and false is returned.
func (f *Front) Drain(ctx context.Context) (finished bool) {
	f.drain()
	done := make(chan struct{})
	go func() { f.server.GracefulStop(); close(done) }()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		f.server.Stop()
		<-done
		return false
	}
}
