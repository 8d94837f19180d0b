package main

import (
	"context"
	"strings"
	"time"

	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// Scenarios of models that are loaded, unloaded, broken or too busy.

// load and unload act on one server, as an operator does beside the gateway.
func (s *server) load(ctx context.Context, model string) error {
	_, err := tritonpb.NewGRPCInferenceServiceClient(s.conn).RepositoryModelLoad(ctx, &tritonpb.RepositoryModelLoadRequest{ModelName: model})
	return err
}

func (s *server) unload(ctx context.Context, model string) error {
	_, err := tritonpb.NewGRPCInferenceServiceClient(s.conn).RepositoryModelUnload(ctx, &tritonpb.RepositoryModelUnloadRequest{ModelName: model})
	return err
}

func reloadModels(b *bench) {
	x, y := b.two()
	g := b.gateway(settings{endpoints: list(x, y)})
	c := b.client(g)
	b.begin(c, callDeadline, bare(c))
	// One server after the other: nobody notices.
	for _, s := range []*server{x, y} {
		b.must(s.unload(b, "fraud"))
		b.sleep(2 * time.Second)
		b.must(s.load(b, "fraud"))
		b.must(s.ready(b))
		b.sleep(3 * time.Second)
	}
	b.none("were hurt by a model that is loaded anew on one server after the other", both(unary, not(is(ok))))
	// All of them, through the gateway: an outage of this model.
	gone := time.Now()
	_, err := c.infers(0).RepositoryModelUnload(b, &tritonpb.RepositoryModelUnloadRequest{ModelName: "fraud"})
	b.must(err)
	b.sleep(3 * time.Second)
	_, err = c.infers(0).RepositoryModelLoad(b, &tritonpb.RepositoryModelLoadRequest{ModelName: "fraud"})
	b.must(err)
	b.must(x.ready(b))
	back := time.Now()
	b.sleep(7 * time.Second)
	b.finish()
	b.detect = b.load.firstAfter(gone, is(degraded))
	b.recovery = b.load.normalAfter(back)
	b.check(b.detect >= 0 && b.detect <= 2*time.Second, "the first degraded answer came after %v; 2 s are allowed", b.detect)
	b.check(b.recovery <= 5*time.Second, "normal again %v after the model was; 5 s are allowed", b.recovery)
	b.none("failed although a fallback is declared", both(unary, is(failed), not(kindIs("bare"))))
	b.none("of streams were not answered in band", both(streamed, is(failed), func(r record) bool { return !r.inBand }))
}

func failingLoad(b *bench) {
	x, y := b.two()
	g := b.gateway(settings{endpoints: list(x, y)})
	c := b.client(g)
	b.begin(c, callDeadline, bare(c))
	model := "broken" // rig/chaos/models has it; the embedded server is told to fail
	if b.cast == castEmbedded {
		model = "text"
		for _, s := range []*server{x, y} {
			b.must(s.unload(b, model))
			b.must(s.fault(b, `{"kind": "fail_load", "model": "text", "message": "out of memory"}`))
		}
	}
	for range 3 {
		_, err := c.infers(0).RepositoryModelLoad(b, &tritonpb.RepositoryModelLoadRequest{ModelName: model})
		b.check(err != nil && strings.Contains(err.Error(), "fail"), "loading a broken model answers %v", err)
		b.sleep(time.Second)
	}
	_, err := c.infer(b, 0, model)
	b.check(strings.HasPrefix(err, "Unavailable") || strings.HasPrefix(err, "NotFound"), "a call to a broken model ends with %q", err)
	b.sleep(2 * time.Second)
	b.finish()
	b.none("were hurt by a model that does not load", not(is(ok)))
}

// queueFull sends more than a model with a bounded queue takes: it says no at once, to as many as it must, and breaks nothing.
func queueFull(b *bench) {
	if b.cast != castReal {
		b.skip("the embedded server bounds no queue")
	}
	x, y := b.two("fraud", "narrow")
	g := b.gateway(settings{endpoints: list(x, y)})
	c := b.client(g)
	narrow := flow{"narrow", 120, func(ctx context.Context, i int) (outcome, string) {
		a, err := c.infers(i).ModelInfer(ctx, &tritonpb.ModelInferRequest{
			ModelName:        "narrow",
			Inputs:           []*tritonpb.ModelInferRequest_InferInputTensor{{Name: "INPUT", Datatype: "FP32", Shape: []int64{1, 1}}},
			RawInputContents: [][]byte{make([]byte, 4)},
		})
		if err != nil {
			return verdictOf(err)
		}
		if len(a.RawOutputContents) != 1 {
			return failed, "wrong answer"
		}
		return ok, ""
	}}
	b.begin(c, callDeadline)
	crowd := begin(callDeadline, []flow{narrow})
	b.sleep(10 * time.Second)
	crowd.end()
	b.sleep(time.Second)
	b.finish()
	b.none("to another model were hurt", not(is(ok)))
	for _, r := range crowd.records(every) {
		b.load.add(r)
	}
	n := float64(crowd.count(every))
	b.note("of 10 s of calls to narrow %d were answered, %d refused", crowd.count(is(ok)), crowd.count(is(refused)))
	// It could take 40/s, but a Triton whose queues have a policy forgets to wake up, for up to 500 ms each time, while it
	// refuses: 3 to 7/s a server were seen.
	b.check(float64(crowd.count(is(ok))) > 0.03*n, "only %d of %.0f calls were answered", crowd.count(is(ok)), n)
	b.check(crowd.count(is(refused)) > 0, "no call was refused")
	b.check(crowd.count(both(is(refused), slower(slack+time.Second))) == 0, "calls were refused after more than 2 s; a full queue is told at once, after one try elsewhere")
	if bad := crowd.records(func(r record) bool { return r.outcome == failed || r.outcome == degraded }); len(bad) > 0 {
		b.check(false, "%d calls to the busy model were neither answered nor refused\n%s", len(bad), reasons(bad))
	}
	b.check(g.metric(b, "gateway_breaker_state", `model="narrow"`, `state="open"`) == 0, "the breaker of the busy model is open: a full queue is no failure")
}
