package fallback

import (
	"log/slog"
	"sync"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/stats"
)

// maxSaid bounds the pairs that are remembered as told; beyond it they are told again.
const maxSaid = 1000

// told says once which targets do not stand in for others.
type told struct {
	mu   sync.Mutex
	said map[[2]stats.Key]struct{}
}

// first reports whether the pair has not been told yet.
func (t *told) first(from, to *inference.Target) bool {
	k := [2]stats.Key{stats.KeyOf(from), stats.KeyOf(to)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.said[k]; ok {
		return false
	}
	if t.said == nil || len(t.said) >= maxSaid {
		t.said = make(map[[2]stats.Key]struct{})
	}
	t.said[k] = struct{}{}
	return true
}

// fits reports whether the tensors of target are those that the caller of c expects, by what is known of both now: an answer
// of another datatype or shape would be read as something else than it is.
func (g *guard) fits(c *inference.Call, model *inference.Model, target *inference.Target) bool {
	if !g.learnt {
		g.tensors, g.learnt = inference.TensorsOf(g.model, g.from), true
	}
	theirs := inference.TensorsOf(model, target)
	m := g.tensors.MismatchOf(&theirs, c.Protocol.SpeaksPredict())
	if !m.Found() {
		return true
	}
	if g.stage.Log != nil && g.stage.told.first(g.from, target) {
		g.stage.Log.Warn("a fallback is passed over: its tensors are not those of the model",
			slog.String("model", g.model.Name), slog.String("target", g.from.Name), slog.String("passed_over", target.Asked+"/"+target.Name), slog.String("why", "it is one "+m.String()))
	}
	return false
}
