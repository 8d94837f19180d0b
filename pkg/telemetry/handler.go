package telemetry

import (
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// maxScrapes run at the same time; each holds the whole page in memory.
const maxScrapes = 4

// Handler serves the metrics, as OpenMetrics or protobuf to those who ask for it. Failures to collect go to log.
func (m *Metrics) Handler(log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		EnableOpenMetrics:   true,
		MaxRequestsInFlight: maxScrapes,
		OfferedCompressions: []promhttp.Compression{promhttp.Identity, promhttp.Gzip},
		ErrorHandling:       promhttp.ContinueOnError,
		ErrorLog:            scrapeLog{log},
	})
}

type scrapeLog struct{ log *slog.Logger }

func (l scrapeLog) Println(v ...any) {
	if l.log != nil {
		l.log.Error("metrics could not be collected", AttrError, fmt.Sprint(v...))
	}
}
