package scripts

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/luavm"
)

const (
	failureEvery = 10 * time.Second // one line of failures for each script
	sayEvery     = time.Second      // one line of what each script logs itself
	maxLogged    = 1 << 10          // bytes
)

// limiter lets one line through now and then, and counts the others. It takes no lock.
type limiter struct {
	next       atomic.Int64
	suppressed atomic.Int64
}

// line reports whether a line may be written now, and how many were left out since the last one.
func (l *limiter) line(every time.Duration) (suppressed int64, ok bool) {
	now, next := time.Now().UnixNano(), l.next.Load()
	if now < next || !l.next.CompareAndSwap(next, now+int64(every)) {
		l.suppressed.Add(1)
		return 0, false
	}
	return l.suppressed.Swap(0), true
}

// failed tells of a run that failed.
func (s *Store) failed(u *unit, v *version, c *inference.Call, outcome int, err error) {
	suppressed, ok := u.failures.line(failureEvery)
	if !ok {
		return
	}
	line := 0
	var failed *luavm.RunError
	if errors.As(err, &failed) {
		line = failed.Line
	}
	s.log.Warn(
		"a script failed, and its call goes to the stable target", "script", u.name, "line", line, "outcome", outcomeLabels[outcome],
		"error", clip(err.Error()), "hash", v.script.Hash, "model", c.Head.Model, "suppressed", suppressed,
	)
}

// switched tells that a script was switched off or on.
func (s *Store) switched(u *unit, v *version, off bool) {
	if off {
		s.log.Error(
			"a script keeps failing and is off: its models go to their stable targets until it does better, or a new version comes",
			"script", u.name, "hash", v.script.Hash, "tried_again_in", offFor.String(),
		)
		return
	}
	s.log.Info("a script that was off does well and is on again", "script", u.name, "hash", v.script.Hash)
}

// say writes what a script logs.
func (s *Store) say(u *unit, level int, message string) {
	if u == nil {
		return
	}
	to := slog.LevelDebug
	switch {
	case level <= luavm.LogErr:
		to = slog.LevelError
	case level == luavm.LogWarn:
		to = slog.LevelWarn
	case level <= luavm.LogInfo:
		to = slog.LevelInfo
	}
	if !s.log.Enabled(context.Background(), to) {
		return
	}
	if suppressed, ok := u.said.line(sayEvery); ok {
		s.log.Log(context.Background(), to, "a script says", "script", u.name, "message", clip(message), "suppressed", suppressed)
	}
}

// clip keeps what is not ours short enough for a line.
func clip(s string) string {
	if len(s) > maxLogged {
		s = strings.ToValidUTF8(s[:maxLogged], "") + "…"
	}
	return s
}
