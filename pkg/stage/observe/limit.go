package observe

import (
	"sync"
	"time"
)

// limiter lets so many lines through each second for one reason. Reasons are those of the fault table and a few more,
// so there are never many.
type limiter struct {
	perSecond int

	mu      sync.Mutex
	reasons map[string]*line
}

type line struct {
	second     int64
	written    int
	suppressed int
}

// allow reports whether a line may be written now, and how many of its reason were not since the last one that was.
func (l *limiter) allow(reason string, now time.Time) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.reasons[reason]
	if of == nil {
		if l.reasons == nil {
			l.reasons = make(map[string]*line)
		}
		of = &line{}
		l.reasons[reason] = of
	}
	if second := now.Unix(); second != of.second {
		of.second, of.written = second, 0
	}
	if of.written >= l.perSecond {
		of.suppressed++
		return 0, false
	}
	of.written++
	suppressed, of.suppressed = of.suppressed, 0
	return suppressed, true
}
