package observe

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
)

// Reasons to log a call that is no failure.
const (
	reasonSlow    = "SLOW"
	reasonSampled = "SAMPLED"
)

// logCall writes the access log: failures, slow calls, a sample of the rest, and at debug level everything.
// Lines never have metadata in them other than the names a call is known under, and what a script says its reason is.
func (s *Stage) logCall(ctx context.Context, c *inference.Call, f *fault.Fault, d time.Duration, bytesIn int) {
	level, reason := s.why(f, d)
	var suppressed int
	if reason != "" && !s.Log.Enabled(ctx, slog.LevelDebug) {
		if !s.Log.Enabled(ctx, level) {
			return
		}
		var ok bool
		if suppressed, ok = s.limit.allow(reason, s.Now()); !ok {
			s.Recorder.Suppressed()
			return
		}
	}
	if !s.Log.Enabled(ctx, level) {
		return
	}
	attrs := append(identityAttrs(c), targetAttrs(c)...)
	attrs = append(attrs,
		slog.Int(telemetry.AttrBytesIn, bytesIn),
		slog.Float64(telemetry.AttrDuration, ms(d)),
		slog.Float64(telemetry.AttrUpstreamIn, ms(c.UpstreamIn)),
	)
	if c.Sink == nil { // else answers are gone, and their sizes with them
		attrs = append(attrs, slog.Int(telemetry.AttrBytesOut, c.Answer.Len()))
	}
	attrs = append(attrs, faultAttrs(f)...)
	attrs = append(attrs, degradedAttrs(c)...)
	if suppressed > 0 {
		attrs = append(attrs, slog.Int(telemetry.AttrSuppressed, suppressed))
	}
	s.Log.LogAttrs(ctx, level, "call", attrs...)
}

// why decides at which level a call is logged, and for which reason; without a reason it is for debugging only.
func (s *Stage) why(f *fault.Fault, d time.Duration) (slog.Level, string) {
	switch {
	case f != nil && f.Kind == fault.Internal:
		return slog.LevelError, f.Kind.Reason()
	case f != nil && f.HTTP() >= 500:
		return slog.LevelWarn, f.Kind.Reason()
	case f != nil:
		return slog.LevelInfo, f.Kind.Reason()
	case s.Slow > 0 && d >= s.Slow:
		return slog.LevelWarn, reasonSlow
	case s.Sample > 0 && rand.Float64() < s.Sample:
		return slog.LevelInfo, reasonSampled
	}
	return slog.LevelDebug, ""
}

// logStream writes a line for a stream that failed as a whole, and at debug level for every one.
func (s *Stage) logStream(ctx context.Context, c *inference.Call, f *fault.Fault, d time.Duration) {
	level, suppressed := slog.LevelDebug, 0
	if f != nil && !ordinary(f.Kind) {
		level, _ = s.why(f, 0)
		var ok bool
		if suppressed, ok = s.limit.allow(f.Kind.Reason(), s.Now()); !ok {
			s.Recorder.Suppressed()
			return
		}
	}
	if !s.Log.Enabled(ctx, level) {
		return
	}
	attrs := append(identityAttrs(c), slog.Float64(telemetry.AttrDuration, ms(d)))
	attrs = append(attrs, faultAttrs(f)...)
	if suppressed > 0 {
		attrs = append(attrs, slog.Int(telemetry.AttrSuppressed, suppressed))
	}
	s.Log.LogAttrs(ctx, level, "stream", attrs...)
}

func identityAttrs(c *inference.Call) []slog.Attr {
	attrs := make([]slog.Attr, 0, 24)
	attrs = append(attrs,
		slog.String(telemetry.AttrRequestID, c.RequestID),
		slog.String(telemetry.AttrProtocol, c.Protocol.String()),
		slog.String(telemetry.AttrCallKind, c.Kind.String()),
		slog.String(telemetry.AttrMethod, c.Method),
	)
	for _, a := range []struct{ name, value string }{
		{telemetry.AttrTraceID, c.TraceID},
		{telemetry.AttrCaller, c.CallerName()},
		{telemetry.AttrUser, c.User},
	} {
		if a.value != "" {
			attrs = append(attrs, slog.String(a.name, clip(a.value)))
		}
	}
	return attrs
}

func targetAttrs(c *inference.Call) []slog.Attr {
	// The model as the client wrote it: a log line may name what does not exist, a label may not.
	attrs := []slog.Attr{slog.String(telemetry.AttrModel, clip(c.Head.Model))}
	if t := c.Target; t != nil {
		attrs = append(attrs,
			slog.String(telemetry.AttrTarget, t.Name),
			slog.String(telemetry.AttrVersion, t.Version),
			slog.String(telemetry.AttrUpstream, t.Upstream),
		)
	}
	attrs = append(attrs, choiceAttrs(&c.Choice)...)
	if c.Endpoint != "" {
		attrs = append(attrs, slog.String(telemetry.AttrEndpoint, c.Endpoint), slog.Int(telemetry.AttrAttempts, c.Attempts))
	}
	return append(attrs, slog.Int(telemetry.AttrAnswers, c.Answers))
}

// choiceAttrs says how a call came to its target, where rules had a say in it.
func choiceAttrs(ch *inference.Choice) []slog.Attr {
	if ch.Rule == "" && ch.Reason == "" {
		return nil
	}
	attrs := []slog.Attr{slog.String(telemetry.AttrSplitBy, ch.By)}
	if ch.Rule != "" {
		attrs = append(attrs, slog.String(telemetry.AttrSplitRule, ch.Rule))
	}
	if ch.Reason != "" {
		attrs = append(attrs, slog.String(telemetry.AttrSplitReason, clip(ch.Reason)))
	}
	return attrs
}

func faultAttrs(f *fault.Fault) []slog.Attr {
	if f == nil {
		return []slog.Attr{slog.Int(telemetry.AttrCode, 200)}
	}
	attrs := []slog.Attr{
		slog.Int(telemetry.AttrCode, f.HTTP()),
		slog.String(telemetry.AttrReason, f.Kind.Reason()),
		slog.String(telemetry.AttrError, clip(f.Msg)),
	}
	if f.Cause != nil {
		attrs = append(attrs, slog.String(telemetry.AttrCause, clip(f.Cause.Error())))
	}
	return attrs
}

// degradedAttrs tell of an answer that a fallback gave: the code and the reason beside them are those of the fault that it
// hides.
func degradedAttrs(c *inference.Call) []slog.Attr {
	d := c.Degraded
	switch {
	case d == nil:
		return nil
	case d.Target == nil:
		return []slog.Attr{slog.Bool(telemetry.AttrDegraded, true), slog.Float64(telemetry.AttrFallbackScore, d.Score)}
	}
	attrs := []slog.Attr{slog.Bool(telemetry.AttrDegraded, true)}
	if d.From != nil {
		attrs = append(attrs, slog.String(telemetry.AttrDegradedFrom, d.From.Name))
	}
	return attrs
}

// maxText is the longest text of others that goes into a line, in bytes.
const maxText = 4096

func clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	return s[:maxText] + "…"
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
