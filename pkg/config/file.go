package config

// File is what the file says, before anything is checked or filled in. Its doc comments are what editors show.
type File struct {
	// Version of this format: 1, which is also what a file without it means.
	Version int `yaml:"version" jsonschema:"enum=1"`
	// Auth says whether callers must prove who they are. `none` is for a trusted network: what a caller says of itself is
	// believed. Absent, it is required in a file that declares callers, and none in one that does not.
	Auth string `yaml:"auth" jsonschema:"enum=none,enum=required"`
	// Passthrough lets a name that no model declares through to the upstream under its own name. Absent, it is on
	// in a file that declares no models, and off in one that does.
	Passthrough *bool `yaml:"passthrough"`
	// Control lists the kinds of control calls that are open: load and unload models (`repository`), shared memory (`shm`),
	// trace and log settings. Absent, none is.
	Control []string `yaml:"control" jsonschema:"enum=repository,enum=shm,enum=trace,enum=log"`
	// TrustedProxies are the networks and single addresses whose `x-forwarded-for` is believed. Absent, nobody's is.
	TrustedProxies []string `yaml:"trusted_proxies"`
	// StateDir is a folder where the last good configuration is kept, so that a restart with a bad file still
	// serves. Absent, none is kept. The environment's GATEWAY_STATE_DIR wins over it.
	StateDir string `yaml:"state_dir"`
	// Listen says where the gateway listens and how much it takes.
	Listen ListenFile `yaml:"listen"`
	// Redis is where replicas share limits. Absent, each keeps its own in memory.
	Redis *RedisFile `yaml:"redis"`
	// Prometheus is asked for latencies over all replicas, from which timeouts follow. Absent: each replica goes by its own.
	Prometheus *PrometheusFile `yaml:"prometheus"`
	// Telemetry says which traces and logs go out.
	Telemetry TelemetryFile `yaml:"telemetry"`
	// Callers are the clients that may authenticate.
	Callers []CallerFile `yaml:"callers"`
	// Access says which caller may do what with which model.
	Access *AccessFile `yaml:"access"`
	// Upstreams are what calls are forwarded to, by name. Absent, the environment's TRITON_GRPC_HOST or
	// GATEWAY_UPSTREAMS tells.
	Upstreams map[string]UpstreamFile `yaml:"upstreams"`
	// Replicas is how many gateways share a rate while Redis has never been seen, 1 to 1000. Absent: 1.
	Replicas int `yaml:"replicas" jsonschema:"minimum=1,maximum=1000"`
	// Lua says where scripts are and what one may take.
	Lua *LuaFile `yaml:"lua"`
	// Defaults hold for every model that does not say otherwise.
	Defaults PolicyFile `yaml:"defaults"`
	// Limits are rates over all models: per ip, caller or global.
	Limits []LimitFile `yaml:"limits"`
	// Models that clients may ask for by name.
	Models []ModelFile `yaml:"models"`
}

// ListenFile is the section `listen`. Its environment twins win over the file. It cannot change while the gateway runs.
type ListenFile struct {
	// Data is the address of gRPC and HTTP, host:port or :port. Absent: `:8080`. Environment: GATEWAY_DATA.
	Data Address `yaml:"data"`
	// Admin is the address of the admin port, or `off`. Absent: `127.0.0.1:8081`. Environment: GATEWAY_ADMIN.
	Admin Address `yaml:"admin"`
	// Metrics says where /metrics is served: on the admin port only, or on both ports. Absent: both.
	// Environment: GATEWAY_METRICS.
	Metrics string `yaml:"metrics" jsonschema:"enum=admin,enum=both"`
	// MaxBytesHeld bounds the messages that are read and not yet answered, at least max_message: while so much is held, no
	// further one is begun to be read; it waits, and is refused after a second. Absent: a quarter of the memory that the
	// process may use. Environment: GATEWAY_MAX_BYTES_HELD.
	MaxBytesHeld Size `yaml:"max_bytes_held"`
	// MaxReads bounds how many messages of more than 64KiB are being read at once, those left out that take longer than a
	// second. Absent: 256. Environment: GATEWAY_MAX_READS.
	MaxReads int `yaml:"max_reads" jsonschema:"minimum=1,maximum=100000"`
	// TLS toward clients of the data port. The files are read again when they change. Absent: plaintext.
	TLS *ListenTLSFile `yaml:"tls"`
	// MaxMessage is the largest message taken or sent, on every hop. Absent: 64MiB. At most 2047MiB.
	// Environment: GATEWAY_MAX_MESSAGE.
	MaxMessage Size `yaml:"max_message"`
	// MaxConnectionAge is how long a client's connection is used, give or take a tenth, before the client is told to make
	// another one, so that clients spread over gateways that came later. Nothing under way is cut; a stream ends with a status once
	// it is ten minutes older than that. 1m to 24h, or 0 for ever. Absent: 30m. Environment: GATEWAY_MAX_CONNECTION_AGE.
	MaxConnectionAge Duration `yaml:"max_connection_age"`
	// Drain says how the gateway stops.
	Drain DrainFile `yaml:"drain"`
}

// ListenTLSFile is TLS toward clients.
type ListenTLSFile struct {
	// Cert is the file of the certificate chain, PEM.
	Cert string `yaml:"cert"`
	// Key is the file of the private key, PEM.
	Key string `yaml:"key"`
	// ClientCA is the file of authorities whose client certificates are accepted, PEM. Absent, none is asked for.
	ClientCA string `yaml:"client_ca"`
}

// DrainFile is the section `listen.drain`.
type DrainFile struct {
	// Before is how long the gateway says that it is not ready and still takes calls, so that balancers notice.
	// Absent: 5s. Environment: GATEWAY_DRAIN_BEFORE.
	Before Duration `yaml:"before"`
	// Grace is how long calls under way may take to finish after that. Absent: 20s. Environment: GATEWAY_DRAIN_GRACE.
	Grace Duration `yaml:"grace"`
}

// RedisFile is the section `redis`. Only the password and when_down can change while the gateway runs.
type RedisFile struct {
	// Address is one host:port, or unix:///path of a socket, or a list: of sentinels, or of some servers of a cluster.
	// Environment: GATEWAY_REDIS_ADDRESS, with commas, which wins.
	Address OneOrMany `yaml:"address"`
	// Mode of the servers. Absent: standalone.
	Mode string `yaml:"mode" jsonschema:"enum=standalone,enum=sentinel,enum=cluster"`
	// Master is the name that the sentinels know the servers by; only with mode sentinel.
	Master string `yaml:"master"`
	// Prefix of every key. Absent: model-gateway.
	Prefix string `yaml:"prefix"`
	// User to sign in as. Absent: Redis's default user.
	User string `yaml:"user"`
	// PasswordFile holds the password. It is read again when it changes.
	PasswordFile string `yaml:"password_file"`
	// TLS toward the servers. Absent: plaintext.
	TLS *ClientTLSFile `yaml:"tls"`
	// Timeout of one round trip, 1ms to 1s. Absent: 20ms.
	Timeout Duration `yaml:"timeout"`
	// WhenDown says what limits do without Redis, unless they say otherwise: count this replica's share (local), let calls
	// pass (open), refuse them (closed). Absent: local.
	WhenDown string `yaml:"when_down" jsonschema:"enum=local,enum=open,enum=closed"`
}

// PrometheusFile is the section `prometheus`.
type PrometheusFile struct {
	// URL of the server's API, http or https, with the path that it is served under, such as http://prometheus:9090.
	URL string `yaml:"url"`
}

// TelemetryFile is the section `telemetry`.
type TelemetryFile struct {
	// OTLP says where traces go.
	OTLP *OTLPFile `yaml:"otlp"`
	// AccessLog writes a line a call.
	AccessLog *AccessLogFile `yaml:"access_log"`
}

// OTLPFile is the section `telemetry.otlp`.
type OTLPFile struct {
	// Endpoint is the collector, host:port.
	Endpoint Address `yaml:"endpoint"`
	// Sample is the share of calls traced when the client does not say.
	Sample Percent `yaml:"sample"`
}

// AccessLogFile is the section `telemetry.access_log`.
type AccessLogFile struct {
	// Sample is the share of calls logged.
	Sample Percent `yaml:"sample"`
	// Always lists the calls logged whatever the share.
	Always []string `yaml:"always" jsonschema:"enum=slow,enum=failed,enum=degraded"`
}

// CallerFile is one entry of `callers`: a client and how it proves who it is.
type CallerFile struct {
	// Name of the caller, as rules, limits and metrics call it.
	Name string `yaml:"name"`
	// Keys are hashes of its keys, as `gateway key new` prints them. Several are good at once, so that keys can be changed.
	Keys []string `yaml:"keys"`
	// KeysFile is a file with more of them, one a line; # begins a comment. It is read again when it changes.
	KeysFile string `yaml:"keys_file"`
	// KeysEnv is an environment variable with more of them, with commas or spaces between.
	KeysEnv string `yaml:"keys_env"`
	// JWT accepts signed tokens.
	JWT *JWTFile `yaml:"jwt"`
	// MTLS accepts client certificates; needs listen.tls.client_ca.
	MTLS *MTLSFile `yaml:"mtls"`
	// MayNameUsers lets the caller say for whom it asks. Absent, the user is the caller itself.
	MayNameUsers bool `yaml:"may_name_users"`
	// Priority of its calls when there is not room for all. Absent: default.
	Priority string `yaml:"priority" jsonschema:"enum=critical,enum=default,enum=sheddable"`
}

// JWTFile says which tokens are a caller's.
type JWTFile struct {
	// Issuer as in `iss`.
	Issuer string `yaml:"issuer"`
	// JWKS is the URL of the issuer's keys, https, or a file with them.
	JWKS string `yaml:"jwks"`
	// Audience as in `aud`.
	Audience string `yaml:"audience"`
	// Caller is the claim that must have the caller's name. Absent, every token of this issuer and audience is the caller's.
	Caller string `yaml:"caller"`
	// User is the claim with the user's name. Absent, the token names no user.
	User string `yaml:"user"`
	// Roles is the claim with the caller's roles, a text or a list.
	Roles string `yaml:"roles"`
}

// MTLSFile says which certificates are a caller's.
type MTLSFile struct {
	// SAN is the subject alternative name, with * for anything within one part of it: between slashes in a URI, between
	// dots in a host name.
	SAN string `yaml:"san"`
}

// AccessFile is the section `access`.
type AccessFile struct {
	// HideForbidden answers NOT_FOUND for models that the caller may not see.
	HideForbidden bool `yaml:"hide_forbidden"`
	// Rules allow. Without any, a caller may infer and read metadata of every model; with one, what none allows is refused.
	Rules []AccessRuleFile `yaml:"rules"`
}

// AccessRuleFile is one entry of `access.rules`.
type AccessRuleFile struct {
	// Callers by name; "*" is all of them.
	Callers []string `yaml:"callers"`
	// Models by name: * is anything, slashes too, ? one character, [ab] one of several. For infer, metadata and repository, and
	// only there.
	Models []string `yaml:"models"`
	// Allow lists kinds of calls.
	Allow []string `yaml:"allow" jsonschema:"enum=infer,enum=metadata,enum=repository,enum=shm,enum=trace,enum=log,enum=admin"`
}

// UpstreamFile is one entry of `upstreams`: one or many addresses that serve the same models.
type UpstreamFile struct {
	// Kind of server. Absent: triton.
	Kind string `yaml:"kind" jsonschema:"enum=triton"`
	// Endpoints is a host:port, a list of them, dns:///host:port for every address the host has (dns://server/host:port asks
	// that DNS server, in place of the system's own resolver), or
	// k8s:///namespace/service:port for every ready pod of a service in the gateway's own cluster; without a namespace it is
	// the gateway's own.
	Endpoints OneOrMany `yaml:"endpoints"`
	// Metrics is the URL of an endpoint's own metrics, for pick: queue_depth; {host} stands for the endpoint's host, as in
	// http://{host}:8002/metrics.
	Metrics string `yaml:"metrics"`
	// Keepalive finds connections that are dead while calls are on them. Absent: a ping after 310s of silence, which
	// every Triton takes.
	Keepalive *KeepaliveFile `yaml:"keepalive"`
	// Traceparent says which calls carry a traceparent: those that the client sampled (what absent means), all that came with
	// one, or none. Triton traces whatever carries one.
	Traceparent string `yaml:"traceparent" jsonschema:"enum=sampled,enum=always,enum=never"`
	// TLS toward the upstream. Absent: plaintext.
	TLS *ClientTLSFile `yaml:"tls"`
	// Headers are metadata on everything sent to it, such as authorization or triton-grpc-protocol-infer: a text, or
	// {from_file: FILE}, which is read again when it changes.
	Headers map[string]SecretFile `yaml:"headers"`
	// Eject takes out endpoints that keep failing although they say that they are ready.
	Eject *EjectFile `yaml:"eject"`
	// MaxInFlight is how many calls may be under way at each endpoint at once, from this replica and of all models; while
	// all endpoints have as many, further calls are refused as OVERLOADED. Absent: any number.
	MaxInFlight int `yaml:"max_in_flight" jsonschema:"minimum=1,maximum=100000"`
}

// KeepaliveFile is the section `upstreams.NAME.keepalive`.
type KeepaliveFile struct {
	// Time of silence before a ping, 10s to 1h. Absent: 310s. Under 300s it has to be permitted.
	Time Duration `yaml:"time"`
	// Timeout of a ping, 1s to 60s. Absent: 10s.
	Timeout Duration `yaml:"timeout"`
	// Permitted says that the server runs with flags that permit pings this often, such as
	// --grpc-http2-min-recv-ping-interval-without-data=5000 --grpc-http2-max-ping-strikes=0.
	Permitted bool `yaml:"permitted"`
}

// ClientTLSFile is TLS toward an upstream or Redis. The files are read again when they change.
type ClientTLSFile struct {
	// CA is `system`, or the file of the authorities, PEM. Absent: system.
	CA string `yaml:"ca"`
	// Cert is the file of our certificate chain, PEM.
	Cert string `yaml:"cert"`
	// Key is the file of our private key, PEM.
	Key string `yaml:"key"`
	// ServerName to expect in place of the host.
	ServerName string `yaml:"server_name"`
}

// SecretFile is a text, or the file that holds it.
type SecretFile struct {
	Value string `yaml:"-"`
	// FromFile is the file with the value; white space around it does not count.
	FromFile string `yaml:"from_file"`
}

// EjectFile is the section `upstreams.NAME.eject`.
type EjectFile struct {
	// ConsecutiveFailures in a row that eject an endpoint; where all are of one model, for that model alone. Absent: 5.
	ConsecutiveFailures int `yaml:"consecutive_failures" jsonschema:"minimum=1"`
	// For is how long, times how often it happened lately, and 5m at most. Absent: 30s.
	For Duration `yaml:"for"`
	// AtMost is the share of endpoints that may be out. Absent: 50%.
	AtMost Percent `yaml:"at_most"`
}

// LuaFile is the section `lua`. Scripts are read again when they change; their folder is not another one until a restart.
type LuaFile struct {
	// Dir is the folder with the scripts. Absent: scripts/lua beside this file, else in the folder where the gateway runs.
	// The environment's GATEWAY_LUA_DIR wins over it.
	Dir string `yaml:"dir"`
	// Deadline of one run, at most 5ms. Absent: 2ms.
	Deadline Duration `yaml:"deadline"`
}

// PolicyFile is how calls to a model are treated: the section `defaults`, and fields of a model.
type PolicyFile struct {
	// Pick says how one of the endpoints is chosen: the less busy one of two drawn at random (least_loaded); likewise, and
	// requests that wait in the model server count too, whoever sent them (queue_depth); the same one for the same user; one
	// after the other. Absent: least_loaded.
	Pick string `yaml:"pick" jsonschema:"enum=least_loaded,enum=queue_depth,enum=hash(user),enum=round_robin"`
	// Timeout bounds a call's time upstream.
	Timeout TimeoutFile `yaml:"timeout"`
	// Retry says how often a call is tried.
	Retry *RetryFile `yaml:"retry"`
	// Breaker keeps calls from a target that fails.
	Breaker *BreakerFile `yaml:"breaker"`
	// Probe says how targets are watched.
	Probe *ProbeFile `yaml:"probe"`
}

// TimeoutFile is the section `timeout` of a model or of `defaults`.
type TimeoutFile struct {
	// Max is the most a unary call may take. Absent: 60s.
	Max Duration `yaml:"max"`
	// Dynamic shortens it to what a target lately needs, once 10,000 answers within an hour tell. Absent: floor 2s, factor 1.5.
	Dynamic *DynamicFile `yaml:"dynamic"`
	// FirstAnswer is the most the first answer to a message of a stream may take. Absent: 30s.
	FirstAnswer Duration `yaml:"first_answer"`
	// Idle is the most that may pass between two answers to a message of a stream. Absent: 60s.
	Idle Duration `yaml:"idle"`
}

// DynamicFile is the section `timeout.dynamic`.
type DynamicFile struct {
	// Floor is the least it becomes, 10ms to 1h, and not above max. Absent: 2s.
	Floor Duration `yaml:"floor"`
	// Factor times the latency that 999 in 1000 answers stay within, 1 to 100. Absent: 1.5.
	Factor float64 `yaml:"factor" jsonschema:"minimum=1,maximum=100"`
	// Mode of it: calls end by it, it is only computed and shown (shadow), or nothing (off). Absent: enforce.
	Mode string `yaml:"mode" jsonschema:"enum=enforce,enum=shadow,enum=off"`
}

// RetryFile is the section `retry`.
type RetryFile struct {
	// Attempts in all.
	Attempts int `yaml:"attempts" jsonschema:"minimum=1"`
	// Budget is the share of calls that may be tried again.
	Budget Percent `yaml:"budget"`
}

// BreakerFile is the section `breaker`. Each target has a breaker of its own.
type BreakerFile struct {
	// Window in which calls are counted, 1s to 10m. Absent: 10s.
	Window Duration `yaml:"window"`
	// MinCalls that must have ended in it before the breaker may open. Absent: 20.
	MinCalls int `yaml:"min_calls" jsonschema:"minimum=1,maximum=100000"`
	// Failures is the share of failed calls that opens it. Absent: 50%.
	Failures Percent `yaml:"failures"`
	// Slow is the share of slow calls that opens it. Absent: 60%.
	Slow Percent `yaml:"slow"`
	// SlowAfter is the time upstream from which a call counts as slow. Absent: the model's slo.p999; without that no call is slow.
	SlowAfter Duration `yaml:"slow_after"`
	// Open is how long it stays open at first, 100ms to 1h; each time that it opens again right away, twice as long. Absent: 5s.
	Open Duration `yaml:"open"`
	// OpenMax is the longest that it stays open, at least open and at most 1h. Absent: 300s.
	OpenMax Duration `yaml:"open_max"`
	// Probes are the calls that must go well, and the most that are let through at once, before it closes again. Absent: 5.
	Probes int `yaml:"probes" jsonschema:"minimum=1,maximum=1000"`
}

// ProbeFile is the section `probe`.
type ProbeFile struct {
	// Infer sends an inference of zeros in place of a question now and then, at most one each 10s for each version and
	// endpoint, which finds a dead device or process behind a model that says it is ready. Models with sequences, and
	// decoupled ones, are not sent any.
	Infer bool `yaml:"infer"`
}

// LimitFile is one entry of `limits`: a bucket of tokens for each of what it is per.
type LimitFile struct {
	// Name of the limit, as metrics and refusals call it; no two have the same. Absent: of what it is per, such as
	// per-ip, or fraud/per-user for a model's.
	Name string `yaml:"name"`
	// Per says what has a bucket of its own: ip, caller or global over all models; model, user or caller within one.
	Per string `yaml:"per" jsonschema:"enum=ip,enum=caller,enum=user,enum=model,enum=global"`
	// Rate at which the bucket fills, such as 20/s, 500/min or 1000/h.
	Rate Rate `yaml:"rate"`
	// Burst is what the bucket holds, and so the most a call may cost. Absent: what comes in a second, and at least one call.
	Burst int `yaml:"burst" jsonschema:"minimum=1"`
	// Cost of a call: 1, its rows, or its KiB. Absent: 1.
	Cost Cost `yaml:"cost"`
	// Draw says how tokens are drawn from the shared bucket: call by call (exact), some ahead of use (lease), or as the bucket
	// is busy (auto). Absent: auto. Limits over all models are always leased.
	Draw string `yaml:"draw" jsonschema:"enum=auto,enum=exact,enum=lease"`
	// Mode of the limit: refuse, only count (shadow), or nothing (off). Absent: enforce.
	Mode string `yaml:"mode" jsonschema:"enum=enforce,enum=shadow,enum=off"`
	// WhenDown says what it does without Redis. Absent: as redis.when_down.
	WhenDown string `yaml:"when_down" jsonschema:"enum=local,enum=open,enum=closed"`
	// Overrides are other rates by the name of the user or caller, or the address; burst grows and shrinks with them.
	Overrides map[string]Rate `yaml:"overrides"`
}

// ModelFile is one entry of `models`: a name that clients may ask for, and what happens to calls for it.
type ModelFile struct {
	// Name that clients ask for, up to 256 bytes of UTF-8 without braces.
	Name string `yaml:"name"`
	// Upstream of its targets, by name; needed where there are several upstreams and targets do not say.
	Upstream string `yaml:"upstream"`
	// Model is its name on the upstream. Absent: the same name.
	Model string `yaml:"model"`
	// Targets are the versions that calls can go to, by name. Absent: every version that the upstream has, as
	// model_v1, model_v2 and so on.
	Targets map[string]TargetFile `yaml:"targets"`
	// Stable is the target of calls that nothing sends elsewhere; not needed where there is one target.
	Stable string `yaml:"stable"`
	// Split sends calls to other targets than stable: rules that are asked in order until one has an answer. Absent, and without
	// targets, the script of the model's own name decides where there is one, else the script named default; an empty list
	// keeps them out.
	Split []SplitRuleFile `yaml:"split"`
	// Pins says which versions a caller may name: those of declared targets, or any. Absent: declared.
	Pins string `yaml:"pins" jsonschema:"enum=declared,enum=any"`
	// Mirror copies calls to another target, after their callers have their answers.
	Mirror *MirrorFile `yaml:"mirror"`
	// Limits are rates of this model: per model, user or caller. They are drawn together, all or none.
	Limits []LimitFile `yaml:"limits"`
	// Concurrency bounds how many calls are under way.
	Concurrency *ConcurrencyFile `yaml:"concurrency"`
	// PassPriority hands the priority of calls to the upstream, as Triton's priority: 1 critical, 2 default, 3 sheddable. The
	// model there must have priority_levels.
	PassPriority bool `yaml:"pass_priority"`
	// SetHeaders are metadata for the upstream; {target} stands for the target's name.
	SetHeaders map[string]string `yaml:"set_headers"`
	// Fallback is an answer in place of an outage.
	Fallback *FallbackFile `yaml:"fallback"`
	// Tensors of Predict. Absent: as the upstream's metadata says.
	Tensors *TensorsFile `yaml:"tensors"`
	// SLO is what the model promises.
	SLO *SLOFile `yaml:"slo"`
	// PolicyFile has what the model says otherwise than `defaults`.
	PolicyFile `yaml:",inline"`
}

// TargetFile is one entry of `models[].targets`: one version of a model on one upstream.
type TargetFile struct {
	// Upstream by name. Absent: the model's, else the only one.
	Upstream string `yaml:"upstream"`
	// Model is its name on the upstream. Absent: the model's.
	Model string `yaml:"model"`
	// Version on the upstream, a positive number.
	Version Version `yaml:"version"`
}

// SplitRuleFile is one entry of `models[].split`; the first that has an answer decides. It has one of to, script and weights.
type SplitRuleFile struct {
	// When the rule holds. Absent: for every call.
	When *WhenFile `yaml:"when"`
	// To is a target by name.
	To string `yaml:"to"`
	// Script is a Lua file in lua.dir that answers a target's name.
	Script string `yaml:"script"`
	// Weights are shares of users by target, which add up to 100. A user stays where it is while shares change, as far as they let it;
	// a call without a user goes by its request id.
	Weights map[string]float64 `yaml:"weights"`
	// Salt of the hash that places users, such as the experiment's name: another one places the same users elsewhere. Absent:
	// the model's name.
	Salt string `yaml:"salt"`
	// SetHeaders are metadata for the upstream on calls that this rule decides, over those of the model; {target} stands for
	// the target's name.
	SetHeaders map[string]string `yaml:"set_headers"`
}

// WhenFile is a condition on a call: one of header, metadata and who, and one of is, in, prefix and regex.
type WhenFile struct {
	// Header of the client's metadata, by name. One of several values is enough.
	Header string `yaml:"header"`
	// Metadata is a key of the message's own metadata (Predict).
	Metadata string `yaml:"metadata"`
	// Who is about the user that the call is for, or the caller.
	Who string `yaml:"who" jsonschema:"enum=user,enum=caller"`
	// Is the value it must have.
	Is string `yaml:"is"`
	// In lists the values it may have.
	In []string `yaml:"in"`
	// Prefix it must begin with.
	Prefix string `yaml:"prefix"`
	// Regex is an expression of RE2 that must match somewhere in it; ^ and $ bind it.
	Regex string `yaml:"regex"`
}

// MirrorFile is the section `models[].mirror`.
type MirrorFile struct {
	// To is a target by name.
	To string `yaml:"to"`
	// Percent of calls, above 0 and at most 100.
	Percent float64 `yaml:"percent"`
}

// ConcurrencyFile is the section `models[].concurrency`. Each target of the model has bounds of its own, in each replica.
type ConcurrencyFile struct {
	// Adaptive finds the bound by itself, from how long calls take upstream.
	Adaptive bool `yaml:"adaptive"`
	// Max calls under way, whatever adaptive finds. Absent: 1000 with adaptive, else it must be given.
	Max int `yaml:"max" jsonschema:"minimum=1,maximum=100000"`
	// Queue is how long a call may wait for its turn, 0s to 100ms; sheddable calls never do. Absent: 100ms.
	Queue Duration `yaml:"queue"`
}

// FallbackFile is the section `models[].fallback`. It has one of score, to and model.
type FallbackFile struct {
	// Score to answer with, in the tensors of the model, marked as degraded.
	Score *float64 `yaml:"score"`
	// To is another target of this model to ask, by name.
	To string `yaml:"to"`
	// Model is another declared model to ask: the target of its unpinned calls. Its own fallback does not count.
	Model string `yaml:"model"`
	// Else is what follows when that cannot answer either. Absent: the error itself.
	Else *ElseFile `yaml:"else"`
	// Protocols that get it: predict is Predict, PredictStream and /v1/predict; v2 is KServe's. Absent: predict.
	Protocols []string `yaml:"protocols" jsonschema:"enum=predict,enum=v2"`
	// On says which failures it stands in for: outage, and overload for a model server whose queue is full. Absent: outage.
	On []string `yaml:"on" jsonschema:"enum=outage,enum=overload"`
}

// ElseFile is what follows in a fallback: one of score, to and model.
type ElseFile struct {
	// Score to answer with.
	Score *float64 `yaml:"score"`
	// To is another target of this model to ask.
	To string `yaml:"to"`
	// Model is another declared model to ask.
	Model string `yaml:"model"`
	// Else is what follows when that cannot answer either.
	Else *LastFile `yaml:"else"`
}

// LastFile is the last resort of a fallback: one of score, to and model.
type LastFile struct {
	// Score to answer with.
	Score *float64 `yaml:"score"`
	// To is another target of this model to ask.
	To string `yaml:"to"`
	// Model is another declared model to ask.
	Model string `yaml:"model"`
}

// TensorsFile is the section `models[].tensors`: how the bytes of Predict become tensors, and which output answers.
type TensorsFile struct {
	// Inputs in the order in which Predict's bytes hold them.
	Inputs []TensorFile `yaml:"inputs"`
	// Outputs of the model, for the answers that a fallback makes. Absent: as the upstream's metadata says.
	Outputs []TensorFile `yaml:"outputs"`
	// Output that becomes output_tensor. Absent: the first floating-point one.
	Output string `yaml:"output"`
	// Confidence says how confidence is computed.
	Confidence *ConfidenceFile `yaml:"confidence"`
}

// TensorFile is a tensor's name, datatype and shape.
type TensorFile struct {
	// Name on the upstream.
	Name string `yaml:"name"`
	// Datatype as in KServe v2.
	Datatype string `yaml:"datatype" jsonschema:"enum=BOOL,enum=UINT8,enum=UINT16,enum=UINT32,enum=UINT64,enum=INT8,enum=INT16,enum=INT32,enum=INT64,enum=FP16,enum=FP32,enum=FP64,enum=BF16,enum=BYTES"`
	// Shape with the batch first; -1 may be any size.
	Shape []int64 `yaml:"shape"`
}

// ConfidenceFile says how confidence is computed from an output.
type ConfidenceFile struct {
	// Output to compute it from. Absent: the output that answers.
	Output string `yaml:"output"`
	// Reduce makes one number of row 0. Absent: first for one element a row, else max.
	Reduce string `yaml:"reduce" jsonschema:"enum=first,enum=max,enum=mean"`
}

// SLOFile is the section `models[].slo`: what the model promises. Metrics show it, and breaker.slow_after follows it.
type SLOFile struct {
	// P99 is the time that 99 in 100 calls take at most. Absent: nothing is promised.
	P99 Duration `yaml:"p99"`
	// P999 is the time that 999 in 1000 calls take at most; calls that take longer are slow, for the breaker. Absent: nothing
	// is promised.
	P999 Duration `yaml:"p999"`
}
