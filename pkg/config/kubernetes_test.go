package config

import (
	"strings"
	"testing"
)

func TestAKubernetesServiceGivesEndpoints(t *testing.T) {
	for target, want := range map[string]Kubernetes{
		"k8s:///models/triton:8001":      {Namespace: "models", Service: "triton", Port: "8001"},
		"k8s:///triton:grpc":             {Service: "triton", Port: "grpc"},
		"k8s:///ns-1/triton-headless:h2": {Namespace: "ns-1", Service: "triton-headless", Port: "h2"},
	} {
		for _, c := range []*Config{
			good(t, "upstreams: {triton: {endpoints: \""+target+"\"}}"),
			good(t, "", "TRITON_GRPC_HOST="+target),
			good(t, "", "GATEWAY_UPSTREAMS=triton="+target),
		} {
			u := c.Upstreams[0]
			if u.Kubernetes == nil || *u.Kubernetes != want || u.DNS != "" || len(u.Endpoints) != 0 || strings.Join(u.Addresses(), " ") != target {
				t.Errorf("%s: %+v", target, u)
			}
		}
	}
}

func TestABadKubernetesServiceIsRefusedWithTheFormThatItHas(t *testing.T) {
	for target, want := range map[string]string{
		"k8s://models/triton:8001":                 "three slashes",
		"k8s:models/triton:8001":                   "three slashes",
		"k8s:///models/triton":                     "must end with the port",
		"k8s:///models/triton:":                    "must end with the port",
		"k8s:///triton.models:8001":                `the service "triton.models"`,
		"k8s:///Models/triton:8001":                `the namespace "Models"`,
		"k8s:///a/b/triton:8001":                   `the service "b/triton"`,
		"k8s:////triton:8001":                      `the namespace ""`,
		"k8s:///-a/triton:8001":                    `the namespace "-a"`,
		"k8s:///models/:8001":                      `the service ""`,
		"k8s:///models/triton:0":                   `the port "0"`,
		"k8s:///models/triton:65536":               `the port "65536"`,
		"k8s:///models/triton:Grpc":                `the port "Grpc"`,
		"k8s:///models/triton:8001:8002":           `the port "8001:8002"`,
		"k8s:///" + strings.Repeat("a", 64) + ":1": "which none can be called",
	} {
		if err := (&Upstream{}).find(target); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", target, err)
		}
	}
	if _, err := Parse("f.yaml", []byte("upstreams: {triton: {endpoints: [\"k8s:///a/b:1\", \"c:1\"]}}"), func(string) string { return "" }); err == nil || !strings.Contains(err.Error(), "outside any list") {
		t.Errorf("in a list: %v", err)
	}
}
