package telemetry

// Names of metrics. People's alerts and panels are written against them: a name that is here stays.
const (
	RequestDuration     = "gateway_request_duration_seconds"
	UpstreamDuration    = "gateway_upstream_duration_seconds"
	RequestErrors       = "gateway_request_errors_total"
	RequestsInFlight    = "gateway_requests_in_flight"
	StreamsOpen         = "gateway_streams_open"
	Panics              = "gateway_panics_total"
	LogSuppressed       = "gateway_access_log_suppressed_total"
	LabelsRefused       = "gateway_metric_labels_refused_total"
	BuildInfo           = "gateway_build_info"
	ConfigReloads       = "gateway_config_reloads_total"
	ConfigSuccessful    = "gateway_config_last_reload_successful"
	ConfigLoadedAt      = "gateway_config_last_success_timestamp_seconds"
	RedisDuration       = "gateway_redis_duration_seconds"
	RedisUp             = "gateway_redis_up"
	ConfigInfo          = "gateway_config_info"
	FallbackPassedOver  = "gateway_fallback_passed_over_total"
	EndpointUp          = "gateway_endpoint_up"
	EndpointEjected     = "gateway_endpoint_ejected"
	EndpointInFlight    = "gateway_endpoint_in_flight"
	EndpointMaxInFlight = "gateway_endpoint_in_flight_limit"
	EndpointsFull       = "gateway_endpoints_full_total"
	ModelReady          = "gateway_model_ready"
	LimitDecisions      = "gateway_limit_decisions_total"
	LimitSource         = "gateway_limit_source_total"
	LimitLeases         = "gateway_limit_leases"
	LimitStoreErrors    = "gateway_limit_store_errors_total"
	MirrorTotal         = "gateway_mirror_total"
	MirrorMaxAbs        = "gateway_mirror_max_abs_difference"
	MirrorScore         = "gateway_mirror_score_difference"
	MirrorDuration      = "gateway_mirror_duration_seconds"
	MirrorHeld          = "gateway_mirror_held"
)

// Names of labels.
const (
	LabelModel      = "model"   // as clients know it; LabelUnknown and LabelOther stand for names that may not be labels
	LabelVersion    = "version" // of the model, on the upstream
	LabelTarget     = "target"  // name of the target
	LabelCode       = "code"    // HTTP status, of gRPC calls too; "degraded" for a degraded answer
	LabelGRPCCode   = "grpc_code"
	LabelProtocol   = "protocol" // see inference.Protocol
	LabelOp         = "op"
	LabelOutcome    = "outcome"  // see stats.Outcome
	LabelDegraded   = "degraded" // whether a prepared answer hid the error
	LabelUpstream   = "upstream"
	LabelEndpoint   = "endpoint"
	LabelResult     = "result" // of a reload: ok | refused
	LabelHash       = "hash"
	LabelReason     = "reason" // of a fault
	LabelRevision   = "revision"
	LabelGo         = "goversion"
	LabelLimit      = "limit"       // its name
	LabelPassedOver = "passed_over" // model/target that could not stand in
	LabelDecision   = "decision"    // see Decision
	LabelSource     = "source"      // see Source
)

// Values that stand for what may not be a label of its own.
const (
	LabelUnknown = "unknown" // never confirmed to exist
	LabelOther   = "other"   // beyond the bound on distinct values
)

// CodeDegraded is the code of a degraded answer in RequestDuration.
const CodeDegraded = "degraded"

// Names of attributes of log lines.
const (
	AttrCallKind   = "kind"
	AttrProtocol   = "protocol"
	AttrMethod     = "method"
	AttrModel      = "model"
	AttrVersion    = "version"
	AttrTarget     = "target"
	AttrUpstream   = "upstream"
	AttrEndpoint   = "endpoint"
	AttrAttempts   = "attempts"
	AttrAnswers    = "answers"
	AttrRequestID  = "request_id"
	AttrTraceID    = "trace_id"
	AttrCaller     = "caller"
	AttrUser       = "user"
	AttrCode       = "code"
	AttrReason     = "reason"
	AttrError      = "error"
	AttrCause      = "cause"
	AttrDegraded   = "degraded"
	AttrBytesIn    = "bytes_in"
	AttrBytesOut   = "bytes_out"
	AttrDuration   = "duration_ms"
	AttrUpstreamIn = "upstream_ms"
	AttrSuppressed = "suppressed" // lines of the same reason left out since the last one
	AttrPanic      = "panic"
	AttrStack      = "stack"
)

// Names of attributes of log lines about mirrored calls, beside those above.
const (
	AttrMirror        = "mirror" // the target that a copy of the call went to
	AttrOutcome       = "outcome"
	AttrOutput        = "output"
	AttrMaxAbs        = "max_abs_difference"
	AttrValue         = "value"
	AttrMirroredValue = "mirrored_value"
	AttrScore         = "score"
	AttrMirroredScore = "mirrored_score"
)
