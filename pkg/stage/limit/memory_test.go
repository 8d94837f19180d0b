package limit_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/stage/limit"
)

type clock struct{ now atomic.Int64 }

func (c *clock) Now() time.Time          { return time.Unix(0, c.now.Load()) }
func (c *clock) advance(d time.Duration) { c.now.Add(int64(d)) }

func pay(t testing.TB, m limit.Store, key string, rate inference.Rate) limit.Draw {
	t.Helper()
	draws := []limit.Draw{{Key: key, Rate: rate, Cost: 1}}
	if _, err := m.Draw(context.Background(), draws); err != nil {
		t.Fatal(err)
	}
	return draws[0]
}

func TestMemoryStaysBoundedUnderAMillionUsers(t *testing.T) {
	const bound, users = 50_000, 1_000_000
	m := limit.NewMemory(limit.MemoryOptions{MaxBuckets: bound})
	rate := inference.Rate{PerSecond: 1e-6, Burst: 10} // nothing fills meanwhile
	base := limit.ModelBase("m", "per-user")
	before := heap()
	for i := range users {
		if d := pay(t, m, base.For(strconv.Itoa(i)), rate); !d.Able {
			t.Fatalf("a new user was refused: %+v", d)
		}
	}
	if n := m.Len(); n > bound+64 {
		t.Errorf("%d buckets are remembered, want at most %d", n, bound)
	}
	if per := float64(heap()-before) / bound; per > 140 {
		t.Errorf("a bucket takes %.0f bytes", per)
	} else {
		t.Logf("%.0f bytes a bucket", per)
	}
	runtime.KeepAlive(m)
}

func heap() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

func TestFullBucketsAreForgottenAsNewOnesCome(t *testing.T) {
	var c clock
	m := limit.NewMemory(limit.MemoryOptions{Now: c.Now})
	base := limit.ModelBase("m", "per-user")
	rate := inference.Rate{PerSecond: 1, Burst: 10} // full again after a second
	for i := range 200_000 {
		pay(t, m, base.For(strconv.Itoa(i)), rate)
		c.advance(100 * time.Microsecond) // 10,000 users a second, so 10,000 buckets that are not full
	}
	if n := m.Len(); n > 25_000 {
		t.Errorf("%d buckets are remembered where 10,000 are not full", n)
	}
}

func TestWithoutRoomTheFullestBucketGoesAndTheEmptiestStays(t *testing.T) {
	m := limit.NewMemory(limit.MemoryOptions{MaxBuckets: 6400})
	base := limit.ModelBase("m", "per-user")
	rate := inference.Rate{PerSecond: 1e-3, Burst: 1000}
	abusive := base.For("abusive")
	draws := []limit.Draw{{Key: abusive, Rate: rate, Cost: 1000}}
	if _, err := m.Draw(context.Background(), draws); err != nil {
		t.Fatal(err)
	}
	for i := range 100_000 {
		pay(t, m, base.For(strconv.Itoa(i)), rate)
	}
	if d := pay(t, m, abusive, rate); d.Able {
		t.Errorf("a crowd of users filled the bucket of another: %+v", d)
	}
}

func TestRefusedDrawsAreNotRemembered(t *testing.T) {
	m := limit.NewMemory(limit.MemoryOptions{})
	for i := range 1000 {
		draws := []limit.Draw{{Key: limit.ModelBase("m", "per-user").For(strconv.Itoa(i)), Rate: inference.Rate{PerSecond: 1, Burst: 1}, Cost: 2}}
		if v, err := m.Draw(context.Background(), draws); err != nil || v.OK {
			t.Fatalf("%+v, %v", v, err)
		}
	}
	if m.Len() != 0 {
		t.Errorf("%d buckets are remembered of users who drew nothing", m.Len())
	}
}

func TestSetsOfDrawsInDifferentOrdersDoNotBlockEachOther(t *testing.T) {
	m := limit.NewMemory(limit.MemoryOptions{})
	base := limit.ModelBase("m", "per-user")
	rate := inference.Rate{PerSecond: 1, Burst: 1e9}
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range 2000 {
				var draws []limit.Draw
				for j := range 6 {
					draws = append(draws, limit.Draw{Key: base.For(fmt.Sprint((worker*7+i*(j+1)*3+j)%61*6 + j)), Rate: rate, Cost: 1})
				}
				if v, err := m.Draw(context.Background(), draws); err != nil || !v.OK {
					t.Errorf("%+v, %v", v, err)
					return
				}
			}
		})
	}
	all.Wait()
}

func TestAClockThatGoesBackNeitherFillsNorBlocks(t *testing.T) {
	var c clock
	m := limit.NewMemory(limit.MemoryOptions{Now: c.Now})
	key := limit.ModelBase("m", "l").Key()
	rate := inference.Rate{PerSecond: 1, Burst: 2}
	pay(t, m, key, rate)
	c.advance(-time.Hour)
	if d := pay(t, m, key, rate); !d.Able || d.Left != 0 {
		t.Errorf("after an hour back: %+v", d)
	}
	c.advance(time.Second)
	if d := pay(t, m, key, rate); !d.Able || d.Left != 0 {
		t.Errorf("a second later: %+v", d)
	}
}

func BenchmarkMemoryDraw(b *testing.B) {
	rate := inference.Rate{PerSecond: 1e9, Burst: 1e9}
	for _, n := range []int{1, 3} {
		b.Run(fmt.Sprint(n, " buckets"), func(b *testing.B) {
			m := limit.NewMemory(limit.MemoryOptions{})
			var draws []limit.Draw
			for i := range n {
				draws = append(draws, limit.Draw{Key: limit.ModelBase("fraud", "per-user").For(strconv.Itoa(i)), Rate: rate, Cost: 1})
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.Draw(context.Background(), draws); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("of 100,000 users", func(b *testing.B) {
		m := limit.NewMemory(limit.MemoryOptions{})
		keys := make([]string, 100_000)
		for i := range keys {
			keys[i] = limit.ModelBase("fraud", "per-user").For(strconv.Itoa(i))
		}
		draws := []limit.Draw{{Rate: inference.Rate{PerSecond: 0.1, Burst: 1e9}, Cost: 1}}
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			draws[0].Key = keys[i%len(keys)]
			i++
			if _, err := m.Draw(context.Background(), draws); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("callers at once", func(b *testing.B) {
		m := limit.NewMemory(limit.MemoryOptions{})
		b.ReportAllocs()
		b.RunParallel(func(p *testing.PB) {
			draws := []limit.Draw{{Key: limit.ModelBase("fraud", "l").Key(), Rate: rate, Cost: 1}}
			for p.Next() {
				if _, err := m.Draw(context.Background(), draws); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}
