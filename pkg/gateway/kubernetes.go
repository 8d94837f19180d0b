package gateway

import (
	"fmt"

	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/upstream/k8s"
	"github.com/model-gateway/model-gateway/pkg/upstream/triton"
)

// resolverOf finds the endpoints of an upstream that is a Kubernetes service; nil: they are found by what
// declared.Addresses says.
func resolverOf(declared config.Upstream, o Options) (triton.Resolver, error) {
	s := declared.Kubernetes
	if s == nil {
		return nil, nil
	}
	r, err := k8s.New(k8s.Service{Namespace: s.Namespace, Name: s.Service, Port: s.Port}, k8s.Options{Logger: o.Log.With("upstream", declared.Name)})
	if err != nil {
		return nil, fmt.Errorf("upstreams.%s: %w", declared.Name, err)
	}
	return r, nil
}
