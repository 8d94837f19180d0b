package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/internal/calm"
	"github.com/model-gateway/model-gateway/pkg/sandbox"
	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
	tritonmodels "github.com/model-gateway/model-gateway/triton-models"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"))
}

// model starts an embedded model server.
func model(t testing.TB) (*sandbox.Server, string) {
	t.Helper()
	s, err := sandbox.New(sandbox.Options{Models: tritonmodels.FS})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { s.Stop(); served.Wait() })
	return s, l.Addr().String()
}

// patience is how long a test waits for what comes at once where nothing is wrong.
const patience = time.Minute

// soon is a context for what comes at once where nothing is wrong: what waits by it does not wait for ever.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// rig is a gateway under test.
type rig struct {
	gateway *Gateway
	address string
	ops     string // the operators' port
	conn    *grpc.ClientConn
	stop    func() error // drains, and gives what Run returned
}

// gatewayOf serves the configuration in yaml, with env, until the test ends.
func gatewayOf(t testing.TB, yaml string, env map[string]string) *rig {
	t.Helper()
	r := begin(t, yaml, env)
	r.awaitReady(t)
	return r
}

// begin is gatewayOf for a gateway that need not be ready.
func begin(t testing.TB, yaml string, env map[string]string) *rig {
	t.Helper()
	return beginWith(t, yaml, env, func(*config.Config) {})
}

// beginWith is begin with what cannot be said in a file.
func beginWith(t testing.TB, yaml string, env map[string]string, change func(*config.Config)) *rig {
	t.Helper()
	lookup := func(name string) string {
		if v, ok := env[name]; ok {
			return v
		}
		return map[string]string{"GATEWAY_DATA": "127.0.0.1:0", "GATEWAY_ADMIN": "127.0.0.1:0", "GATEWAY_DRAIN_BEFORE": "0s"}[name]
	}
	cfg, err := config.Parse("test.yaml", []byte(yaml), lookup)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Redis != nil && cfg.Redis.Timeout == time.Second { // the longest that a file may say; a machine that stalls is not taken for a Redis that is down
		cfg.Redis.Timeout = patience
	}
	change(cfg)
	g, err := New(cfg, Options{Log: slog.New(slog.DiscardHandler), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	ports, err := Listen(cfg)
	for late := time.Now().Add(patience); err != nil && time.Now().Before(late); ports, err = Listen(cfg) {
		<-time.After(20 * time.Millisecond) // a port that a gateway had before may be somebody else's for a moment
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx, ports) }()
	r := &rig{gateway: g, address: ports.Data.Addr().String(), ops: addr(ports.Admin)}
	var once sync.Once
	r.stop = func() (err error) {
		once.Do(func() { cancel(); err = <-ended })
		return err
	}
	t.Cleanup(func() { _ = r.stop() })
	r.conn, err = grpc.NewClient("passthrough:///"+r.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(128<<20), grpc.MaxCallSendMsgSize(128<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.conn.Close() })
	return r
}

func (r *rig) awaitReady(t testing.TB) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := soon(t)
	for !r.gateway.Ready() {
		select {
		case <-tick.C:
		case <-late.Done():
			t.Fatal("the gateway did not turn ready")
		}
	}
}

// plain is the gateway that TRITON_GRPC_HOST alone gives.
func plain(t testing.TB, addresses ...string) *rig {
	t.Helper()
	return gatewayOf(t, "", map[string]string{"TRITON_GRPC_HOST": strings.Join(addresses, ",")})
}

func (r *rig) predict() inferencepb.InferenceServiceClient {
	return inferencepb.NewInferenceServiceClient(r.conn)
}

func (r *rig) kserve() tritonpb.GRPCInferenceServiceClient {
	return tritonpb.NewGRPCInferenceServiceClient(r.conn)
}

func fraudRow() []byte { return make([]byte, 64) }

func fraudRequest() *tritonpb.ModelInferRequest {
	return &tritonpb.ModelInferRequest{
		ModelName: "fraud", Inputs: []*tritonpb.ModelInferRequest_InferInputTensor{{Name: "INPUT", Datatype: "FP32", Shape: []int64{1, 16}}},
		RawInputContents: [][]byte{fraudRow()},
	}
}

// echo is a request to the model that gives back its input, which waits for delay first.
func echo(data []byte, delay time.Duration) *tritonpb.ModelInferRequest {
	r := &tritonpb.ModelInferRequest{
		ModelName: "echo", Inputs: []*tritonpb.ModelInferRequest_InferInputTensor{{Name: "UINT8", Datatype: "UINT8", Shape: []int64{int64(len(data))}}},
		RawInputContents: [][]byte{data}, Outputs: []*tritonpb.ModelInferRequest_InferRequestedOutputTensor{{Name: "UINT8_OUT"}},
	}
	if delay > 0 {
		r.Parameters = map[string]*tritonpb.InferParameter{"delay_ms": {ParameterChoice: &tritonpb.InferParameter_Int64Param{Int64Param: delay.Milliseconds()}}}
	}
	return r
}

func TestAnAddressIsAllTheConfigurationThereNeedsToBe(t *testing.T) {
	_, triton := model(t)
	r := plain(t, triton)
	var header metadata.MD
	p, err := r.predict().Predict(t.Context(), &inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: fraudRow()}, grpc.Header(&header))
	if err != nil || p.Status != "OK" || len(p.OutputTensor) != 4 || p.LatencyMs < 1 {
		t.Fatalf("%v %v", p, err)
	}
	if header.Get("x-gateway-target")[0] != "model_v2" || header.Get("x-gateway-model-version")[0] != "2" || header.Get("x-gateway-upstream")[0] != "triton" {
		t.Errorf("headers %v", header)
	}
	v1, err := r.predict().Predict(t.Context(), &inferencepb.PredictionRequest{ModelName: "fraud", ModelVersion: 1, InputTensor: fraudRow()})
	if err != nil || string(v1.OutputTensor) == string(p.OutputTensor) {
		t.Errorf("version 1 gave %v, version 2 %v: %v", v1, p, err)
	}
}

func TestEveryForwardedRequestPinsItsVersionAndKeepsItsBytes(t *testing.T) {
	server, triton := model(t)
	r := plain(t, triton)
	sent := fraudRequest()
	sent.Id = "mine"
	a, err := r.kserve().ModelInfer(metadata.AppendToOutgoingContext(t.Context(), "x-user-id", "ann", "sig-bin", "\x00\xff\n", "triton-grpc-protocol-infer", "no"), sent)
	if err != nil || a.Id != "mine" || a.ModelName != "fraud" || a.ModelVersion != "2" {
		t.Fatalf("%v %v", a, err)
	}
	seen := server.Seen("fraud")
	if seen.Request.ModelVersion != "2" || seen.Request.Id != "mine" || string(seen.Request.RawInputContents[0]) != string(sent.RawInputContents[0]) {
		t.Errorf("the upstream got %v", seen.Request)
	}
	md := seen.Metadata
	if md.Get("x-user-id")[0] != "ann" || md.Get("sig-bin")[0] != "\x00\xff\n" || len(md.Get("x-request-id")) != 1 || len(md.Get("x-trace-id")) != 1 || len(md.Get("triton-grpc-protocol-infer")) != 0 {
		t.Errorf("the upstream got metadata %v", md)
	}
}

func TestARouteAnswersUnderItsOwnNameOnly(t *testing.T) {
	_, triton := model(t)
	r := gatewayOf(t, fmt.Sprintf(`
version: 1
passthrough: true
upstreams: {triton: {kind: triton, endpoints: "%s"}}
models:
  - name: team/risk
    targets: {model_v1: {model: fraud, version: 1}, model_v2: {model: fraud, version: 2}}
    stable: model_v1
`, triton), nil)
	sent := fraudRequest()
	sent.ModelName = "team/risk"
	a, err := r.kserve().ModelInfer(t.Context(), sent)
	if err != nil || a.ModelName != "team/risk" || a.ModelVersion != "1" {
		t.Errorf("%v %v", a, err)
	}
	if _, err := r.kserve().ModelInfer(t.Context(), fraudRequest()); status.Code(err) != codes.NotFound {
		t.Errorf("fraud under its own name: %v", err)
	}
	md, err := r.kserve().ModelMetadata(t.Context(), &tritonpb.ModelMetadataRequest{Name: "team/risk"})
	if err != nil || md.Name != "team/risk" {
		t.Errorf("%v %v", md, err)
	}
	index, err := r.kserve().RepositoryIndex(t.Context(), &tritonpb.RepositoryIndexRequest{})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range index.Models {
		names[m.Name] = true
	}
	if !names["team/risk"] || names["fraud"] || !names["cnn"] {
		t.Errorf("the index lists %v", names)
	}
}

func TestBigTensorsPassUnchangedBothWays(t *testing.T) { // O-01
	_, triton := model(t)
	r := plain(t, triton)
	data := make([]byte, 8<<20)
	for i := range data {
		data[i] = byte(i * 31 >> 3)
	}
	a, err := r.kserve().ModelInfer(t.Context(), echo(data, 0))
	if err != nil || string(a.RawOutputContents[0]) != string(data) {
		t.Fatalf("error %v, or bytes differ", err)
	}
	p, err := r.predict().Predict(t.Context(), &inferencepb.PredictionRequest{ModelName: "echo_fp32", InputTensor: data})
	if err != nil || string(p.OutputTensor) != string(data) {
		t.Fatalf("error %v, or bytes differ", err)
	}
	if _, err := r.kserve().ModelInfer(t.Context(), echo(make([]byte, 65<<20), 0)); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), fmt.Sprint(64<<20)) {
		t.Errorf("65 MiB: %v", err)
	}
}

func TestCallsOfOneConnectionSpreadOverTheEndpoints(t *testing.T) { // O-03
	a, addressA := model(t)
	b, addressB := model(t)
	r := plain(t, addressA, addressB)
	eventually(t, "both endpoints get calls", func() bool {
		if _, err := r.kserve().ModelInfer(t.Context(), fraudRequest()); err != nil {
			t.Error(err)
		}
		return a.Seen("fraud").Calls > 0 && b.Seen("fraud").Calls > 0
	})
	na, nb := a.Seen("fraud").Calls, b.Seen("fraud").Calls
	var wg sync.WaitGroup
	var failed atomic.Int64
	for range 200 {
		wg.Go(func() {
			if _, err := r.kserve().ModelInfer(t.Context(), fraudRequest()); err != nil {
				failed.Add(1)
			}
		})
	}
	wg.Wait()
	na, nb = a.Seen("fraud").Calls-na, b.Seen("fraud").Calls-nb
	if failed.Load() != 0 || na < 70 || nb < 70 || na+nb != 200 {
		t.Errorf("%d failed; the endpoints got %d and %d of 200", failed.Load(), na, nb)
	}
}

func TestCancelledCallsEndUpstreamToo(t *testing.T) { // O-07
	server, triton := model(t)
	r := plain(t, triton)
	const n = 200
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if i%2 == 0 {
				_, _ = r.kserve().ModelInfer(ctx, echo([]byte{1}, time.Minute))
				return
			}
			if s, err := r.kserve().ModelStreamInfer(ctx); err == nil {
				_ = s.Send(echo([]byte{1}, time.Minute))
				_, _ = s.Recv()
			}
		})
	}
	await, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	if seen, err := server.Await(await, "echo", func(s sandbox.Seen) bool { return s.Calls == n }); err != nil {
		t.Fatalf("%d of %d arrived: %v", seen.Calls, n, err)
	}
	cancel()
	if seen, err := server.Await(await, "echo", func(s sandbox.Seen) bool { return s.InFlight == 0 }); err != nil {
		t.Errorf("%d are still under way upstream: %v", seen.InFlight, err)
	}
	wg.Wait()
}

func TestTheCallersDeadlineTravelsAndIsShortened(t *testing.T) { // O-28
	server, triton := model(t)
	r := plain(t, triton)
	if _, err := r.kserve().ModelInfer(t.Context(), echo([]byte{1}, 0)); err != nil {
		t.Fatal(err)
	}
	calm.Moment(t, func() error {
		calls := server.Seen("echo").Calls
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := r.kserve().ModelInfer(ctx, echo([]byte{1}, 30*time.Second))
		if status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("got %v", err)
		}
		seen := server.Seen("echo")
		if seen.Calls == calls {
			return errors.New("its time was over before it was sent")
		}
		if seen.Timeout <= 0 || seen.Timeout > 290*time.Millisecond {
			t.Errorf("the upstream was given %s of 300 ms", seen.Timeout)
		}
		return nil
	})
}

func TestOneStreamCarriesGoodAndBadMessagesInOrder(t *testing.T) { // O-06
	_, triton := model(t)
	r := plain(t, triton)
	s, err := r.kserve().ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range []string{"fraud", "nobody", "fraud"} {
		q := fraudRequest()
		q.ModelName, q.Id = m, fmt.Sprint(i)
		if err := s.Send(q); err != nil {
			t.Fatal(err)
		}
	}
	_ = s.CloseSend()
	for i := range 3 {
		a, err := s.Recv()
		if err != nil || a.InferResponse.GetId() != fmt.Sprint(i) || (a.ErrorMessage != "") != (i == 1) {
			t.Errorf("answer %d: %v %v", i, a, err)
		}
	}
}

func TestADecoupledModelEndsItsAnswersAsAsked(t *testing.T) { // O-05
	_, triton := model(t)
	r := plain(t, triton)
	for _, tt := range []struct {
		tokens int32
		asked  bool
		want   int
	}{{3, true, 4}, {3, false, 3}, {0, true, 1}, {0, false, 0}} {
		s, err := r.kserve().ModelStreamInfer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		q := &tritonpb.ModelInferRequest{
			ModelName: "tokens", Id: "t", Inputs: []*tritonpb.ModelInferRequest_InferInputTensor{{Name: "N", Datatype: "INT32", Shape: []int64{1}}},
			RawInputContents: [][]byte{binary.LittleEndian.AppendUint32(nil, uint32(tt.tokens))},
		}
		if tt.asked {
			q.Parameters = map[string]*tritonpb.InferParameter{"triton_enable_empty_final_response": {ParameterChoice: &tritonpb.InferParameter_BoolParam{BoolParam: true}}}
		}
		if err := s.Send(q); err != nil {
			t.Fatal(err)
		}
		_ = s.CloseSend()
		got := 0
		for {
			a, err := s.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || a.InferResponse.GetId() != "t" {
				t.Fatalf("%v %v", a, err)
			}
			got++
		}
		if got != tt.want {
			t.Errorf("%d tokens, end asked for: %v: %d answers, want %d", tt.tokens, tt.asked, got, tt.want)
		}
	}
}

func TestControlIsClosedUnlessTheConfigurationOpensIt(t *testing.T) { // O-18
	server, triton := model(t)
	closed := plain(t, triton)
	if _, err := closed.kserve().RepositoryModelUnload(t.Context(), &tritonpb.RepositoryModelUnloadRequest{ModelName: "cnn"}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("unload: %v", err)
	}
	if server.RPCs()["RepositoryModelUnload"] != 0 {
		t.Error("it reached the server")
	}
	second, addressB := model(t)
	open := gatewayOf(t, fmt.Sprintf("version: 1\npassthrough: true\ncontrol: [repository]\nupstreams: {triton: {kind: triton, endpoints: [%s, %s]}}\n", triton, addressB), nil)
	if _, err := open.kserve().RepositoryModelUnload(t.Context(), &tritonpb.RepositoryModelUnloadRequest{ModelName: "cnn"}); err != nil {
		t.Fatal(err)
	}
	if a, b := server.RPCs()["RepositoryModelUnload"], second.RPCs()["RepositoryModelUnload"]; a != 1 || b != 1 {
		t.Errorf("the endpoints were told %d and %d times", a, b)
	}
	if _, err := open.kserve().TraceSetting(t.Context(), &tritonpb.TraceSettingRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("trace settings: %v", err)
	}
}

func TestStatisticsAreSummedOverEndpoints(t *testing.T) {
	_, addressA := model(t)
	_, addressB := model(t)
	r := plain(t, addressA, addressB)
	for range 40 {
		if _, err := r.kserve().ModelInfer(t.Context(), fraudRequest()); err != nil {
			t.Fatal(err)
		}
	}
	s, err := r.kserve().ModelStatistics(t.Context(), &tritonpb.ModelStatisticsRequest{Name: "fraud", Version: "2"})
	if err != nil || len(s.ModelStats) != 1 || s.ModelStats[0].InferenceCount != 40 || s.ModelStats[0].InferenceStats.Success.Count != 40 {
		t.Errorf("%v %v", s, err)
	}
}

func TestADrainTurnsUnreadyServesOnAndFinishesWhatIsUnderWay(t *testing.T) { // O-30
	server, triton := model(t)
	calm.Moment(t, func() error {
		r := gatewayOf(t, "", map[string]string{"TRITON_GRPC_HOST": triton, "GATEWAY_DRAIN_BEFORE": "500ms"})
		undo := set(t, server, sandbox.Fault{Kind: sandbox.Hang, Model: "echo"})
		defer undo()
		slow := make(chan error, 1)
		go func() {
			_, err := r.kserve().ModelInfer(context.Background(), echo([]byte{1}, 0))
			slow <- err
		}()
		if _, err := server.Await(soon(t), "echo", func(s sandbox.Seen) bool { return s.InFlight == 1 }); err != nil {
			t.Fatal(err)
		}
		stopped := make(chan error, 1)
		go func() { stopped <- r.stop() }()
		for late := soon(t); r.gateway.Ready(); runtime.Gosched() {
			if late.Err() != nil {
				t.Fatal("the drain does not begin")
			}
		}
		begun := time.Now()
		ready, live := r.asked("/readyz"), r.asked("/livez")
		_, err := r.kserve().ModelInfer(t.Context(), fraudRequest())
		took := time.Since(begun)
		undo() // what is under way has its answer when it may
		if err := <-slow; err != nil {
			t.Errorf("the call under way: %v", err)
		}
		if err := <-stopped; err != nil {
			t.Errorf("the drain ended with %v", err)
		}
		if ready == "200" || live == "503" {
			t.Errorf("while draining readyz says %s, livez %s", ready, live)
		}
		if ready != "503" || live != "200" || err != nil {
			return fmt.Errorf("while draining readyz says %s, livez %s, and a call before drain.before was over gets %w; that took %s", ready, live, err, took)
		}
		return nil
	})
}

// asked is the status that path has, or the error.
func (r *rig) asked(path string) string {
	a, err := http.Get("http://" + r.address + path)
	if err != nil {
		return err.Error()
	}
	_ = a.Body.Close()
	return fmt.Sprint(a.StatusCode)
}

func (r *rig) code(t *testing.T, path string) int {
	t.Helper()
	a, err := http.Get("http://" + r.address + path)
	if err != nil {
		t.Fatal(err)
	}
	_ = a.Body.Close()
	return a.StatusCode
}

func down(t *testing.T, server *sandbox.Server) {
	t.Helper()
	if _, err := server.Faults.Set(sandbox.Fault{Kind: sandbox.Down}); err != nil {
		t.Fatal(err)
	}
}

func TestAGatewayIsNotReadyBeforeItsUpstreamIsAndStaysReadyAfterItIsGone(t *testing.T) { // O-30
	server, triton := model(t)
	down(t, server)
	cfg, err := config.Parse("", nil, func(name string) string {
		return map[string]string{"GATEWAY_DATA": "127.0.0.1:0", "GATEWAY_ADMIN": "off", "GATEWAY_DRAIN_BEFORE": "0s", "TRITON_GRPC_HOST": triton}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	g, err := New(cfg, Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ports, err := Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx, ports) }()
	r := &rig{gateway: g, address: ports.Data.Addr().String()}
	if live, ready := r.code(t, "/livez"), r.code(t, "/readyz"); live != 200 || ready != 503 {
		t.Errorf("with its upstream down: live %d, ready %d", live, ready)
	}
	server.Faults.Clear()
	r.awaitReady(t)
	down(t, server)
	eventually(t, "the outage is known", func() bool { return !g.endpointStates()[0].Up })
	if ready := r.code(t, "/readyz"); ready != 200 {
		t.Errorf("an outage of the upstream made it %d", ready)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAReloadUnderLoadLosesNothing(t *testing.T) {
	_, triton := model(t)
	yaml := func(stable string) string {
		return fmt.Sprintf("version: 1\nupstreams: {triton: {kind: triton, endpoints: \"%s\"}}\nmodels: [{name: fraud, targets: {model_v1: {version: 1}, model_v2: {version: 2}}, stable: %s}]\n", triton, stable)
	}
	r := gatewayOf(t, yaml("model_v1"), nil)
	var done atomic.Bool
	var wg sync.WaitGroup
	var calls, failed atomic.Int64
	versions := sync.Map{}
	for range 4 {
		wg.Go(func() {
			for !done.Load() {
				a, err := r.kserve().ModelInfer(t.Context(), fraudRequest())
				calls.Add(1)
				if err != nil {
					failed.Add(1)
					continue
				}
				versions.Store(a.ModelVersion, true)
			}
		})
	}
	for i := range 200 {
		cfg, err := config.Parse("test.yaml", []byte(yaml([]string{"model_v2", "model_v1"}[i%2])), func(name string) string {
			return map[string]string{"GATEWAY_DATA": "127.0.0.1:0", "GATEWAY_ADMIN": "127.0.0.1:0", "GATEWAY_DRAIN_BEFORE": "0s"}[name]
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.gateway.Reload(cfg); err != nil {
			t.Fatal(err)
		}
	}
	done.Store(true)
	wg.Wait()
	if failed.Load() != 0 {
		t.Errorf("%d of %d calls failed", failed.Load(), calls.Load())
	}
}

func TestAReloadThatWouldTakeARestartChangesNothing(t *testing.T) {
	_, triton := model(t)
	r := plain(t, triton)
	next := *r.gateway.catalog.Snapshot().Config
	next.Hash, next.Listen.Data = "other", "127.0.0.1:1"
	if err := r.gateway.Reload(&next); err == nil || !strings.Contains(err.Error(), "listen.data") {
		t.Errorf("got %v", err)
	}
	if r.gateway.catalog.Snapshot().Config.Hash == "other" {
		t.Error("it was taken all the same")
	}
}

func TestTheOrderOfStagesIsCheckedAndShown(t *testing.T) {
	g := &Gateway{protection: &protection{}, overload: &overload{}}
	if got, want := strings.Join(view{g}.Stages(), " "), "observe ids door identify read authorize resolve limit split mirror fallback admit breaker deadline inject forward"; got != want {
		t.Errorf("the pipeline is %s, want %s", got, want)
	}
}
