package mirror

import (
	"context"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

func BenchmarkCall(b *testing.B) {
	for name, m := range map[string]*inference.Mirror{"no mirror": nil, "not drawn": {To: v2, Percent: 0.0001}, "mirrored": {To: v2, Percent: 100}} {
		b.Run(name, func(b *testing.B) {
			s := New(Options{Recorder: &recorder{}, Messages: messages(), Send: func(_ context.Context, c *inference.Call) error { return c.Send(inference.NewFrame(nil)) }})
			defer s.Close()
			next := s.Wrap(func(_ context.Context, c *inference.Call) error {
				c.Answers = 1
				return nil
			})
			c := &inference.Call{
				Protocol: inference.KServe, Model: &inference.Model{Mirror: m}, Target: v1,
				Request: inference.NewFrame(make([]byte, 100)), Answer: inference.NewFrame(nil),
				Incoming: map[string][]string{"x-user-id": {"ann"}, "x-request-id": {"1"}, "user-agent": {"grpc"}},
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := next(b.Context(), c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
