package deadline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/promtest"
	"github.com/model-gateway/model-gateway/pkg/promquery"
	"github.com/model-gateway/model-gateway/pkg/stats"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
)

func TestTheQuestionIsTheOneThatIsWrittenDown(t *testing.T) {
	page, err := os.ReadFile("../../../docs/outages.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(strings.Fields(string(page)), " "), Expression) {
		t.Errorf("docs/outages.md does not have %s", Expression)
	}
}

// TestARealPrometheusTellsHowLongTargetsTake has Prometheus scrape a gateway's metrics and asks it what gateways ask.
func TestARealPrometheusTellsHowLongTargetsTake(t *testing.T) {
	metrics := telemetry.New(telemetry.Build{})
	slow := *fraud
	slow.Name, slow.Version = "model_v2", "2"
	attempts := func(n int, outcome stats.Outcome, d time.Duration) {
		for range n {
			metrics.Attempt(fraud, outcome, d)
		}
	}
	attempts(1, stats.OK, time.Second) // a series that is there from the start, for increase to count from
	attempts(1, stats.Timeout, 3*time.Second)
	attempts(1, stats.Failure, time.Millisecond)
	metrics.Attempt(&slow, stats.OK, time.Second)
	gateway := httptest.NewServer(metrics.Handler(slog.New(slog.DiscardHandler)))
	defer gateway.Close()
	prometheus := promtest.Start(t, strings.TrimPrefix(gateway.URL, "http://"))
	client := promquery.New(prometheus.URL)
	defer client.Close()
	key := name{"fraud", "model_v1"}
	tell := func() (l latency) {
		prometheus.Eventually(func() error {
			all, err := ask(t.Context(), client)
			l = all[key]
			return err
		})
		return l
	}
	prometheus.Eventually(func() error {
		scraped := false
		err := client.Vector(t.Context(), `count_over_time(gateway_upstream_duration_seconds_count{target="model_v1",outcome="ok"}[1h]) >= 2`, func(map[string]string, float64) { scraped = true })
		if err == nil && !scraped {
			err = errors.New("not scraped twice yet")
		}
		return err
	})
	if l := tell(); l.enough() {
		t.Errorf("of three attempts it tells %+v", l)
	}
	// Nothing has happened since it began to look, so that its quantile is of nothing: NaN, as it writes it.
	raw := 0.0
	if err := client.Vector(t.Context(), Expression, func(labels map[string]string, v float64) {
		if labels["part"] == partP999 && labels[telemetry.LabelTarget] == "model_v1" {
			raw = v
		}
	}); err != nil || !math.IsNaN(raw) {
		t.Errorf("of a target without calls it says %v, %v", raw, err)
	}
	if l := tell(); l.p999 != 0 || l.beyond {
		t.Errorf("of NaN this makes %+v", l)
	}
	for range 500 {
		metrics.Attempt(&slow, stats.OK, 90*time.Second)
	}
	attempts(19_000, stats.OK, 30*time.Millisecond)
	attempts(1_000, stats.Timeout, 2100*time.Millisecond)
	attempts(500_000, stats.Failure, time.Millisecond) // errors must not make it look fast
	prometheus.Eventually(func() error {
		if l := tell(); !l.enough() || l.samples < 19_000 {
			return fmt.Errorf("it tells %+v", l)
		}
		return nil
	})
	// Of few scrapes, the more so of late ones, Prometheus makes more than there was; the next ones set that right.
	prometheus.Eventually(func() error {
		all, err := ask(t.Context(), client)
		if err != nil {
			return err
		}
		// 1 in 20 took 2.1 s, which is somewhere in the bucket from 2 to 5 s.
		if l := all[key]; l.p999 < 2*time.Second || l.p999 > 5*time.Second || l.beyond || l.samples > 30_000 {
			return fmt.Errorf("of a target that is given up at 2.1 s it tells %+v", l)
		}
		if l := all[name{"fraud", "model_v2"}]; l.enough() || l.samples < 400 || l.samples > 700 || !l.beyond {
			return fmt.Errorf("of a target with too few attempts that take 90 s it tells %+v", l)
		}
		return nil
	})

	// A gateway that has just begun to run takes its timeouts from there at once.
	table := NewTable(Options{
		Stats: stats.NewRegistry(nil), Timeouts: func(string) inference.Timeouts { return users }, Targets: func() []*inference.Target { return []*inference.Target{fraud} },
		Prometheus: func() Prometheus { return client },
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); table.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	prometheus.Eventually(func() error {
		if s, ok := table.State(fraud); !ok || s.Source != ByPrometheus || s.Timeout != 54*time.Second {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})

	prometheus.Stop()
	if _, err := ask(t.Context(), client); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("it is gone: %v", err)
	}
}
