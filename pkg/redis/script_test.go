package redis_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/redistest"
	"github.com/model-gateway/model-gateway/pkg/redis"
	"github.com/model-gateway/model-gateway/pkg/stage/limit"
)

// O-22.
func TestNobodyNoticesThatTheScriptsAreFlushed(t *testing.T) {
	s := redistest.Start(t)
	limits := redis.NewLimits(open(t, redis.Options{Addresses: []string{s.Addr}}, nil))
	done := make(chan struct{})
	var flushed atomic.Int64
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := 0; n < 500 || flushed.Load() < 10; n++ {
				if v, err := limits.Draw(context.Background(), one("m"+strconv.Itoa(i))); err != nil || !v.OK {
					t.Errorf("%+v, %v", v, err)
				}
			}
		})
	}
	go func() { all.Wait(); close(done) }()
	for {
		s.Do("SCRIPT", "FLUSH")
		flushed.Add(1)
		select {
		case <-done:
			return
		default:
		}
	}
}

// A connection is kept between draws, and Redis may end it meanwhile: for having been idle, or by starting again.
func TestNobodyNoticesThatRedisEndedTheConnection(t *testing.T) {
	s := redistest.Start(t)
	limits := redis.NewLimits(open(t, redis.Options{Addresses: []string{s.Addr}, Timeout: time.Minute}, nil))
	for i := range 10 {
		if v, err := limits.Draw(context.Background(), one("m")); err != nil || !v.OK {
			t.Errorf("draw %d: %+v, %v", i, v, err)
		}
		if i%2 == 0 {
			s.Stop()
			s.Restart()
			continue
		}
		s.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		redistest.Eventually(t, func() error { // it does so when it comes to it
			if list := s.Do("CLIENT", "LIST", "TYPE", "normal"); strings.Count(list, " fd=") > 1 {
				return fmt.Errorf("still there:\n%s", list)
			}
			return nil
		})
	}
}

func TestADrawIsOneRoundTrip(t *testing.T) {
	s := redistest.Start(t)
	limits := redis.NewLimits(open(t, redis.Options{Addresses: []string{s.Addr}}, nil))
	set := func() []limit.Draw {
		return []limit.Draw{
			{Key: limit.ModelBase("m", "model").Key(), Rate: plenty, Cost: 1},
			{Key: limit.ModelBase("m", "user").For("ann"), Rate: plenty, Cost: 1},
			{Key: limit.ModelBase("m", "caller").For("shop"), Rate: plenty, Cost: 1},
		}
	}
	for range 2 { // connected, and the script known
		if _, err := limits.Draw(context.Background(), set()); err != nil {
			t.Fatal(err)
		}
	}
	before := processed(t, s)
	for range 50 {
		if _, err := limits.Draw(context.Background(), set()); err != nil {
			t.Fatal(err)
		}
	}
	// Each draw is one EVALSHA, which inside does TIME, MGET and three SETs.
	if got := processed(t, s)["evalsha"] - before["evalsha"]; got != 50 {
		t.Errorf("50 draws were %d scripts", got)
	}
	if got := processed(t, s)["mget"] - before["mget"]; got != 50 {
		t.Errorf("50 draws read %d times", got)
	}
}

// processed is how often each command ran.
func processed(t *testing.T, s *redistest.Server) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, line := range strings.Fields(s.Do("INFO", "commandstats")) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !ok {
			continue
		}
		n, _, _ := strings.Cut(rest, ",")
		counts[name], _ = strconv.Atoi(n)
	}
	return counts
}

func TestAKeyLivesUntilItsBucketIsFull(t *testing.T) {
	s := redistest.Start(t)
	limits := redis.NewLimits(open(t, redis.Options{Addresses: []string{s.Addr}}, nil))
	for name, c := range map[string]struct {
		rate     inference.Rate
		cost     float64
		from, to time.Duration
	}{
		"soon":  {inference.Rate{PerSecond: 10, Burst: 100}, 100, 9 * time.Second, 11 * time.Second},
		"later": {inference.Rate{PerSecond: 500.0 / 60, Burst: 500}, 1, 100 * time.Millisecond, 1200 * time.Millisecond},
		"never": {inference.Rate{Burst: 5}, 1, 9 * 365 * 24 * time.Hour, 11 * 365 * 24 * time.Hour},
		"slow":  {inference.Rate{PerSecond: 1e-9, Burst: 5}, 1, 9 * 365 * 24 * time.Hour, 11 * 365 * 24 * time.Hour},
	} {
		key := limit.ModelBase(name, "l").Key()
		begun := time.Now()
		if _, err := limits.Draw(context.Background(), []limit.Draw{{Key: key, Rate: c.rate, Cost: c.cost}}); err != nil {
			t.Fatal(err)
		}
		ms, err := strconv.Atoi(s.Do("PTTL", redis.DefaultPrefix+":"+key))
		if err != nil {
			t.Fatal(err)
		}
		if ttl := time.Duration(ms) * time.Millisecond; ttl+time.Since(begun) < c.from || ttl > c.to {
			t.Errorf("%s: the key lives for %v, want %v to %v", name, ttl, c.from, c.to)
		}
	}
}

func TestARefusedDrawWritesNothing(t *testing.T) {
	s := redistest.Start(t)
	limits := redis.NewLimits(open(t, redis.Options{Addresses: []string{s.Addr}}, nil))
	empty := limit.Draw{Key: limit.ModelBase("m", "a").Key(), Rate: inference.Rate{Burst: 1}, Cost: 2}
	other := limit.Draw{Key: limit.ModelBase("m", "b").For("x"), Rate: plenty, Cost: 1}
	if v, err := limits.Draw(context.Background(), []limit.Draw{empty, other}); err != nil || v.OK {
		t.Fatalf("%+v, %v", v, err)
	}
	if keys := s.Do("KEYS", "*limit*"); keys != "" {
		t.Errorf("a refusal left %q", keys)
	}
}

func TestAKeyOfSomebodyElseIsAFullBucket(t *testing.T) {
	s := redistest.Start(t)
	limits := redis.NewLimits(open(t, redis.Options{Addresses: []string{s.Addr}}, nil))
	for i, spoil := range [][]string{{"SET", "", "rubbish"}, {"SADD", "", "a"}, {"SET", "", ""}, {"SET", "", strings.Repeat("\xff", 16)}} {
		key := limit.ModelBase("m"+strconv.Itoa(i), "l").Key()
		spoil[1] = redis.DefaultPrefix + ":" + key
		s.Do(spoil...)
		draws := []limit.Draw{{Key: key, Rate: inference.Rate{Burst: 3}, Cost: 1}}
		if v, err := limits.Draw(context.Background(), draws); err != nil || !v.OK || draws[0].Left != 2 {
			t.Errorf("%v: %+v %+v, %v", spoil, v, draws, err)
		}
	}
}

// O-21: only the clock of Redis counts, and it may be set back, as a failover to a slower one does.
func TestAClockThatIsSetBackNeitherFillsNorBlocks(t *testing.T) {
	s := redistest.Start(t)
	limits := redis.NewLimits(open(t, redis.Options{Addresses: []string{s.Addr}}, nil))
	key := limit.ModelBase("m", "l").Key()
	rate := inference.Rate{PerSecond: 100, Burst: 10}
	draws := []limit.Draw{{Key: key, Rate: rate, Cost: 10}}
	if _, err := limits.Draw(context.Background(), draws); err != nil {
		t.Fatal(err)
	}
	// The bucket as the other clock wrote it: empty, an hour from now.
	s.Do("EVAL", `local t = redis.call('TIME')
		redis.call('SET', KEYS[1], struct.pack('<dd', 2, t[1] * 1000000 + t[2] + 3600000000))`, "1", redis.DefaultPrefix+":"+key)
	draws = []limit.Draw{{Key: key, Rate: rate, Cost: 1}}
	if v, err := limits.Draw(context.Background(), draws); err != nil || !v.OK || draws[0].Left != 1 {
		t.Fatalf("%+v %+v, %v", v, draws, err)
	}
	redistest.Eventually(t, func() error {
		draws := []limit.Draw{{Key: key, Rate: rate, Cost: 10}}
		if v, err := limits.Draw(context.Background(), draws); err != nil || !v.OK {
			return fmt.Errorf("an hour is being waited for: %+v, %w", v, err)
		}
		return nil
	})
}
