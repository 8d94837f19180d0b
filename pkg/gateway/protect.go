package gateway

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/model-gateway/model-gateway/pkg/access"
	"github.com/model-gateway/model-gateway/pkg/callers"
	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/redis"
	"github.com/model-gateway/model-gateway/pkg/stage/door"
	"github.com/model-gateway/model-gateway/pkg/stage/limit"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
	"github.com/model-gateway/model-gateway/pkg/tlsfiles"
)

// protection is who may call and how much: what the stages door, identify, authorize and limit work with.
type protection struct {
	callers *callers.Callers
	access  access.Current
	door    *door.Stage
	limit   *limit.Stage

	replicas atomic.Int64  // that share the rates, as the configuration says
	redis    *redis.Client // nil: buckets are in memory
	redisTLS *tlsfiles.Client
	end      context.CancelFunc
	peers    sync.WaitGroup
}

// newProtection makes it, without callers, rules or limits: use brings those. password is asked for whenever a
// connection to Redis is made.
func newProtection(cfg *config.Config, metrics *telemetry.Metrics, o Options, password func() string) (*protection, error) {
	p := &protection{callers: callers.New(callers.Options{Log: o.Log, Changed: o.keysChanged}), end: func() {}}
	p.replicas.Store(int64(cfg.Replicas))
	stage := limit.Options{Metrics: metrics, Peers: func() int { return int(p.replicas.Load()) }}
	if cfg.Redis == nil {
		stage.Store, stage.Alone = limit.NewMemory(limit.MemoryOptions{}), true
	} else if err := p.openRedis(cfg, metrics, o, password, &stage); err != nil {
		p.callers.Close()
		return nil, err
	}
	p.limit = limit.New(stage)
	p.door = &door.Stage{Limiter: p.limit}
	return p, nil
}

func (p *protection) openRedis(cfg *config.Config, metrics *telemetry.Metrics, o Options, password func() string, stage *limit.Options) error {
	r := cfg.Redis
	options := redis.Options{
		Addresses: r.Addresses, Master: r.Master, Prefix: r.Prefix, Timeout: r.Timeout,
		Mode: map[string]redis.Mode{config.RedisSentinel: redis.Sentinel, config.RedisCluster: redis.Cluster}[r.Mode],
	}
	options.Credentials = func() (string, string) { return r.User, password() } // a password may come with a reload
	if r.TLS != nil {
		client, err := tlsfiles.NewClient(clientFiles(r.TLS), tlsfiles.Options{Log: o.Log.With("redis", r.Addresses[0]), Changed: o.changed("redis.tls")})
		if err != nil {
			return fmt.Errorf("redis.tls: %w", err)
		}
		p.redisTLS, options.TLS = client, client.Config()
	}
	metrics.ShowRedis()
	client, err := redis.Open(options, metrics)
	if err != nil {
		if p.redisTLS != nil {
			p.redisTLS.Close()
		}
		return err
	}
	p.redis = client
	replicas := redis.NewPeers(client, uuid.NewString(), cfg.Replicas)
	ctx, end := context.WithCancel(context.Background())
	p.end = end
	p.peers.Go(func() { replicas.Run(ctx) })
	stage.Store, stage.Peers, stage.Timeout = redis.NewLimits(client), replicas.Count, r.Timeout
	return nil
}

func clientFiles(c *config.ClientTLS) tlsfiles.ClientFiles {
	return tlsfiles.ClientFiles{CA: c.CA, Cert: c.Cert, Key: c.Key, ServerName: c.ServerName}
}

// use takes over what cfg says of callers, access and limits. Only the callers can be wrong; then nothing changes.
func (p *protection) use(cfg *config.Config) error {
	required := cfg.Auth == config.AuthRequired
	if err := p.callers.Set(required, callerEntries(cfg)); err != nil {
		return err
	}
	rules := make([]access.Rule, 0, len(cfg.Access.Rules))
	for _, r := range cfg.Access.Rules {
		rules = append(rules, access.Rule{Callers: r.Callers, Models: r.Models, Allow: r.Allow})
	}
	p.access.Use(access.New(cfg.Access.HideForbidden, rules, required))
	p.door.Trust(cfg.Trusted)
	p.limit.SetSpanning(cfg.Limits)
	p.replicas.Store(int64(cfg.Replicas))
	return nil
}

func callerEntries(cfg *config.Config) []callers.Entry {
	entries := make([]callers.Entry, 0, len(cfg.Callers))
	for _, c := range cfg.Callers {
		e := callers.Entry{Name: c.Name, MayNameUsers: c.MayNameUsers, Priority: c.Priority}
		for _, k := range c.Keys {
			e.Keys = append(e.Keys, callers.Hash(k))
		}
		if j := c.JWT; j != nil {
			e.JWT = &callers.JWT{Issuer: j.Issuer, JWKS: j.JWKS, Audience: j.Audience, Caller: j.CallerClaim, User: j.UserClaim, Roles: j.RolesClaim}
		}
		if c.MTLS != nil {
			e.SANs = []string{c.MTLS.SAN}
		}
		entries = append(entries, e)
	}
	return entries
}

// close ends what runs for it. Calls must have ended.
func (p *protection) close() error {
	p.limit.Close()
	p.callers.Close()
	p.end()
	p.peers.Wait()
	var err error
	if p.redis != nil {
		err = p.redis.Close()
	}
	if p.redisTLS != nil {
		p.redisTLS.Close()
	}
	return err
}

// callerOf finds a declared caller by name; nil when there is none.
func callerOf(cfg *config.Config, name string) *inference.Caller {
	for _, c := range cfg.Callers {
		if c.Name == name {
			return &inference.Caller{Name: c.Name, MayNameUsers: c.MayNameUsers, Priority: c.Priority}
		}
	}
	return nil
}

// explainLimits shows the limit stage to explain.
type explainLimits struct{ stage *limit.Stage }

// Peek gives what is left in the buckets that c would draw from, in the order of limits.
func (e explainLimits) Peek(ctx context.Context, c *inference.Call, limits []*inference.Limit) ([]float64, error) {
	left := make(map[string]float64)
	for _, s := range e.stage.Explain(ctx, c) {
		left[s.Name] = s.Remaining
	}
	tokens := make([]float64, len(limits))
	for i, l := range limits {
		var known bool
		if tokens[i], known = left[l.Name]; !known {
			tokens[i] = math.NaN() // per an address that is not known, or no longer in force
		}
	}
	return tokens, nil
}
