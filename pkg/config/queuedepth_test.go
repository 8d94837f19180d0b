package config

import (
	"strings"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

func TestQueuesAreLookedAtWhereTheFileSaysSo(t *testing.T) {
	c := good(t, `
upstreams:
  triton: {endpoints: [a:8001, b:8001], metrics: "http://{host}:8002/metrics"}
  other: {endpoints: c:8001}
models:
  - {name: fraud, upstream: triton, pick: queue_depth}
  - {name: cnn, upstream: other}
`)
	if c.Upstreams[0].Metrics != "http://{host}:8002/metrics" || c.Models[0].Pick != inference.QueueDepth || c.Models[1].Pick != inference.LeastLoaded {
		t.Errorf("%+v %v %v", c.Upstreams[0], c.Models[0].Pick, c.Models[1].Pick)
	}
	c = good(t, "defaults: {pick: queue_depth}\nupstreams: {triton: {endpoints: a:8001, metrics: \"https://{host}/m?x=1\"}}\n")
	if c.Pick != inference.QueueDepth {
		t.Errorf("models that pass through have %v", c.Pick)
	}
}

func TestQueuesOfWhichNothingCanBeKnownAreAMistake(t *testing.T) {
	for text, want := range map[string]string{
		"upstreams: {triton: {endpoints: a:8001}}\nmodels: [{name: m, pick: queue_depth}]":                              "models[0].pick: is queue_depth, and upstream triton has no metrics to tell it; give it metrics: http://{host}:8002/metrics (line 2)",
		"upstreams: {triton: {endpoints: a:8001}}\nmodels: [{name: m, targets: {v1: {version: 1}}, pick: queue_depth}]": "models[0].pick: is queue_depth",
		"upstreams: {triton: {endpoints: a:8001}}\ndefaults: {pick: queue_depth}":                                       "defaults.pick: is queue_depth, and upstream triton",
		"defaults: {pick: queue_depth}": "defaults.pick: is queue_depth, and upstream triton",
		"upstreams: {triton: {endpoints: a:8001, metrics: \"http://a:8002/metrics\"}}":          "must have {host} for the host",
		"upstreams: {triton: {endpoints: a:8001, metrics: \"http://a:8002/{host}\"}}":           "must have {host} for the host",
		"upstreams: {triton: {endpoints: a:8001, metrics: \"{host}:8002/metrics\"}}":            "must be an http or https URL",
		"upstreams: {triton: {endpoints: a:8001, metrics: \"file://{host}/metrics\"}}":          "must be an http or https URL",
		"upstreams: {triton: {endpoints: a:8001, metrics: \"http://u:p@{host}:8002/metrics\"}}": "neither a user",
	} {
		_, err := Parse("f.yaml", []byte(text), func(name string) string {
			if name == envTriton && !strings.Contains(text, "upstreams") {
				return "triton:8001"
			}
			return ""
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v\nwant %s", text, err, want)
		}
	}
}
