package admit

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a stage in front of a model that answers when it is told to.
type rig struct {
	stage   *Stage
	model   *inference.Model
	target  *inference.Target
	entered chan *inference.Call
	answer  chan struct{}
	refused map[string]int
	handle  inference.Handler
}

func newRig(k inference.Concurrency) *rig {
	r := &rig{
		model:   &inference.Model{Name: "fraud", Concurrency: k},
		target:  &inference.Target{Name: "model_v1", Model: "fraud", Version: "1", Upstream: "triton", Asked: "fraud"},
		entered: make(chan *inference.Call, 1000), answer: make(chan struct{}), refused: map[string]int{},
	}
	r.stage = New(r)
	r.handle = r.stage.Wrap(func(ctx context.Context, c *inference.Call) error {
		r.entered <- c
		select {
		case <-r.answer:
			c.Attempts++
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	return r
}

func (r *rig) AdmitRefused(_ *inference.Target, p inference.Priority, why string) {
	r.refused[p.String()+" "+why]++
}

func (r *rig) call(p inference.Priority, id string) *inference.Call {
	return &inference.Call{
		Model: r.model, Target: r.target, Head: inference.Head{ID: id}, Start: time.Now(),
		Identity: inference.Identity{Caller: &inference.Caller{Name: "svc", Priority: p}},
	}
}

// send begins a call and gives where its end will be told.
func (r *rig) send(ctx context.Context, p inference.Priority, id string) chan error {
	done := make(chan error, 1)
	go func() { done <- r.handle(ctx, r.call(p, id)) }()
	return done
}

func (r *rig) state() State { return r.stage.States()[0] }

func kindOf(err error) fault.Kind { return fault.Of(err).Kind }
