package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/model-gateway/model-gateway/pkg/internal/socket"
)

// Mode says what is at the addresses.
type Mode uint8

// The modes.
const (
	Standalone Mode = iota // one Redis
	Sentinel               // the sentinels of one Redis and its replicas
	Cluster                // some nodes of a Redis Cluster
)

// Options say where Redis is and how long it may take. Redis 6.2 or later.
type Options struct {
	Mode Mode
	// Addresses are host:port, or of a Standalone also unix:///path of a socket, or the path alone.
	Addresses []string
	// Master is the name that the sentinels have for it; Sentinel only.
	Master string
	// Prefix comes before every key, with a colon between; no braces. "" stands for DefaultPrefix.
	Prefix string
	// Credentials of a user of Redis, asked for whenever a connection is made, so that a changed password needs no
	// restart. nil stands for none; an empty user for the default one. The user needs the keys ~<prefix>:* and the
	// commands eval, evalsha, time, mget, set, zadd, zrem, zremrangebyscore, zcard and pexpire; for Overrides also exists,
	// hget, hset, hsetnx, hdel, hincrby and hkeys; in a cluster also cluster|slots.
	Credentials func() (user, password string)
	// SentinelCredentials are those for the sentinels themselves; nil stands for none.
	SentinelCredentials func() (user, password string)
	TLS                 *tls.Config // nil: none
	// Timeout bounds each call, whatever it waits for: a connection, Redis, the network. 0 stands for DefaultTimeout.
	Timeout time.Duration
	// Connections bounds how many there are to each Redis; 0 stands for ten for each processor.
	Connections int
}

// The defaults.
const (
	DefaultPrefix  = "model-gateway"
	DefaultTimeout = 20 * time.Millisecond
)

const (
	// dialTimeout bounds making a connection where a call has less. It may be longer than a call waits: what one call began
	// the next one uses.
	dialTimeout = 250 * time.Millisecond
	// stateInterval is how often the view of a cluster is renewed, and with that how soon a failover is seen that no
	// node tells of.
	stateInterval = 2 * time.Second
	redirects     = 3
	// bufferSize, in bytes, each for reading and writing of each connection: what is said here is short.
	bufferSize = 4 << 10
)

func (o *Options) check() error {
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	o.Addresses = slices.Clone(o.Addresses) // the library appends to them what it discovers
	switch {
	case len(o.Addresses) == 0:
		return errors.New("redis: no address; name one, as host:port")
	case o.Mode == Standalone && len(o.Addresses) > 1:
		return fmt.Errorf("redis: %d addresses of a standalone Redis; name one, or set the mode to sentinel or cluster", len(o.Addresses))
	case o.Mode == Sentinel && o.Master == "":
		return errors.New("redis: sentinels without the name of the master; set master as the sentinels have it")
	case strings.ContainsAny(o.Prefix, "{}"):
		return fmt.Errorf("redis: the prefix %q has braces, which would put all keys into one slot; leave them out", o.Prefix)
	case o.Timeout < 0:
		return fmt.Errorf("redis: a timeout of %v; it is more than 0", o.Timeout)
	case o.Connections < 0:
		return fmt.Errorf("redis: %d connections; it is 0 for the default, or more", o.Connections)
	}
	return nil
}

func (o *Options) client() goredis.UniversalClient {
	quietLibrary()
	switch o.Mode {
	case Sentinel:
		return goredis.NewFailoverClient(o.failover())
	case Cluster:
		return goredis.NewClusterClient(o.cluster())
	default:
		return goredis.NewClient(o.standalone())
	}
}

// connections: as many as calls may be under way at one Redis; the others wait for their turn within their budget.
func (o *Options) connections() int {
	if o.Connections > 0 {
		return o.Connections
	}
	return 10 * runtime.GOMAXPROCS(0)
}

func (o *Options) dialTimeout() time.Duration { return max(dialTimeout, o.Timeout) }

func credentials(f func() (user, password string)) func(context.Context) (string, string, error) {
	if f == nil {
		return nil
	}
	return func(context.Context) (string, string, error) {
		user, password := f()
		return user, password, nil
	}
}

// dial makes a connection, as the library would, and has it read and written without a word to the scheduler.
func (o *Options) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, o.dialTimeout())
	defer cancel()
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}}
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if c = socket.Quick(c); o.TLS == nil {
		return check(c), nil
	}
	config := o.TLS
	if config.ServerName == "" && network != "unix" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			host = address
		}
		config = config.Clone()
		config.ServerName = host
	}
	t := tls.Client(c, config)
	if err := t.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return t, nil
}

// Of the three that follow: -1 retries is none; the library would by default take seconds to give up on a dead Redis.
// The pipeline pool is a second set of connections that nothing here uses.

func (o *Options) standalone() *goredis.Options {
	return &goredis.Options{
		Addr:                       strings.TrimPrefix(o.Addresses[0], "unix://"), // the library knows a path by its slash
		CredentialsProviderContext: credentials(o.Credentials), TLSConfig: o.TLS, Dialer: o.dial,
		Protocol: 2, DisableIdentity: true, MaintNotificationsConfig: noNotifications(),
		MaxRetries: -1, DialerRetries: 1, DialTimeout: o.dialTimeout(), ReadTimeout: o.Timeout, WriteTimeout: o.Timeout,
		ContextTimeoutEnabled: true, PoolTimeout: o.Timeout, PoolSize: o.connections(), PipelinePoolSize: -1,
		ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
	}
}

func (o *Options) failover() *goredis.FailoverOptions {
	f := &goredis.FailoverOptions{
		MasterName: o.Master, SentinelAddrs: o.Addresses,
		CredentialsProviderContext: credentials(o.Credentials), TLSConfig: o.TLS, Dialer: o.dial,
		Protocol: 2, DisableIdentity: true,
		MaxRetries: -1, DialerRetries: 1, DialTimeout: o.dialTimeout(), ReadTimeout: o.Timeout, WriteTimeout: o.Timeout,
		ContextTimeoutEnabled: true, PoolTimeout: o.Timeout, PoolSize: o.connections(), PipelinePoolSize: -1,
		ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
	}
	if o.SentinelCredentials != nil {
		f.SentinelUsername, f.SentinelPassword = o.SentinelCredentials()
	}
	return f
}

func (o *Options) cluster() *goredis.ClusterOptions {
	return &goredis.ClusterOptions{
		Addrs: o.Addresses, CredentialsProviderContext: credentials(o.Credentials), TLSConfig: o.TLS, Dialer: o.dial,
		Protocol: 2, DisableIdentity: true, MaintNotificationsConfig: noNotifications(),
		MaxRetries: -1, MinRetryBackoff: -1, MaxRetryBackoff: -1, MaxRedirects: redirects, DialerRetries: 1,
		DialTimeout: o.dialTimeout(), ReadTimeout: o.Timeout, WriteTimeout: o.Timeout,
		ContextTimeoutEnabled: true, PoolTimeout: o.Timeout, PoolSize: o.connections(), PipelinePoolSize: -1,
		ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
		ClusterStateReloadInterval: stateInterval, DisableRoutingPolicies: true,
	}
}

func noNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}
