package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/explain"
	"github.com/model-gateway/model-gateway/pkg/internal/calm"
	"github.com/model-gateway/model-gateway/pkg/sandbox"
	"github.com/model-gateway/model-gateway/pkg/stage/deadline"
)

// within a tenth of a second an end has to get from one side to the other.
const soonEnough = 100 * time.Millisecond

// soonOver fails unless what is measured is soon enough.
func soonOver(t *testing.T, measure func() time.Duration) {
	t.Helper()
	calm.Moment(t, func() error {
		if took := measure(); took > soonEnough {
			return fmt.Errorf("it took %s", took)
		}
		return nil
	})
}

func TestACallersCancellationEndsTheCallUpstreamWithinATenthOfASecond(t *testing.T) {
	server, triton := model(t)
	r := plain(t, triton)
	soonOver(t, func() time.Duration {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		before := server.Seen("echo").Calls
		ended := make(chan error, 1)
		go func() {
			_, err := r.kserve().ModelInfer(ctx, echo([]byte{1}, time.Minute))
			ended <- err
		}()
		if _, err := server.Await(soon(t), "echo", func(s sandbox.Seen) bool { return s.Calls > before }); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		cancel()
		if _, err := server.Await(soon(t), "echo", func(s sandbox.Seen) bool { return s.InFlight == 0 }); err != nil {
			t.Fatal(err)
		}
		took := time.Since(begin)
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Errorf("the caller got %v", err)
		}
		return took
	})
}

func TestTheEndOfACallUpstreamReachesTheCallerWithinATenthOfASecond(t *testing.T) {
	server, triton := model(t)
	r := plain(t, triton)
	soonOver(t, func() time.Duration {
		before := server.Seen("echo").Calls
		ended := make(chan error, 1)
		go func() {
			_, err := r.kserve().ModelInfer(t.Context(), echo([]byte{1}, time.Minute))
			ended <- err
		}()
		if _, err := server.Await(soon(t), "echo", func(s sandbox.Seen) bool { return s.Calls > before }); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		undo := set(t, server, sandbox.Fault{Kind: sandbox.Down})
		err := <-ended
		took := time.Since(begin)
		if status.Code(err) != codes.Unavailable {
			t.Errorf("the caller got %v", err)
		}
		undo()
		eventually(t, "it is back", func() bool {
			_, err := r.kserve().ModelInfer(soon(t), echo([]byte{1}, 0))
			return err == nil
		})
		return took
	})
}

// prometheusThat answers every question with a p999 of fraud's model_v1, of so many attempts; questions counts.
func prometheusThat(t *testing.T, p999 string, count int) (url string, questions *atomic.Int64) {
	t.Helper()
	questions = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		questions.Add(1)
		if r.URL.Query().Get("query") != deadline.Expression {
			t.Errorf("asked %s", r.URL)
		}
		one := func(part, value string) string {
			return fmt.Sprintf(`{"metric":{"model":"fraud","target":"model_v1","part":%q},"value":[1,%q]}`, part, value)
		}
		_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[`+
			strings.Join([]string{one("p999", p999), one("count", fmt.Sprint(count)), one("age", "5")}, ",")+`]}}`)
	}))
	t.Cleanup(s.Close)
	return s.URL, questions
}

func timed(triton, prometheus, dynamic string) string {
	return fmt.Sprintf(`
version: 1
upstreams: {triton: {kind: triton, endpoints: %q}}
prometheus: {url: %q}
models: [{name: fraud, targets: {model_v1: {version: 1}}, timeout: {max: 1s, dynamic: %s}}]
`, triton, prometheus, dynamic)
}

// awaits fails unless metrics come to say what is wanted.
func (r *rig) awaits(t *testing.T, want string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for begin := time.Now(); !strings.Contains(scraped(t, r), want); <-tick.C {
		if time.Since(begin) > patience {
			t.Fatalf("metrics never say %s", want)
		}
	}
}

func TestACallEndsByWhatPrometheusSaysOfItsTarget(t *testing.T) {
	server, triton := model(t)
	url, _ := prometheusThat(t, "0.123", 123456)
	r := gatewayOf(t, timed(triton, url, "{floor: 100ms}"), nil)
	r.awaits(t, `gateway_timeout_seconds{model="fraud",source="prometheus",target="model_v1"} 0.9`)
	r.awaits(t, `gateway_prometheus_queries_total{result="ok"} 1`)
	defer set(t, server, sandbox.Fault{Kind: sandbox.Hang, Model: "fraud"})()
	begin := time.Now()
	_, err := r.kserve().ModelInfer(t.Context(), fraudRequest())
	took := time.Since(begin)
	if status.Code(err) != codes.DeadlineExceeded || took < 900*time.Millisecond || !strings.Contains(err.Error(), "dynamic timeout, which is 900ms now: it moves to 1.5 times the 123ms") {
		t.Errorf("after %s: %v", took, err)
	}
	report, err := r.gateway.explainer().Explain(t.Context(), explain.Question{Model: "fraud"})
	if err != nil {
		t.Fatal(err)
	}
	if d := report.Timeout.Dynamic; d == nil || d.Source != "prometheus" || d.Samples != 123456 || time.Duration(d.Timeout) != 900*time.Millisecond ||
		!strings.HasPrefix(d.Why, "dynamic, 900ms for this target: of 123456 attempts within an hour 999 in 1000 took at most 123ms (Prometheus, ") {
		t.Errorf("explain says %+v", d)
	}
}

func TestADynamicTimeoutThatIsOnlyLookedAtEndsNoCall(t *testing.T) {
	_, triton := model(t)
	url, _ := prometheusThat(t, "0.001", 1e6)
	r := gatewayOf(t, timed(triton, url, "{floor: 100ms, mode: shadow}"), nil)
	r.awaits(t, `gateway_timeout_seconds{model="fraud",source="shadow",target="model_v1"} 0.9`)
	r.awaits(t, `gateway_timeout_seconds{model="fraud",source="max",target="model_v1"} 1`)
}

func TestAnotherPrometheusIsAskedAfterAReloadAndItsAbsenceHurtsNobody(t *testing.T) {
	_, triton := model(t)
	r := gatewayOf(t, timed(triton, "http://127.0.0.1:1", "{floor: 100ms}"), nil)
	r.awaits(t, `gateway_prometheus_queries_total{result="error"} 1`)
	r.awaits(t, `gateway_timeout_seconds{model="fraud",source="max",target="model_v1"} 1`)
	if code := r.infer(t.Context(), ""); code != codes.OK {
		t.Error(code)
	}
	reload := func(url string) {
		text := timed(triton, url, "{floor: 100ms}")
		if url == "" {
			text = strings.Replace(text, `prometheus: {url: ""}`, "", 1)
		}
		env := map[string]string{"GATEWAY_DATA": "127.0.0.1:0", "GATEWAY_ADMIN": "127.0.0.1:0", "GATEWAY_DRAIN_BEFORE": "0s"}
		cfg, err := config.Parse("test.yaml", []byte(text), func(name string) string { return env[name] })
		if err != nil {
			t.Fatal(err)
		}
		if err := r.gateway.Reload(cfg); err != nil {
			t.Fatal(err)
		}
	}
	url, questions := prometheusThat(t, "0.1", 1e6)
	reload(url)
	if at := r.gateway.deadlines.prometheus.Load(); at == nil || at.url != url {
		t.Errorf("it is at %+v", at)
	} else if err := at.Vector(t.Context(), deadline.Expression, func(map[string]string, float64) {}); err != nil || questions.Load() != 1 {
		t.Errorf("%v after %d questions", err, questions.Load())
	}
	reload("")
	if r.gateway.deadlines.prometheus.Load() != nil {
		t.Error("one is asked that no file names")
	}
}

func TestACallWithNextToNoTimeLeftIsNotSent(t *testing.T) { // O-28
	server, triton := model(t)
	r := plain(t, triton)
	if code := r.infer(t.Context(), ""); code != codes.OK {
		t.Fatal(code)
	}
	calls := server.Seen("fraud").Calls
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 900*time.Microsecond)
		if code := r.infer(ctx, ""); code != codes.DeadlineExceeded {
			t.Error(code)
		}
		cancel()
	}
	if got := server.Seen("fraud").Calls; got != calls {
		t.Errorf("%d of 20 were sent", got-calls)
	}
}
