package stats

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

func BenchmarkRecord(b *testing.B) {
	target := NewRegistry(nil).Target(key)
	target.Record("10.0.0.1:8001", Live, OK, 12*time.Millisecond)
	b.ReportAllocs()
	for b.Loop() {
		target.Record("10.0.0.1:8001", Live, OK, 12*time.Millisecond)
	}
}

func BenchmarkRecordParallel(b *testing.B) {
	target := NewRegistry(nil).Target(key)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			target.Record("10.0.0.1:8001", Live, OK, 12*time.Millisecond)
		}
	})
}

// BenchmarkFindAndRecord is what the path of a call pays, among few targets and among many.
func BenchmarkFindAndRecord(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("targets=%d", n), func(b *testing.B) {
			r := NewRegistry(nil)
			for i := range n {
				k := key
				k.Model = fmt.Sprint("model", i)
				r.Target(k).Record("a:1", Live, OK, time.Millisecond)
			}
			k := key
			k.Model = "model0"
			for range n {
				r.Target(k)
			}
			b.ReportAllocs()
			for b.Loop() {
				r.Target(k).Record("a:1", Live, OK, time.Millisecond)
			}
		})
	}
}

// BenchmarkWindow reads the hour of a busy target and its P99.9.
func BenchmarkWindow(b *testing.B) {
	clock := newClock()
	target := NewRegistry(clock.now).Target(key)
	random := rand.New(rand.NewPCG(1, 2))
	for range 360_000 {
		target.Record("a:1", Live, OK, time.Duration(float64(20*time.Millisecond)*(1+random.ExpFloat64())))
		clock.pass(10 * time.Millisecond)
	}
	b.ReportAllocs()
	for b.Loop() {
		s := target.Window(W1h)
		s.Quantile(.999, Timed)
	}
}
