package breaker

import (
	"context"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// What the stage adds to a call: next does nothing here.
func BenchmarkACall(b *testing.B) {
	ctx := context.Background()
	slow := usual
	slow.SlowAfter = time.Second
	failed := fault.New(fault.UpstreamUnavailable, "x")
	for name, c := range map[string]struct {
		policy inference.Breaker
		every  int // n-th call fails
	}{"closed": {usual, 0}, "closed, slow calls are counted": {slow, 0}, "closed, every tenth fails": {usual, 10}} {
		b.Run(name, func(b *testing.B) {
			s, _ := stageOf(c.policy)
			to, _ := target("model_v1")
			n := 0
			h := s.Wrap(func(context.Context, *inference.Call) error {
				if n++; c.every > 0 && n%c.every == 0 {
					return failed
				}
				return nil
			})
			call := &inference.Call{Target: to}
			b.ReportAllocs()
			for b.Loop() {
				_ = h(ctx, call)
			}
		})
	}
	b.Run("open", func(b *testing.B) {
		policy := usual
		policy.Open, policy.OpenMax = time.Hour, time.Hour
		s, _ := stageOf(policy)
		to, _ := target("model_v1")
		h := s.Wrap(func(context.Context, *inference.Call) error { return failed })
		call := &inference.Call{Target: to}
		for range policy.MinCalls {
			_ = h(ctx, call)
		}
		b.ReportAllocs()
		for b.Loop() {
			_ = h(ctx, call)
		}
	})
	b.Run("closed, 2 at once", func(b *testing.B) {
		s, _ := stageOf(usual)
		to, _ := target("model_v1")
		h := s.Wrap(func(context.Context, *inference.Call) error { return nil })
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			call := &inference.Call{Target: to}
			for pb.Next() {
				_ = h(ctx, call)
			}
		})
	})
}
