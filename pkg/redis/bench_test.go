package redis_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/internal/redistest"
	"github.com/model-gateway/model-gateway/pkg/redis"
	"github.com/model-gateway/model-gateway/pkg/stage/limit"
)

// cpu is what this process has used, to be told as its own part of what a draw costs.
func cpu(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func BenchmarkRedisDraw(b *testing.B) {
	s := redistest.Start(b)
	for name, addr := range map[string]string{"unix": s.Socket, "tcp": s.Addr} {
		limits := redis.NewLimits(open(b, redis.Options{Addresses: []string{addr}}, nil))
		for _, c := range []struct{ callers, buckets int }{{64, 1}, {64, 3}, {8, 1}} {
			buckets := c.buckets
			b.Run(fmt.Sprintf("%s/%d callers/%d buckets", name, c.callers, buckets), func(b *testing.B) {
				var callers atomic.Int64
				b.ReportAllocs()
				b.SetParallelism(max(c.callers/runtime.GOMAXPROCS(0), 1))
				before := cpu(b)
				defer func() { b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op") }()
				b.RunParallel(func(p *testing.PB) {
					caller := strconv.Itoa(int(callers.Add(1)))
					var draws []limit.Draw
					for i := range buckets {
						draws = append(draws, limit.Draw{Key: limit.ModelBase("fraud", "l"+strconv.Itoa(i)).For(caller), Rate: plenty, Cost: 1})
					}
					for p.Next() {
						if _, err := limits.Draw(context.Background(), draws); err != nil {
							b.Fatal(err)
						}
					}
				})
			})
		}
		b.Run(name+"/one caller/1 bucket", func(b *testing.B) {
			draws := one("m")
			b.ReportAllocs()
			before := cpu(b)
			defer func() { b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op") }()
			for b.Loop() {
				if _, err := limits.Draw(context.Background(), draws); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRedisDown(b *testing.B) {
	c := open(b, redis.Options{Addresses: []string{"127.0.0.1:1"}}, nil)
	redistest.Eventually(b, func() error {
		if c.Up() {
			return fmt.Errorf("not down yet")
		}
		return nil
	})
	limits, draws := redis.NewLimits(c), one("m")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := limits.Draw(context.Background(), draws); err == nil {
			b.Fatal("drawn from nothing")
		}
	}
}
