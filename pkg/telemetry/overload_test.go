package telemetry

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

func TestMetricsOfOverloadAreAsPeoplesAlertsKnowThem(t *testing.T) {
	m := New(Build{})
	o := NewOverload(m, func() []Admitted {
		return []Admitted{
			{Model: "fraud", Version: "1", Target: "model_v1", InFlight: 20, Waiting: 3, Limit: 20},
			{Model: "fraud", Version: "1", Target: "model_v1", InFlight: 1}, // on another upstream, before the last change of the file
		}
	}, func() Held { return Held{Bytes: 4096, Reads: 2, Waiting: 1, Refused: 7} })
	v1 := &inference.Target{Asked: "fraud", Version: "1", Name: "model_v1"}
	o.AdmitRefused(v1, inference.PrioritySheddable, "shed")
	o.AdmitRefused(v1, inference.PrioritySheddable, "shed")
	o.AdmitRefused(v1, inference.PriorityDefault, "timeout")
	_, body := scrape(t, m, "text/plain")
	var got strings.Builder
	for line := range strings.Lines(body) {
		if strings.Contains(line, "gateway_admit_") || strings.Contains(line, "gateway_reads_") || strings.Contains(line, "gateway_bytes_held") {
			got.WriteString(line)
		}
	}
	for _, want := range []string{
		`gateway_admit_in_flight{model="fraud",target="model_v1",version="1"} 20`,
		`gateway_admit_limit{model="fraud",target="model_v1",version="1"} 20`,
		`gateway_admit_waiting{model="fraud",target="model_v1",version="1"} 3`,
		`gateway_admit_refused_total{model="fraud",priority="sheddable",reason="shed",target="model_v1"} 2`,
		`gateway_admit_refused_total{model="fraud",priority="default",reason="timeout",target="model_v1"} 1`,
		"gateway_bytes_held 4096", "gateway_reads_in_flight 2", "gateway_reads_waiting 1", "gateway_reads_refused_total 7",
	} {
		if !strings.Contains(got.String(), want+"\n") {
			t.Errorf("there is no %s in\n%s", want, got.String())
		}
	}
	problems, err := promlint.New(strings.NewReader(got.String())).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}
