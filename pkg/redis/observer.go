package redis

import (
	"context"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// Observer is told how Redis does. Its methods may be called at once, and must be quick.
type Observer interface {
	// RedisCall is told of every call: what it was for, how it ended, and how long it took.
	RedisCall(op, outcome string, took time.Duration)
	// RedisUp is told when Redis stops answering, and when it is back.
	RedisUp(up bool)
}

// What calls are for.
const (
	OpDraw      = "draw"
	OpPeek      = "peek"
	OpLease     = "lease"
	OpHeartbeat = "heartbeat"
	OpProbe     = "probe"
)

// How calls end.
const (
	OutcomeOK        = "ok"
	OutcomeError     = "error"     // Redis refused, or the connection failed
	OutcomeTimeout   = "timeout"   // it took longer than it may
	OutcomeCancelled = "cancelled" // the caller left first
	OutcomeSkipped   = "skipped"   // Redis is known to be down and was not asked
)

type nobody struct{}

func (nobody) RedisCall(string, string, time.Duration) {}
func (nobody) RedisUp(bool)                            {}

// quietLibrary keeps the library from writing to standard error by itself: what it has to say comes back as errors and
// ends in metrics, once, instead of once for every connection.
var quietLibrary = sync.OnceFunc(func() { goredis.SetLogger(silence{}) })

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
