package gateway

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
)

// BenchmarkACallBesideScripts measures what calls to a model without a script feel of another model's script, which is
// called 200 times a second: p50 and p99 in microseconds. A script that never ends is off after five calls; the worst that
// goes on is one that takes most of its time.
func BenchmarkACallBesideScripts(b *testing.B) {
	for _, tt := range []struct{ name, script string }{
		{"quick", `return "model_v1"`},
		{"endless", `while true do end`},
		{"memory", `local t = {} while true do t[#t + 1] = ("x"):rep(1000) end`},
		{"slow", `local n = 0 for i = 1, 60000 do n = n + i end return "model_v1"`},
	} {
		b.Run(tt.name, func(b *testing.B) {
			_, triton := model(b)
			dir := b.TempDir()
			saveScript(b, dir, "rule", tt.script)
			r := gatewayOf(b, fmt.Sprintf(`
version: 1
lua: {dir: %q}
upstreams: {triton: {kind: triton, endpoints: %q}}
models:
  - {name: fraud, targets: {model_v1: {version: 1}}}
  - {name: other, model: fraud, targets: {model_v1: {version: 1}, model_v2: {version: 2}}, stable: model_v1, split: [{script: rule.lua}]}
`, dir, triton), nil)
			ctx, cancel := context.WithCancel(b.Context())
			var neighbours sync.WaitGroup
			neighbours.Go(func() {
				tick := time.NewTicker(5 * time.Millisecond)
				defer tick.Stop()
				for {
					select {
					case <-tick.C:
						neighbours.Go(func() {
							_, _ = r.predict().Predict(ctx, &inferencepb.PredictionRequest{ModelName: "other", InputTensor: fraudRow()})
						})
					case <-ctx.Done():
						return
					}
				}
			})
			var took []time.Duration
			for b.Loop() {
				begin := time.Now()
				if _, err := r.predict().Predict(ctx, &inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: fraudRow()}); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(begin))
			}
			cancel()
			neighbours.Wait()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}
