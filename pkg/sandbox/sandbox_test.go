package sandbox

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/internal/calm"
	"github.com/model-gateway/model-gateway/pkg/sandbox/repository"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
	tritonmodels "github.com/model-gateway/model-gateway/triton-models"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is a server and a client of it.
type running struct {
	*Server
	client tritonpb.GRPCInferenceServiceClient
	conn   *grpc.ClientConn
	addr   string
}

// start runs a server with the models of the repository until the test ends.
func start(t testing.TB, change ...func(*Options)) *running {
	t.Helper()
	o := Options{Models: tritonmodels.FS}
	for _, f := range change {
		f(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(lis) }()
	r := &running{Server: s, addr: lis.Addr().String()}
	r.conn = r.dial(t)
	r.client = tritonpb.NewGRPCInferenceServiceClient(r.conn)
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return r
}

func (r *running) dial(t testing.TB) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 10 * time.Second, Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond}}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func ask(model string, inputs ...*tritonpb.ModelInferRequest_InferInputTensor) *tritonpb.ModelInferRequest {
	return &tritonpb.ModelInferRequest{ModelName: model, Inputs: inputs}
}

func floats(name string, shape ...int64) *tritonpb.ModelInferRequest_InferInputTensor {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	data := make([]float32, n)
	for i := range data {
		data[i] = float32(i%7) / 7
	}
	return &tritonpb.ModelInferRequest_InferInputTensor{Name: name, Datatype: "FP32", Shape: shape, Contents: &tritonpb.InferTensorContents{Fp32Contents: data}}
}

func ints(name string, v int32, shape ...int64) *tritonpb.ModelInferRequest_InferInputTensor {
	return &tritonpb.ModelInferRequest_InferInputTensor{Name: name, Datatype: "INT32", Shape: shape, Contents: &tritonpb.InferTensorContents{IntContents: []int32{v}}}
}

func fraud() *tritonpb.ModelInferRequest { return ask("fraud", floats("INPUT", 1, 16)) }

func wantCode(t testing.TB, err error, code codes.Code) {
	t.Helper()
	if status.Code(err) != code {
		t.Fatalf("got %v, want %v", err, code)
	}
}

func TestAServerIsReadyWellWithinASecond(t *testing.T) {
	calm.Moment(t, func() error {
		began := time.Now()
		r := start(t)
		if err := r.infer(soon(t)); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > time.Second {
			return fmt.Errorf("first answer after %v", d)
		}
		return nil
	})
}

func TestHeadersThatAreTooLargeAreRefused(t *testing.T) {
	r := start(t)
	small := metadata.AppendToOutgoingContext(soon(t), "x-big", strings.Repeat("a", 15_000))
	if err := r.infer(small); err != nil {
		t.Errorf("15,000 bytes: %v", err)
	}
	large := metadata.AppendToOutgoingContext(soon(t), "x-big", strings.Repeat("a", 17_000))
	err := r.infer(large)
	wantCode(t, err, codes.ResourceExhausted)
	if !strings.Contains(err.Error(), "received metadata size exceeds hard limit") {
		t.Error(err)
	}
}

func TestNothingIsSentBesideTheAnswer(t *testing.T) {
	r := start(t)
	var header, trailer metadata.MD
	_, err := r.client.ModelInfer(soon(t), fraud(), grpc.Header(&header), grpc.Trailer(&trailer))
	if err != nil {
		t.Fatal(err)
	}
	delete(header, "content-type")
	if len(header)+len(trailer) > 0 {
		t.Errorf("header %v, trailer %v", header, trailer)
	}
	_, err = r.client.ModelInfer(soon(t), ask("nope"), grpc.Trailer(&trailer))
	delete(trailer, "content-type") // an error comes in headers alone, which grpc-go shows as a trailer
	if len(trailer) > 0 || len(status.Convert(err).Details()) > 0 {
		t.Errorf("trailer %v, details %v", trailer, status.Convert(err).Details())
	}
}

func TestWhatARealServerLacksIsUnimplemented(t *testing.T) {
	r := start(t)
	h := grpc_health_v1.NewHealthClient(r.conn)
	for _, service := range []string{"", "whatever"} {
		if got, err := h.Check(soon(t), &grpc_health_v1.HealthCheckRequest{Service: service}); err != nil || got.Status != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v %v", service, got, err)
		}
	}
	w, err := h.Watch(soon(t), &grpc_health_v1.HealthCheckRequest{})
	if err == nil {
		_, err = w.Recv()
	}
	wantCode(t, err, codes.Unimplemented)
	for _, method := range []string{"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", servicePath + "Nope"} {
		err := r.conn.Invoke(soon(t), method, &tritonpb.ServerLiveRequest{}, &tritonpb.ServerLiveResponse{})
		wantCode(t, err, codes.Unimplemented)
		if m := status.Convert(err).Message(); m != "" {
			t.Errorf("%s: message %q", method, m)
		}
	}
}

func TestMessagesOf64MiBPass(t *testing.T) {
	if testing.Short() {
		t.Skip("moves 128 MiB")
	}
	r := start(t)
	in := &tritonpb.ModelInferRequest_InferInputTensor{Name: "UINT8", Datatype: "UINT8", Shape: []int64{65 << 20}}
	req := ask("echo", in)
	req.RawInputContents = [][]byte{make([]byte, 65<<20)}
	resp, err := r.client.ModelInfer(soon(t), req)
	if err != nil || len(resp.RawOutputContents) != 2 || len(resp.RawOutputContents[1]) != 65<<20 {
		t.Errorf("%v, %d outputs", err, len(resp.GetRawOutputContents()))
	}
}

func TestManyCallersGetTheirOwnAnswersInFewExecutions(t *testing.T) {
	r := start(t)
	ctx := soon(t)
	one := func(i int) *tritonpb.ModelInferRequest {
		req := fraud()
		req.Inputs[0].Contents.Fp32Contents[0] = float32(i)
		return req
	}
	const n = 200
	alone := make([][]byte, n)
	for i := range alone {
		resp, err := r.client.ModelInfer(ctx, one(i))
		if err != nil {
			t.Fatal(err)
		}
		alone[i] = resp.RawOutputContents[0]
	}
	before := r.statistics(t, "fraud", "2")
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			resp, err := r.client.ModelInfer(ctx, one(i))
			if err != nil {
				t.Error(err)
				return
			}
			x := math.Float32frombits(binary.LittleEndian.Uint32(resp.RawOutputContents[0]))
			y := math.Float32frombits(binary.LittleEndian.Uint32(alone[i]))
			if math.Abs(float64(x-y)) > 1e-6 {
				t.Errorf("caller %d got %v in a batch, %v alone", i, x, y)
			}
		})
	}
	wg.Wait()
	after := r.statistics(t, "fraud", "2")
	rows, runs := after.InferenceCount-before.InferenceCount, after.ExecutionCount-before.ExecutionCount
	if rows != n || runs == 0 || runs > n/2 {
		t.Errorf("%d rows in %d runs, want %d in far fewer", rows, runs, n)
	}
	var counted uint64
	for _, b := range after.BatchStats {
		counted += b.ComputeInfer.Count * b.BatchSize
	}
	if counted != after.InferenceCount {
		t.Errorf("batch_stats count %d rows, inference_count %d", counted, after.InferenceCount)
	}
}

func (r *running) statistics(t testing.TB, model, version string) *tritonpb.ModelStatistics {
	t.Helper()
	resp, err := r.client.ModelStatistics(soon(t), &tritonpb.ModelStatisticsRequest{Name: model, Version: version})
	if err != nil {
		t.Fatal(err)
	}
	return resp.ModelStats[0]
}

func TestACancelledCallerIsSeenByTheModel(t *testing.T) {
	r := start(t)
	for _, streamed := range []bool{false, true} {
		r.Forget()
		ctx, cancel := context.WithCancel(soon(t))
		req := ask("tokens", ints("N", 1000, 1), ints("DELAY_MS", 10_000, 1))
		if !streamed {
			req = ask("echo")
			req.Parameters = map[string]*tritonpb.InferParameter{"delay_ms": {ParameterChoice: &tritonpb.InferParameter_Int64Param{Int64Param: 60_000}}}
		}
		ended := make(chan error, 1)
		go func() {
			if !streamed {
				_, err := r.client.ModelInfer(ctx, req)
				ended <- err
				return
			}
			s, err := r.client.ModelStreamInfer(ctx)
			if err == nil {
				err = s.Send(req)
			}
			for err == nil {
				_, err = s.Recv()
			}
			ended <- err
		}()
		if _, err := r.Await(soon(t), req.ModelName, func(s Seen) bool { return s.InFlight == 1 }); err != nil {
			cancel()
			t.Fatalf("streamed %v: %v; all %+v, RPCs %v, ended with %v", streamed, err, r.Seen(""), r.RPCs(), <-ended)
		}
		cancel()
		wantCode(t, <-ended, codes.Canceled)
		if s, err := r.Await(soon(t), req.ModelName, func(s Seen) bool { return s.InFlight == 0 && s.Cancelled == 1 }); err != nil {
			t.Errorf("streamed %v: %+v", streamed, s)
		}
	}
}

func TestWhatCallersSentCanBeSeen(t *testing.T) {
	r := start(t)
	ctx := metadata.AppendToOutgoingContext(soon(t), "x-user-id", "alice", "sig-bin", "\x00\xff\n")
	if err := r.infer(ctx); err != nil {
		t.Fatal(err)
	}
	wantCode(t, func() error { _, err := r.client.ModelInfer(ctx, ask("nope")); return err }(), codes.NotFound)
	s := r.Seen("fraud")
	if s.Calls != 1 || s.Answers != 1 || s.Errors != 0 || s.Method != "ModelInfer" || s.Request.ModelName != "fraud" {
		t.Errorf("seen %+v", s)
	}
	if got := s.Metadata.Get("x-user-id"); len(got) != 1 || got[0] != "alice" {
		t.Errorf("metadata %v", s.Metadata)
	}
	if got := s.Metadata.Get("sig-bin"); len(got) != 1 || got[0] != "\x00\xff\n" {
		t.Errorf("binary metadata %q", got)
	}
	if s.Timeout <= 0 || s.Timeout > time.Minute {
		t.Errorf("timeout %v", s.Timeout)
	}
	if u, all := r.Seen(UnknownModel), r.Seen(""); u.Calls != 1 || u.Errors != 1 || all.Calls != 2 {
		t.Errorf("unknown %+v, all %+v", u, all)
	}
	if n := r.RPCs()["ModelInfer"]; n != 2 {
		t.Errorf("%d calls of ModelInfer", n)
	}
}

func TestAnswersOfAStreamComeInTheOrderOfItsRequests(t *testing.T) {
	r := start(t)
	s, err := r.client.ModelStreamInfer(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	const n = 60
	go func() {
		for i := range n {
			req := fraud()
			switch i % 3 {
			case 0:
				req = ask("cnn", floats("IMAGE", 1, 3, 224, 224))
			case 1:
				req = ask("nope")
			}
			req.Id = strconv.Itoa(i)
			if s.Send(req) != nil {
				return
			}
		}
		_ = s.CloseSend()
	}()
	for i := range n {
		a, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if a.InferResponse.GetId() != strconv.Itoa(i) {
			t.Fatalf("answer %d is for %s", i, a.InferResponse.GetId())
		}
	}
}

func TestAStreamMayHaveMoreRequestsThanItHasRoom(t *testing.T) {
	r := start(t)
	s, err := r.client.ModelStreamInfer(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	const n = 3 * maxInStream
	go func() {
		for range n {
			if s.Send(fraud()) != nil {
				return
			}
		}
		_ = s.CloseSend()
	}()
	for i := range n {
		if a, err := s.Recv(); err != nil || a.ErrorMessage != "" {
			t.Fatalf("answer %d: %v %v", i, a, err)
		}
	}
}

func TestUnloadFinishesWhatRunsAndLoadBringsTheModelBack(t *testing.T) {
	r := start(t)
	ctx := soon(t)
	undo := r.set(t, Fault{Kind: SlowLoad, Delay: time.Hour})
	slow := ask("tokens", ints("N", 2, 1), ints("DELAY_MS", 200, 1))
	s, err := r.client.ModelStreamInfer(ctx)
	if err == nil {
		err = s.Send(slow)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.RepositoryModelUnload(ctx, &tritonpb.RepositoryModelUnloadRequest{ModelName: "tokens"}); err != nil {
		t.Fatal(err)
	}
	if got := r.state(t, "tokens"); got != "UNLOADING" {
		t.Errorf("state %s while a request runs", got)
	}
	if a, err := s.Recv(); err != nil || a.ErrorMessage != "" {
		t.Errorf("the running request: %v %v", a, err)
	}
	_ = s.CloseSend()
	r.models.closing.Wait()
	if got := r.state(t, "tokens"); got != "UNAVAILABLE unloaded" {
		t.Errorf("state %s", got)
	}
	loaded := make(chan error, 1)
	go func() {
		_, err := r.client.RepositoryModelLoad(ctx, &tritonpb.RepositoryModelLoadRequest{ModelName: "tokens"})
		loaded <- err
	}()
	if _, err := r.Await(ctx, "", func(Seen) bool { return r.state(t, "tokens") == "LOADING" }); err != nil {
		t.Fatal(err)
	}
	if ready, err := r.client.ServerReady(ctx, &tritonpb.ServerReadyRequest{}); err != nil || ready.Ready {
		t.Errorf("the server is ready while a model loads: %v", err)
	}
	undo()
	if err := <-loaded; err != nil {
		t.Fatal(err)
	}
	if got := r.state(t, "tokens"); got != "READY" {
		t.Errorf("state %s", got)
	}
}

// state is what the index says of the only version of a model.
func (r *running) state(t testing.TB, model string) string {
	t.Helper()
	resp, err := r.client.RepositoryIndex(soon(t), &tritonpb.RepositoryIndexRequest{})
	if err != nil {
		t.Error(err)
		return ""
	}
	for _, m := range resp.Models {
		if m.Name == model {
			return strings.TrimSpace(m.State + " " + m.Reason)
		}
	}
	return "absent"
}

func TestAFailedReloadLeavesTheOldModelServing(t *testing.T) {
	r := start(t)
	ctx := soon(t)
	r.set(t, Fault{Kind: FailLoad, Model: "fraud", Message: "asked for", Times: 1})
	config := &tritonpb.ModelRepositoryParameter{ParameterChoice: &tritonpb.ModelRepositoryParameter_StringParam{StringParam: `{"backend":"onnxruntime","max_batch_size":4,
		"input":[{"name":"INPUT","data_type":"TYPE_FP32","dims":[16]}],"output":[{"name":"SCORE","data_type":"TYPE_FP32","dims":[1]}]}`}}
	load := &tritonpb.RepositoryModelLoadRequest{ModelName: "fraud", Parameters: map[string]*tritonpb.ModelRepositoryParameter{"config": config}}
	_, err := r.client.RepositoryModelLoad(ctx, load)
	wantCode(t, err, codes.InvalidArgument)
	if !strings.Contains(err.Error(), "asked for") {
		t.Error(err)
	}
	if err := r.infer(ctx); err != nil {
		t.Errorf("the old one: %v", err)
	}
	if _, err := r.client.RepositoryModelLoad(ctx, load); err != nil {
		t.Fatal(err)
	}
	_, err = r.client.ModelInfer(ctx, ask("fraud", floats("INPUT", 5, 16)))
	wantCode(t, err, codes.InvalidArgument)
}

func TestAReloadUnderLoadLosesNothing(t *testing.T) {
	r := start(t)
	ctx, cancel := context.WithCancel(soon(t))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := r.infer(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 20 {
		c := fmt.Sprintf(`{"backend":"onnxruntime","max_batch_size":%d,"version_policy":{"all":{}},"dynamic_batching":{},
			"input":[{"name":"INPUT","data_type":"TYPE_FP32","dims":[16]}],"output":[{"name":"SCORE","data_type":"TYPE_FP32","dims":[1]}]}`, i+1)
		if err := r.models.load(ctx, "fraud", repository.Override{Config: c}); err != nil {
			t.Error(err)
		}
	}
	cancel()
	wg.Wait()
}

func TestAModelOfUnknownPythonIsNamedInTheIndex(t *testing.T) {
	models := fstest.MapFS{
		"mine/config.pbtxt": {Data: []byte(`backend: "python" input { name: "A" data_type: TYPE_FP32 dims: 1 } output { name: "B" data_type: TYPE_FP32 dims: 1 }`)},
		"mine/1/model.py":   {Data: []byte("")},
		"bad/config.pbtxt":  {Data: []byte(`backend: "python" nonsense: 1`)},
		"empty/README":      {},
	}
	r := start(t, func(o *Options) { o.Models = models })
	if got := r.state(t, "mine"); !strings.HasPrefix(got, "UNAVAILABLE ") || !strings.Contains(got, `no twin of model "mine"`) {
		t.Errorf("state %q", got)
	}
	for _, m := range []string{"bad", "empty"} {
		if got := r.state(t, m); got != "" {
			t.Errorf("state of %s %q", m, got)
		}
	}
	if ready, err := r.client.ServerReady(soon(t), &tritonpb.ServerReadyRequest{}); err != nil || ready.Ready {
		t.Errorf("a server with a model that failed is ready: %v", err)
	}
}

func TestOnlyTheModelsAskedForAreLoaded(t *testing.T) {
	r := start(t, func(o *Options) { o.Load = []string{"fraud"}; o.NoControl = true })
	if got := r.state(t, "cnn"); got != "" {
		t.Errorf("state of cnn %q", got)
	}
	_, err := r.client.ModelInfer(soon(t), ask("cnn"))
	wantCode(t, err, codes.NotFound)
	_, err = r.client.RepositoryModelLoad(soon(t), &tritonpb.RepositoryModelLoadRequest{ModelName: "cnn"})
	wantCode(t, err, codes.Unavailable)
}

func TestStopEndsCallsAndMayBeCalledTwice(t *testing.T) {
	r := start(t)
	r.set(t, Fault{Kind: Hang})
	done := make(chan error, 1)
	go func() { done <- r.infer(context.Background()) }()
	if _, err := r.Await(soon(t), "fraud", func(s Seen) bool { return s.InFlight == 1 }); err != nil {
		t.Fatal(err)
	}
	r.Stop()
	r.Stop()
	if err := <-done; err == nil {
		t.Error("the call was answered")
	}
}

func BenchmarkInfer(b *testing.B) {
	r := start(b)
	req := ask("echo_fp32", floats("INPUT", 256))
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.client.ModelInfer(ctx, req); err != nil {
			b.Fatal(err)
		}
	}
}
