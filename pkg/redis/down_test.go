package redis_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/calm"
	"github.com/model-gateway/model-gateway/pkg/internal/redistest"
	"github.com/model-gateway/model-gateway/pkg/redis"
	"github.com/model-gateway/model-gateway/pkg/stage/limit"
)

// What a busy machine may add to a budget, for 19 of 20 and for the slowest.
const (
	scheduling = 80 * time.Millisecond
	starving   = 500 * time.Millisecond
	// patience is for what comes at once where nothing is wrong.
	patience = time.Minute
)

var plenty = inference.Rate{PerSecond: 1000, Burst: 1e9}

func one(model string) []limit.Draw {
	return []limit.Draw{{Key: limit.ModelBase(model, "l").Key(), Rate: plenty, Cost: 1}}
}

// watcher is an Observer that remembers.
type watcher struct {
	mu    sync.Mutex
	calls map[string]int
	ups   []bool
	up    chan bool
}

func watching() *watcher { return &watcher{calls: map[string]int{}, up: make(chan bool, 100)} }

func (w *watcher) RedisCall(op, outcome string, _ time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[op+" "+outcome]++
}

func (w *watcher) RedisUp(up bool) {
	w.mu.Lock()
	w.ups = append(w.ups, up)
	w.mu.Unlock()
	w.up <- up
}

func (w *watcher) count(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[what]
}

// wait waits for the news that Redis is up, or down, and gives how long that took.
func (w *watcher) wait(t *testing.T, up bool) time.Duration {
	t.Helper()
	begun := time.Now()
	late := time.After(patience)
	for {
		select {
		case got := <-w.up:
			if got == up {
				return time.Since(begun)
			}
		case <-late:
			t.Fatalf("after %v Redis still is not up=%v", patience, up)
		}
	}
}

// settle waits until a draw is paid, and forgets the news until then.
func (w *watcher) settle(t *testing.T, s limit.Store, draws func() []limit.Draw) {
	t.Helper()
	redistest.Eventually(t, func() error { _, err := s.Draw(context.Background(), draws()); return err })
	for len(w.up) > 0 {
		<-w.up
	}
}

// hammer lets callers draw until each has drawn n times, and returns how long the slower ones took.
func hammer(t *testing.T, s limit.Store, callers, n int) (p95, slowest time.Duration, failures int) {
	t.Helper()
	var all sync.WaitGroup
	var failed atomic.Int64
	took := make([]time.Duration, callers*n)
	for i := range callers {
		all.Go(func() {
			for j := range n {
				begun := time.Now()
				_, err := s.Draw(context.Background(), one("m"+strconv.Itoa(i)))
				took[i*n+j] = time.Since(begun)
				if err != nil {
					failed.Add(1)
				}
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	return took[len(took)*95/100], took[len(took)-1], int(failed.Load())
}

func TestASilentRedisCostsABudgetAndThenNothing(t *testing.T) {
	s := redistest.Start(t)
	w := watching()
	limits := redis.NewLimits(open(t, redis.Options{Addresses: []string{s.Addr}, Timeout: redis.DefaultTimeout}, w))
	calm.Moment(t, func() error {
		w.settle(t, limits, func() []limit.Draw { return one("m") })
		before := runtime.NumGoroutine()
		s.Pause()
		defer s.Resume()
		p95, slowest, failures := hammer(t, limits, 200, 5)
		if failures != 1000 {
			t.Errorf("%d of 1000 draws failed at a silent Redis", failures)
		}
		w.wait(t, false)
		if added := runtime.NumGoroutine() - before; added > 10*runtime.GOMAXPROCS(0)+10 {
			return fmt.Errorf("a silent Redis left %d goroutines", added)
		}
		skipped := w.count("draw skipped")
		quick, _, _ := hammer(t, limits, 8, 1000)
		if n := w.count("draw skipped") - skipped; n != 8000 {
			t.Errorf("%d of 8000 calls went to a Redis that is down", 8000-n)
		}
		if _, err := limits.Draw(context.Background(), one("m")); !errors.Is(err, redis.ErrDown) {
			t.Errorf("the error is %v, want ErrDown", err)
		}
		s.Resume()
		if back := w.wait(t, true); p95 > redis.DefaultTimeout+scheduling || slowest > redis.DefaultTimeout+starving || quick > time.Millisecond || back > 5*time.Second {
			return fmt.Errorf("draws took %v at a silent Redis, the slowest %v; %v once it was known to be down; up after %v", p95, slowest, quick, back)
		}
		return nil
	})
}

func TestARedisThatIsGoneIsFoundAgainWithinFiveSecondsAndHasFullBuckets(t *testing.T) {
	s := redistest.Start(t)
	w := watching()
	limits := redis.NewLimits(open(t, redis.Options{Addresses: []string{s.Addr}, Timeout: redis.DefaultTimeout}, w))
	small := func() []limit.Draw {
		return []limit.Draw{{Key: limit.ModelBase("m", "l").Key(), Rate: inference.Rate{Burst: 3}, Cost: 2}}
	}
	calm.Moment(t, func() error {
		w.settle(t, limits, small)
		s.Stop()
		p95, slowest, _ := hammer(t, limits, 50, 20)
		w.wait(t, false)
		// Long enough for the library to have given up dialing by itself.
		probes := w.count("probe error")
		redistest.Eventually(t, func() error {
			if n := w.count("probe error") - probes; n < 4 {
				return fmt.Errorf("%d probes", n)
			}
			return nil
		})
		s.Restart()
		back := w.wait(t, true)
		redistest.Eventually(t, func() error {
			draws := small()
			if _, err := limits.Draw(context.Background(), draws); err != nil {
				return err
			}
			if draws[0].Left != 1 {
				t.Errorf("a Redis without data has a bucket with %v left", draws[0].Left)
			}
			return nil
		})
		if p95 > redis.DefaultTimeout+scheduling || slowest > redis.DefaultTimeout+starving || back > 5*time.Second {
			return fmt.Errorf("draws took %v at a dead Redis, the slowest %v; up after %v", p95, slowest, back)
		}
		return nil
	})
}

func TestARedisThatNoConnectionReachesCostsABudget(t *testing.T) {
	addr := unreachable(t)
	calm.Moment(t, func() error {
		begun := time.Now()
		c := open(t, redis.Options{Addresses: []string{addr}, Timeout: redis.DefaultTimeout}, nil)
		defer func() { _ = c.Close() }()
		opening := time.Since(begun)
		limits := redis.NewLimits(c)
		before := runtime.NumGoroutine()
		p95, slowest, failures := hammer(t, limits, 200, 3)
		if failures != 600 {
			t.Errorf("%d of 600 failed", failures)
		}
		if c.Up() {
			t.Error("a Redis that nobody reaches counts as up")
		}
		if added := runtime.NumGoroutine() - before; added > 20*runtime.GOMAXPROCS(0)+10 {
			return fmt.Errorf("%d goroutines wait for connections", added)
		}
		if opening > scheduling || p95 > redis.DefaultTimeout+scheduling || slowest > redis.DefaultTimeout+starving {
			return fmt.Errorf("opening took %v, draws %v, the slowest %v", opening, p95, slowest)
		}
		return nil
	})
}

// unreachable is an address where attempts to connect get no answer at all: of a socket whose queue is full.
func unreachable(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	self, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	for range 4 { // more than the queue holds; those that hang do so in the background
		one, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Close(one) })
		if err := syscall.SetNonblock(one, true); err != nil {
			t.Fatal(err)
		}
		_ = syscall.Connect(one, self) // in progress
	}
	return fmt.Sprintf("127.0.0.1:%d", self.(*syscall.SockaddrInet4).Port)
}

func TestACallerWhoLeavesDoesNotTripTheBreaker(t *testing.T) {
	s := redistest.Start(t)
	w := watching()
	c := open(t, redis.Options{Addresses: []string{s.Addr}}, w)
	limits := redis.NewLimits(c)
	redistest.Eventually(t, func() error { _, err := limits.Draw(context.Background(), one("m")); return err })
	s.Pause()
	for range 30 {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Millisecond)
		if _, err := limits.Draw(ctx, one("m")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is %v, want that of the caller's context", err)
		}
		cancel()
	}
	s.Resume()
	if !c.Up() || w.count("draw cancelled") != 30 {
		t.Errorf("up: %v; %v", c.Up(), w.calls)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := limits.Draw(ctx, one("m")); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

func TestACallerWhoWaitsAsLongAsTheBudgetDoesTripIt(t *testing.T) {
	s := redistest.Start(t)
	w := watching()
	c := open(t, redis.Options{Addresses: []string{s.Addr}, Timeout: redis.DefaultTimeout}, w)
	limits := redis.NewLimits(c)
	redistest.Eventually(t, func() error { _, err := limits.Draw(context.Background(), one("m")); return err })
	s.Pause()
	defer s.Resume()
	// Five do. One that lost its time before it got there counts for nothing; on a busy machine there are some of those.
	for n := 0; c.Up(); n++ {
		ctx, cancel := context.WithTimeout(context.Background(), redis.DefaultTimeout)
		if _, err := limits.Draw(ctx, one("m")); err == nil {
			t.Error("a silent Redis paid")
		}
		cancel()
		if n == 200 {
			t.Fatalf("Redis counts as up; %v", w.calls)
		}
	}
}

func TestAMasterThatIsGoneCostsTheModelsOfOthersNothing(t *testing.T) {
	nodes := redistest.StartCluster(t, 3)
	w := watching()
	c := open(t, redis.Options{Mode: redis.Cluster, Addresses: redistest.Addrs(nodes)}, w)
	limits := redis.NewLimits(c)
	owner := map[int][]string{} // models by the node that has them
	for i := range 60 {
		model := "m" + strconv.Itoa(i)
		redistest.Eventually(t, func() error { _, err := limits.Draw(context.Background(), one(model)); return err })
		for n, node := range nodes {
			if got, err := node.Try("EXISTS", redis.DefaultPrefix+":"+one(model)[0].Key); err == nil && got == "1" {
				owner[n] = append(owner[n], model)
			}
		}
	}
	if len(owner[0]) == 0 || len(owner[1]) == 0 || len(owner[2]) == 0 {
		t.Fatalf("60 models are spread like %v", owner)
	}
	nodes[2].Stop()
	for range 20 {
		for _, model := range owner[2] {
			_, _ = limits.Draw(context.Background(), one(model))
		}
	}
	if c.Up() {
		t.Error("a cluster without one of its masters counts as up")
	}
	for n := range 2 {
		for _, model := range owner[n] {
			if _, err := limits.Draw(context.Background(), one(model)); err != nil {
				t.Errorf("a model on another master: %v", err)
			}
		}
	}
	for _, model := range owner[2] {
		if _, err := limits.Draw(context.Background(), one(model)); !errors.Is(err, redis.ErrDown) {
			t.Errorf("a model on the master that is gone: %v, want ErrDown", err)
		}
	}
}
