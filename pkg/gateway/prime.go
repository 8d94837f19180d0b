package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/upstream/triton"
)

const (
	primeEvery = 250 * time.Millisecond // least time between two looks for what is not known yet
	primeWait  = time.Second            // for the answer about one model
)

// primer learns the tensors of models that have a fallback as soon as they serve, so that an outage before their first call
// finds them known. It asks about one model at a time.
type primer struct {
	news chan struct{}
	end  context.CancelFunc
	runs sync.WaitGroup
}

// startPrimer makes it; routes gives the models that are declared.
func startPrimer(routes func() []*inference.Model) *primer {
	ctx, end := context.WithCancel(context.Background())
	p := &primer{news: make(chan struct{}, 1), end: end}
	p.runs.Go(func() {
		pause := time.NewTimer(0)
		defer pause.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-pause.C:
			}
			select {
			case <-ctx.Done():
				return
			case <-p.news:
			}
			for _, m := range routes() {
				if m.Fallback != nil {
					prime(ctx, m)
				}
			}
			pause.Reset(primeEvery)
		}
	})
	return p
}

// routes gives the models that are declared; none before there is a configuration.
func (g *Gateway) routes() []*inference.Model {
	if s := g.catalog.Snapshot(); s != nil {
		return s.Routes()
	}
	return nil
}

// changed says that there may be something to learn. It does not block.
func (p *primer) changed(string) {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

func (p *primer) close() {
	if p == nil {
		return
	}
	p.end()
	p.runs.Wait()
}

// prime has what is not known of a model's targets asked for, where they serve.
func prime(ctx context.Context, m *inference.Model) {
	if m.Tensors != nil && len(m.Tensors.Outputs) > 0 {
		return
	}
	targets := m.Targets
	if targets == nil && m.Current != nil {
		targets = map[string]*inference.Target{"": m.Current()}
	}
	for _, t := range targets {
		if t == nil || !t.Pool.Ready() {
			continue
		}
		if p, ok := t.Pool.(interface {
			Info(context.Context) (*triton.Info, error)
		}); ok {
			ctx, cancel := context.WithTimeout(ctx, primeWait)
			_, _ = p.Info(ctx) // another time, if not now
			cancel()
		}
	}
}
