package limit

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// instant is a store that costs nothing, so that what is measured is the stage.
type instant struct{}

func (instant) Within() time.Duration { return 0 }

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

// BenchmarkUsers is a call of one of many users to a model with two limits, once every user has been seen: what grows
// with their number is what the processor's caches do not hold. What a user costs who was never seen is
// BenchmarkNewUsers. One call is used for all of them, as a call is in the caches when it comes to this stage.
func BenchmarkUsers(b *testing.B) {
	for _, users := range []int{10, 1000, 100_000} {
		names := make([]string, users)
		for i := range names {
			names[i] = fmt.Sprintf("user-%d", i*7919%users) // not in the order of memory
		}
		for _, c := range []struct {
			name string
			draw inference.Draw
			o    Options
		}{
			{"exact", inference.DrawExact, Options{Store: instant{}}},
			{"lease", inference.DrawLease, Options{Store: instant{}}},
			{"memory", inference.DrawAuto, Options{Store: NewMemory(MemoryOptions{}), Alone: true}},
		} {
			b.Run(fmt.Sprintf("%s/%d", c.name, users), func(b *testing.B) {
				s := New(c.o)
				defer s.Close()
				h := s.Wrap(func(context.Context, *inference.Call) error { return nil })
				ctx, call := context.Background(), limits(c.draw, 1e9)
				for _, name := range names {
					call.User = name
					_ = h(ctx, call)
				}
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					call.User = names[i]
					_ = h(ctx, call)
					if i++; i == len(names) {
						i = 0
					}
				}
			})
		}
	}
}

func BenchmarkNewUsers(b *testing.B) {
	s := New(Options{Store: instant{}})
	defer s.Close()
	h := s.Wrap(func(context.Context, *inference.Call) error { return nil })
	ctx, call := context.Background(), limits(inference.DrawExact, 1e9)
	var name [8]byte
	b.ReportAllocs()
	for i := uint64(0); b.Loop(); i++ {
		binary.BigEndian.PutUint64(name[:], i*0x9e3779b97f4a7c15)
		call.User = string(name[:])
		_ = h(ctx, call)
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
