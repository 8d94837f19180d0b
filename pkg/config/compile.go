package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// What a file that does not say otherwise means.
const (
	defaultData       = ":8080"
	defaultAdmin      = "127.0.0.1:8081"
	defaultMaxMessage = 64 << 20
	// Together below the 30 s that Kubernetes gives by default.
	defaultDrainBefore = 5 * time.Second
	defaultDrainGrace  = 20 * time.Second
	defaultMaxAge      = 30 * time.Minute
	defaultMax         = 60 * time.Second
	defaultFirstAnswer = 30 * time.Second
	defaultIdle        = 60 * time.Second
)

// The environment's twins. Those of listen and state_dir win over the file, for they say where this one process
// runs; those of upstreams count only where the file declares none.
const (
	envData        = "GATEWAY_DATA"
	envAdmin       = "GATEWAY_ADMIN"
	envMetrics     = "GATEWAY_METRICS"
	envMaxMessage  = "GATEWAY_MAX_MESSAGE"
	envDrainBefore = "GATEWAY_DRAIN_BEFORE"
	envDrainGrace  = "GATEWAY_DRAIN_GRACE"
	envMaxAge      = "GATEWAY_MAX_CONNECTION_AGE"
	envStateDir    = "GATEWAY_STATE_DIR"
	envUpstreams   = "GATEWAY_UPSTREAMS"
	envTriton      = "TRITON_GRPC_HOST"
)

// Environment lists the variables that Load asks for.
func Environment() []string {
	return []string{envTriton, envUpstreams, envData, envAdmin, envMetrics, envMaxMessage, envDrainBefore, envDrainGrace, envMaxAge, envMaxBytesHeld, envMaxReads, envStateDir, envLuaDir, envRedis}
}

// minSecret is how long a text must be to be worth hiding; shorter ones stand everywhere.
const minSecret = 8

// compiler makes a Config of a File, and goes on after each mistake to find the next.
type compiler struct {
	*reader
	env    func(string) string
	base   string  // folder that files' names count from
	before *Config // in force until now; nil at a start
	cfg    Config

	whenDown   inference.WhenDown // of limits that do not say
	limitNames map[string]limitAt

	luaDirWritten string // lua.dir as the file has it
}

func (c *compiler) compile(f *File) *Config {
	c.listen(&f.Listen)
	c.cfg.StateDir = setting(c, "state_dir", f.StateDir, envStateDir, "", checkStateDir)
	c.control(f.Control)
	c.trustedProxies(f.TrustedProxies)
	c.redis(f.Redis)
	c.prometheus(f.Prometheus)
	c.replicas(f.Replicas)
	c.auth(f)
	c.cfg.Defaults = c.timeouts("defaults.timeout", f.Defaults.Timeout, inference.Timeouts{
		Max: defaultMax, FirstAnswer: defaultFirstAnswer, Idle: defaultIdle, Dynamic: defaultDynamic,
	})
	c.cfg.Breaker = c.breaker("defaults.breaker", f.Defaults.Breaker, defaultBreaker)
	c.cfg.Pick = c.pick("defaults.pick", f.Defaults.Pick, inference.LeastLoaded)
	c.cfg.ProbeInfer = probes(f.Defaults.Probe, false)
	c.cfg.Retry = c.retry("defaults.retry", f.Defaults.Retry, defaultRetry)
	c.upstreams(f.Upstreams)
	c.lua(f.Lua)
	c.models(f.Models)
	c.queueDepth(f.Models)
	c.fallbacks(f.Models)
	c.passthrough(f)
	c.cfg.Limits = c.limits("limits", f.Limits, nil)
	c.cfg.Access.Stated = f.Access != nil
	c.access(f.Access)
	return &c.cfg
}

// setting is the value of a field: the environment's, else the file's, else def. Both are checked where both are there.
func setting[S ~string, T any](c *compiler, path string, written S, env string, def T, parse func(S) (T, error)) T {
	v := def
	if c.has(path) && !c.mistaken(path) {
		if p, err := parse(written); err != nil {
			c.wrong(path, "%s", err)
		} else {
			v = p
		}
	}
	if env == "" {
		return v
	}
	if text := strings.TrimSpace(c.env(env)); text != "" {
		if p, err := parse(S(text)); err != nil {
			c.badEnv(env, err)
		} else {
			v = p
		}
	}
	return v
}

func (c *compiler) badEnv(name string, err error) {
	c.found = append(c.found, Mistake{Path: name, Msg: clean([]rune(err.Error()))})
}

func (c *compiler) listen(f *ListenFile) {
	l := &c.cfg.Listen
	l.Data = setting(c, "listen.data", f.Data, envData, defaultData, func(a Address) (string, error) {
		return string(a), checkHostPort(string(a), true)
	})
	l.Admin = setting(c, "listen.admin", f.Admin, envAdmin, defaultAdmin, func(a Address) (string, error) {
		if a == "off" || a == "false" {
			return "", nil
		}
		if checkHostPort(string(a), true) != nil {
			return "", errors.New("must be host:port, :port or off, such as 127.0.0.1:8081")
		}
		return string(a), nil
	})
	// Names of models and upstreams are no secret on a trusted network; where callers are asked who they are, they may be.
	metrics := MetricsBoth
	if c.cfg.Auth == AuthRequired {
		metrics = MetricsAdmin
	}
	l.Metrics = setting(c, "listen.metrics", f.Metrics, envMetrics, metrics, func(s string) (string, error) {
		if s != MetricsAdmin && s != MetricsBoth {
			return "", fmt.Errorf("must be %s or %s", MetricsAdmin, MetricsBoth)
		}
		return s, nil
	})
	l.MaxMessage = setting(c, "listen.max_message", f.MaxMessage, envMaxMessage, defaultMaxMessage, Size.parse)
	l.DrainBefore = setting(c, "listen.drain.before", f.Drain.Before, envDrainBefore, defaultDrainBefore, Duration.parseZero)
	l.DrainGrace = setting(c, "listen.drain.grace", f.Drain.Grace, envDrainGrace, defaultDrainGrace, Duration.parse)
	l.MaxAge = setting(c, "listen.max_connection_age", f.MaxConnectionAge, envMaxAge, defaultMaxAge, parseMaxAge)
	c.held(f)
	l.TLS = c.listenTLS(f.TLS)
	if l.Metrics == MetricsAdmin && l.Admin == "" {
		c.wrong("listen.metrics", "is admin, but the admin port is off: nobody could read /metrics; use both, or give listen.admin an address")
	}
	if l.Admin != "" && l.Admin == l.Data && !strings.HasSuffix(l.Data, ":0") {
		c.wrong("listen.admin", "is the address of listen.data too; give it a port of its own")
	}
}

// parseMaxAge refuses ages at which clients would do little else than connect.
func parseMaxAge(d Duration) (time.Duration, error) {
	if v, err := d.parseZero(); err == nil && (v == 0 || v >= time.Minute) {
		return v, nil
	}
	return 0, errors.New("must be a length of time from 1m to 24h, such as 30m, or 0 for connections that may last for ever")
}

func checkStateDir(dir string) (string, error) {
	if len(dir) > 4096 || strings.ContainsFunc(dir, isControl) {
		return "", errors.New("must be a folder's path")
	}
	return dir, nil
}

func (c *compiler) control(kinds []string) {
	slices.Sort(kinds)
	c.cfg.Control = slices.Compact(kinds)
}

// timeouts compiles a section `timeout`; what it leaves out is as in def.
func (c *compiler) timeouts(path string, f TimeoutFile, def inference.Timeouts) inference.Timeouts {
	t := inference.Timeouts{
		Max:         setting(c, path+".max", f.Max, "", def.Max, Duration.parse),
		FirstAnswer: setting(c, path+".first_answer", f.FirstAnswer, "", def.FirstAnswer, Duration.parse),
		Idle:        setting(c, path+".idle", f.Idle, "", def.Idle, Duration.parse),
	}
	t.Dynamic = c.dynamic(path+".dynamic", f.Dynamic, def.Dynamic, t.Max)
	return t
}

// passthrough decides whether undeclared names go through, and whether anything is served at all.
func (c *compiler) passthrough(f *File) {
	c.cfg.Passthrough = len(f.Models) == 0
	if f.Passthrough != nil {
		c.cfg.Passthrough = *f.Passthrough
	}
	if c.cfg.Passthrough {
		c.cfg.Fallback = passthroughFallback
		return
	}
	if len(f.Models) == 0 {
		c.wrong("passthrough", "is false and no models are declared, so nothing would be served; declare models, or remove it")
	}
	if len(c.cfg.Upstreams) < 2 {
		return
	}
	for _, u := range c.cfg.Upstreams {
		if !c.usesUpstream(u.Name) && c.has("upstreams") {
			c.wrong(join("upstreams", u.Name), "is used by no model; name it in a target, or remove it")
		}
	}
}

// usesUpstream reports whether any model goes to an upstream, or could not be told which it goes to.
func (c *compiler) usesUpstream(name string) bool {
	return slices.ContainsFunc(c.cfg.Models, func(m Model) bool {
		return len(m.Targets) == 0 && (m.Upstream == name || m.Upstream == "") ||
			slices.ContainsFunc(m.Targets, func(t Target) bool { return t.Upstream == name || t.Upstream == "" })
	})
}
