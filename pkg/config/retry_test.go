package config

import (
	"strings"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

func TestModelsAreTriedAgainAsTheySayOrAsTheDefaultsDo(t *testing.T) {
	c, err := Parse("retry.yaml", []byte(`
version: 1
defaults: {retry: {budget: 10%}}
upstreams: {triton: {kind: triton, endpoints: "triton:8001"}}
models:
  - {name: plain}
  - {name: never, retry: {attempts: 1}}
`), func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	if c.Retry != (inference.Retry{Attempts: 2, Budget: .1}) || c.Models[0].Retry != c.Retry {
		t.Errorf("defaults %+v, plain %+v", c.Retry, c.Models[0].Retry)
	}
	if c.Models[1].Retry != (inference.Retry{Attempts: 1, Budget: .1}) {
		t.Errorf("never %+v", c.Models[1].Retry)
	}
}

func TestARetryThatCannotBeIsAMistakeWithItsPlace(t *testing.T) {
	_, err := Parse("retry.yaml", []byte(`
version: 1
defaults: {retry: {attempts: 9, budget: 120%}}
upstreams: {triton: {kind: triton, endpoints: "triton:8001"}}
`), func(string) string { return "" })
	for _, want := range []string{"line 3", "defaults.retry.attempts", "1 to 5", "defaults.retry.budget"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}
