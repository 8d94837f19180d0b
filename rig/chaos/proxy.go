package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// wire is a TCP connection to a server that can be made bad: Toxiproxy in this process.
type wire struct {
	address string
	p       *toxiproxy.Proxy
}

func newWire(name, upstream string) (*wire, error) {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := toxiproxy.NewProxy(server, name, "127.0.0.1:0", upstream)
	if err := p.Start(); err != nil {
		return nil, err
	}
	return &wire{address: p.Listen, p: p}, nil
}

// poison makes the connections bad as Toxiproxy's JSON says, those that are there and those to come.
func (w *wire) poison(ctx context.Context, toxic string) (heal func(), err error) {
	t, err := w.p.Toxics.AddToxicJson(strings.NewReader(toxic))
	if err != nil {
		return nil, err
	}
	return func() { _ = w.p.Toxics.RemoveToxic(ctx, t.Name) }, nil
}

func (w *wire) close() { w.p.Stop() }

// relay is a gRPC server that passes everything on, to count what arrives and to do what Triton itself would be hard to
// bring to: closing connections with GOAWAY all the time, failing by chance.
type relay struct {
	address string
	failing atomic.Uint32 // calls in 1000 that are answered INTERNAL
	server  *grpc.Server
	conn    *grpc.ClientConn
}

// newRelay begins one before upstream. A connection that gets older than age gets a GOAWAY; 0: none does.
func newRelay(upstream string, age time.Duration) (*relay, error) {
	conn, err := grpc.NewClient(upstream, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{}), grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{address: l.Addr().String(), conn: conn}
	r.server = grpc.NewServer(grpc.UnknownServiceHandler(r.handle), grpc.ForceServerCodecV2(raw{}), grpc.MaxRecvMsgSize(64<<20),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: age, MaxConnectionAgeGrace: 10 * time.Second}))
	go func() { _ = r.server.Serve(l) }()
	return r, nil
}

func (r *relay) close() {
	r.server.Stop()
	_ = r.conn.Close()
}

func (r *relay) handle(_ any, down grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(down)
	if n := r.failing.Load(); n > 0 && method == "/inference.GRPCInferenceService/ModelInfer" && rand.Uint32N(1000) < n {
		return status.Error(codes.Internal, "chosen by chance")
	}
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	md, _ := metadata.FromIncomingContext(ctx)
	up, err := r.conn.NewStream(metadata.NewOutgoingContext(ctx, md), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	go func() {
		for {
			var m message
			if err := down.RecvMsg(&m); err != nil {
				if errors.Is(err, io.EOF) {
					_ = up.CloseSend() // its end is seen below
				}
				return
			}
			if up.SendMsg(&m) != nil {
				return
			}
		}
	}()
	for {
		var m message
		if err := up.RecvMsg(&m); err != nil {
			down.SetTrailer(up.Trailer())
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := down.SendMsg(&m); err != nil {
			return err
		}
	}
}

// message is a message nobody looks into.
type message []byte

// raw passes messages on as they are.
type raw struct{}

var _ encoding.CodecV2 = raw{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	m, isMessage := v.(*message)
	if !isMessage {
		return nil, fmt.Errorf("%T is no message", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*m)}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	m, isMessage := v.(*message)
	if !isMessage {
		return fmt.Errorf("%T is no message", v)
	}
	*m = data.Materialize()
	return nil
}
