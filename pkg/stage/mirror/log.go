package mirror

import (
	"log/slog"
	"sync"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
)

// logDifference writes a sample of the answers that differ: where, and both values. No user is in it; the request id
// leads to the access log.
func (s *Stage) logDifference(d *duplicate, diff *inference.Difference) {
	attrs, ok := s.line(d, diff.Kind.String())
	if !ok {
		return
	}
	attrs = append(attrs, slog.String(telemetry.AttrOutput, diff.Output))
	if diff.MaxAbs > 0 {
		attrs = append(attrs, slog.Float64(telemetry.AttrMaxAbs, diff.MaxAbs),
			slog.Float64(telemetry.AttrValue, diff.Value), slog.Float64(telemetry.AttrMirroredValue, diff.Mirrored))
	}
	if diff.Scored {
		attrs = append(attrs, slog.Float64(telemetry.AttrScore, diff.Score), slog.Float64(telemetry.AttrMirroredScore, diff.MirroredScore))
	}
	s.Log.LogAttrs(s.ctx, slog.LevelInfo, "a mirrored answer differs", attrs...)
}

// logFailure writes a sample of the copies that have no answer.
func (s *Stage) logFailure(d *duplicate, err error) {
	if attrs, ok := s.line(d, telemetry.MirrorFailed); ok {
		s.Log.LogAttrs(s.ctx, slog.LevelInfo, "a mirrored call failed", append(attrs, slog.String(telemetry.AttrError, err.Error()))...)
	}
}

// line begins a line of the log, unless one like it has just been written.
func (s *Stage) line(d *duplicate, outcome string) ([]slog.Attr, bool) {
	suppressed, ok := s.lines.allow(lineKey{d.call.Target, outcome}, time.Now())
	if !ok {
		return nil, false
	}
	attrs := []slog.Attr{
		slog.String(telemetry.AttrModel, d.call.Model.Name), slog.String(telemetry.AttrTarget, d.answered.Name),
		slog.String(telemetry.AttrMirror, d.call.Target.Name), slog.String(telemetry.AttrOutcome, outcome),
		slog.String(telemetry.AttrRequestID, d.call.RequestID), slog.String(telemetry.AttrTraceID, d.call.TraceID),
	}
	if suppressed > 0 {
		attrs = append(attrs, slog.Int(telemetry.AttrSuppressed, suppressed))
	}
	return attrs, true
}

// maxLines bounds how many kinds of lines are told apart.
const maxLines = 1000

type lineKey struct {
	to      *inference.Target
	outcome string
}

// limiter lets one line a second through for each target and outcome.
type limiter struct {
	mu    sync.Mutex
	lines map[lineKey]*lineState
}

type lineState struct {
	second     int64
	suppressed int
}

func (l *limiter) allow(k lineKey, now time.Time) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	state := l.lines[k]
	if state == nil {
		if len(l.lines) >= maxLines || l.lines == nil { // targets come and go with reloads
			l.lines = make(map[lineKey]*lineState)
		}
		state = &lineState{second: -1}
		l.lines[k] = state
	}
	second := now.Unix()
	if second == state.second {
		state.suppressed++
		return 0, false
	}
	suppressed, state.second, state.suppressed = state.suppressed, second, 0
	return suppressed, true
}
