package gateway

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/internal/calm"
	"github.com/model-gateway/model-gateway/pkg/sandbox"
	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
)

// crowded is a gateway with callers of all priorities, whose model fraud has a bound on its calls.
func crowded(t *testing.T, triton, concurrency string) *rig {
	t.Helper()
	hash := func(caller string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(keyOf(caller)))) }
	return gatewayOf(t, fmt.Sprintf(`
version: 1
passthrough: true
listen: {metrics: both}
upstreams: {triton: {kind: triton, endpoints: %q}}
callers:
  - {name: critical, keys: [%q], priority: critical}
  - {name: web, keys: [%q]}
  - {name: sheddable, keys: [%q], priority: sheddable}
models:
  - {name: fraud, targets: {model_v1: {version: 1}}, concurrency: %s}
`, triton, hash("critical"), hash("web"), hash("sheddable"), concurrency), nil)
}

// metrics gives /metrics of the data port.
func (r *rig) metrics(t *testing.T) string {
	t.Helper()
	answer, err := http.Get("http://" + r.address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, _ := io.ReadAll(answer.Body)
	return string(text)
}

// value is that of a series, which is named as it stands in /metrics.
func value(text, series string) float64 {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			v, _ := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			return v
		}
	}
	return -1
}

func TestWhileAModelIsSlowSheddableCallsAreRefusedAndCriticalOnesServed(t *testing.T) {
	server, triton := model(t)
	set(t, server, sandbox.Fault{Kind: sandbox.Slow, Model: "fraud", Delay: 40 * time.Millisecond})
	calm.Moment(t, func() error { return shedding(t, triton) })
}

// A machine that stalls for longer than the queue makes calls wait too long there, critical ones too: that is the error.
func shedding(t *testing.T, triton string) error {
	r := crowded(t, triton, "{adaptive: true, queue: 100ms}")
	ctx, stop := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	var ok, refused [2]atomic.Int64
	run := func(caller string, i, loops int) {
		for range loops {
			calls.Go(func() {
				key := metadata.AppendToOutgoingContext(ctx, "x-api-key", keyOf(caller))
				for ctx.Err() == nil {
					switch _, err := r.kserve().ModelInfer(key, fraudRequest()); {
					case err == nil:
						ok[i].Add(1)
					case ctx.Err() != nil:
					case status.Code(err) == codes.ResourceExhausted:
						refused[i].Add(1)
						select { // as a client that is told to come back
						case <-time.After(10 * time.Millisecond):
						case <-ctx.Done():
						}
					default:
						t.Error(err)
						return
					}
				}
			})
		}
	}
	run("critical", 0, 4)
	run("sheddable", 1, 40)
	eventually(t, "enough calls of both kinds", func() bool { return ok[0].Load() > 100 && refused[1].Load() > 100 && ok[1].Load() > 100 })
	var text string
	eventually(t, "enough are shed", func() bool {
		text = r.metrics(t)
		return value(text, `gateway_admit_refused_total{model="fraud",priority="sheddable",reason="shed",target="model_v1"}`) >= 100
	})
	stop()
	calls.Wait()
	if limit := value(text, `gateway_admit_limit{model="fraud",target="model_v1",version="1"}`); limit < 8 {
		t.Errorf("the limit is %v", limit)
	}
	eventually(t, "nothing under way", func() bool {
		return value(r.metrics(t), `gateway_admit_in_flight{model="fraud",target="model_v1",version="1"}`) == 0
	})
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if refused[0].Load() > 0 {
		return fmt.Errorf("critical: %d served, %d refused; sheddable: %d served, %d refused", ok[0].Load(), refused[0].Load(), ok[1].Load(), refused[1].Load())
	}
	return nil
}

func TestACallThatSaysItIsSheddableIsRefusedFirstAndToldWhenToComeBack(t *testing.T) {
	server, triton := model(t)
	r := crowded(t, triton, "{max: 3}")
	set(t, server, sandbox.Fault{Kind: sandbox.Hang, Model: "fraud", Times: 2})
	ctx, cancel := context.WithCancel(as(t, "web"))
	var calls sync.WaitGroup
	for range 2 {
		calls.Go(func() { _, _ = r.kserve().ModelInfer(ctx, fraudRequest()) })
	}
	if _, err := server.Await(soon(t), "fraud", func(s sandbox.Seen) bool { return s.InFlight == 2 }); err != nil {
		t.Fatal(err)
	}
	ask := func(header, metadata string) (*http.Response, string) {
		body := fmt.Sprintf(`{"model_name":"fraud","input_tensor":%q,"metadata":{%s}}`, strings.Repeat("A", 86)+"==", metadata)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.address+"/v1/predict", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("x-api-key", keyOf("web"))
		if header != "" {
			request.Header.Set("x-priority", header)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		return answer, string(text)
	}
	for _, w := range []struct {
		header, metadata string
		status           int
	}{{"sheddable", "", 429}, {"", `"priority":"sheddable"`, 429}, {"critical", "", 200}, {"", "", 200}} {
		answer, text := ask(w.header, w.metadata)
		if answer.StatusCode != w.status || w.status == 429 && (answer.Header.Get("Retry-After") == "" || !strings.Contains(text, "OVERLOADED")) {
			t.Errorf("%+v: %s %s %v", w, answer.Status, text, answer.Header)
		}
	}
	cancel()
	calls.Wait()
}

func TestMessagesThatAModelHoldsUpFillTheirRoomAndOthersAreNotRead(t *testing.T) {
	server, triton := model(t)
	r := gatewayOf(t, fmt.Sprintf(`
version: 1
listen: {max_message: 1MiB, max_bytes_held: 1MiB, metrics: both}
upstreams: {triton: {kind: triton, endpoints: %q}}
`, triton), nil)
	undo := set(t, server, sandbox.Fault{Kind: sandbox.Hang, Model: "echo"})
	defer undo()
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	for range 2 {
		calls.Go(func() { _, _ = r.kserve().ModelInfer(ctx, echo(make([]byte, 600<<10), 0)) })
	}
	if _, err := server.Await(soon(t), "echo", func(s sandbox.Seen) bool { return s.InFlight == 2 }); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	_, err := r.predict().Predict(t.Context(), &inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: fraudRow()})
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "listen.max_bytes_held") || time.Since(begin) < time.Second {
		t.Errorf("after %s: %v", time.Since(begin), err)
	}
	answer, err := http.Post("http://"+r.address+"/v1/predict", "application/json", strings.NewReader(`{"model_name":"fraud"}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusTooManyRequests || answer.Header.Get("Retry-After") == "" {
		t.Errorf("over HTTP: %s %v", answer.Status, answer.Header)
	}
	text := r.metrics(t)
	if held := value(text, "gateway_bytes_held"); held < 1200<<10 || held > 2<<20 || value(text, "gateway_reads_refused_total") != 2 {
		t.Errorf("held are %v, refused %v", held, value(text, "gateway_reads_refused_total"))
	}
	cancel()
	calls.Wait()
	if _, err := r.predict().Predict(t.Context(), &inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: fraudRow()}); err != nil {
		t.Errorf("once the others are gone: %v", err)
	}
	eventually(t, "nothing held", func() bool { return value(r.metrics(t), "gateway_bytes_held") == 0 })
}
