package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

func TestAScenarioHoldsOnlyWhenAllItChecksDoes(t *testing.T) {
	cases := []struct {
		verdict string
		holds   bool
		run     func(b *bench)
	}{
		{"holds", true, func(b *bench) { b.check(true, "") }},
		{"DOES NOT HOLD", false, func(b *bench) { b.check(false, "too slow") }},
		{"DOES NOT HOLD", false, func(b *bench) { b.must(errors.New("no server")) }},
		{"DOES NOT HOLD", false, func(b *bench) { b.within(time.Millisecond, "it is up", func() bool { return false }) }},
		{"DOES NOT HOLD", false, func(b *bench) {
			b.load = &load{stop: func() {}}
			b.load.add(record{at: time.Now(), outcome: failed, why: "gone"})
			b.none("failed", is(failed))
		}},
		{"DOES NOT HOLD", false, func(b *bench) {
			b.load = &load{stop: func() {}, deadline: time.Second}
			b.load.add(record{at: time.Now(), took: 3 * time.Second})
			b.finish()
		}},
		{"skipped: not here", true, func(b *bench) { b.skip("not here") }},
	}
	for i, c := range cases {
		closed := false
		r, holds := one(t.Context(), options{}, scenario{name: "x", run: func(b *bench) {
			b.after(func() { closed = true })
			c.run(b)
		}})
		if r.verdict != c.verdict || holds != c.holds || !closed {
			t.Errorf("case %d: %q, holds %t, cleaned up %t", i, r.verdict, holds, closed)
		}
	}
}

func TestAnAnswerThatIsWrongIsAFailureWhateverItSaysOfItself(t *testing.T) {
	s := sample{score: 0.25}
	right, half := floats([]float32{0.25}), floats([]float32{0.5})
	for i, c := range []struct {
		a    *inferencepb.PredictionResponse
		want outcome
	}{
		{&inferencepb.PredictionResponse{Status: "OK", OutputTensor: right}, ok},
		{&inferencepb.PredictionResponse{Status: "OK", OutputTensor: half}, failed},
		{&inferencepb.PredictionResponse{Status: "OK"}, failed},
		{&inferencepb.PredictionResponse{Status: "DEGRADED", OutputTensor: half, Confidence: 0.5}, degraded},
		{&inferencepb.PredictionResponse{Status: "DEGRADED", OutputTensor: right, Confidence: 0.25}, failed},
		{&inferencepb.PredictionResponse{Status: "ERROR: ENDPOINT_LOST"}, failed},
	} {
		if got, why := judge(c.a, s); got != c.want {
			t.Errorf("case %d: %s (%s)", i, got, why)
		}
	}
	mark := map[string]*tritonpb.InferParameter{"gateway_degraded": {ParameterChoice: &tritonpb.InferParameter_BoolParam{BoolParam: true}}}
	for i, c := range []struct {
		a    *tritonpb.ModelInferResponse
		want outcome
	}{
		{&tritonpb.ModelInferResponse{RawOutputContents: [][]byte{right}}, ok},
		{&tritonpb.ModelInferResponse{RawOutputContents: [][]byte{half}}, failed},
		{&tritonpb.ModelInferResponse{RawOutputContents: [][]byte{half}, Parameters: mark}, degraded},
		{&tritonpb.ModelInferResponse{RawOutputContents: [][]byte{right}, Parameters: mark}, failed},
		{&tritonpb.ModelInferResponse{}, failed},
	} {
		if got, why := judgeV2(c.a, s); got != c.want {
			t.Errorf("v2, case %d: %s (%s)", i, got, why)
		}
	}
	if got, why := verdictOf(status.Error(codes.ResourceExhausted, "full")); got != refused || !strings.Contains(why, "full") {
		t.Errorf("%s %s", got, why)
	}
	if got, _ := verdictOf(context.DeadlineExceeded); got != failed {
		t.Errorf("silence is %s", got)
	}
}

func TestMetricsAreAddedUpByNameAndLabels(t *testing.T) {
	page := "# HELP up x\nup{a=\"1\",b=\"2\"} 3\nup{a=\"2\"} 4\nup_more 9\nplain 2\n"
	if n := sum(page, "up"); n != 7 {
		t.Errorf("up: %v", n)
	}
	if n := sum(page, "up", `a="2"`); n != 4 {
		t.Errorf("up of 2: %v", n)
	}
	if n := sum(page, "plain"); n != 2 {
		t.Errorf("plain: %v", n)
	}
}

func TestAnOpenLoopDoesNotWaitForAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := flow{"hang", 100, func(ctx context.Context, _ int) (outcome, string) {
			<-ctx.Done()
			return failed, "silence"
		}}
		l := begin(300*time.Millisecond, []flow{hang})
		<-time.After(time.Second - time.Millisecond)
		l.end()
		if n := l.count(every); n != 100 {
			t.Errorf("%d calls in a second at 100 a second, none of which was answered", n)
		}
		if early := l.count(not(slower(300*time.Millisecond - 1))); early != 0 {
			t.Errorf("%d calls ended before their deadline", early)
		}
	})
}
