package redis

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	_ "embed"
	"encoding/hex"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/stage/limit"
)

// Limits is the limit.Store in Redis that all replicas share. Each method is one round trip, which those called at once
// share. Its clock is that of Redis.
//
// Buckets are keys that live until they would be full; a Redis that lost its data starts with full buckets. Without
// room for writes (maxmemory with noeviction) it counts as down; with eviction, evicted buckets are full ones.
type Limits struct {
	client *Client
}

// NewLimits makes the store of limits of a client.
func NewLimits(c *Client) *Limits {
	return &Limits{client: c}
}

//go:embed draw.lua
var drawScript string

var drawing = newScript(drawScript)

// The modes of draw.lua.
const (
	modeDraw  = 0
	modePeek  = 1
	modeLease = 2
)

func newScript(text string) script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // Redis names scripts by it
	return script{text: text, hash: hex.EncodeToString(sum[:])}
}

var _ limit.Store = (*Limits)(nil)

// Draw implements limit.Store.
func (l *Limits) Draw(ctx context.Context, draws []limit.Draw) (limit.Verdict, error) {
	if err := l.held(ctx, OpDraw, modeDraw, draws); err != nil {
		return limit.Verdict{}, err
	}
	return limit.Judge(draws, true), nil
}

// Peek implements limit.Store.
func (l *Limits) Peek(ctx context.Context, draws []limit.Draw) (limit.Verdict, error) {
	if err := l.held(ctx, OpPeek, modePeek, draws); err != nil {
		return limit.Verdict{}, err
	}
	return limit.Judge(draws, false), nil
}

// Lease implements limit.Store.
func (l *Limits) Lease(ctx context.Context, key string, rate inference.Rate, want float64) (limit.Leased, error) {
	if err := limit.CheckLease(key, rate, want); err != nil {
		return limit.Leased{}, err
	}
	draws := [1]limit.Draw{{Key: key, Rate: rate, Cost: want}}
	if err := l.held(ctx, OpLease, modeLease, draws[:]); err != nil {
		return limit.Leased{}, err
	}
	return limit.Lend(rate, draws[0].Left, want), nil
}

// Within is the longest that an answer takes, whatever happens.
func (l *Limits) Within() time.Duration { return l.client.options.Timeout }

// held runs the script, whose mode is called op, and sets Left to what the buckets held before.
func (l *Limits) held(ctx context.Context, op string, mode byte, draws []limit.Draw) error {
	if err := limit.Check(draws); err != nil {
		return err
	}
	if len(draws) == 0 {
		return nil
	}
	c := l.client
	b, err := c.asked(op, draws[0].Key)
	if err != nil {
		return err // before anything is prepared for it
	}
	begun := time.Now()
	q := newQuestion(mode, draws, begun.Add(c.options.Timeout))
	err = b.batch.ask(ctx, q)
	if err == nil {
		for i := range draws {
			draws[i].Left = q.held[i]
		}
		q.release()
	}
	return c.told(op, begun, err)
}
