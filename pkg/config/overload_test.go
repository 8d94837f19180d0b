package config

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

func TestConcurrencyIsWhatTheFileSaysAndWaitsAMomentUnlessToldOtherwise(t *testing.T) {
	for text, want := range map[string]inference.Concurrency{
		"":                                 {},
		"concurrency: {max: 8}":            {Max: 8, Queue: 100 * time.Millisecond},
		"concurrency: {max: 8, queue: 0s}": {Max: 8},
		"concurrency: {max: 8, queue: 0}":  {Max: 8},
		"concurrency: {adaptive: true}":    {Adaptive: true, Queue: 100 * time.Millisecond},
		"concurrency: {adaptive: true, max: 3, queue: 20ms}": {Adaptive: true, Max: 3, Queue: 20 * time.Millisecond},
	} {
		c := good(t, oneUpstream+"models: [{name: a, "+text+"}]")
		if got := c.Models[0].Concurrency; got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
	if c := good(t, oneUpstream+"models: [{name: a, pass_priority: true}, {name: b}]"); !c.Models[0].PassPriority || c.Models[1].PassPriority {
		t.Error("pass_priority")
	}
}

func TestWhatMayBeHeldIsReadFromTheFileAndTheEnvironmentAndTakesARestart(t *testing.T) {
	first := good(t, oneUpstream)
	if first.Listen.MaxBytesHeld != 0 || first.Listen.MaxReads != 256 {
		t.Errorf("%+v", first.Listen)
	}
	file := good(t, oneUpstream+"listen: {max_bytes_held: 16GiB, max_reads: 9}")
	if file.Listen.MaxBytesHeld != 16<<30 || file.Listen.MaxReads != 9 {
		t.Errorf("%+v", file.Listen)
	}
	env := good(t, oneUpstream+"listen: {max_bytes_held: 16GiB, max_reads: 9}", "GATEWAY_MAX_BYTES_HELD=128 MiB", "GATEWAY_MAX_READS=7")
	if env.Listen.MaxBytesHeld != 128<<20 || env.Listen.MaxReads != 7 {
		t.Errorf("%+v", env.Listen)
	}
	if fields := strings.Join(NeedsRestart(first, file), " "); fields != "listen.max_bytes_held listen.max_reads" {
		t.Error(fields)
	}
	for _, bad := range []string{"GATEWAY_MAX_BYTES_HELD=1MiB", "GATEWAY_MAX_BYTES_HELD=lots", "GATEWAY_MAX_READS=0", "GATEWAY_MAX_READS=x"} {
		name, _, _ := strings.Cut(bad, "=")
		_, err := Parse("gateway.yaml", []byte(oneUpstream), func(n string) string {
			if n == name {
				return bad[len(name)+1:]
			}
			return ""
		})
		var mistakes Errors
		if !errors.As(err, &mistakes) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
