package triton

import "github.com/model-gateway/model-gateway/pkg/inference"

// Readiness is Ready while an endpoint is known to serve the version, Unknown while there are only such that nobody has
// asked yet, and NotReady when no call could be sent anywhere.
func (p *pool) Readiness() inference.Readiness {
	switch ch := p.current(); {
	case len(ch.ready) > 0:
		return inference.Ready
	case len(ch.maybe) > 0:
		return inference.Unknown
	}
	return inference.NotReady
}
