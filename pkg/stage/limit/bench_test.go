package limit

import (
	"context"
	"fmt"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// instant is a store that costs nothing, so that what is measured is the stage.
type instant struct{}

func (instant) Draw(_ context.Context, draws []Draw) (Verdict, error) {
	for i := range draws {
		draws[i].Able, draws[i].Left = true, draws[i].Rate.Burst
	}
	return Verdict{OK: true, Short: -1}, nil
}

func (instant) Peek(_ context.Context, draws []Draw) (Verdict, error) {
	return Verdict{OK: true, Short: -1}, nil
}

func (instant) Lease(_ context.Context, _ string, r inference.Rate, want float64) (Leased, error) {
	return Leased{Got: want, Left: r.Burst}, nil
}

func benchmark(b *testing.B, o Options, calls ...*inference.Call) {
	b.Helper()
	s := New(o)
	defer s.Close()
	h := s.Wrap(func(context.Context, *inference.Call) error { return nil })
	ctx := context.Background()
	for _, c := range calls {
		_ = h(ctx, c)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		_ = h(ctx, calls[i%len(calls)])
		i++
	}
}

func limits(draw inference.Draw, rate float64) *inference.Call {
	return callTo(&inference.Limit{Per: inference.PerModel, Rate: perSecond(rate, rate), Draw: draw}, &inference.Limit{Per: inference.PerUser, Rate: perSecond(rate, rate), Draw: draw})
}

func BenchmarkNoLimits(b *testing.B) { benchmark(b, Options{Store: instant{}}, callTo()) }

func BenchmarkTwoLeased(b *testing.B) {
	benchmark(b, Options{Store: instant{}}, limits(inference.DrawLease, 1e9))
}

func BenchmarkTwoExact(b *testing.B) {
	benchmark(b, Options{Store: instant{}}, limits(inference.DrawExact, 1e9))
}

func BenchmarkTwoInMemory(b *testing.B) {
	benchmark(b, Options{Store: NewMemory(MemoryOptions{}), Alone: true}, limits(inference.DrawAuto, 1e9))
}

func BenchmarkRefusedFromMemory(b *testing.B) {
	benchmark(b, Options{Store: NewMemory(MemoryOptions{})}, limits(inference.DrawExact, 1))
}

func BenchmarkUsers(b *testing.B) {
	for _, users := range []int{10, 1000, 100_000, 1_000_000} {
		for _, alone := range []bool{true, false} {
			b.Run(fmt.Sprintf("alone=%v/%d", alone, users), func(b *testing.B) {
				c := limits(inference.DrawLease, 1e9)
				calls := make([]*inference.Call, users)
				for i := range calls {
					calls[i] = by(c, fmt.Sprintf("user-%d", i))
				}
				o := Options{Store: instant{}}
				if alone {
					o = Options{Store: NewMemory(MemoryOptions{}), Alone: true}
				}
				benchmark(b, o, calls...)
			})
		}
	}
}

func BenchmarkTwoLeasedParallel(b *testing.B) {
	s := New(Options{Store: instant{}})
	defer s.Close()
	h := s.Wrap(func(context.Context, *inference.Call) error { return nil })
	c := limits(inference.DrawLease, 1e9)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_ = h(context.Background(), c)
		}
	})
}
