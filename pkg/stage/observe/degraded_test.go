package observe

import (
	"log/slog"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
)

func TestADegradedCallCountsAsTheFailureThatItHidesAtTheTargetThatFailed(t *testing.T) {
	r := newRig(slog.LevelInfo, Options{})
	c := sample()
	other := &inference.Target{Name: "model_v2", Asked: "fraud", Version: "2", Upstream: "triton"}
	c.Degraded = &inference.Degraded{Cause: fault.New(fault.UpstreamTimeout, "too slow"), From: c.Target, Target: other}
	c.Target = other
	if err := r.call(c, time.Second, nil); err != nil {
		t.Fatal(err)
	}
	want := telemetry.Call{
		Model: "fraud", Version: "1", Target: "model_v1", Protocol: inference.KServe, HTTP: 504, GRPC: codes.DeadlineExceeded,
		Degraded: true, Reason: "UPSTREAM_TIMEOUT", Duration: time.Second,
	}
	if r.last() != want {
		t.Errorf("recorded %+v, want %+v", r.last(), want)
	}
	line := r.lines(t)[0]
	for name, want := range map[string]any{
		"level": "WARN", "code": 504.0, "reason": "UPSTREAM_TIMEOUT", "degraded": true, "degraded_from": "model_v1", "target": "model_v2", "error": "too slow",
	} {
		if line[name] != want {
			t.Errorf("%s is %v, want %v", name, line[name], want)
		}
	}
}

func TestTheLogSaysWhichScoreWasAnswered(t *testing.T) {
	r := newRig(slog.LevelInfo, Options{})
	c := sample()
	c.Degraded = &inference.Degraded{Cause: fault.New(fault.NoEndpoint, "nobody there"), From: c.Target, Score: 0.5}
	if err := r.call(c, time.Second, nil); err != nil {
		t.Fatal(err)
	}
	line := r.lines(t)[0]
	if _, has := line["degraded_from"]; has || line["fallback_score"] != 0.5 || line["degraded"] != true || line["reason"] != "NO_ENDPOINT" {
		t.Errorf("logged %v", line)
	}
}
