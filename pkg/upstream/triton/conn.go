package triton

import (
	"context"
	"math"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"

	"github.com/model-gateway/model-gateway/pkg/internal/socket"
	"github.com/model-gateway/model-gateway/pkg/wire"
)

const (
	streamWindow   = 1 << 20  // bytes; static, so that no pings are sent to estimate them
	connWindow     = 16 << 20 // bytes
	connectTimeout = 3 * time.Second
)

// reconnect: an endpoint that is back is reached within a second.
var reconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
	MinConnectTimeout: connectTimeout,
}

// conn is one connection. open counts the streams on it, so that it can be left alone when it is full
// and closed once the last one has ended.
type conn struct {
	cc      *grpc.ClientConn
	open    atomic.Int32
	retired atomic.Bool
	ended   chan struct{} // closed when a retired conn is closed
	// sequences says that it carries steps of sequences only, and nothing else does.
	sequences bool
}

// closed is what open becomes when a retired conn is closed; far enough below zero that late
// acquires do not bring it back.
const closed = math.MinInt32 / 2

func dial(o *Options, address string) (*conn, error) {
	creds := o.Credentials
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(quick{creds}),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithDisableHealthCheck(),
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connWindow),
		grpc.WithConnectParams(reconnect),
		grpc.WithIdleTimeout(0),
		grpc.WithUserAgent("model-gateway/" + o.Version),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: o.Keepalive, Timeout: o.KeepaliveTimeout}),
		grpc.WithDefaultCallOptions(
			grpc.ForceCodecV2(wire.Codec{}),
			grpc.MaxCallRecvMsgSize(o.MaxMessage),
			grpc.MaxCallSendMsgSize(o.MaxMessage+rewriteSlack),
		),
	}
	if o.Dial != nil {
		opts = append(opts, grpc.WithContextDialer(func(ctx context.Context, a string) (net.Conn, error) { return o.Dial(ctx, a) }))
	}
	if name := o.serverName(); name != "" {
		opts = append(opts, grpc.WithAuthority(name))
	}
	if o.buffers != nil {
		opts = append(opts, experimental.WithBufferPool(o.buffers))
	}
	cc, err := grpc.NewClient("passthrough:///"+address, opts...)
	if err != nil {
		return nil, err
	}
	cc.Connect()
	return &conn{cc: cc, ended: make(chan struct{})}, nil
}

// quick are credentials whose connections are read and written without a word to the scheduler. gRPC has set up the
// connection by the time it asks for the handshake.
type quick struct {
	credentials.TransportCredentials
}

// ClientHandshake implements credentials.TransportCredentials.
func (q quick) ClientHandshake(ctx context.Context, authority string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return q.TransportCredentials.ClientHandshake(ctx, authority, socket.Quick(c))
}

// Clone implements credentials.TransportCredentials.
func (q quick) Clone() credentials.TransportCredentials { return quick{q.TransportCredentials.Clone()} }

// acquire takes a place for one stream, if fewer than limit are taken.
func (c *conn) acquire(limit int32) bool {
	if n := c.open.Add(1); n > 0 && n <= limit {
		return true
	}
	c.release()
	return false
}

func (c *conn) release() {
	if c.open.Add(-1) == 0 && c.retired.Load() {
		c.closeIfUnused()
	}
}

// retire closes c when the last stream on it has ended.
func (c *conn) retire() {
	c.retired.Store(true)
	c.closeIfUnused()
}

func (c *conn) closeIfUnused() {
	if c.open.CompareAndSwap(0, closed) {
		_ = c.cc.Close()
		close(c.ended)
	}
}

// cut ends all that is on c, and c with it.
func (c *conn) cut() {
	c.retired.Store(true)
	_ = c.cc.Close()
	c.closeIfUnused()
}

// inUse reports whether the server at the other end has taken c and has not taken leave since.
func (c *conn) inUse() bool { return c.cc.GetState() == connectivity.Ready }

// renewWait is how long a question waits for a connection that could not be made to be tried again, before it is answered
// by why it could not.
const renewWait = 250 * time.Millisecond

// renew has c look at once for a server that could not be reached before, and waits a moment for what comes of it.
func (c *conn) renew(ctx context.Context) {
	if c.cc.GetState() != connectivity.TransientFailure {
		return
	}
	c.cc.ResetConnectBackoff()
	ctx, cancel := context.WithTimeout(ctx, renewWait) // the state shows success alone: until then it stays what it is
	defer cancel()
	c.cc.WaitForStateChange(ctx, connectivity.TransientFailure)
}
