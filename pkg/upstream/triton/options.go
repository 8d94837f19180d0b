package triton

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Bounds and defaults.
const (
	DefaultMaxMessage       = 64 << 20 // bytes
	DefaultKeepalive        = 310 * time.Second
	DefaultKeepaliveTimeout = 10 * time.Second

	minKeepalive   = 10 * time.Second // grpc-go pings no more often
	maxEndpoints   = 1024             // of one upstream; more addresses than that are a mistake
	streamsPerConn = 100              // open streams on a connection before another one is made
	maxConns       = 64               // connections to one endpoint
	rewriteSlack   = 64 << 10         // bytes that fields appended to a request may take beyond MaxMessage
)

// Options say what an upstream is made of.
type Options struct {
	// Name is the upstream's name in the configuration; it stands in metrics, errors and targets.
	Name string
	// Endpoints are host:port addresses, or exactly one "dns:///host:port", whose addresses are looked up again and
	// again; "dns://server:port/host:port" asks that server.
	Endpoints []string
	// Resolver, when set, finds the addresses instead of Endpoints.
	Resolver Resolver
	// Metrics is the URL of an endpoint's own metrics, with {host} in place of its host, for calls that are placed by how many
	// requests wait there; "" when there are none. It is read only while there are such calls.
	Metrics string
	// MaxMessage is the largest message in bytes, in either direction. 0 means DefaultMaxMessage.
	MaxMessage int
	// Keepalive is how long a connection may be silent before it is pinged, while calls are on it. Triton's defaults close
	// connections that are pinged more often than every 300 s. 0 means DefaultKeepalive.
	Keepalive time.Duration
	// KeepaliveTimeout is how long a ping may go unanswered before the connection is taken to be dead. 0 means
	// DefaultKeepaliveTimeout.
	KeepaliveTimeout time.Duration
	// Eject takes endpoints out that keep failing.
	Eject Eject
	// MaxInFlight is how many calls may be under way at each endpoint at once; 0 means any number. It can be changed while
	// calls are.
	MaxInFlight int
	// Credentials of connections; nil is plaintext.
	Credentials credentials.TransportCredentials
	// Headers are added to every RPC: calls, streams, probes, questions and control. Names are in lower case. They can be
	// changed without new connections.
	Headers map[string]string
	// Version of the gateway, for the user agent.
	Version string
	// Logger gets what operators should know; nil drops it.
	Logger *slog.Logger
	// Health watches the endpoints. nil: nobody does, and all of them are taken to serve everything.
	Health Health

	// Dial replaces the network, for tests.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Lookup replaces name resolution, for tests. It returns IP addresses.
	Lookup func(ctx context.Context, host string) ([]string, error)
	// buffers is where received bytes are put, for tests that count them.
	buffers mem.BufferPool
}

// Health knows which endpoint can serve what. pkg/health has the implementation.
type Health interface {
	// Begin starts watching. wanted lists the versions of models worth probing; changed is called, from one goroutine at a
	// time, with the name of a model whose readiness has changed, and with "" when an endpoint went out or came back.
	Begin(wanted func(yield func(model, version string) bool), changed func(model string))
	// SetEndpoints replaces the endpoints that are watched; what is known of those that stay is kept.
	// Errors of the connections are faults.
	SetEndpoints(conns map[string]grpc.ClientConnInterface)
	// State of one version of a model on one endpoint; NotReady too when the endpoint is out.
	State(endpoint, model, version string) inference.Readiness
	// Up reports whether the endpoint has answered and still does.
	Up(endpoint string) bool
	// Versions of a model that are known from any endpoint, in order of number.
	Versions(model string) []inference.VersionState
	// Listed reports whether any endpoint lists the model in its repository.
	Listed(model string) bool
	// Kick has a version of a model probed at once.
	Kick(model, version string)
	// Refresh has the repository index read again at once.
	Refresh()
	// Out reports whether the endpoint is out for all models, and if so, whether it is so because it does not answer.
	Out(endpoint string) (out, silent bool)
	// Draining reports whether the endpoint is out because it said that it is stopping.
	Draining(endpoint string) bool
	// Refused is told of a connection that was refused: the endpoint is out at once.
	Refused(endpoint string, why error)
	// Leaving is told of an endpoint that says it is stopping: it is out at once.
	Leaving(endpoint string, why error)
	// Doubt is told of a connection that broke: the endpoint is asked at once whether it lives.
	Doubt(endpoint string)
	// NotReady is told of a call that found a version of a model not ready on an endpoint: it leaves that pool at once.
	NotReady(endpoint, model, version string)
	// Close stops watching and waits for what is under way. It may be called again.
	Close()
}

// complete fills in defaults, or says what is wrong.
func (o Options) complete() (Options, error) {
	if o.Name == "" {
		return o, fmt.Errorf("an upstream needs a name")
	}
	if o.MaxMessage == 0 {
		o.MaxMessage = DefaultMaxMessage
	}
	if o.MaxMessage < 0 {
		return o, fmt.Errorf("upstream %s: the largest message is %d bytes; give a positive number", o.Name, o.MaxMessage)
	}
	if o.Keepalive == 0 {
		o.Keepalive = DefaultKeepalive
	}
	if o.KeepaliveTimeout == 0 {
		o.KeepaliveTimeout = DefaultKeepaliveTimeout
	}
	if o.KeepaliveTimeout < 0 {
		return o, fmt.Errorf("upstream %s: a keepalive timeout of %s ends every connection; give a positive one", o.Name, o.KeepaliveTimeout)
	}
	if o.Keepalive < minKeepalive {
		return o, fmt.Errorf("upstream %s: keepalive every %s is too often; give at least %s", o.Name, o.Keepalive, minKeepalive)
	}
	if o.MaxInFlight < 0 {
		return o, fmt.Errorf("upstream %s: %d calls at once are none; give at least 1, or 0 for any number", o.Name, o.MaxInFlight)
	}
	o.Eject = o.Eject.complete()
	if err := checkHeaders(o.Headers); err != nil {
		return o, fmt.Errorf("upstream %s: %w", o.Name, err)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Resolver == nil {
		r, err := resolverFor(o.Endpoints, o.Lookup, o.Logger.With("upstream", o.Name))
		if err != nil {
			return o, fmt.Errorf("upstream %s: %w", o.Name, err)
		}
		o.Resolver = r
	}
	return o, nil
}

// serverName is what TLS expects of the addresses that a name was resolved to: that name, as certificates have names
// and seldom addresses. "" leaves it to the credentials, or to the endpoint's own name.
func (o Options) serverName() string {
	//nolint:staticcheck // nothing else tells whether the credentials have a name of their own, with which grpc-go takes no other
	if o.Credentials == nil || o.Credentials.Info().ServerName != "" {
		return ""
	}
	if r, ok := o.Resolver.(interface{ ServerName() string }); ok {
		return r.ServerName()
	}
	if len(o.Endpoints) == 0 {
		return ""
	}
	rest, ok := strings.CutPrefix(o.Endpoints[0], dnsScheme)
	if !ok {
		return ""
	}
	_, name, _ := strings.Cut(rest, "/")
	return name
}

// sameConnections reports whether connections made under o are good under p as well.
func (o Options) sameConnections(p Options) bool {
	return o.MaxMessage == p.MaxMessage && o.Keepalive == p.Keepalive && o.KeepaliveTimeout == p.KeepaliveTimeout && o.Credentials == p.Credentials && o.Version == p.Version
}
