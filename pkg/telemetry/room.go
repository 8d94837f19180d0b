package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

func newEndpointsFull() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: EndpointsFull,
		Help: "Calls that no endpoint had room for: all that could serve them had as many under way as upstreams.NAME.max_in_flight allows.",
	}, []string{LabelModel, LabelTarget})
}

// EndpointsFull counts a call to t that no endpoint had room for.
func (m *Metrics) EndpointsFull(t *inference.Target) {
	model, _, target, _ := m.labels.of(t.Asked, t.Version, t.Name)
	m.full.WithLabelValues(model, target).Inc()
}
