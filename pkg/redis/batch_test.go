package redis

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/redistest"
	"github.com/model-gateway/model-gateway/pkg/stage/limit"
)

func TestCallersWhoLeaveABatchHoldUpNobody(t *testing.T) {
	s := redistest.Start(t)
	c, err := Open(Options{Addresses: []string{s.Addr}, Timeout: 5 * time.Second}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	limits := NewLimits(c)
	const tokens = 3000
	key := limit.ModelBase("m", "l").Key()
	var paid, left atomic.Int64
	var all sync.WaitGroup
	for worker := range 64 {
		all.Go(func() {
			for range 150 {
				patience := time.Minute
				if worker%2 == 0 {
					patience = rand.N(2 * time.Millisecond)
				}
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				v, err := limits.Draw(ctx, []limit.Draw{{Key: key, Rate: inference.Rate{Burst: tokens}, Cost: 1}})
				cancel()
				switch {
				case err == nil && v.OK:
					paid.Add(1)
				case err != nil && worker%2 == 1:
					t.Errorf("who waited got %v", err)
				case err != nil:
					left.Add(1)
				}
			}
		})
	}
	all.Wait()
	// What was paid for somebody who had left is lost, never given twice.
	if p, l := paid.Load(), left.Load(); p > tokens || p+l < tokens {
		t.Errorf("%d draws were paid and %d left, of %d tokens", p, l, tokens)
	}
	if left.Load() == 0 {
		t.Error("nobody left; the test shows nothing")
	}
	b := &c.breakers[0].batch
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.busy != 0 || len(b.waiting) != 0 {
		t.Errorf("%d lanes are busy and %d wait for nothing", b.busy, len(b.waiting))
	}
	if !c.Up() {
		t.Error("callers who leave tripped the breaker")
	}
}
