package catalog

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

func half() *inference.Fallback {
	score := 0.5
	return &inference.Fallback{Score: &score, Predict: true, Outage: true}
}

func TestModelsThatPassThroughHaveTheFallbackOfTheConfiguration(t *testing.T) {
	f := half()
	a := &fake{name: "a", models: map[string][]string{"cnn": {"1"}}}
	c := catalogOf(t, &config.Config{Passthrough: true, Fallback: f}, a)
	if m, err := c.Model(t.Context(), "cnn"); err != nil || m.Fallback != f {
		t.Errorf("%+v, %v", m, err)
	}
	reload(t, c, &config.Config{Passthrough: true}, a)
	if m, err := c.Model(t.Context(), "cnn"); err != nil || m.Fallback != nil {
		t.Errorf("after a reload without one: %+v, %v", m, err)
	}
}

func TestWhileNoUpstreamAnswersANameIsNeitherKnownNorUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fake{name: "a", broken: fault.New(fault.UpstreamUnavailable, "refused"), models: map[string][]string{"m0": {"1"}}}
		a.out.Store(true)
		c := catalogOf(t, &config.Config{Passthrough: true, Fallback: half()}, a)
		for i := range 100 { // more names than may be asked for in a second
			_, err := c.Model(t.Context(), fmt.Sprintf("m%d", i))
			if !fault.Of(err).Kind.Row().Outage {
				t.Fatalf("name %d: %v", i, err)
			}
		}
		if n := a.asked.Load(); n != 1 {
			t.Errorf("the upstream was asked %d times", n)
		}
		a.broken = nil
		a.out.Store(false)
		time.Sleep(refusedFor) //nolint:forbidigo // the bubble's clock
		if _, err := c.Model(t.Context(), "m0"); err != nil {
			t.Errorf("it answers again: %v", err)
		}
		if _, err := c.Model(t.Context(), "m1"); kindOf(err) != fault.ModelNotFound {
			t.Errorf("a name that is not there: %v", err)
		}
	})
}

func TestANameThatCouldNotBeAskedForBeforeAnythingAnsweredIsNotUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fake{name: "a", gate: make(chan struct{})}
		a.out.Store(true)
		c := catalogOf(t, &config.Config{Passthrough: true}, a)
		kinds := make(chan fault.Kind, 50)
		for i := range cap(kinds) {
			go func() {
				_, err := c.Model(t.Context(), fmt.Sprintf("m%d", i))
				kinds <- kindOf(err)
			}()
		}
		for range cap(kinds) {
			if k := <-kinds; k != fault.NoEndpoint {
				t.Errorf("it ended with %s", k.Reason())
			}
		}
	})
}

func TestACallDoesNotWaitForASilentUpstreamUntilItsOwnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fake{name: "a", gate: make(chan struct{})}
		c := catalogOf(t, &config.Config{Passthrough: true}, a)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		begin := time.Now()
		if _, err := c.Model(ctx, "cnn"); kindOf(err) != fault.NoEndpoint || time.Since(begin) != 190*time.Millisecond {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
		close(a.gate)
	})
}

func TestAModelThatWasKnownStaysSoOverAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fake{name: "a", models: map[string][]string{"cnn": {"1"}}}
		a.know("cnn", "1")
		c := catalogOf(t, &config.Config{Passthrough: true}, a)
		before := chosen(t, c, "cnn")
		a.know("cnn")
		a.broken = fault.New(fault.UpstreamUnavailable, "refused")
		a.out.Store(true)
		for range 10 {
			time.Sleep(forgottenFor) //nolint:forbidigo // the bubble's clock
			if now := chosen(t, c, "cnn"); now != before {
				t.Fatalf("its target is %+v", now)
			}
		}
	})
}

func TestWhatStandsForAModelThatNobodyCouldNameHasNoTarget(t *testing.T) {
	a := &fake{name: "a"}
	c := catalogOf(t, &config.Config{Passthrough: true, Fallback: half()}, a)
	why := fault.New(fault.NoEndpoint, "nobody there")
	m := c.Unanswered(why)
	if m == nil || m.Name != "" || m.Stable.Absent != why || m.Stable.Pool.Ready() || m.Fallback == nil { //nolint:errorlint // the very same
		t.Fatalf("%+v", m)
	}
	if pinned, err := m.Pin(t.Context(), "3"); err != nil || pinned.Absent == nil {
		t.Errorf("pinned: %+v, %v", pinned, err)
	}
	if _, err := m.Stable.Pool.Pick(nil, nil); err != why { //nolint:errorlint // the very same
		t.Errorf("it gives %v", err)
	}
	if c.Unanswered(fault.UnknownModel("cnn")) != nil {
		t.Error("a name that is not there has something in its place")
	}
	reload(t, c, &config.Config{}, a)
	if c.Unanswered(why) != nil {
		t.Error("without a fallback there is something in its place")
	}
}

func TestChainsLeadToTargetsAndOtherModels(t *testing.T) {
	score := 0.25
	cfg := &config.Config{Models: []config.Model{
		{
			Name: "risk", Stable: "v1", Targets: []config.Target{{Name: "v1", Upstream: "a", Model: "fraud", Version: "1"}, {Name: "v2", Upstream: "a", Model: "fraud", Version: "2"}},
			Fallback: &config.Fallback{To: "v1", V2: true, Overload: true, Else: &config.Fallback{Model: "small", Else: &config.Fallback{Score: &score}}},
		},
		{Name: "small", Upstream: "a", UpstreamModel: "small", Fallback: &config.Fallback{To: "model_v3"}},
	}}
	c := catalogOf(t, cfg, &fake{name: "a"})
	risk, small := c.Declared("risk"), c.Declared("small")
	f := risk.Fallback
	if f.To != risk.Targets["v1"] || !f.V2 || f.Predict || !f.Overload || f.Outage || f.Else.Model != small || f.Else.To != nil || *f.Else.Else.Score != score {
		t.Errorf("%+v", f)
	}
	if to := small.Fallback.To; to.Name != "model_v3" || to.Version != "3" {
		t.Errorf("%+v", to)
	}
}
