package gateway

import (
	"testing"

	"github.com/model-gateway/model-gateway/pkg/config"
)

func TestModelsAreProbedByInferencesWhereTheyOrTheDefaultsSaySo(t *testing.T) {
	cfg := &config.Config{Passthrough: true, ProbeInfer: true, Models: []config.Model{
		{Name: "a", Upstream: "triton", UpstreamModel: "fraud"},
		{Name: "b", ProbeInfer: true, Targets: []config.Target{{Upstream: "triton", Model: "cnn", Version: "1"}, {Upstream: "other", Model: "text", Version: "1"}}},
		{Name: "c", Targets: []config.Target{{Upstream: "triton", Model: "cnn", Version: "2"}}},
	}}
	infer := inferProbes("triton", cfg)
	for model, want := range map[string]bool{"fraud": false, "cnn": true, "text": true, "never declared": true} {
		if infer(model) != want {
			t.Errorf("%s: %t", model, !want)
		}
	}
	cfg.Passthrough = false
	if inferProbes("triton", cfg)("never declared") {
		t.Error("a model that nobody may use is probed by inferences")
	}
}
