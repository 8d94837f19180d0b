package redis

import (
	"context"
	_ "embed"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"
)

// Peers knows how many replicas there are: each says now and then that it lives. What it knew last stands while Redis
// does not answer, for that is when it is needed: a replica on its own takes its share of every rate.
type Peers struct {
	client *Client
	id     string
	every  time.Duration
	count  atomic.Int64
	script script
	since  time.Time // of the first of the answers that came without a gap; zero after a failure
}

const (
	heartbeatEvery = 3 * time.Second
	// missedBeats in a row, and a replica is no longer counted.
	missedBeats = 3
)

//go:embed peers.lua
var peersScript string

// NewPeers makes what counts replicas. id is this one's, different from all others'; until Redis has told, count is
// what the configuration says, at least 1. Run keeps it up to date.
func NewPeers(c *Client, id string, count int) *Peers {
	return newPeers(c, id, count, heartbeatEvery)
}

func newPeers(c *Client, id string, count int, every time.Duration) *Peers {
	p := &Peers{client: c, id: id, every: every, script: newScript(peersScript)}
	p.count.Store(int64(max(count, 1)))
	return p
}

// Count is how many replicas live, this one included; at least 1.
func (p *Peers) Count() int { return int(p.count.Load()) }

// Run says that this replica lives until ctx ends, and then goodbye. Once for each Peers.
func (p *Peers) Run(ctx context.Context) {
	for {
		p.say(ctx)
		wait := time.NewTimer(p.every*9/10 + rand.N(p.every/5)) // apart from the others
		select {
		case <-ctx.Done():
			wait.Stop()
			_, _ = p.beat(context.WithoutCancel(ctx), true) // within the budget, and if Redis is down it forgets by itself
			return
		case <-wait.C:
		}
	}
}

func (p *Peers) say(ctx context.Context) {
	n, err := p.beat(ctx, false)
	if err != nil {
		p.since = time.Time{}
		return
	}
	if p.since.IsZero() {
		p.since = time.Now()
	}
	// A Redis that has just come, or come back without its data, does not know the others yet. To believe it at once
	// would give each replica the whole rate.
	if n > p.Count() || time.Since(p.since) >= p.every*missedBeats {
		p.count.Store(int64(max(n, 1)))
	}
}

func (p *Peers) beat(ctx context.Context, goodbye bool) (int, error) {
	const name = "replicas"
	leaves := "0"
	if goodbye {
		leaves = "1"
	}
	counts := strconv.FormatInt((p.every * missedBeats).Milliseconds(), 10)
	cmd, err := p.client.ask(ctx, OpHeartbeat, name, &p.script, p.id, counts, leaves)
	if err != nil {
		return 0, err
	}
	return cmd.Int()
}
