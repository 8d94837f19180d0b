package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/front/portmux"
)

// readyAfter is how long a start may wait for a route that can serve before it counts as ready without one.
const readyAfter = 10 * time.Second

// Listeners are the open ports of a gateway. Admin is nil when that port is off.
type Listeners struct {
	Data, Admin net.Listener
}

// Listen opens the ports that cfg names.
func Listen(cfg *config.Config) (l Listeners, err error) {
	if l.Data, err = net.Listen("tcp", cfg.Listen.Data); err != nil {
		return l, fmt.Errorf("listen.data: %w", err)
	}
	if cfg.Listen.Admin != "" {
		if l.Admin, err = net.Listen("tcp", cfg.Listen.Admin); err != nil {
			_ = l.Data.Close()
			return l, fmt.Errorf("listen.admin: %w", err)
		}
	}
	return l, nil
}

// partingOf is the part of a grace in which what has not finished is told so, and cut. The fronts take 900 ms of it.
func partingOf(grace time.Duration) time.Duration { return min(grace/2, time.Second) }

// Run serves until ctx ends, then drains: it turns unready, serves on for listen.drain.before so that everybody who
// watches readiness has looked elsewhere, tells all clients to go away, lets calls under way finish for at most
// listen.drain.grace, and returns. An error means that a port failed.
func (g *Gateway) Run(ctx context.Context, l Listeners) error {
	defer func() {
		if err := g.Close(); err != nil {
			g.log.Warn("closing", "error", err)
		}
	}()
	muxed := portmux.Options{Log: g.log}
	if g.tls != nil {
		muxed.TLS = g.tls.Config()
	}
	mux := portmux.New(l.Data, muxed)
	failed := make(chan error, 4)
	var serving sync.WaitGroup
	serve := func(name string, f func() error) {
		serving.Go(func() {
			if err := f(); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, grpc.ErrServerStopped) {
				failed <- fmt.Errorf("%s: %w", name, err)
			}
		})
	}
	serve("listen.data", func() error { return g.grpc.Serve(mux.HTTP2()) })
	serve("listen.data", func() error { return g.http.Serve(mux.HTTP1()) })
	if g.admin != nil && l.Admin != nil {
		serve("listen.admin", func() error { return g.admin.Serve(l.Admin) })
	}
	g.log.Info("serving", "data", l.Data.Addr().String(), "admin", addr(l.Admin)) // before it says that it is ready
	becoming, stop := context.WithCancel(ctx)
	serving.Go(func() { g.becomeReady(becoming) })

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	stop()
	cfg := g.catalog.Snapshot().Config.Listen
	g.drain(cfg, err != nil) //nolint:contextcheck // it begins when ctx has ended
	_ = mux.Close()
	if g.admin != nil {
		_ = g.admin.Close()
	}
	serving.Wait()
	return err
}

// drain takes the gateway out of service. at once is for when a port has failed and there is nothing to wait for.
func (g *Gateway) drain(cfg config.Listen, atOnce bool) {
	g.draining.Store(true)
	g.grpc.Leave()
	g.http.Leave()
	before, grace := cfg.DrainBefore, cfg.DrainGrace
	if atOnce {
		before = 0
	}
	g.log.Info("draining: not ready any more", "serving_on_for", before.String(), "grace", grace.String())
	if before > 0 {
		time.Sleep(before)
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace-partingOf(grace))
	defer cancel()
	// What is left then ends with a fault that says so, for as long as there is a connection to tell it on.
	late := context.AfterFunc(ctx, func() {
		for _, u := range *g.upstreams.Load() {
			u.Cut()
		}
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		if !g.grpc.Drain(ctx) {
			g.log.Warn("gRPC calls or streams were cut at the end of listen.drain.grace")
		}
	})
	wg.Go(func() {
		if err := g.http.Shutdown(ctx); err != nil {
			g.log.Warn("HTTP calls were cut at the end of listen.drain.grace", "error", err)
		}
	})
	wg.Wait()
	late()
	g.log.Info("drained")
}

// becomeReady turns the gateway ready once a route can serve, or after readyAfter.
func (g *Gateway) becomeReady(ctx context.Context) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(readyAfter)
	defer late.Stop()
	for {
		if g.catalog.Snapshot().Ready(g.upstreamServes) {
			break
		}
		select {
		case <-tick.C:
			continue
		case <-late.C:
			g.log.Warn("ready without a route that can serve: no upstream has answered yet", "after", readyAfter.String())
		case <-ctx.Done():
			return
		}
		break
	}
	g.ready.Store(true)
	g.grpc.SetServing(true) // does nothing once the gateway drains
	g.log.Info("ready")
}

func (g *Gateway) upstreamServes(name string) bool {
	u := (*g.upstreams.Load())[name]
	return u != nil && u.serving()
}

func addr(l net.Listener) string {
	if l == nil {
		return "off"
	}
	return l.Addr().String()
}
