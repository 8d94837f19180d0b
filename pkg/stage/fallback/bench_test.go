package fallback

import (
	"context"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// What the stage adds to a call that goes well.
func BenchmarkACall(b *testing.B) {
	other := target("v2")
	for name, f := range map[string]*inference.Fallback{"none": nil, "a score": scoreOf(0.5), "another target": chainOf(scoreOf(0.5), other)} {
		b.Run(name, func(b *testing.B) {
			h := (&Stage{Messages: messages}).Wrap(func(context.Context, *inference.Call) error { return nil })
			c := ready(f, inference.Predict)
			c.Target.Pool, other.Pool = pool{tensors: answering("FP32", -1)}, pool{tensors: answering("FP32", -1)}
			b.ReportAllocs()
			for b.Loop() {
				_ = h(b.Context(), c)
			}
		})
	}
}
