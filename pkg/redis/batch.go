package redis

import (
	"context"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// batcher lets commands that are asked for at once go together: writing and reading cost more than all the rest, and
// many commands can share one write and one read. While fewer than lanes are under way, a command goes alone and at
// once. The others wait for a lane; whoever has waited longest then sends them all. There is no goroutine.
type batcher struct {
	rdb    goredis.UniversalClient
	budget time.Duration

	mu      sync.Mutex
	busy    int // lanes
	waiting []*passenger
}

const (
	lanes    = 2
	maxBatch = 64 // commands
)

// passenger is a command that waits for a lane.
type passenger struct {
	cmd  *goredis.Cmd
	turn chan []*passenger // the batch, for who shall send it; closed for who has been sent
	left bool              // nobody waits for it any more
}

// process is what the client's Process is. When ctx ends first the command may still run, and is not to be touched.
func (b *batcher) process(ctx context.Context, cmd *goredis.Cmd) error {
	b.mu.Lock()
	if b.busy < lanes {
		b.busy++
		b.mu.Unlock()
		defer b.handOver(nil)
		return b.rdb.Process(ctx, cmd)
	}
	p := &passenger{cmd: cmd, turn: make(chan []*passenger, 1)}
	b.waiting = append(b.waiting, p)
	b.mu.Unlock()

	select {
	case batch := <-p.turn:
		if batch != nil {
			b.send(ctx, batch)
		}
		return cmd.Err()
	case <-ctx.Done():
		b.leave(p)
		return ctx.Err()
	}
}

// leave is for who cannot wait longer. Whoever has just been told to send a batch lets another do it.
func (b *batcher) leave(p *passenger) {
	b.mu.Lock()
	p.left = true
	b.waiting = slices.DeleteFunc(b.waiting, func(w *passenger) bool { return w == p })
	b.mu.Unlock()
	select {
	case batch := <-p.turn:
		if batch != nil {
			b.handOver(batch)
		}
	default:
	}
}

// handOver gives the lane to one of batch, or if there is nobody to one of those that wait, or back.
func (b *batcher) handOver(batch []*passenger) {
	b.mu.Lock()
	defer b.mu.Unlock()
	batch = slices.DeleteFunc(batch, func(p *passenger) bool { return p.left })
	if len(batch) == 0 {
		if len(b.waiting) == 0 {
			b.busy--
			return
		}
		n := min(len(b.waiting), maxBatch)
		batch = slices.Clone(b.waiting[:n])
		b.waiting = slices.Delete(b.waiting, 0, n)
	}
	batch[0].turn <- batch
}

// send sends a batch on the lane that came with it. Nobody's leaving ends it: it has a budget of its own.
func (b *batcher) send(ctx context.Context, batch []*passenger) {
	defer b.handOver(nil)
	defer func() {
		for _, p := range batch[1:] {
			close(p.turn)
		}
	}()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.budget)
	defer cancel()
	if len(batch) == 1 {
		_ = b.rdb.Process(ctx, batch[0].cmd) // the command has the error
		return
	}
	pipe := b.rdb.Pipeline()
	for _, p := range batch {
		_ = pipe.Process(ctx, p.cmd) // only queues
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
}
