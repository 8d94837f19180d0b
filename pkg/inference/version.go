package inference

import "time"

// Readiness is what is known of one version of a model on one endpoint.
type Readiness uint8

// The states of readiness.
const (
	Unknown  Readiness = iota // nobody has asked yet; a call may find out
	Ready                     // it serves
	NotReady                  // it does not, or the endpoint is out; never sent to
)

func (r Readiness) String() string { return [...]string{"unknown", "ready", "not ready"}[r] }

// VersionState is what the readiness table of an upstream says of one version of a model.
type VersionState struct {
	Version    string
	Unloaded   bool      // listed as unloaded, or gone, on every endpoint that is up
	Anywhere   bool      // ready on some endpoint
	Everywhere bool      // ready on every endpoint that is up
	Since      time.Time // when Everywhere or Unloaded last changed
}
