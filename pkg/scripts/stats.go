package scripts

import (
	"sync/atomic"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/readmap"
	"github.com/model-gateway/model-gateway/pkg/luavm"
	"github.com/model-gateway/model-gateway/pkg/stats"
)

// statsEvery is how old what stats(target) answers may be: to sum a window up costs as much as ten runs.
const statsEvery = 500 * time.Millisecond

// FromRegistry gives Options.Stats: what targets did for clients that waited, in the last minute. A target that has no
// calls in it has stats of zeros; one that the model does not have has none.
func FromRegistry(r *stats.Registry) func(m *inference.Model, target string) (luavm.Stats, bool) {
	type summed struct {
		at    time.Time
		stats luavm.Stats
	}
	var known readmap.Map[stats.Key, *atomic.Pointer[summed]]
	return func(m *inference.Model, name string) (luavm.Stats, bool) {
		target := m.Targets[name]
		if target == nil && m.Named != nil {
			target = m.Named(name)
		}
		if target == nil {
			return luavm.Stats{}, false
		}
		key := stats.KeyOf(target)
		kept := known.GetOrAdd(key, func(size int) (*atomic.Pointer[summed], bool) {
			return new(atomic.Pointer[summed]), size < stats.MaxTargets
		})
		now := time.Now()
		if s := kept.Load(); s != nil {
			// One of those that find it old sums up again; the others do with it.
			if now.Sub(s.at) < statsEvery || !kept.CompareAndSwap(s, &summed{now, s.stats}) {
				return s.stats, true
			}
		}
		s := &summed{at: now}
		if t, ok := r.Peek(key); ok {
			w := t.Window(stats.W1m)
			s.stats = luavm.Stats{
				Calls: w.Count(stats.Judged), Errors: w.Count(stats.Bad), ErrorRate: w.FailureRatio(),
				P50: w.Quantile(.5, stats.Judged), P99: w.Quantile(.99, stats.Judged), P999: w.Quantile(.999, stats.Judged),
			}
		}
		kept.Store(s)
		return s.stats, true
	}
}
