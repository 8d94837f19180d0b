package limit

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Ten million users take a minute or two, and more under the race detector: `make slow` runs it.
func TestMemoryStaysBoundedUnderTenMillionUsers(t *testing.T) {
	if os.Getenv("SLOW") == "" {
		t.Skip("takes a minute or two: make slow")
	}
	const users, most = 10_000_000, 160 << 20
	rate := perSecond(1e-6, 10) // no bucket is full again before the end, which is the worst
	store := NewMemory(MemoryOptions{})
	r := newRig(t, Options{Store: store, Alone: true})
	m := &inference.Model{Name: "fraud", Limits: []*inference.Limit{
		{Name: "user", Per: inference.PerUser, Rate: rate},
		{Name: "model", Per: inference.PerModel, Rate: perSecond(1e9, 1e9)},
	}}
	before := heapNow()
	var mu sync.Mutex
	var peak uint64
	var next, refused atomic.Int64
	begin := time.Now()
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := next.Add(1); i <= users; i = next.Add(1) {
				c := &inference.Call{Model: m, Identity: inference.Identity{User: fmt.Sprintf("user-%d@shop.example", i)}}
				if err := r.call(t.Context(), c); err != nil {
					refused.Add(1)
				}
				if i%1_000_000 == 0 {
					mu.Lock()
					peak = max(peak, heapNow()-before)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	t.Logf("%d users in %v, %v a call; at most %d MiB, %d buckets and %d accounts", users, took.Round(time.Millisecond), took/users, peak>>20, store.Len(), r.accounts.size())
	if refused.Load() != 0 {
		t.Errorf("%d users were refused their first call", refused.Load())
	}
	if peak > most {
		t.Errorf("%d MiB were held, at most %d may be", peak>>20, most>>20)
	}
}

// heapNow is what is held, garbage left out.
func heapNow() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}
