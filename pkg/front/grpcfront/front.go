// Package grpcfront is the gateway's gRPC server: ml.inference.InferenceService, inference.GRPCInferenceService, health
// and reflection. It reads messages as frames, peeks the few fields that decide, hands calls to the pipeline and
// renders answers and faults. Tensor bytes pass through it by reference.
package grpcfront

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // clients may send compressed messages
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/room"
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
	MaxMessage int        // bytes of one message, either way
	Room       *room.Room // for messages; nil: there is always room
	Log        *slog.Logger
	// MaxAge is how long a connection is used, give or take a tenth: then its client is told to make another one, so that
	// clients spread over gateways that came later. Calls under way finish; a stream ends with a status once it is ten minutes
	// older than MaxAge. 0 is for ever.
	MaxAge time.Duration
	// Handshake is how long a new connection may take to say what HTTP/2 begins with; 0 is 3 s. A drain waits for those.
	Handshake time.Duration
	// PingIdle is how long a connection may be silent before it is pinged, and PingTimeout how long until it has to have
	// answered; 0 is 2 min and 20 s. So clients that have vanished are found, and those that never end what they began.
	PingIdle, PingTimeout time.Duration
}

const (
	streamWindow     = 256 << 10
	connectionWindow = 1 << 20
	maxStreams       = 1000
	// Metadata of a call. gRPC ends the whole connection, other calls included, when its own limit is passed, so that one
	// is far away and this one is ours.
	maxHeaderBytes = 16 << 10
	maxHeaderList  = 1 << 20
	handshake      = 3 * time.Second
	// Clients may ping every 10 s, also while nothing is under way; twice as often is still forgiven.
	minPing               = 5 * time.Second
	pingIdle, pingTimeout = 2 * time.Minute, 20 * time.Second
)

// Front is the gRPC server.
type Front struct {
	opts   Options
	server *grpc.Server
	health *health.Server
	// serving ends when the front drains: streams have to leave. cutting ends when they may no longer wait for answers.
	serving, cutting context.Context //nolint:containedctx // lives, not calls
	drain, cut       context.CancelFunc
	readTimeout      time.Duration // of large messages
	answerTimeout    time.Duration // of large answers
}

// New makes a Front that is not serving yet.
func New(opts Options) *Front {
	opts.Handshake = cmp.Or(opts.Handshake, handshake)
	f := &Front{opts: opts, readTimeout: readTimeout, answerTimeout: answerTimeout, health: health.NewServer()}
	f.serving, f.drain = context.WithCancel(context.Background())
	f.cutting, f.cut = context.WithCancel(context.Background())
	f.server = grpc.NewServer(
		grpc.ForceServerCodecV2(wire.Codec{}), grpc.Creds(handshaken{insecure.NewCredentials(), f}),
		grpc.MaxRecvMsgSize(opts.MaxMessage), grpc.MaxSendMsgSize(opts.MaxMessage+sendSlack),
		grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(connectionWindow),
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeaderList),
		grpc.StreamInterceptor(f.endless), grpc.ConnectionTimeout(opts.Handshake), grpc.NumStreamWorkers(streamWorkers()), grpc.InTapHandle(f.tap),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(opts.keepalive()),
	)
	f.server.RegisterService(f.predictService(), nil)
	f.server.RegisterService(f.kserveService(), nil)
	healthpb.RegisterHealthServer(f.server, f.health)
	reflection.Register(f.server)
	f.SetServing(false)
	return f
}

// keepalive is how connections are kept, and how long.
func (o Options) keepalive() keepalive.ServerParameters {
	p := keepalive.ServerParameters{Time: cmp.Or(o.PingIdle, pingIdle), Timeout: cmp.Or(o.PingTimeout, pingTimeout)}
	if o.MaxAge > 0 {
		// By its grace every stream has been told to end; what is left then takes no answers.
		p.MaxConnectionAge, p.MaxConnectionAgeGrace = o.MaxAge, o.MaxAge+streamGrace+time.Minute
	}
	return p
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
