package fallback

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

func answering(datatype string, shape ...int64) inference.Tensors {
	return inference.Tensors{Outputs: []inference.Tensor{{Name: "S", Datatype: datatype, Shape: shape}}}
}

func TestATargetWhoseAnswerWouldBeReadAsSomethingElseIsPassedOverAndThatIsToldOnce(t *testing.T) {
	for _, p := range inference.Protocols() {
		var log bytes.Buffer
		passed := map[string]int{}
		stage := &Stage{
			Messages: messages, Log: slog.New(slog.NewTextHandler(&log, nil)),
			PassedOver: func(from, to *inference.Target) { passed[from.Name+" by "+to.Name]++ },
		}
		for range 3 {
			other := target("v2")
			other.Pool = pool{tensors: answering("FP64", -1)}
			wide := target("v3")
			wide.Pool = pool{tensors: answering("FP32", -1, 3)}
			c := ready(chainOf(scoreOf(0.5), other, wide, target("v4")), p) // nothing is known of v4
			c.Target.Pool = pool{tensors: answering("FP32", -1)}
			u := &upstream{faults: down("v1")}
			if err := stage.Wrap(u.handle)(t.Context(), c); err != nil || c.Target.Name != "v4" || len(u.calls) != 2 {
				t.Errorf("%s: %v, answered by %s, calls %q", p, err, c.Target.Name, u.calls)
			}
			c.Free()
		}
		if len(passed) != 2 || passed["v1 by v2"] != 3 || passed["v1 by v3"] != 3 {
			t.Errorf("%s: of 3 calls %v were passed over", p, passed)
		}
		for _, name := range []string{"v2", "v3"} {
			if n := strings.Count(log.String(), "passed_over=fraud/"+name); n != 1 {
				t.Errorf("%s: told %d times of %s: %s", p, n, name, log.String())
			}
		}
	}
}

func TestWhereAllArePassedOverNoTimeIsKeptForThem(t *testing.T) {
	other := target("v2")
	other.Pool = pool{tensors: answering("FP64", -1)}
	c := ready(chainOf(scoreOf(0.5), other), inference.Predict)
	c.Model.Tensors = &inference.Tensors{Outputs: answering("FP32", -1).Outputs} // as declared
	c.Model.Fallback.Model, c.Model.Fallback.To = &inference.Model{Name: "small", Stable: other}, nil
	u := &upstream{faults: down("v1")}
	if err := run(t.Context(), c, u); err != nil || c.Degraded.Target != nil || len(u.calls) != 1 || !strings.HasPrefix(u.calls[0], "v1 0 ") {
		t.Errorf("%v, degraded %+v, calls %q", err, c.Degraded, u.calls)
	}
}

func TestAnAnswerThatBrokeIsTheFailureOfTheTargetThatFailedFirst(t *testing.T) {
	c, got := talk(chainOf(scoreOf(0.5), target("v2")), inference.KServeStream)
	err := (&Stage{Messages: messages}).Wrap(func(_ context.Context, c *inference.Call) error {
		if c.Target.Name == "v1" {
			return fault.New(fault.NoEndpoint, "nobody there")
		}
		_ = c.Send(inference.NewFrame([]byte("begun")))
		return fault.New(fault.EndpointLost, "it broke")
	})(t.Context(), c)
	if fault.Of(err).Kind != fault.EndpointLost || len(*got) != 1 || c.Target.Name != "v1" || c.Choice.By != inference.ByWeights || c.Degraded != nil {
		t.Errorf("%v, answers %q, target %s, choice %+v, degraded %+v", err, *got, c.Target.Name, c.Choice, c.Degraded)
	}
}

func TestWantOfRoomIsAnsweredForOnlyWhereThatIsDeclared(t *testing.T) {
	for _, overload := range []bool{false, true} {
		c := ready(chainOf(scoreOf(0.5), target("v2")), inference.Predict)
		c.Model.Fallback.Overload = overload
		u := &upstream{faults: map[string]error{"v1": fault.New(fault.Overloaded, "no more calls")}}
		err := run(t.Context(), c, u)
		if overload != (err == nil) || !overload && fault.Of(err).Kind != fault.Overloaded || overload && c.Target.Name != "v2" {
			t.Errorf("overload %v: %v, target %s", overload, err, c.Target.Name)
		}
		c.Free()
	}
}
