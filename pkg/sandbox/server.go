// Package sandbox is a model server in Go that speaks Triton's gRPC protocol: it loads a Triton model repository, really
// computes, batches, keeps sequences and answers good and bad requests with the codes and words of a real server
// (measured on 2.51). `gateway sandbox` runs it, and the tests use it as their fake: it plays faults on request
// (Faults) and remembers what it was sent (Seen). It is made for trust in tests, not for production.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"regexp"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/model-gateway/model-gateway/pkg/sandbox/repository"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// Options say what a Server serves.
type Options struct {
	// Models is the model repository: one folder per model at its root.
	Models fs.FS
	// Load names the models to load at the start; nil loads all. A model that does not load is logged and stays
	// UNAVAILABLE with the reason in the repository index; New fails only where Models cannot be read at all.
	Load []string
	// NoControl refuses load and unload, as a server in polling mode does.
	NoControl bool
	// LaxReadiness keeps ServerReady true while models load or when one has failed.
	LaxReadiness bool
	// MinPing is how often clients may ping; 0 is the real server's 5 minutes.
	MinPing time.Duration
	// ForwardHeaders is a pattern of metadata names, matched whole, that models get to see as parameters; "" is none.
	ForwardHeaders string
	// Logger gets loads, unloads and faults; nil logs nothing.
	Logger *slog.Logger
}

// Server is a running model server. Make it with New, let it listen with Serve, end it with Stop.
type Server struct {
	Faults *Faults

	tritonpb.UnimplementedGRPCInferenceServiceServer
	grpc_health_v1.UnimplementedHealthServer

	options  Options
	log      *slog.Logger
	models   *registry
	settings *settings
	headers  *regexp.Regexp // of Options.ForwardHeaders; nil forwards none
	seen     *seen
	conns    *conns
	grpc     *grpc.Server
	stop     sync.Once
	life     context.Context // ends with Stop
	end      context.CancelFunc
}

// maxHeaders is how large the headers of a call may be, each entry counted with 32 bytes more, as HTTP/2 counts them.
const maxHeaders = 16 << 10

// New makes a server and loads its models.
func New(o Options) (*Server, error) {
	if o.Models == nil {
		return nil, errors.New("sandbox: Options.Models is missing: it is the model repository to serve")
	}
	headers, err := headerPattern(o.ForwardHeaders)
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	s := &Server{options: o, headers: headers, log: o.Logger, settings: newSettings(), seen: newSeen()}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.conns = newConns()
	s.Faults = newFaults(s.conns, s.log)
	s.models = newRegistry(repository.New(o.Models), s.Faults, s.log)
	if err := s.models.start(s.life, o.Load); err != nil {
		s.end()
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	s.grpc = s.newGRPC()
	return s, nil
}

func (s *Server) newGRPC() *grpc.Server {
	minPing := s.options.MinPing
	if minPing == 0 {
		minPing = 5 * time.Minute
	}
	g := grpc.NewServer(
		grpc.MaxRecvMsgSize(math.MaxInt32), grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxHeaderListSize(1<<20), // larger than what is allowed, so that headers that are too large are answered in the server's words
		grpc.InTapHandle(refuseHeaders),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: s.options.MinPing != 0}),
		grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return status.Error(codes.Unimplemented, "") }),
		grpc.ChainUnaryInterceptor(s.aroundUnary), grpc.ChainStreamInterceptor(s.aroundStream),
		grpc.WaitForHandlers(true),
	)
	desc := tolerant(tritonpb.GRPCInferenceService_ServiceDesc)
	g.RegisterService(&desc, s)
	health := grpc_health_v1.Health_ServiceDesc
	health.Streams = nil // a real server has no Watch
	g.RegisterService(&health, s)
	return g
}

func refuseHeaders(ctx context.Context, info *tap.Info) (context.Context, error) {
	size := headerSize(info.Header) + len(":path") + len(info.FullMethodName) + 32
	if size > maxHeaders {
		return nil, status.Errorf(codes.ResourceExhausted, "received metadata size exceeds hard limit (%d vs. %d)", size, maxHeaders)
	}
	return ctx, nil
}

func headerSize(md metadata.MD) int {
	n := 0
	for k, vs := range md {
		for _, v := range vs {
			n += len(k) + len(v) + 32
		}
	}
	return n
}

// Serve answers on lis until Stop, and closes it. It returns nil after Stop. Several listeners may be served at once.
func (s *Server) Serve(lis net.Listener) error {
	l := s.conns.listener(lis)
	if l == nil {
		return lis.Close() // stopped already
	}
	if err := s.grpc.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("sandbox: %w", err)
	}
	return nil
}

// Stop ends the server at once: connections are closed, running models see their callers gone, and all goroutines have ended
// when it returns.
func (s *Server) Stop() {
	s.stop.Do(func() {
		s.end()
		s.Faults.Clear()
		s.conns.close()
		s.grpc.Stop()
		s.models.close()
	})
}

// aroundUnary counts a call and plays the faults that are set for its method.
func (s *Server) aroundUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	method := methodName(info.FullMethod)
	s.seen.rpc(method)
	if method == "ModelInfer" {
		return handler(ctx, req) // plays its own
	}
	model := ""
	if m, ok := req.(interface{ GetName() string }); ok {
		model = m.GetName()
	} else if m, ok := req.(interface{ GetModelName() string }); ok {
		model = m.GetModelName()
	}
	if err := s.Faults.play(ctx, event{method: method, model: model}); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

func (s *Server) aroundStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	s.seen.rpc(methodName(info.FullMethod))
	return handler(srv, stream)
}

func methodName(full string) string { return full[strings.LastIndexByte(full, '/')+1:] }
