package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// EndpointState is whether an endpoint of an upstream is up, what it is ejected for, models or "*", and how many calls are
// under way there, and may be; 0: any number.
type EndpointState struct {
	Upstream, Endpoint    string
	Up                    bool
	Ejected               []string
	InFlight, MaxInFlight int
}

// TargetState is whether any endpoint can serve a target.
type TargetState struct {
	Model, Version, Target string
	Ready                  bool
}

// health asks for states at each scrape, so that endpoints and models that went away leave no series behind.
type health struct {
	endpoints atomic.Pointer[func() []EndpointState]
	targets   atomic.Pointer[func() []TargetState]
}

var (
	endpointEjected  = prometheus.NewDesc(EndpointEjected, "1 while the endpoint is ejected, for all models or for some, because it kept failing although it says that it is ready; else 0. Ejected ones get no calls, but for those that eject.at_most keeps in use.", []string{LabelUpstream, LabelEndpoint}, nil)
	endpointInFlight = prometheus.NewDesc(EndpointInFlight, "Calls under way at the endpoint, from this replica.", []string{LabelUpstream, LabelEndpoint}, nil)
	endpointMost     = prometheus.NewDesc(EndpointMaxInFlight, "Calls that may be under way at the endpoint at once, from this replica; absent where any number may.", []string{LabelUpstream, LabelEndpoint}, nil)
	endpointUp       = prometheus.NewDesc(EndpointUp, "1 while the endpoint answers probes or traffic, else 0.", []string{LabelUpstream, LabelEndpoint}, nil)
	modelReady       = prometheus.NewDesc(ModelReady, "1 while any endpoint can serve the target, else 0.", []string{LabelModel, LabelVersion, LabelTarget}, nil)
)

// ShowEndpoints makes every scrape ask states for the endpoints there are. It must be quick and safe for
// concurrent use.
func (m *Metrics) ShowEndpoints(states func() []EndpointState) { m.health.endpoints.Store(&states) }

// ShowTargets makes every scrape ask states for the targets there are, of which it shows MaxTargets.
func (m *Metrics) ShowTargets(states func() []TargetState) { m.health.targets.Store(&states) }

// Describe implements prometheus.Collector.
func (h *health) Describe(out chan<- *prometheus.Desc) {
	out <- endpointUp
	out <- endpointEjected
	out <- endpointInFlight
	out <- endpointMost
	out <- modelReady
}

// Collect implements prometheus.Collector. A state that is given twice is shown once: two series of one name would
// fail the whole scrape.
func (h *health) Collect(out chan<- prometheus.Metric) {
	if states := h.endpoints.Load(); states != nil {
		seen := make(map[[2]string]struct{})
		for _, s := range (*states)() {
			k := [2]string{s.Upstream, s.Endpoint}
			if _, ok := seen[k]; ok {
				continue
			}
			seen[k] = struct{}{}
			out <- prometheus.MustNewConstMetric(endpointUp, prometheus.GaugeValue, number(s.Up), s.Upstream, s.Endpoint)
			out <- prometheus.MustNewConstMetric(endpointEjected, prometheus.GaugeValue, number(len(s.Ejected) > 0), s.Upstream, s.Endpoint)
			out <- prometheus.MustNewConstMetric(endpointInFlight, prometheus.GaugeValue, float64(s.InFlight), s.Upstream, s.Endpoint)
			if s.MaxInFlight > 0 {
				out <- prometheus.MustNewConstMetric(endpointMost, prometheus.GaugeValue, float64(s.MaxInFlight), s.Upstream, s.Endpoint)
			}
		}
	}
	if states := h.targets.Load(); states != nil {
		seen := make(map[[3]string]struct{})
		for _, s := range (*states)() {
			k := [3]string{s.Model, s.Version, s.Target}
			if _, ok := seen[k]; ok || len(seen) == MaxTargets {
				continue
			}
			seen[k] = struct{}{}
			out <- prometheus.MustNewConstMetric(modelReady, prometheus.GaugeValue, number(s.Ready), s.Model, s.Version, s.Target)
		}
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
