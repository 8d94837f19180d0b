package redis_test

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/internal/redistest"
	"github.com/model-gateway/model-gateway/pkg/redis"
	"github.com/model-gateway/model-gateway/pkg/stage/limit"
)

func BenchmarkRedisDraw(b *testing.B) {
	s := redistest.Start(b)
	for name, addr := range map[string]string{"unix": s.Socket, "tcp": s.Addr} {
		limits := redis.NewLimits(open(b, redis.Options{Addresses: []string{addr}}, nil))
		for _, buckets := range []int{1, 3} {
			b.Run(fmt.Sprintf("%s/64 callers/%d buckets", name, buckets), func(b *testing.B) {
				var callers atomic.Int64
				b.ReportAllocs()
				b.SetParallelism(32) // for each of two processors
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
