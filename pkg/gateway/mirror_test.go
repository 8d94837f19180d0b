package gateway

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/model-gateway/model-gateway/pkg/internal/calm"
	"github.com/model-gateway/model-gateway/pkg/sandbox"
	"github.com/model-gateway/model-gateway/pkg/stats"
	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
)

// mirrored is a gateway whose calls to fraud go to version 1, and copies of all of them to version 2.
func mirrored(t *testing.T, triton, more string) *rig {
	t.Helper()
	return gatewayOf(t, fmt.Sprintf(`
version: 1
upstreams: {triton: {kind: triton, endpoints: "%s"}}
models:
  - name: fraud
    targets: {model_v1: {version: 1}, model_v2: {version: 2}}
    stable: model_v1
    mirror: {to: model_v2, percent: 100}
%s`, triton, more), nil)
}

// series gives the values of the series that start so, "" for those that are not there.
func (r *rig) series(t *testing.T, start string) string {
	t.Helper()
	w := httptest.NewRecorder()
	r.gateway.metrics.Handler(r.gateway.log).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	var values []string
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, start) {
			values = append(values, strings.TrimSpace(line[strings.LastIndex(line, " "):]))
		}
	}
	return strings.Join(values, " ")
}

func (r *rig) awaitSeries(t *testing.T, start, want string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for r.series(t, start) != want {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%s is %q, want %q", start, r.series(t, start), want)
		}
	}
}

// everyWay calls fraud once over each protocol, and gives how many calls these are.
func (r *rig) everyWay(t *testing.T, check func(target string)) int {
	t.Helper()
	var header metadata.MD
	if _, err := r.predict().Predict(t.Context(), &inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: fraudRow()}, grpc.Header(&header)); err != nil {
		t.Fatal(err)
	}
	check(header.Get("x-gateway-target")[0])
	if _, err := r.kserve().ModelInfer(t.Context(), fraudRequest(), grpc.Header(&header)); err != nil {
		t.Fatal(err)
	}
	check(header.Get("x-gateway-target")[0])
	predicts, err := r.predict().PredictStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = predicts.Send(&inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: fraudRow()})
	if a, err := predicts.Recv(); err != nil || a.Status != "OK" {
		t.Fatalf("%v %v", a, err)
	}
	_ = predicts.CloseSend()
	if _, err := predicts.Recv(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	infers, err := r.kserve().ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = infers.Send(fraudRequest())
	if a, err := infers.Recv(); err != nil || a.ErrorMessage != "" {
		t.Fatalf("%v %v", a, err)
	}
	_ = infers.CloseSend()
	if _, err := infers.Recv(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	for path, body := range map[string]string{
		"/v1/predict":            `{"model_name":"fraud","input_tensor":"` + base64.StdEncoding.EncodeToString(fraudRow()) + `"}`,
		"/v2/models/fraud/infer": `{"inputs":[{"name":"INPUT","datatype":"FP32","shape":[1,16],"data":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}]}`,
	} {
		a, err := http.Post("http://"+r.address+path, "application/json", bytes.NewBufferString(body))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(a.Body)
		_ = a.Body.Close()
		if a.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s", path, a.StatusCode, text)
		}
		check(a.Header.Get("x-gateway-target"))
	}
	return 6
}

func TestCallsOfEveryProtocolAreMirroredAndSeenApart(t *testing.T) {
	server, triton := model(t)
	r := mirrored(t, triton, "    limits: [{per: model, rate: 0.001/s, burst: 6}]\n")
	n := r.everyWay(t, func(target string) {
		if target != "model_v1" {
			t.Errorf("the caller was answered by %s", target)
		}
	}) // as many as the limit has: copies are not charged
	r.awaitSeries(t, `gateway_mirror_total{model="fraud",outcome="different",target="model_v2"}`, fmt.Sprint(n))
	seen, err := server.Await(soon(t), "fraud", func(s sandbox.Seen) bool { return s.Answers == 2*n })
	if err != nil {
		t.Fatalf("%v: %+v", err, seen)
	}
	for start, want := range map[string]string{
		`gateway_mirror_total{`: fmt.Sprint(n),
		`gateway_mirror_max_abs_difference_count{model="fraud",target="model_v2"}`:                                    fmt.Sprint(n),
		`gateway_mirror_score_difference_count{model="fraud",target="model_v2"}`:                                      fmt.Sprint(n),
		`gateway_mirror_score_difference_bucket{model="fraud",target="model_v2",le="0"}`:                              "0",
		`gateway_mirror_duration_seconds_count{model="fraud",outcome="ok",target="model_v2",version="2"}`:             fmt.Sprint(n),
		`gateway_upstream_duration_seconds_count{model="fraud",outcome="ok",target="model_v1",version="1"}`:           fmt.Sprint(n),
		`gateway_upstream_duration_seconds_count{model="fraud",outcome="ok",target="model_v2",version="2"}`:           "",
		`gateway_request_duration_seconds_count{code="200",grpc_code="OK",model="fraud",protocol="predict",target="m`: "1",
		`gateway_mirror_held`: "0",
	} {
		if got := r.series(t, start); got != want {
			t.Errorf("%s is %q, want %q", start, got, want)
		}
	}
	for target := range r.gateway.stats.All {
		live, mirror := target.Of(stats.W1m, stats.Live).Count(stats.Any), target.Of(stats.W1m, stats.Mirror).Count(stats.Any)
		if want := map[string][2]uint64{"model_v1": {uint64(n), 0}, "model_v2": {0, uint64(n)}}[target.Target]; want != [2]uint64{live, mirror} {
			t.Errorf("%s has %d attempts of calls and %d of copies", target.Target, live, mirror)
		}
	}
}

func TestTheUpstreamCanTellACopyFromItsCall(t *testing.T) {
	server, triton := model(t)
	r := mirrored(t, triton, "    set_headers: {x-mesh-subset: \"{target}\"}\n")
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-user-id", "ann", "x-request-id", "r1", "x-gateway-mirror", "1", "authorization", "secret")
	if _, err := server.Faults.Set(sandbox.Fault{Kind: sandbox.Fail, Model: "fraud", Version: "2", Code: codes.Internal}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.kserve().ModelInfer(ctx, fraudRequest()); err != nil {
		t.Fatal(err)
	}
	r.awaitSeries(t, `gateway_mirror_total{model="fraud",outcome="error",target="model_v2"}`, "1")
	server.Faults.Clear()
	if _, err := r.kserve().ModelInfer(ctx, fraudRequest()); err != nil {
		t.Fatal(err)
	}
	seen, err := server.Await(soon(t), "fraud", func(s sandbox.Seen) bool { return s.Request != nil && s.Request.ModelVersion == "2" && s.Answers == 3 })
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"x-gateway-mirror": "1", "x-user-id": "ann", "x-request-id": "r1", "x-mesh-subset": "model_v2", "authorization": ""} {
		if got := strings.Join(seen.Metadata.Get(name), " "); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestAMirrorThatHangsHoldsUpNeitherCallsNorTheEnd(t *testing.T) {
	server, triton := model(t)
	setFault(t, server, sandbox.Fault{Kind: sandbox.Hang, Model: "fraud", Version: "2"})
	calm.Moment(t, func() error {
		r := mirrored(t, triton, "")
		begin := time.Now()
		for range 100 {
			r.everyWay(t, func(string) {})
		}
		called := time.Since(begin)
		held, dropped := "", ""
		for time.Since(begin) < 29*time.Second && (held != "512" || dropped != "88") { // copies end after 30 s
			held, dropped = r.series(t, "gateway_mirror_held"), r.series(t, `gateway_mirror_total{model="fraud",outcome="dropped",target="model_v2"}`)
		}
		begin = time.Now()
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		stopped := time.Since(begin)
		if got := r.series(t, "gateway_mirror_held"); got != "0" {
			t.Errorf("%s copies are still held", got)
		}
		if called > 20*time.Second || held != "512" || dropped != "88" || stopped > 10*time.Second {
			return fmt.Errorf("600 calls took %v, of their copies %s are held and %s were dropped; the gateway took %v to stop", called, held, dropped, stopped)
		}
		return nil
	})
}

func TestCallsAndCopiesShareTheirBytes(t *testing.T) {
	_, one := model(t)
	_, two := model(t)
	r := gatewayOf(t, fmt.Sprintf(`
version: 1
upstreams: {one: {kind: triton, endpoints: "%s"}, two: {kind: triton, endpoints: "%s"}}
models:
  - name: echo
    upstream: one
    targets: {here: {version: 1}, there: {version: 1, upstream: two}}
    stable: here
    mirror: {to: there, percent: 100}
`, one, two), nil)
	const callers, calls = 4, 10
	var done sync.WaitGroup
	for caller := range callers {
		done.Go(func() {
			for call := range calls {
				sent := bytes.Repeat([]byte{byte(1 + caller), byte(call)}, 100_000)
				a, err := r.kserve().ModelInfer(t.Context(), echo(sent, 0))
				if err != nil || !bytes.Equal(a.RawOutputContents[0], sent) {
					t.Errorf("the answer is not what was sent: %v", err)
				}
			}
		})
	}
	done.Wait()
	r.awaitSeries(t, "gateway_mirror_held", "0")
	if same := r.series(t, `gateway_mirror_total{model="echo",outcome="same",target="there"}`); same != fmt.Sprint(callers*calls) {
		t.Errorf("%q copies had the same answer; in all %q", same, r.series(t, "gateway_mirror_total"))
	}
}
