package mirror

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// tested runs f where time is free, and then looks for what was left behind.
func tested(t *testing.T, o Options, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, o)
		f(t, r)
		r.Close()
		r.settled()
		if r.held != 0 {
			t.Errorf("%d copies are still held", r.held)
		}
		if len(r.queue.lanes) != 0 && r.outcomes["model_v2 dropped"] == 0 {
			t.Errorf("%d lanes are left", len(r.queue.lanes))
		}
	})
}

func TestACopyIsSentAfterTheAnswerAndComparedWithIt(t *testing.T) {
	for _, p := range inference.Protocols() {
		t.Run(p.String(), func(t *testing.T) {
			tested(t, Options{}, func(t *testing.T, r *rig) {
				for range 3 {
					if err := r.do(r.call(p)); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				if r.count("model_v2 same") != 3 || len(r.outcomes) != 1 {
					t.Errorf("outcomes %v", r.outcomes)
				}
				r.score[v2] = 0.75
				if err := r.do(r.call(p)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				d := r.differences[len(r.differences)-1]
				if r.count("model_v2 different") != 1 || d.MaxAbs != 0.5 || !d.Scored || d.Score != 0.25 || d.MirroredScore != 0.75 {
					t.Errorf("outcomes %v, difference %+v", r.outcomes, d)
				}
			})
		})
	}
}

func TestACopyIsTheRequestAsItCame(t *testing.T) {
	tested(t, Options{}, func(t *testing.T, r *rig) {
		for _, p := range inference.Protocols() {
			c := r.call(p)
			want := slices.Clone(c.Request.Buf.Materialize())
			incoming := maps.Clone(c.Incoming)
			r.send = Mark(func(ctx context.Context, c *inference.Call) error {
				switch {
				case string(c.Request.Buf.Materialize()) != string(want):
					t.Errorf("%s: the request has changed", p)
				case !maps.EqualFunc(c.Incoming, incoming, slices.Equal):
					t.Errorf("%s: the metadata is %v", p, c.Incoming)
				case c.Target != v2 || c.Stream != nil || c.Sink != nil || c.RequestID != "r1" || c.User != "ann" || c.Head.Model != "fraud":
					t.Errorf("%s: the copy is %+v", p, c)
				case c.Protocol == inference.PredictStream, c.Protocol == inference.KServeStream:
					t.Errorf("%s: sent as a stream", p)
				case c.Outgoing[Header][0] != "1":
					t.Errorf("%s: not marked: %v", p, c.Outgoing)
				}
				return r.answer(ctx, c)
			})
			if err := r.do(c); err != nil {
				t.Fatal(err)
			}
			if c.Outgoing[Header] != nil || c.Target != v1 {
				t.Errorf("%s: the copy has changed its call: %+v", p, c)
			}
			synctest.Wait()
		}
	})
}

func TestATargetThatHangsDelaysNobody(t *testing.T) {
	tested(t, Options{}, func(t *testing.T, r *rig) {
		r.send = func(ctx context.Context, _ *inference.Call) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		begin := time.Now()
		for range 2000 {
			if err := r.do(r.call(inference.KServe)); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("callers waited %v", took)
		}
		synctest.Wait()
		if n := len(r.seen); n != 32 {
			t.Errorf("%d copies are under way", n)
		}
		if n := r.count("model_v2 dropped"); n != 2000-512 {
			t.Errorf("%d copies were dropped", n)
		}
		// Another target has room meanwhile.
		other := &inference.Target{Name: "other", Version: "3"}
		r.model = &inference.Model{Name: "loan", Mirror: &inference.Mirror{To: other, Percent: 100}}
		r.score[other] = 0.25
		hang := r.send
		r.send = func(ctx context.Context, c *inference.Call) error {
			if c.Target == other {
				return r.answer(ctx, c)
			}
			return hang(ctx, c)
		}
		if err := r.do(r.call(inference.Predict)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if r.count("other same") != 1 {
			t.Errorf("outcomes %v", r.outcomes)
		}
		<-time.After(10 * time.Minute)
		if r.count("model_v2 error") != 512 || time.Since(begin) > 11*time.Minute {
			t.Errorf("outcomes %v", r.outcomes)
		}
	})
}

func TestACopyHasTheTimeOfItsModelButNotForEver(t *testing.T) {
	for name, c := range map[string]struct{ most, want time.Duration }{
		"none":  {0, 30 * time.Second},
		"long":  {time.Hour, 30 * time.Second},
		"short": {2 * time.Second, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			tested(t, Options{}, func(t *testing.T, r *rig) {
				r.model.Timeouts.Max = c.most
				begin := time.Now()
				ended := make(chan error, 1)
				r.send = func(ctx context.Context, call *inference.Call) error {
					<-ctx.Done()
					if !call.Deadline.Equal(time.Now()) {
						t.Errorf("the call says %v", call.Deadline.Sub(begin))
					}
					ended <- context.Cause(ctx)
					return context.Cause(ctx)
				}
				_ = r.do(r.call(inference.KServe))
				err := <-ended
				if took := time.Since(begin); took != c.want || fault.Of(err).Kind != fault.UpstreamTimeout {
					t.Errorf("%v after %v", err, took)
				}
			})
		})
	}
}

func TestWhatBefallsACopyIsNotTheCallersConcern(t *testing.T) {
	for name, send := range map[string]inference.Handler{
		"it fails":  func(context.Context, *inference.Call) error { return fault.New(fault.ModelNotReady, "not ready") },
		"it panics": func(context.Context, *inference.Call) error { panic("a bug") },
		"no answer": func(context.Context, *inference.Call) error { return nil },
		"two answers": func(_ context.Context, c *inference.Call) error {
			return errors.Join(c.Send(inference.NewFrame(nil)), c.Send(inference.NewFrame(nil)))
		},
		"malformed": func(_ context.Context, c *inference.Call) error { return c.Send(inference.NewFrame([]byte{0x2a, 9})) },
		"in the band": func(_ context.Context, c *inference.Call) error {
			c.InBand = errors.New("no")
			return c.Send(inference.NewFrame(nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Options{})
				r.send = send
				c := r.call(inference.KServe)
				if err := r.Wrap(r.answer)(t.Context(), c); err != nil || c.Answers != 1 || c.Answer.Empty() {
					t.Errorf("%v, %d answers", err, c.Answers)
				}
				c.Free()
				synctest.Wait()
				if r.count("model_v2 error") != 1 || len(r.outcomes) != 1 || len(r.differences) != 0 || r.held != 0 {
					t.Errorf("outcomes %v, %d held", r.outcomes, r.held)
				}
				if (name == "it panics") != (r.panics == 1) {
					t.Errorf("%d panics", r.panics)
				}
				if name != "it panics" { // whose frames are left to the collector
					r.settled()
				}
			})
		})
	}
}

func TestSomeCallsAreNotMirrored(t *testing.T) {
	shared := encode(&tritonpb.ModelInferRequest{Outputs: []*tritonpb.ModelInferRequest_InferRequestedOutputTensor{{
		Name: "score", Parameters: map[string]*tritonpb.InferParameter{"shared_memory_region": {ParameterChoice: &tritonpb.InferParameter_StringParam{StringParam: "mine"}}},
	}}})
	for name, change := range map[string]func(r *rig, c *inference.Call){
		"no mirror":             func(r *rig, _ *inference.Call) { r.model.Mirror = nil },
		"no target":             func(r *rig, _ *inference.Call) { r.model.Mirror.To = nil },
		"no share":              func(r *rig, _ *inference.Call) { r.model.Mirror.Percent = 0 },
		"pinned":                func(_ *rig, c *inference.Call) { c.Pinned = true },
		"step of a sequence":    func(_ *rig, c *inference.Call) { c.Head.Sequence.ID = "7" },
		"end of a sequence":     func(_ *rig, c *inference.Call) { c.Head.Sequence.End = true },
		"its own target":        func(_ *rig, c *inference.Call) { c.Target = v2 },
		"the same by its name":  func(_ *rig, c *inference.Call) { same := *v2; same.Name = "candidate"; c.Target = &same },
		"tensors shared":        func(r *rig, c *inference.Call) { c.Request.Free(); c.Request = r.frame(shared) },
		"the stage has stopped": nil,
	} {
		t.Run(name, func(t *testing.T) {
			tested(t, Options{}, func(t *testing.T, r *rig) {
				c := r.call(inference.KServe)
				if change == nil {
					r.Close()
				} else {
					change(r, c)
				}
				if err := r.do(c); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if len(r.seen) != 0 || len(r.outcomes) != 0 && change != nil {
					t.Errorf("%d copies, outcomes %v", len(r.seen), r.outcomes)
				}
			})
		})
	}
	broken := errors.New("broken")
	for name, next := range map[string]inference.Handler{
		"failed": func(context.Context, *inference.Call) error { return broken },
		"failed in the band": func(_ context.Context, c *inference.Call) error {
			c.InBand = broken
			return c.Send(inference.NewFrame(nil))
		},
		"degraded": func(_ context.Context, c *inference.Call) error {
			c.Degraded = &inference.Degraded{Cause: broken}
			return c.Send(inference.NewFrame(nil))
		},
		"decoupled": func(_ context.Context, c *inference.Call) error {
			c.MarkDecoupled()
			return c.Send(inference.NewFrame(nil))
		},
		"no answer": func(context.Context, *inference.Call) error { return nil },
		"sent to the mirror": func(_ context.Context, c *inference.Call) error {
			c.Target = v2
			return c.Send(inference.NewFrame(nil))
		},
	} {
		for _, p := range []inference.Protocol{inference.KServe, inference.KServeStream} {
			t.Run(name+" "+p.String(), func(t *testing.T) {
				tested(t, Options{}, func(t *testing.T, r *rig) {
					c := r.call(p)
					if err := r.Wrap(next)(t.Context(), c); (err != nil) != (name == "failed") {
						t.Error(err)
					}
					c.Free()
					synctest.Wait()
					if len(r.seen) != 0 || len(r.outcomes) != 0 {
						t.Errorf("%d copies, outcomes %v", len(r.seen), r.outcomes)
					}
				})
			})
		}
	}
}

func TestAPanicFurtherInLeavesNothingBehind(t *testing.T) {
	for _, p := range []inference.Protocol{inference.KServe, inference.PredictStream} {
		tested(t, Options{}, func(t *testing.T, r *rig) {
			c := r.call(p)
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the panic was swallowed")
					}
				}()
				_ = r.Wrap(func(context.Context, *inference.Call) error { panic("a bug") })(t.Context(), c)
			}()
			c.Free()
		})
	}
}

func TestAShareOfCallsIsMirrored(t *testing.T) {
	tested(t, Options{}, func(t *testing.T, r *rig) {
		r.model.Mirror.Percent = 10
		for range 20 {
			for range 500 {
				_ = r.do(r.call(inference.KServe))
			}
			synctest.Wait()
		}
		if n := len(r.seen); n < 800 || n > 1200 {
			t.Errorf("%d of 10,000 calls were mirrored, want about 1,000", n)
		}
	})
	drawn := 0.0999
	tested(t, Options{Draw: func() float64 { return drawn }}, func(t *testing.T, r *rig) {
		r.model.Mirror.Percent = 10
		_ = r.do(r.call(inference.KServe))
		drawn = 0.1
		_ = r.do(r.call(inference.KServe))
		synctest.Wait()
		if n := len(r.seen); n != 1 {
			t.Errorf("%d copies, want one", n)
		}
	})
}

func TestLargeCopiesAreBoundedByTheirBytes(t *testing.T) {
	tested(t, Options{Bytes: 1000, InFlight: 1}, func(t *testing.T, r *rig) {
		release := make(chan struct{})
		r.send = func(ctx context.Context, c *inference.Call) error {
			<-release
			return r.answer(ctx, c)
		}
		measured := r.call(inference.KServe)
		size := measured.Request.Len()
		measured.Free()
		for range 100 {
			_ = r.do(r.call(inference.KServe))
		}
		answer := encode(&tritonpb.ModelInferResponse{
			Outputs:           []*tritonpb.ModelInferResponse_InferOutputTensor{{Name: "score", Datatype: "FP32", Shape: []int64{1, 1}}},
			RawOutputContents: [][]byte{bits(1)},
		})
		want := 500 / (size + 2*len(answer)) // half of the room for one target
		if r.held != want {
			t.Errorf("%d copies are held, want %d", r.held, want)
		}
		close(release)
		synctest.Wait()
		if r.count("model_v2 same") != want || r.count("model_v2 dropped") != 100-want {
			t.Errorf("outcomes %v", r.outcomes)
		}
	})
}

func TestTheFirstCopyOfATargetMayTakeMoreThanItsHalf(t *testing.T) {
	tested(t, Options{Bytes: 200}, func(t *testing.T, r *rig) {
		for range 2 {
			_ = r.do(r.call(inference.KServe))
		}
		synctest.Wait()
		if r.count("model_v2 same") != 1 || r.count("model_v2 dropped") != 1 {
			t.Errorf("outcomes %v", r.outcomes)
		}
	})
}

func TestStoppingDropsWhatWaitsAndGivesUpWhatIsUnderWay(t *testing.T) {
	tested(t, Options{InFlight: 2}, func(t *testing.T, r *rig) {
		r.send = func(ctx context.Context, _ *inference.Call) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		for range 5 {
			_ = r.do(r.call(inference.Predict))
		}
		synctest.Wait()
		r.Close()
		if r.held != 0 || r.count("model_v2 dropped") != 5 || len(r.seen) != 2 {
			t.Errorf("outcomes %v, %d held, %d sent", r.outcomes, r.held, len(r.seen))
		}
		_ = r.do(r.call(inference.Predict))
		if r.count("model_v2 dropped") != 6 {
			t.Errorf("outcomes %v after the stop", r.outcomes)
		}
	})
}

func TestTheLogHasASampleOfDifferencesAndNoUser(t *testing.T) {
	tested(t, Options{}, func(t *testing.T, r *rig) {
		r.score[v2] = 0.5
		for range 3 {
			for range 10 {
				_ = r.do(r.call(inference.KServe))
			}
			synctest.Wait()
			<-time.After(time.Second)
		}
		lines := strings.Split(strings.TrimSpace(r.log.String()), "\n")
		if len(lines) != 3 {
			t.Fatalf("%d lines:\n%s", len(lines), r.log.String())
		}
		for _, want := range []string{
			"model=fraud", "target=model_v1", "mirror=model_v2", "outcome=different", "request_id=r1", "suppressed=9",
			"output=score", "max_abs_difference=0.25", "value=0.25", "mirrored_value=0.5", "score=0.25", "mirrored_score=0.5",
		} {
			if !strings.Contains(lines[2], want) {
				t.Errorf("no %s in %s", want, lines[2])
			}
		}
		if strings.Contains(r.log.String(), "ann") {
			t.Errorf("the user is in %s", r.log.String())
		}
	})
}

func TestManyCallersMirrorSideBySide(t *testing.T) {
	r := newRig(t, Options{Calls: 64, InFlight: 8})
	r.score[v2] = 0.5
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			for n := range 200 {
				p := inference.Protocols()[(i+n)%len(inference.Protocols())]
				if err := r.do(r.call(p)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	r.Close()
	r.settled()
	total := 0
	for _, n := range r.outcomes {
		total += n
	}
	if total != 1600 || r.held != 0 || r.peak > 65 { // one more is counted while it is being refused
		t.Errorf("outcomes %v, %d held, at most %d", r.outcomes, r.held, r.peak)
	}
}

func TestCallsThatAreNotMirroredAllocateNothing(t *testing.T) {
	r := newRig(t, Options{Draw: func() float64 { return 0.5 }})
	next := r.Wrap(func(context.Context, *inference.Call) error { return nil })
	for name, m := range map[string]*inference.Mirror{"no mirror": nil, "not drawn": {To: v2, Percent: 10}} {
		c := &inference.Call{Model: &inference.Model{Mirror: m}, Target: v1}
		if n := testing.AllocsPerRun(100, func() { _ = next(t.Context(), c) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
