package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

func number(v float64) *float64 { return &v }

func TestAFallbackIsAScoreOrAChainOfOthers(t *testing.T) {
	c := good(t, twoTargets+`
    split: [{weights: {model_v1: 95, model_v2: 5}}]
    fallback: {to: model_v1, else: {model: small, else: {score: 0.25}}, protocols: [predict, v2], on: [outage, overload]}
  - {name: small, fallback: {score: 1}}
  - {name: versions, fallback: {to: model_v7, else: {score: 0}}, split: []}
  - {name: plain}
`)
	for i, want := range []*Fallback{
		{To: "model_v1", Else: &Fallback{Model: "small", Else: &Fallback{Score: number(0.25)}}, Predict: true, V2: true, Outage: true, Overload: true},
		{Score: number(1), Predict: true, Outage: true},
		{To: "model_v7", Else: &Fallback{Score: number(0)}, Predict: true, Outage: true},
		nil,
	} {
		if diff := cmp.Diff(want, c.Models[i].Fallback); diff != "" {
			t.Errorf("%s: %s", c.Models[i].Name, diff)
		}
	}
	if c.Fallback != nil {
		t.Errorf("nothing passes through, and would have %+v", c.Fallback)
	}
}

func TestModelsThatPassThroughFallBackToAHalf(t *testing.T) {
	want := &inference.Fallback{Score: number(0.5), Predict: true, Outage: true}
	for _, text := range []string{oneUpstream, twoTargets + "passthrough: true\n"} {
		if diff := cmp.Diff(want, good(t, text).Fallback); diff != "" {
			t.Error(diff)
		}
	}
}

func TestAFallbackThatCannotStandInIsRefused(t *testing.T) {
	const tensors = "\n    tensors: {inputs: [{name: X, datatype: FP32, shape: [-1]}], outputs: [{name: L, datatype: INT8, shape: [-1]}, {name: S, datatype: FP16, shape: [-1]}]}"
	for fallback, want := range map[string]string{
		"{}":                                      "models[0].fallback: must say what answers: score: a number, to: another target, or model: another model (line 7)",
		"{score: 0.5, to: model_v2}":              "models[0].fallback: has score and to; one answers, the others follow it under else (line 7)",
		"{score: 0.5, else: {score: 1}}":          "models[0].fallback.else: is never asked, since a score always answers; remove it (line 7)",
		"{to: model_v2, else: {}}":                "models[0].fallback.else: must say what answers: score: a number, to: another target, or model: another model (line 7)",
		"{to: model_v3}":                          "models[0].fallback.to: model_v3 is no target of this model; did you mean model_v1? (line 7)",
		"{to: model_v1}":                          "models[0].fallback.to: is model_v1, where all calls go already, since no split sends any elsewhere; use another target, or score (line 7)",
		"{to: model_v2, else: {to: model_v2}}":    "models[0].fallback.else.to: is model_v2, which models[0].fallback.to has asked already: a chain that comes back to a target asks it in vain; remove it (line 7)",
		"{model: fraud}":                          "models[0].fallback.model: is this model itself; use to for another of its targets (line 7)",
		"{model: smal}":                           "models[0].fallback.model: smal is no declared model; did you mean small? (line 7)",
		"{model: zebra}":                          "models[0].fallback.model: zebra is no declared model; declare it, for its tensors and timeouts (line 7)",
		"{model: small, else: {model: small}}":    "models[0].fallback.else.model: is small, which models[0].fallback.model has asked already; remove it (line 7)",
		"{model: back}":                           "models[0].fallback: leads in a circle: fraud → back → fraud; end the chain of one of them with a score (line 7)",
		"{score: 0.5, protocols: []}":             "models[0].fallback.protocols: must say where it is given: predict, v2 or both; without it, predict (line 7)",
		"{score: 0.5, on: []}":                    "models[0].fallback.on: must say which failures it stands in for: outage, overload or both; without it, outage (line 7)",
		"{score: 0.5, protocols: [v1]}":           `models[0].fallback.protocols[0]: must be predict or v2, not "v1"; did you mean v2? (line 7)`,
		"{score: 0.5, on: [timeout]}":             `models[0].fallback.on[0]: must be outage or overload, not "timeout" (line 7)`,
		"{score: high}":                           `models[0].fallback.score: must be a number, not "high" (line 7)`,
		"{score: .nan}":                           "models[0].fallback.score: must be a number, not this (line 7)",
		"{score: 1.0e+300}":                       "models[0].fallback.score: must be a number that FP32 holds, since confidence is one (line 7)",
		"{score: 70000}" + tensors:                "models[0].fallback.score: is 70000, which output S cannot be: its datatype is FP16; use a smaller number (line 7)",
		"{score: 0.5, protocols: [v2]}" + tensors: "models[0].fallback.score: is 0.5, which output L cannot be: its datatype is INT8; use a whole number within its bounds (line 7)",
		"{to: model_v2, else: {score: 0.5}, protocols: [v2]}" + tensors: "models[0].fallback.else.score: is 0.5, which output L cannot be: its datatype is INT8; use a whole number within its bounds (line 7)",
	} {
		got := strings.Join(wrongs(t, twoTargets+"    fallback: "+fallback+`
  - {name: small, fallback: {score: 0.5}}
  - {name: back, fallback: {model: fraud}}
`), "\n")
		if got != want {
			t.Errorf("%s gives\n%s\nwant\n%s", fallback, got, want)
		}
	}
	only := strings.Join(wrongs(t, oneUpstream+"models: [{name: a, targets: {v1: {version: 1}}, fallback: {to: v1}}, {name: b, fallback: {to: best}}]"), "\n")
	for _, want := range []string{
		"models[0].fallback.to: is v1, the only target of this model, whose outage it is; use score, or model: another model",
		"models[1].fallback.to: best is no target: a model without declared targets has model_v1 for version 1",
	} {
		if !strings.Contains(only, want) {
			t.Errorf("%s\nlacks %s", only, want)
		}
	}
}

func TestAScoreThatTheAnsweringOutputHoldsIsEnoughForPredict(t *testing.T) {
	good(t, twoTargets+`
    fallback: {score: 0.5}
    tensors: {inputs: [{name: X, datatype: FP32, shape: [-1]}], outputs: [{name: L, datatype: INT8, shape: [-1]}, {name: S, datatype: FP16, shape: [-1]}]}
`)
}

func TestDeclaredOutputsAreThoseThatFieldsName(t *testing.T) {
	got := strings.Join(wrongs(t, twoTargets+`
    tensors:
      inputs: [{name: X, datatype: FP32, shape: [-1]}]
      outputs: [{name: S, datatype: FP32, shape: [-1]}, {name: S, shape: [0]}]
      output: T
      confidence: {output: U}
`), "\n")
	for _, want := range []string{
		"models[0].tensors.outputs[1].name: S is the name of an output already",
		"models[0].tensors.outputs[1].datatype: must be given, such as FP32",
		"models[0].tensors.outputs[1].shape[0]: must be a size above zero, or -1 for any",
		"models[0].tensors.output: T is none of tensors.outputs; use S",
		"models[0].tensors.confidence.output: U is none of tensors.outputs; use S",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nlacks %s", got, want)
		}
	}
}

func TestAModelOfOtherTensorsCannotStandIn(t *testing.T) {
	const own = "\n    tensors: {inputs: [{name: X, datatype: FP32, shape: [-1, 16]}], outputs: [{name: S, datatype: FP32, shape: [-1]}]}"
	const at = "models[0].fallback.else.model: is small, "
	for tensors, want := range map[string]string{
		"{inputs: [{name: X, datatype: FP32, shape: [-1, 16]}], outputs: [{name: S, datatype: FP32, shape: [-1]}]}":    "",
		"{inputs: [{name: X, datatype: FP32, shape: [-1, -1]}], output: S}":                                            "",
		"{inputs: [{name: X, datatype: FP32, shape: [-1, 8]}], outputs: [{name: S, datatype: FP32, shape: [-1]}]}":     at + `whose input "X" is FP32 [-1 8], and "X" of this model is FP32 [-1 16]: its answer would be read as something else; use a model of the same tensors, or score (line 7)`,
		"{inputs: [{name: X, datatype: FP32, shape: [-1, 16]}], outputs: [{name: S, datatype: FP64, shape: [-1]}]}":    at + `whose output "S" is FP64 [-1], and "S" of this model is FP32 [-1]: its answer would be read as something else; use a model of the same tensors, or score (line 7)`,
		"{inputs: [{name: X, datatype: FP32, shape: [-1, 16]}], outputs: [{name: S, datatype: FP32, shape: [-1, 2]}]}": at + `whose output "S" is FP32 [-1 2], and "S" of this model is FP32 [-1]: its answer would be read as something else; use a model of the same tensors, or score (line 7)`,
		"{inputs: [{name: X, datatype: FP32, shape: [-1, 16]}], outputs: [{name: T, datatype: FP32, shape: [-1]}]}":    at + `which has no output "S", as this model has: its answer would be read as something else; use a model of the same tensors, or score (line 7)`,
		"{inputs: [{name: Y, datatype: FP32, shape: [-1, 16]}], outputs: [{name: S, datatype: FP32, shape: [-1]}]}":    at + `which has no input "X", as this model has: calls over v2 would be refused; use a model of the same tensors, or protocols: [predict] (line 7)`,
	} {
		text := twoTargets + "    fallback: {to: model_v2, else: {model: small}, protocols: [predict, v2]}" + own + "\n  - {name: small, tensors: " + tensors + "}\n"
		if want == "" {
			good(t, text)
		} else if got := strings.Join(wrongs(t, text), "\n"); got != want {
			t.Errorf("%s gives\n%s\nwant\n%s", tensors, got, want)
		}
	}
	// Predict has no names, and where one of the two declares nothing, nothing is known yet.
	good(t, twoTargets+"    fallback: {model: small}"+own+"\n  - {name: small, tensors: {inputs: [{name: Y, datatype: FP32, shape: [-1, 16]}], outputs: [{name: T, datatype: FP32, shape: [-1]}]}}\n")
	good(t, twoTargets+"    fallback: {model: small, protocols: [v2]}"+own+"\n  - {name: small}\n")
}
