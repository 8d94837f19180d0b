package grpcfront

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake answers calls as a test wants it.
type fake struct {
	do      inference.Handler
	control func(method string, request proto.Message) (proto.Message, error)
	refused atomic.Int64
}

func (f *fake) Do(ctx context.Context, c *inference.Call) error {
	c.RequestID = "r-1"
	if err := c.Read(); err != nil {
		return f.Refuse(ctx, c, err)
	}
	return f.do(ctx, c)
}
func (f *fake) Message(ctx context.Context, c *inference.Call) error { return f.do(ctx, c) }
func (f *fake) Open(ctx context.Context, c *inference.Call, body inference.Handler) error {
	c.RequestID = "r-1"
	return body(ctx, c)
}

func (f *fake) Refuse(_ context.Context, c *inference.Call, err error) error {
	f.refused.Add(1)
	c.RequestID = "r-1"
	return err
}

type fakeControl struct{ *fake }

func (f fakeControl) Do(ctx context.Context, c *inference.Call, method string, request proto.Message) (proto.Message, error) {
	if err := c.Read(); err != nil {
		return nil, f.Refuse(ctx, c, err)
	}
	return f.control(method, request)
}

const maxMessage = 1 << 20

// patience is how long a test waits for what comes at once where nothing is wrong.
const patience = time.Minute

// start serves f on loopback and connects to it.
func start(t *testing.T, f *fake) *grpc.ClientConn {
	t.Helper()
	front := New(Options{Pipeline: f, Control: fakeControl{f}, MaxMessage: maxMessage, Log: slog.New(slog.DiscardHandler)})
	front.SetServing(true)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { _ = front.Serve(l) })
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		front.Drain(ctx)
		served.Wait()
	})
	return conn
}

// response is a ModelInferResponse that says which request it answers.
func response(c *inference.Call) inference.Frame {
	b, _ := proto.Marshal(&tritonpb.ModelStreamInferResponse{InferResponse: &tritonpb.ModelInferResponse{Id: c.Head.ID, ModelName: c.Head.Model}})
	return inference.NewFrame(b)
}

func TestAUnaryAnswerArrivesWithTheHeadersThatSayWhoAnswered(t *testing.T) {
	conn := start(t, &fake{do: func(_ context.Context, c *inference.Call) error {
		c.Target = &inference.Target{Name: "model_v2", Version: "2", Upstream: "triton"}
		c.Header = metadata.MD{"x-triton": {"a"}, "content-type": {"no"}, "x-request-id": {"upstream's"}}
		c.Trailer = metadata.MD{"x-cost": {"3"}, "sig-bin": {"\x00\xff\n"}}
		b, _ := proto.Marshal(&tritonpb.ModelInferResponse{ModelName: c.Head.Model, Id: c.Head.ID})
		return c.Send(inference.NewFrame(b))
	}})
	var header, trailer metadata.MD
	r, err := tritonpb.NewGRPCInferenceServiceClient(conn).ModelInfer(t.Context(), &tritonpb.ModelInferRequest{ModelName: "fraud", Id: "7"}, grpc.Header(&header), grpc.Trailer(&trailer))
	if err != nil || r.ModelName != "fraud" || r.Id != "7" {
		t.Fatalf("answer %v, error %v", r, err)
	}
	for name, want := range map[string]string{"x-request-id": "r-1", "x-gateway-target": "model_v2", "x-gateway-model-version": "2", "x-gateway-upstream": "triton", "x-triton": "a"} {
		if got := header.Get(name); len(got) != 1 || got[0] != want {
			t.Errorf("header %s: %v, want %s", name, got, want)
		}
	}
	if trailer.Get("x-cost")[0] != "3" || trailer.Get("sig-bin")[0] != "\x00\xff\n" {
		t.Errorf("trailer %v", trailer)
	}
}

func TestEveryKindOfFaultCarriesItsCodeReasonAndRetryHint(t *testing.T) {
	var kind atomic.Uint32
	conn := start(t, &fake{do: func(context.Context, *inference.Call) error {
		return fault.New(fault.Kind(kind.Load()), "do this")
	}})
	client := inferencepb.NewInferenceServiceClient(conn)
	for _, k := range fault.Kinds() {
		kind.Store(uint32(k))
		_, err := client.Predict(t.Context(), &inferencepb.PredictionRequest{ModelName: "fraud"})
		s := status.Convert(err)
		if s.Code() != k.Row().GRPC || s.Message() != "do this" {
			t.Errorf("%s: %v", k.Reason(), err)
		}
		info, retry := false, false
		for _, d := range s.Details() {
			switch d := d.(type) {
			case *errdetails.ErrorInfo:
				info = d.Reason == k.Reason() && d.Domain == "model-gateway"
			case *errdetails.RetryInfo:
				retry = d.RetryDelay.AsDuration() == k.Row().Retry
			}
		}
		if !info || retry != (k.Row().Retry > 0) {
			t.Errorf("%s: details %v", k.Reason(), s.Details())
		}
	}
}

func TestARefusalByALimitNamesTheBucketAndWhenToComeBack(t *testing.T) {
	err := toStatus(&fault.Fault{
		Kind: fault.RateLimited, Msg: "used up", RetryAfter: 50 * time.Millisecond,
		Quota: &fault.Quota{Limit: "per-user", Subject: "user:ann", Burst: 40},
	})
	s := status.Convert(err)
	got := prototext.Format(s.Proto())
	for _, want := range []string{"code: 8", `"used up"`, `"RATE_LIMITED"`, "50000000", `"user:ann"`, `"per-user"`, "quota_value: 40"} {
		if !strings.Contains(strings.ReplaceAll(got, ":  ", ": "), want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
	if n := len(s.Details()); n != 3 {
		t.Errorf("%d details, want ErrorInfo, RetryInfo and QuotaFailure", n)
	}
}

func TestAMessageOverTheCapIsRefusedNamingTheCap(t *testing.T) { // O-01
	f := &fake{do: func(context.Context, *inference.Call) error { return errors.New("it was let in") }}
	conn := start(t, f)
	_, err := inferencepb.NewInferenceServiceClient(conn).Predict(t.Context(), &inferencepb.PredictionRequest{InputTensor: make([]byte, maxMessage)})
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), fmt.Sprint(maxMessage)) {
		t.Error(err)
	}
	if f.refused.Load() != 1 {
		t.Error("it was not counted")
	}
}

func TestGarbageIsTheCallersMistakeAndGoesNowhere(t *testing.T) {
	f := &fake{do: func(context.Context, *inference.Call) error { return errors.New("it was let in") }}
	conn := start(t, f)
	for _, method := range []string{"/ml.inference.InferenceService/Predict", "/inference.GRPCInferenceService/ModelInfer", "/inference.GRPCInferenceService/ModelReady"} {
		err := conn.Invoke(t.Context(), method, []byte{0xff, 0xff, 0xff}, new([]byte), grpc.ForceCodec(rawBytes{}))
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", method, err)
		}
	}
	if f.refused.Load() != 3 {
		t.Errorf("%d were counted", f.refused.Load())
	}
}

// rawBytes sends bytes as they are.
type rawBytes struct{}

func (rawBytes) Marshal(v any) ([]byte, error)   { return v.([]byte), nil }
func (rawBytes) Unmarshal(b []byte, v any) error { *v.(*[]byte) = b; return nil }
func (rawBytes) Name() string                    { return "proto" }

func TestAnswersOfAStreamKeepTheOrderOfRequestsErrorsIncluded(t *testing.T) { // O-06
	release := make(chan struct{})
	conn := start(t, &fake{do: func(ctx context.Context, c *inference.Call) error {
		if err := c.Turn.Wait(ctx); err != nil {
			return err
		}
		c.Turn.Done()
		switch c.Head.ID {
		case "1": // the first one answers last
			<-release
		case "2":
			return fault.New(fault.ModelNotFound, "no such model")
		case "3":
			close(release)
		}
		return c.Send(response(c))
	}})
	s, err := tritonpb.NewGRPCInferenceServiceClient(conn).ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"1", "2", "3"} {
		if err := s.Send(&tritonpb.ModelInferRequest{ModelName: "fraud", Id: id}); err != nil {
			t.Fatal(err)
		}
	}
	_ = s.CloseSend()
	for _, id := range []string{"1", "2", "3"} {
		r, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if r.InferResponse.GetId() != id || (r.ErrorMessage != "") != (id == "2") {
			t.Errorf("got %v in place of %s", r, id)
		}
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v", err)
	}
}

func TestAnswersOfADecoupledModelDoNotWaitForOthers(t *testing.T) { // O-05
	others := make(chan struct{})
	conn := start(t, &fake{do: func(ctx context.Context, c *inference.Call) error {
		if c.Head.ID == "slow" {
			<-others
			return c.Send(response(c))
		}
		c.MarkDecoupled()
		for range 3 {
			if err := c.Send(response(c)); err != nil {
				return err
			}
		}
		return nil
	}})
	s, err := tritonpb.NewGRPCInferenceServiceClient(conn).ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"slow", "tokens"} {
		if err := s.Send(&tritonpb.ModelInferRequest{ModelName: "m", Id: id}); err != nil {
			t.Fatal(err)
		}
	}
	_ = s.CloseSend()
	var got []string
	for range 4 {
		r, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, r.InferResponse.Id); len(got) == 3 {
			close(others)
		}
	}
	if strings.Join(got, " ") != "tokens tokens tokens slow" {
		t.Errorf("answers came as %v", got)
	}
}

func TestNoMoreThanAWindowOfMessagesIsUnderWay(t *testing.T) {
	var under, most atomic.Int64
	full, release := make(chan struct{}), make(chan struct{})
	conn := start(t, &fake{do: func(_ context.Context, c *inference.Call) error {
		n := under.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if n == window {
			close(full)
		}
		<-release
		under.Add(-1)
		return c.Send(response(c))
	}})
	s, err := tritonpb.NewGRPCInferenceServiceClient(conn).ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const n = window + 20
	for range n {
		if err := s.Send(&tritonpb.ModelInferRequest{ModelName: "m"}); err != nil {
			t.Fatal(err)
		}
	}
	_ = s.CloseSend()
	<-full
	close(release)
	for range n {
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	if most.Load() != window {
		t.Errorf("%d messages were under way at once", most.Load())
	}
}

func TestAnErrorOfOneMessageOfPredictStreamIsItsAnswer(t *testing.T) {
	conn := start(t, &fake{do: func(_ context.Context, c *inference.Call) error {
		if c.Head.Model == "bad" {
			return fault.New(fault.BadTensor, "wrong length")
		}
		b, _ := proto.Marshal(&inferencepb.PredictionResponse{Status: "OK"})
		return c.Send(inference.NewFrame(b))
	}})
	s, err := inferencepb.NewInferenceServiceClient(conn).PredictStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []string{"bad", "good"} {
		if err := s.Send(&inferencepb.PredictionRequest{ModelName: m}); err != nil {
			t.Fatal(err)
		}
	}
	_ = s.CloseSend()
	first, err1 := s.Recv()
	second, err2 := s.Recv()
	if err1 != nil || err2 != nil || first.Status != "ERROR: CONTRACT_VIOLATION: wrong length" || second.Status != "OK" {
		t.Errorf("%v %v, %v %v", first, err1, second, err2)
	}
}

func TestADegradedAnswerSaysWhyInItsHeaders(t *testing.T) {
	cause := fault.New(fault.NoEndpoint, "nobody there")
	conn := start(t, &fake{do: func(_ context.Context, c *inference.Call) error {
		c.Target, c.Degraded = inference.Nowhere("", cause), &inference.Degraded{Cause: cause, Score: 0.5}
		b, _ := proto.Marshal(&inferencepb.PredictionResponse{Status: "DEGRADED"})
		return c.Send(inference.NewFrame(b))
	}})
	var md metadata.MD
	a, err := inferencepb.NewInferenceServiceClient(conn).Predict(t.Context(), &inferencepb.PredictionRequest{ModelName: "fraud"}, grpc.Header(&md))
	if err != nil || a.Status != "DEGRADED" || strings.Join(md.Get("x-gateway-degraded"), " ") != "NO_ENDPOINT" || md.Get("x-gateway-target") != nil {
		t.Errorf("%v %v, headers %v", a, err, md)
	}
	s, err := inferencepb.NewInferenceServiceClient(conn).PredictStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Send(&inferencepb.PredictionRequest{ModelName: "fraud"})
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	_ = s.CloseSend()
	if _, err := s.Recv(); !errors.Is(err, io.EOF) || s.Trailer().Get("x-gateway-target") != nil {
		t.Errorf("%v, trailer %v", err, s.Trailer())
	}
}

func TestAStreamSaysWhoAnsweredFirstAndInTheEndWhoAnswered(t *testing.T) {
	targets := map[string]*inference.Target{
		"a": {Name: "model_v1", Version: "1", Upstream: "triton"}, "b": {Name: "model_v2", Version: "2", Upstream: "other"},
	}
	conn := start(t, &fake{do: func(_ context.Context, c *inference.Call) error {
		if c.Target = targets[c.Head.Model]; c.Target == nil {
			return fault.New(fault.ModelNotFound, "no such model")
		}
		b, _ := proto.Marshal(&inferencepb.PredictionResponse{Status: "OK"})
		return c.Send(inference.NewFrame(b))
	}})
	for first, header := range map[string]string{"b": "model_v2", "nobody": ""} {
		s, err := inferencepb.NewInferenceServiceClient(conn).PredictStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range []string{first, "a", "b", "a"} {
			if err := s.Send(&inferencepb.PredictionRequest{ModelName: m}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		_ = s.CloseSend()
		if _, err := s.Recv(); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		md, err := s.Header()
		if err != nil || strings.Join(md.Get("x-gateway-target"), " ") != header || len(md.Get("x-request-id")) != 1 {
			t.Errorf("after %s: headers %v, %v", first, md, err)
		}
		want := []string{"model_v2 model_v1", "2 1", "other triton"}
		if first == "nobody" {
			want = []string{"model_v1 model_v2", "1 2", "triton other"}
		}
		for i, name := range []string{"x-gateway-target", "x-gateway-model-version", "x-gateway-upstream"} {
			if got := strings.Join(s.Trailer().Get(name), " "); got != want[i] {
				t.Errorf("after %s: trailer %s is %q, want %q", first, name, got, want[i])
			}
		}
	}
}

func TestAClientThatGoesAwayEndsItsCalls(t *testing.T) { // O-07
	const n = 50
	var began, ended sync.WaitGroup
	began.Add(n)
	ended.Add(n)
	conn := start(t, &fake{do: func(ctx context.Context, _ *inference.Call) error {
		began.Done()
		defer ended.Done()
		<-ctx.Done()
		return context.Cause(ctx)
	}})
	ctx, cancel := context.WithCancel(t.Context())
	s, err := tritonpb.NewGRPCInferenceServiceClient(conn).ModelStreamInfer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if err := s.Send(&tritonpb.ModelInferRequest{ModelName: "m"}); err != nil {
			t.Fatal(err)
		}
	}
	began.Wait()
	cancel()
	ended.Wait()
}

func TestQuestionsGoToControlByTheirName(t *testing.T) {
	conn := start(t, &fake{control: func(method string, request proto.Message) (proto.Message, error) {
		if method == "RepositoryModelUnload" {
			return nil, fault.New(fault.ControlOff, "closed")
		}
		return &tritonpb.ModelReadyResponse{Ready: method == "ModelReady" && request.(*tritonpb.ModelReadyRequest).Name == "fraud"}, nil
	}})
	client := tritonpb.NewGRPCInferenceServiceClient(conn)
	if r, err := client.ModelReady(t.Context(), &tritonpb.ModelReadyRequest{Name: "fraud"}); err != nil || !r.Ready {
		t.Errorf("%v %v", r, err)
	}
	if _, err := client.RepositoryModelUnload(t.Context(), &tritonpb.RepositoryModelUnloadRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Error(err)
	}
}

func TestEveryRPCOfTheProtocolIsServed(t *testing.T) {
	f := New(Options{MaxMessage: maxMessage})
	served := f.server.GetServiceInfo()[kserveName].Methods
	if want := len(tritonpb.GRPCInferenceService_ServiceDesc.Methods) + len(tritonpb.GRPCInferenceService_ServiceDesc.Streams); len(served) != want {
		t.Errorf("%d of %d RPCs are served", len(served), want)
	}
	f.server.Stop()
	f.health.Shutdown()
}

func TestHealthAndReflectionAnswer(t *testing.T) {
	conn := start(t, &fake{})
	r, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: predictName})
	if err != nil || r.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v %v", r, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, symbol := range []string{predictName, kserveName} {
		if err := s.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: symbol}}); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Recv(); err != nil || r.GetFileDescriptorResponse() == nil {
			t.Errorf("reflection of %s: %v %v", symbol, r, err)
		}
	}
}

func TestHTTP2ThatIsNotGRPCGets415(t *testing.T) {
	conn := start(t, &fake{})
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: tr}
	r, err := client.Post("http://"+strings.TrimPrefix(conn.Target(), "passthrough:///")+"/v1/predict", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	_ = r.Body.Close()
	if r.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("got %s", r.Status)
	}
}

func TestHugeMetadataIsRefusedAndItsNeighboursLiveOn(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	f := &fake{do: func(_ context.Context, c *inference.Call) error {
		close(began)
		<-release
		return c.Send(inference.NewFrame(nil))
	}}
	conn := start(t, f)
	client := tritonpb.NewGRPCInferenceServiceClient(conn)
	neighbour := make(chan error, 1)
	go func() {
		_, err := client.ModelInfer(context.Background(), &tritonpb.ModelInferRequest{ModelName: "m"})
		neighbour <- err
	}()
	<-began
	for _, n := range []int{17_000, 40_000, 300_000} {
		_, err := client.ModelInfer(metadata.AppendToOutgoingContext(t.Context(), "x-foo", strings.Repeat("a", n)), &tritonpb.ModelInferRequest{ModelName: "m"})
		if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "16384") {
			t.Errorf("%d bytes of metadata: %v", n, err)
		}
	}
	close(release)
	if err := <-neighbour; err != nil {
		t.Errorf("the call beside them: %v", err)
	}
	if f.refused.Load() != 3 {
		t.Errorf("%d were counted", f.refused.Load())
	}
}

func TestAHealthWatchDoesNotHoldUpTheDrain(t *testing.T) {
	front := New(Options{Pipeline: &fake{}, MaxMessage: maxMessage, Log: slog.New(slog.DiscardHandler)})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { _ = front.Serve(l) })
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	watch, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if !front.Drain(ctx) {
		t.Error("it was cut")
	}
	if _, err := watch.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the watch ended with %v", err)
	}
	served.Wait()
}

func TestAClientThatLeavesWhileItsAnswersComeIsNobodysFailure(t *testing.T) {
	ended := make(chan error, 1)
	conn := start(t, &fake{do: func(_ context.Context, c *inference.Call) error {
		c.MarkDecoupled()
		for {
			if err := c.Send(inference.NewFrame(make([]byte, 32<<10))); err != nil {
				ended <- err
				return err
			}
		}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	s, err := tritonpb.NewGRPCInferenceServiceClient(conn).ModelStreamInfer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&tritonpb.ModelInferRequest{ModelName: "m"}); err != nil {
		t.Fatal(err)
	}
	_, _ = s.Recv()
	cancel()
	if f := fault.Of(<-ended); f.Kind != fault.Cancelled {
		t.Errorf("it ended with %v", f)
	}
}
