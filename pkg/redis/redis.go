// Package redis is the connection to the Redis that replicas share, and what is kept there: token buckets, who the
// replicas are, what operators have changed, and where sequences are. No other package knows the client library.
//
// Redis may be slow, gone or silent at any time, and no call suffers for it by more than Options.Timeout: there are no
// retries, connections are bounded, and after a few failures a breaker says so at once (ErrDown) while a probe in the
// background finds out when it is back. A caller that leaves is not a failure. Nothing here ever waits for Redis to
// start.
package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/model-gateway/model-gateway/pkg/stage/limit"
)

// ErrDown says that Redis is known not to answer, and was not asked.
var ErrDown = limit.ErrDown

// Client is a connection to one Redis, or one Redis Cluster. All methods may be called at once.
type Client struct {
	rdb      goredis.UniversalClient
	single   *goredis.Client // rdb, where its connections are checked: all go to one Redis, and without TLS
	options  Options
	prefix   string // of every key, with its colon
	crc      uint16 // of prefix
	observer Observer
	breakers []*breaker // one for each part of the slots; just one without a cluster
	open     atomic.Int32
	stop     context.CancelFunc
	stopped  context.Context
	working  sync.WaitGroup
	closing  sync.Mutex
	closed   bool
}

// Open prepares a client. It connects in the background and never waits; its errors are those of wrong options.
func Open(o Options, observer Observer) (*Client, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if observer == nil {
		observer = nobody{}
	}
	rdb := o.client()
	prefix := o.Prefix + ":"
	c := &Client{rdb: rdb, options: o, observer: observer, prefix: prefix, crc: crc16(0, prefix)}
	if o.TLS == nil && o.connections() > 2*lanes { // which keep theirs: as many are left for all else
		c.single, _ = rdb.(*goredis.Client)
	}
	c.stopped, c.stop = context.WithCancel(context.Background())
	parts := 1
	if o.Mode == Cluster {
		parts = clusterParts
	}
	for range parts {
		c.breakers = append(c.breakers, newBreaker(c))
	}
	observer.RedisUp(true)
	c.background(c.warm)
	return c, nil
}

// Close ends what the client does in the background, and its connections. Calls under way fail.
func (c *Client) Close() error {
	c.closing.Lock()
	c.closed = true
	c.closing.Unlock()
	c.stop()
	for _, b := range c.breakers {
		b.batch.stop()
	}
	err := c.rdb.Close()
	c.working.Wait()
	return err
}

// Up reports whether Redis answered when it was last asked; of a cluster, every part of it.
func (c *Client) Up() bool { return c.open.Load() == 0 }

// Key is a key as it is in Redis: behind the prefix.
func (c *Client) Key(name string) string { return c.prefix + name }

// background runs f until it returns or, at Close, its context ends.
func (c *Client) background(f func(context.Context)) {
	c.closing.Lock()
	defer c.closing.Unlock()
	if !c.closed {
		c.working.Go(func() { f(c.stopped) })
	}
}

// warm connects, so that the first call does not wait for that, and finds out whether there is a Redis at all even if
// nobody calls.
func (c *Client) warm(ctx context.Context) {
	const name = "warm"
	b := c.breakers[c.slot(name)*len(c.breakers)/slots]
	for range tripAfter {
		if c.probe(ctx, b, name) == nil || !b.closed() {
			return
		}
		if !wait(ctx, warmEvery) {
			return
		}
	}
}

// probe writes something that does not matter into the slot of the key that name stands for: what cannot be written to,
// a replica or a full Redis, is no use.
func (c *Client) probe(ctx context.Context, b *breaker, name string) error {
	probe := c.Key("probe:{" + limit.Tag(c.Key(name)) + "}")
	begun := time.Now()
	err := b.try(ctx, name, c.options.Timeout, 1, func(ctx context.Context) error {
		return c.rdb.Set(ctx, probe, 1, time.Minute).Err()
	})
	c.observer.RedisCall(OpProbe, outcome(err), time.Since(begun))
	return err
}

// wait waits for d, and reports whether ctx did not end first.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// ask runs a script once about the key that name stands for, within the budget, unless Redis is known to be down. op is
// what metrics call it; args come after the key.
func (c *Client) ask(ctx context.Context, op, name string, s *script, args ...any) (*goredis.Cmd, error) {
	b, err := c.asked(op, name)
	if err != nil {
		return nil, err
	}
	var cmd *goredis.Cmd
	begun := time.Now()
	err = b.try(ctx, name, c.options.Timeout, 1, func(ctx context.Context) error {
		var err error
		cmd, err = c.eval(ctx, s, append([]any{nil, nil, 1, c.Key(name)}, args...))
		return err
	})
	return cmd, c.told(op, begun, err)
}

// told is the end of what was asked: metrics are told of it, and who reads the error what it was about.
func (c *Client) told(op string, begun time.Time, err error) error {
	c.observer.RedisCall(op, outcome(err), time.Since(begun))
	if err != nil && !isCallers(err) {
		return fmt.Errorf("redis: %s: %w", op, err)
	}
	return err
}

// asked is the breaker that knows about the key that name stands for, or ErrDown. It costs nanoseconds.
func (c *Client) asked(op, name string) (*breaker, error) {
	b := c.breakers[0]
	if n := len(c.breakers); n > 1 {
		b = c.breakers[c.slot(name)*n/slots]
	}
	if !b.closed() {
		c.observer.RedisCall(op, OutcomeSkipped, 0)
		return nil, ErrDown
	}
	return b, nil
}

// script is Lua that lives here, and runs under its hash, or with its text where Redis does not know it yet: after a
// restart, a failover, or SCRIPT FLUSH.
type script struct{ text, hash string }

// eval runs s; args begins with two places for the command and the script, and goes on as EVAL wants it. On a cluster
// the first key says where.
func (c *Client) eval(ctx context.Context, s *script, args []any) (*goredis.Cmd, error) {
	args[0], args[1] = "evalsha", s.hash
	cmd, err := c.do(ctx, args)
	if !unknownScript(err) {
		return cmd, err
	}
	args[0], args[1] = "eval", s.text
	return c.do(ctx, args)
}

func (c *Client) do(ctx context.Context, args []any) (*goredis.Cmd, error) {
	cmd := goredis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(beforeKeys)
	return cmd, c.rdb.Process(ctx, cmd)
}

func unknownScript(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") }

// callersError is the error of a context that ended before Redis answered: nobody's failure.
type callersError struct{ error }

func (e callersError) Unwrap() error { return e.error }

func isCallers(err error) bool {
	var c callersError
	return errors.As(err, &c)
}
