package redis

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/stage/limit"
)

// Limits is the limit.Store in Redis that all replicas share. Each method is one round trip. Its clock is that of Redis.
//
// Buckets are keys that live until they would be full; a Redis that lost its data starts with full buckets. Without
// room for writes (maxmemory with noeviction) it counts as down; with eviction, evicted buckets are full ones.
type Limits struct {
	client *Client
	draw   script
}

// NewLimits makes the store of limits of a client.
func NewLimits(c *Client) *Limits {
	return &Limits{client: c, draw: newScript(drawScript)}
}

//go:embed draw.lua
var drawScript string

func newScript(text string) script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // Redis names scripts by it
	return script{text: text, hash: hex.EncodeToString(sum[:])}
}

var _ limit.Store = (*Limits)(nil)

// Draw implements limit.Store.
func (l *Limits) Draw(ctx context.Context, draws []limit.Draw) (limit.Verdict, error) {
	if err := l.held(ctx, OpDraw, draws); err != nil {
		return limit.Verdict{}, err
	}
	return limit.Judge(draws, true), nil
}

// Peek implements limit.Store.
func (l *Limits) Peek(ctx context.Context, draws []limit.Draw) (limit.Verdict, error) {
	if err := l.held(ctx, OpPeek, draws); err != nil {
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
	if err := l.held(ctx, OpLease, draws[:]); err != nil {
		return limit.Leased{}, err
	}
	return limit.Lend(rate, draws[0].Left, want), nil
}

const bytesPerDraw = 4 * 8

// held runs the script, whose modes are called as the ops, and sets Left to what the buckets held before.
func (l *Limits) held(ctx context.Context, op string, draws []limit.Draw) error {
	if err := limit.Check(draws); err != nil {
		return err
	}
	if len(draws) == 0 {
		return nil
	}
	if _, err := l.client.asked(op, draws[0].Key); err != nil {
		return err // before anything is prepared for it
	}
	args := make([]any, 0, 5+len(draws))
	args = append(args, nil, nil, len(draws))
	rates := make([]byte, 0, bytesPerDraw*len(draws))
	for i := range draws {
		d := &draws[i]
		args = append(args, l.client.Key(d.Key))
		shadow := 0.0
		if d.Shadow {
			shadow = 1
		}
		for _, number := range [...]float64{d.Rate.PerSecond, d.Rate.Burst, d.Cost, shadow} {
			rates = binary.LittleEndian.AppendUint64(rates, math.Float64bits(number))
		}
	}
	args = append(args, op, rates)

	return l.client.ask(ctx, op, draws[0].Key, func(ctx context.Context, b *batcher) error {
		cmd, err := l.client.eval(ctx, b, &l.draw, args)
		if err != nil {
			return err
		}
		answer, err := cmd.Text()
		if err != nil {
			return err
		}
		if len(answer) != 8*len(draws) {
			return fmt.Errorf("%d bytes for %d buckets; is the prefix shared with something else?", len(answer), len(draws))
		}
		for i := range draws {
			draws[i].Left = math.Float64frombits(binary.LittleEndian.Uint64([]byte(answer[8*i : 8*i+8])))
		}
		return nil
	})
}
