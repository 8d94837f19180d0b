// Package config reads the one file an operator writes. Two types stand for it: File is what the file says, field
// by field, and Config is what runs: checked, compiled and immutable.
//
// Every mistake is reported at once, each with its path, line and column; an unknown key is a mistake, and so is
// a section that this build does not serve: nothing is accepted and then ignored. The environment has twins of
// the fields that differ from container to container, so that a container needs no file at all.
package config

import (
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Config is a configuration that can run. It is immutable: whoever holds one may read it from any goroutine.
type Config struct {
	// Path is the file it was read from; "" when the environment said everything.
	Path string
	// Source is the file's text as it was read, and Hash its SHA-256 in hex.
	Source []byte
	Hash   string
	// Notes are things to tell the operator that are no mistakes, a line each.
	Notes []string

	// Files are those that it took texts from; it is read again when one of them changes.
	Files Files

	Listen Listen
	// Auth says whether callers must prove who they are; AuthStated, that the file says so itself.
	Auth       Auth
	AuthStated bool
	// Trusted are the networks whose x-forwarded-for is believed; masked, IPv4 never as mapped into IPv6.
	Trusted []netip.Prefix
	// Callers in the file's order; their names and keys are unique.
	Callers []Caller
	// Access says which of them may do what.
	Access Access
	// Limits that span models: per ip, caller and global. Those of a model stand at the model.
	Limits []*inference.Limit
	// Redis is where replicas share limits; nil: in memory.
	Redis *Redis
	// Prometheus is the URL of the server that is asked for latencies over all replicas, without a slash at its end; "" when
	// there is none.
	Prometheus string
	// Replicas is how many gateways share a rate while Redis has never been seen; at least 1.
	Replicas int
	// Passthrough lets a name that no model declares through under its own name.
	Passthrough bool
	// Control lists the kinds of control that are open: "repository", "shm", "trace", "log". Sorted, no doubles.
	Control []string
	// Lua says where scripts are.
	Lua Lua
	// StateDir is where the last good configuration is kept; "" keeps none.
	StateDir string
	// Defaults are the timeouts of models that pass through.
	Defaults inference.Timeouts
	// Fallback is that of models that pass through; nil where none do.
	Fallback *inference.Fallback
	// Breaker of models that pass through.
	Breaker inference.Breaker
	// Retry of models that pass through.
	Retry inference.Retry
	// Pick of models that pass through.
	Pick inference.Pick
	// ProbeInfer has models that pass through probed by inferences, too.
	ProbeInfer bool
	// Upstreams in the file's order, at least one.
	Upstreams []Upstream
	// Models in the file's order; may be none when names pass through.
	Models []Model
}

// Listen says where the gateway listens and how much it takes at once.
type Listen struct {
	Data       string // host:port of gRPC and HTTP; the host may be empty
	Admin      string // host:port of the admin port; "" when it is off
	Metrics    string // where /metrics is served: MetricsAdmin or MetricsBoth
	MaxMessage int    // bytes of one message, on every hop
	// MaxBytesHeld bounds the messages that are read and not yet answered; 0: a quarter of the memory.
	MaxBytesHeld int64
	MaxReads     int           // messages being read at once
	DrainBefore  time.Duration // unready, and still taking calls
	DrainGrace   time.Duration // for calls under way to finish
	MaxAge       time.Duration // of a client's connection; 0: for ever
	TLS          *ListenTLS    // toward clients of the data port; nil: plaintext
}

// Where /metrics is served.
const (
	MetricsAdmin = "admin" // the admin port only
	MetricsBoth  = "both"  // the admin port, where there is one, and the data port
)

// Kinds of upstream.
const Triton = "triton"

// Which calls carry a traceparent toward an upstream.
const (
	TraceSampled = "sampled"
	TraceAlways  = "always"
	TraceNever   = "never"
)

// Upstream is something that serves models: one or many addresses that serve the same.
// One of Endpoints, DNS and Kubernetes is set.
type Upstream struct {
	Name        string
	Kind        string   // Triton
	Endpoints   []string // host:port each, no doubles
	DNS         string   // host:port; every address the host has is an endpoint
	DNSServer   string   // host:port of the server that is asked about DNS; "" is the system's own resolver
	Kubernetes  *Kubernetes
	Traceparent string // TraceSampled, TraceAlways or TraceNever
	TLS         *ClientTLS
	// Headers are metadata on everything that is sent to it, probes included: names in lower case, values from the file
	// or from files it names, which may change on a reload. Nil when there are none.
	Headers map[string]string
	// Metrics is the URL of an endpoint's own metrics, with {host} for its host; "" when nobody may ask for them.
	Metrics string
	// Keepalive of its connections.
	Keepalive Keepalive
	// Eject takes out endpoints that keep failing.
	Eject Eject
	// MaxInFlight is how many calls may be under way at each endpoint at once; 0: any number.
	MaxInFlight int
}

// Addresses are Endpoints, or the one dns://[server]/host:port or k8s:///namespace/service:port.
func (u Upstream) Addresses() []string {
	switch {
	case u.DNS != "":
		return []string{"dns://" + u.DNSServer + "/" + u.DNS}
	case u.Kubernetes != nil:
		return []string{u.Kubernetes.String()}
	}
	return u.Endpoints
}

// Which versions a caller may pin.
const (
	PinsDeclared = "declared" // those of declared targets
	PinsAny      = "any"      // any that an upstream has
)

// Model is a name that clients may ask for.
type Model struct {
	Name string
	// Targets in the file's order. None means that every version Upstream has of UpstreamModel is an implicit
	// target model_v<version>.
	Targets []Target
	// Upstream and UpstreamModel are those of implicit targets, and set for every model that has an unambiguous
	// upstream; UpstreamModel is the model's name there.
	Upstream      string
	UpstreamModel string
	// Stable is the name of the target of calls that nothing sends elsewhere; "" only where there are no Targets.
	Stable string
	// Pins is PinsDeclared or PinsAny; PinsAny where there are no Targets.
	Pins     string
	Timeouts inference.Timeouts
	// Breaker of each of its targets.
	Breaker inference.Breaker
	// Retry of its calls.
	Retry inference.Retry
	// Pick is how one of a target's endpoints is chosen.
	Pick inference.Pick
	// ProbeInfer has its targets probed by inferences, too.
	ProbeInfer bool
	// Concurrency bounds its calls under way; the zero one does not.
	Concurrency inference.Concurrency
	// PassPriority hands the priority of calls to the upstream.
	PassPriority bool
	// SLO is what the model promises.
	SLO SLO
	// Tensors of Predict; nil means that the upstream's metadata tells.
	Tensors *inference.Tensors
	// Limits of this model: per model, user and model_caller.
	Limits []*inference.Limit
	// Split are the rules that send calls to other targets than Stable, in the file's order.
	Split []SplitRule
	// Scripted says that a script splits the calls where there is one of the model's name, or one named default: the file
	// has neither Targets nor Split for it, and a script can have its name.
	Scripted bool
	// Mirror is where copies of calls go; nil when nowhere.
	Mirror *Mirror
	// Fallback is what answers in place of an outage; nil: the error itself.
	Fallback *Fallback
	// SetHeaders are set on metadata toward the upstream, names in lower case; "{target}" in a value stands for
	// the target's name. Nil when there are none.
	SetHeaders map[string]string
}

// Target is one version of a model on one upstream.
type Target struct {
	Name     string // as weights, scripts and metrics call it
	Upstream string // name of a declared upstream
	Model    string // the model's name there
	Version  string // a positive number in decimal
}

// Upstream finds an upstream by name.
func (c *Config) Upstream(name string) (Upstream, bool) {
	i := slices.IndexFunc(c.Upstreams, func(u Upstream) bool { return u.Name == name })
	if i < 0 {
		return Upstream{}, false
	}
	return c.Upstreams[i], true
}

// Fingerprint tells one state of a configuration from another: its text, and the texts of the files it names.
func (c *Config) Fingerprint() string { return c.Files.fingerprint(c.Hash) }

// Same reports whether o says the same: the same text, and the same texts in the files that it names. Hash alone does not
// tell of those.
func (c *Config) Same(o *Config) bool { return c.Hash == o.Hash && c.Files.Equal(o.Files) }

// NeedsRestart names the fields that differ between old and next and that a running gateway cannot change.
// A reload that changes any of them is refused as a whole.
func NeedsRestart(old, next *Config) []string {
	var names []string
	a, b := old.Redis, next.Redis
	if a == nil || b == nil {
		a, b = &Redis{}, &Redis{}
	}
	for _, f := range []struct {
		name string
		same bool
	}{
		{"listen.data", old.Listen.Data == next.Listen.Data},
		{"listen.admin", old.Listen.Admin == next.Listen.Admin},
		{"listen.metrics", old.Listen.Metrics == next.Listen.Metrics},
		{"listen.max_message", old.Listen.MaxMessage == next.Listen.MaxMessage},
		{"listen.max_connection_age", old.Listen.MaxAge == next.Listen.MaxAge},
		{"listen.max_bytes_held", old.Listen.MaxBytesHeld == next.Listen.MaxBytesHeld},
		{"listen.max_reads", old.Listen.MaxReads == next.Listen.MaxReads},
		{"listen.drain.before", old.Listen.DrainBefore == next.Listen.DrainBefore},
		{"listen.drain.grace", old.Listen.DrainGrace == next.Listen.DrainGrace},
		{"listen.tls", reflect.DeepEqual(old.Listen.TLS, next.Listen.TLS)},
		{"lua.dir", old.Lua.Dir == next.Lua.Dir},
		{"redis", (old.Redis == nil) == (next.Redis == nil)},
		{"redis.address", slices.Equal(a.Addresses, b.Addresses)},
		{"redis.mode", a.Mode == b.Mode},
		{"redis.master", a.Master == b.Master},
		{"redis.prefix", a.Prefix == b.Prefix},
		{"redis.user", a.User == b.User},
		{"redis.tls", reflect.DeepEqual(a.TLS, b.TLS)},
		{"redis.timeout", a.Timeout == b.Timeout},
	} {
		if !f.same {
			names = append(names, f.name)
		}
	}
	return names
}
