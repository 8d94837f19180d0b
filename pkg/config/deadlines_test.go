package config

import (
	"strings"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

func TestDynamicTimeoutsAreOnAsTheUsersRuleSays(t *testing.T) {
	want := inference.Dynamic{Floor: 2 * time.Second, Factor: 1.5}
	if got := good(t, oneUpstream).Defaults.Dynamic; got != want {
		t.Errorf("without a word it is %+v", got)
	}
}

func TestModelsSayOtherwiseAboutDynamicTimeouts(t *testing.T) {
	c := good(t, oneUpstream+`
defaults: {timeout: {dynamic: {floor: 500ms, mode: shadow}}}
models:
  - {name: plain}
  - {name: own, timeout: {dynamic: {floor: 3s, factor: 2, mode: enforce}}}
  - {name: factor, timeout: {dynamic: {factor: 4}}}
  - {name: none, timeout: {dynamic: {mode: off}}}
  - {name: short, timeout: {max: 100ms}}
`)
	for i, want := range []inference.Dynamic{
		{Floor: 500 * time.Millisecond, Factor: 1.5, Shadow: true},
		{Floor: 3 * time.Second, Factor: 2},
		{Floor: 500 * time.Millisecond, Factor: 4, Shadow: true},
		{},
		{Floor: 500 * time.Millisecond, Factor: 1.5, Shadow: true}, // max holds, and it was not written to be above it
	} {
		if got := c.Models[i].Timeouts.Dynamic; got != want {
			t.Errorf("%s: %+v, want %+v", c.Models[i].Name, got, want)
		}
	}
	c = good(t, oneUpstream+`
defaults: {timeout: {dynamic: {mode: off}}}
models: [{name: none}, {name: own, timeout: {dynamic: {mode: enforce}}}]
`)
	if c.Models[0].Timeouts.Dynamic != (inference.Dynamic{}) || c.Models[1].Timeouts.Dynamic != defaultDynamic {
		t.Errorf("off by default: %+v and %+v", c.Models[0].Timeouts.Dynamic, c.Models[1].Timeouts.Dynamic)
	}
}

func TestThePrometheusThatCannotBeIsAMistakeWithItsPlace(t *testing.T) {
	for url, want := range map[string]string{
		"prometheus:9090":                           "must begin with http",
		"//prometheus:9090":                         "must begin with http",
		"grpc://prometheus:9090":                    "must begin with http",
		"http:prometheus":                           "must begin with http",
		"http://":                                   "no host",
		"http://:9090":                              "no host",
		"http://pro metheus":                        "is no URL",
		"http://prom_etheus!:9090":                  "no host",
		"http://prometheus:0":                       "no host",
		"http://prometheus:99999":                   "no host",
		"http://prometheus:":                        "no host",
		"http://ann:secret@prometheus:9090":         "has a user in it",
		"http://prometheus:9090/?query=up":          "behind the path",
		"http://prometheus:9090/#graph":             "behind the path",
		"http://prometheus:9090/api/v1/query":       "path of the API",
		"http://prometheus:9090/" + longText(3<<10): "is no URL",
	} {
		got := wrongs(t, oneUpstream+"prometheus: {url: '"+url+"'}")
		if len(got) == 0 || !strings.Contains(got[0], "prometheus.url: ") || !strings.Contains(got[0], want) || !strings.Contains(got[0], "line 2") {
			t.Errorf("%s: %q, want it to say %q", clip(url), got, want)
		}
	}
	if got := wrongs(t, oneUpstream+"prometheus: {}"); !strings.Contains(got[0], "prometheus.url: must be given") {
		t.Errorf("nothing: %q", got)
	}
}

func TestPrometheusIsWhereTheFileSays(t *testing.T) {
	for url, want := range map[string]string{
		"http://prometheus:9090":            "http://prometheus:9090",
		"http://prometheus:9090/":           "http://prometheus:9090",
		"https://metrics.example.com/prom/": "https://metrics.example.com/prom",
		"http://[::1]:9090":                 "http://[::1]:9090",
		"http://prometheus":                 "http://prometheus",
	} {
		if got := good(t, oneUpstream+"prometheus: {url: '"+url+"'}").Prometheus; got != want {
			t.Errorf("%s is %q", url, got)
		}
	}
	if got := good(t, oneUpstream).Prometheus; got != "" {
		t.Errorf("without a section it is %q", got)
	}
}

func longText(n int) string { return strings.Repeat("a", n) }
