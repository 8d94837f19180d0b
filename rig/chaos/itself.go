package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// Scenarios of the gateway itself: it is restarted, configured anew, and its clients go away.

func restarts(b *bench) {
	x, y := b.two()
	one := b.gateway(settings{endpoints: list(x, y), before: "2s"})
	two := b.gateway(settings{endpoints: list(x, y), before: "2s"})
	c := b.client(one, two)
	flows := []flow{
		{"predict", 120, func(ctx context.Context, i int) (outcome, string) { return c.predict(ctx, i, "fraud") }},
		{"kserve", 80, func(ctx context.Context, i int) (outcome, string) { return c.infer(ctx, i, "fraud") }},
		{"bare", 40, func(ctx context.Context, i int) (outcome, string) { return c.predict(ctx, i, "bare") }},
		{"long", 5, func(ctx context.Context, i int) (outcome, string) { return c.long(ctx, i, "echo", 50) }},
	}
	if b.cast == castReal {
		flows = flows[:3]
	}
	b.run(c, callDeadline, flows, c.predictStream(0, "fraud"), c.predictStream(1, "fraud"), c.inferStream(0, "fraud"), c.inferStream(1, "fraud"))
	for _, g := range []*gateway{one, two} {
		began := time.Now()
		code := g.p.stop(30 * time.Second)
		b.check(code == 0, "a gateway ended with %d on SIGTERM:\n%s", code, g.p.tail())
		b.detect = max(b.detect, time.Since(began))
		b.sleep(time.Second)
		again, err := launch(g.p.name, g.p.log, bareEnv(), g.p.cmd.Args)
		b.must(err)
		b.after(again.kill)
		g.p = again
		b.must(g.await(b))
		b.sleep(3 * time.Second)
	}
	b.load.end()
	b.none("outlasted their deadline", slower(callDeadline+slack))
	b.none("were hurt by a gateway that ends in order", both(unary, not(is(ok))))
	b.none("of streams were lost", both(streamed, is(failed), not(endedInOrder)))
	b.note("%d messages of streams were under way when their stream ended with its reason", b.load.count(both(streamed, endedInOrder)))
}

// endedInOrder: the stream told that it would end before this message was taken.
func endedInOrder(r record) bool {
	return r.stream && strings.Contains(r.why, "the gateway is draining")
}

func reloads(b *bench) {
	n := 200
	if b.long {
		n = 1000
	}
	x, y := b.two()
	s := settings{endpoints: list(x, y)}
	g := b.gateway(s)
	c := b.client(g)
	b.begin(c, callDeadline, bare(c))
	began := time.Now()
	for i := range n {
		// Everything that may change without a restart, in turns.
		s := s
		s.fraud = fmt.Sprintf("    timeout: {max: %ds}\n    retry: {attempts: 2, budget: %d%%}\n    limits: [{per: model, rate: %d/s, burst: 100000}]\n", 20+i%7, 20+i%5, 50000+i)
		s.models = fmt.Sprintf("  - {name: extra-%d, upstream: triton, model: fraud}\n", i%3)
		if i%2 == 1 {
			s.endpoints = list(y, x)
		}
		want := g.metric(b, "gateway_config_reloads_total", `result="ok"`) + 1
		b.must(g.write(s))
		g.hangup()
		b.must(await(b, g.p, 10*time.Second, func(ctx context.Context) error {
			if g.metric(ctx, "gateway_config_reloads_total", `result="ok"`) >= want {
				return nil
			}
			return errNot
		}))
	}
	b.note("%d reloads in %v", n, time.Since(began).Round(time.Millisecond))
	b.sleep(time.Second)
	refused := g.metric(b, "gateway_config_reloads_total", `result="refused"`)
	b.check(refused == 0, "%v reloads were refused:\n%s", refused, g.p.tail())
	b.finish()
	b.none("were hurt by reloads", not(is(ok)))
}

func cancels(b *bench) {
	x, y := b.two("fraud", "echo")
	g := b.gateway(settings{endpoints: list(x, y)})
	c := b.client(g)
	b.begin(c, callDeadline)
	b.load.end()
	kept := b.load
	b.must(await(b, nil, 10*time.Second, func(ctx context.Context) error { return g.idle(ctx) }))
	goroutines := g.metric(b, "go_goroutines")
	ctx, cancel := context.WithCancel(b)
	var calls sync.WaitGroup
	var codes sync.Map
	for i := range 1000 {
		calls.Go(func() {
			o, why := c.long(ctx, i, "echo", 30_000)
			codes.Store(i, o.String()+" "+why)
		})
	}
	b.must(await(b, g.p, 20*time.Second, func(ctx context.Context) error {
		if n := g.metric(ctx, "gateway_requests_in_flight"); n < 1000 {
			return fmt.Errorf("%v of 1000 calls under way", n)
		}
		return nil
	}))
	cancelled := time.Now()
	cancel()
	calls.Wait()
	odd := map[string]int{}
	codes.Range(func(_, v any) bool {
		if text := v.(string); !strings.HasPrefix(text, "failed Canceled") {
			odd[text]++
		}
		return true
	})
	b.check(len(odd) == 0, "cancelled calls ended with %v", odd)
	b.must(await(b, g.p, 10*time.Second, func(ctx context.Context) error { return g.idle(ctx) }))
	b.detect = time.Since(cancelled)
	b.check(b.detect <= slack, "calls were under way in the gateway %v after they had been cancelled", b.detect)
	// 1,000 calls need some ten connections to the servers where one was enough, of a few goroutines each, for a while.
	b.within(10*time.Second, "as many goroutines as before", func() bool { return g.metric(b, "go_goroutines") <= goroutines+100 })
	b.note("%.0f goroutines before, %.0f after", goroutines, g.metric(b, "go_goroutines"))
	for _, s := range []*server{x, y} {
		s := s
		b.within(10*time.Second, s.name+" has nothing left to do", func() bool { return s.pending(b) == 0 })
	}
	// Each server is free: what comes now is answered at once.
	for i := range 20 {
		ctx, cancel := context.WithTimeout(b, 5*time.Second)
		start := time.Now()
		o, why := c.long(ctx, i, "echo", 1)
		cancel()
		kept.add(record{at: start, took: time.Since(start), kind: "afterwards", outcome: o, why: why})
	}
	b.recovery = time.Since(cancelled)
	b.finish()
	b.none("were not ok afterwards", both(kindIs("afterwards"), not(is(ok))))
}

// idle fails while a call is under way in the gateway.
func (g *gateway) idle(ctx context.Context) error {
	if n := g.metric(ctx, "gateway_requests_in_flight"); n != 0 {
		return fmt.Errorf("%v calls are under way", n)
	}
	return nil
}

// pending is how many calls wait in the server for model echo; of an embedded one whether a new one is answered at once.
func (s *server) pending(b *bench) float64 {
	if s.metrics != "" {
		page, err := get(b, "http://"+s.metrics+"/metrics")
		if err != nil {
			return -1
		}
		return sum(page, "nv_inference_pending_request_count", `model="echo"`)
	}
	ctx, cancel := context.WithTimeout(b, time.Second)
	defer cancel()
	_, err := tritonpb.NewGRPCInferenceServiceClient(s.conn).ModelInfer(ctx, &tritonpb.ModelInferRequest{
		ModelName:        "echo",
		Inputs:           []*tritonpb.ModelInferRequest_InferInputTensor{{Name: "INT64", Datatype: "INT64", Shape: []int64{1}}},
		RawInputContents: [][]byte{make([]byte, 8)},
	})
	if err != nil {
		return 1
	}
	return 0
}
