package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

func (r *running) set(t *testing.T, f Fault) func() {
	t.Helper()
	undo, err := r.Faults.Set(f)
	if err != nil {
		t.Fatal(err)
	}
	return undo
}

func (r *running) infer(ctx context.Context) error {
	_, err := r.client.ModelInfer(ctx, fraud())
	return err
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestAServerThatIsDownRefusesConnectionsAndComesBackOnItsPort(t *testing.T) {
	r := start(t)
	if err := r.infer(soon(t)); err != nil {
		t.Fatal(err)
	}
	undo := r.set(t, Fault{Kind: Down})
	err := r.infer(soon(t))
	wantCode(t, err, codes.Unavailable)
	fresh := tritonpb.NewGRPCInferenceServiceClient(r.dial(t))
	if _, err := fresh.ServerLive(soon(t), &tritonpb.ServerLiveRequest{}); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v, want a refused connection", err)
	}
	undo()
	if _, err := fresh.ModelInfer(soon(t), fraud(), grpc.WaitForReady(true)); err != nil {
		t.Errorf("back again: %v", err)
	}
}

func TestDownBreaksCallsThatRun(t *testing.T) {
	r := start(t)
	r.set(t, Fault{Kind: Hang, Model: "fraud"})
	done := make(chan error, 1)
	go func() { done <- r.infer(context.Background()) }()
	if _, err := r.Await(soon(t), "fraud", func(s Seen) bool { return s.InFlight == 1 }); err != nil {
		t.Fatal(err)
	}
	r.set(t, Fault{Kind: Down})
	wantCode(t, <-done, codes.Unavailable)
	if _, err := r.Await(soon(t), "fraud", func(s Seen) bool { return s.Cancelled == 1 && s.InFlight == 0 }); err != nil {
		t.Errorf("the server did not see it: %+v", r.Seen("fraud"))
	}
}

func TestAFrozenServerIsSilentAndThenGoesOn(t *testing.T) {
	r := start(t)
	if err := r.infer(soon(t)); err != nil {
		t.Fatal(err)
	}
	undo := r.set(t, Fault{Kind: Freeze})
	wantCode(t, r.infer(within(t, 50*time.Millisecond)), codes.DeadlineExceeded)
	undo()
	if err := r.infer(soon(t)); err != nil {
		t.Errorf("after the freeze: %v", err)
	}
}

func TestFaultsHitTheCallsTheyName(t *testing.T) {
	r := start(t)
	ctx := soon(t)
	r.set(t, Fault{Kind: Fail, Model: "fraud", Version: "1", Code: codes.DataLoss, Message: "asked for"})
	if err := r.infer(ctx); err != nil {
		t.Errorf("another version: %v", err)
	}
	req := fraud()
	req.ModelVersion = "1"
	_, err := r.client.ModelInfer(ctx, req)
	wantCode(t, err, codes.DataLoss)
	if status.Convert(err).Message() != "asked for" {
		t.Errorf("message %q", status.Convert(err).Message())
	}
	r.Faults.Clear()
	if _, err := r.client.ModelInfer(ctx, req); err != nil {
		t.Errorf("cleared: %v", err)
	}
	if _, err := r.client.ModelReady(ctx, &tritonpb.ModelReadyRequest{Name: "fraud"}); err != nil {
		t.Errorf("another method: %v", err)
	}
	r.set(t, Fault{Kind: Fail, Method: "ModelReady", Code: codes.Internal})
	_, err = r.client.ModelReady(ctx, &tritonpb.ModelReadyRequest{Name: "fraud"})
	wantCode(t, err, codes.Internal)
	if err := r.infer(ctx); err != nil {
		t.Errorf("another method: %v", err)
	}
}

func TestFaultsEndAfterTheirTimesAndHitEveryNth(t *testing.T) {
	r := start(t)
	ctx := soon(t)
	r.set(t, Fault{Kind: QueueFull, Times: 2})
	for i, want := range []codes.Code{codes.Unavailable, codes.Unavailable, codes.OK} {
		if err := r.infer(ctx); status.Code(err) != want {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if n := len(r.Faults.List()); n != 0 {
		t.Errorf("%d faults left", n)
	}
	r.set(t, Fault{Kind: Fail, Code: codes.Internal, Every: 3})
	failed := 0
	for range 9 {
		if r.infer(ctx) != nil {
			failed++
		}
	}
	if failed != 3 {
		t.Errorf("%d of 9 failed, want every third", failed)
	}
}

func TestAFullQueueSpeaksAsTheRealOne(t *testing.T) {
	r := start(t)
	r.set(t, Fault{Kind: QueueFull})
	req := fraud()
	req.Id = "3"
	_, err := r.client.ModelInfer(soon(t), req)
	wantCode(t, err, codes.Unavailable)
	if m := status.Convert(err).Message(); m != "[request id: 3] Exceeds maximum queue size" {
		t.Errorf("message %q", m)
	}
}

func TestAModelThatIsNotReadySaysSoEverywhere(t *testing.T) {
	r := start(t)
	ctx := soon(t)
	undo := r.set(t, Fault{Kind: NotReady, Model: "fraud"})
	ready := func(model string) bool {
		resp, err := r.client.ModelReady(ctx, &tritonpb.ModelReadyRequest{Name: model})
		return err == nil && resp.Ready
	}
	if ready("fraud") || !ready("cnn") {
		t.Error("fraud must not be ready, and cnn must")
	}
	wantCode(t, r.infer(ctx), codes.NotFound)
	req := fraud()
	req.ModelVersion = "2"
	_, err := r.client.ModelInfer(ctx, req)
	wantCode(t, err, codes.Unavailable)
	if s, err := r.client.ServerReady(ctx, &tritonpb.ServerReadyRequest{}); err != nil || s.Ready {
		t.Errorf("the server is ready: %v %v", s, err)
	}
	undo()
	if !ready("fraud") {
		t.Error("fraud must be ready again")
	}
}

func TestAStoppingServerTakesNothingNew(t *testing.T) {
	r := start(t)
	r.set(t, Fault{Kind: Stopping})
	wantCode(t, r.infer(soon(t)), codes.Unavailable)
	_, err := r.client.ModelReady(soon(t), &tritonpb.ModelReadyRequest{Name: "fraud"})
	if m := status.Convert(err).Message(); m != "Server not ready" {
		t.Errorf("got %q", m)
	}
	_, err = r.client.ServerReady(soon(t), &tritonpb.ServerReadyRequest{})
	if m := status.Convert(err).Message(); m != "Server exiting" {
		t.Errorf("got %q", m)
	}
}

func TestASlowModelAnswersAfterItsDelay(t *testing.T) {
	r := start(t)
	r.set(t, Fault{Kind: Slow, Delay: 30 * time.Millisecond})
	began := time.Now()
	if err := r.infer(soon(t)); err != nil || time.Since(began) < 30*time.Millisecond {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	wantCode(t, r.infer(within(t, 10*time.Millisecond)), codes.DeadlineExceeded)
}

func TestAClearedHangLetsCallsGoOn(t *testing.T) {
	r := start(t)
	undo := r.set(t, Fault{Kind: Hang})
	done := make(chan error, 1)
	go func() { done <- r.infer(soon(t)) }()
	if _, err := r.Await(soon(t), "fraud", func(s Seen) bool { return s.InFlight == 1 }); err != nil {
		t.Fatal(err)
	}
	undo()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestConnectionsBreakBeforeAfterAndWithinAnAnswer(t *testing.T) {
	r := start(t)
	for _, kind := range []FaultKind{Drop, DropHeaders, Cut} {
		undo := r.set(t, Fault{Kind: kind, Model: "echo_fp32", Bytes: 5000})
		req := ask("echo_fp32", floats("INPUT", 1<<20))
		_, err := r.client.ModelInfer(soon(t), req, grpc.WaitForReady(true))
		wantCode(t, err, codes.Unavailable)
		undo()
		if _, err := r.client.ModelInfer(soon(t), req, grpc.WaitForReady(true)); err != nil {
			t.Errorf("after %s: %v", kind, err)
		}
	}
}

func TestAFaultInAStreamIsInBandAndHoldsUpNoOtherModel(t *testing.T) {
	r := start(t)
	r.set(t, Fault{Kind: Fail, Model: "fraud", Code: codes.Unavailable, Message: "asked for", Times: 1})
	undo := r.set(t, Fault{Kind: Hang, Model: "cnn"})
	s, err := r.client.ModelStreamInfer(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, req := range []*tritonpb.ModelInferRequest{fraud(), ask("cnn", floats("IMAGE", 1, 3, 224, 224)), ask("tokens", ints("N", 1, 1))} {
		req.Id = req.ModelName
		if err := s.Send(req); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"fraud asked for", "tokens "} {
		a, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if got := a.InferResponse.GetId() + " " + a.ErrorMessage; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	undo()
	if a, err := s.Recv(); err != nil || a.InferResponse.GetId() != "cnn" {
		t.Errorf("got %v %v", a, err)
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
}

func TestFaultsAreCheckedWhenSet(t *testing.T) {
	r := start(t)
	for _, f := range []Fault{{Kind: "nonsense"}, {Kind: Slow}, {Kind: Fail}, {Kind: Drop, Times: -1}} {
		if _, err := r.Faults.Set(f); err == nil {
			t.Errorf("%+v was accepted", f)
		}
	}
	for i := range maxFaults + 1 {
		_, err := r.Faults.Set(Fault{Kind: Drop, Model: "no such"})
		if (err == nil) != (i < maxFaults) {
			t.Fatalf("fault %d: %v", i, err)
		}
	}
}

func TestFaultsCanBePlayedWithCurl(t *testing.T) {
	r := start(t)
	h := httptest.NewServer(r.FaultsHandler())
	defer h.Close()
	do := func(method, query, body string) (int, string) {
		req, err := http.NewRequestWithContext(soon(t), method, h.URL+query, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := h.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	if code, body := do("POST", "", `{"kind":"fail","model":"fraud","code":"UNAVAILABLE","message":"m","delay":"20ms"}`); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	wantCode(t, r.infer(soon(t)), codes.Unavailable)
	want := Fault{Kind: Fail, Model: "fraud", Code: codes.Unavailable, Message: "m", Delay: 20 * time.Millisecond}
	_, body := do("GET", "", "")
	var got struct{ Faults []Fault }
	if err := json.Unmarshal([]byte(body), &got); err != nil || len(got.Faults) != 1 || got.Faults[0] != want {
		t.Errorf("%v: %s", err, body)
	}
	for _, bad := range []string{``, `{`, `{"kind":"slow"}`, `{"kind":"fail","code":"NOPE"}`, `{"kind":"slow","delay":"soon"}`, `{"kind":"drop","what":1}`, `{"kind":"drop"} {}`} {
		if code, body := do("POST", "", bad); code != 400 {
			t.Errorf("%s: %d %s", bad, code, body)
		}
	}
	do("DELETE", "?model=cnn", "")
	if len(r.Faults.List()) != 1 {
		t.Error("the fault of another model is gone")
	}
	do("DELETE", "", "")
	if err := r.infer(soon(t)); err != nil {
		t.Error(err)
	}
	if code, _ := do("PATCH", "", ""); code != 405 {
		t.Errorf("PATCH: %d", code)
	}
}

func TestADecoupledModelThatWasSlowHoldsUpNobody(t *testing.T) {
	r := start(t)
	r.set(t, Fault{Kind: Slow, Model: "tokens", Delay: time.Millisecond})
	for range 50 {
		s, err := r.client.ModelStreamInfer(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, req := range []*tritonpb.ModelInferRequest{ask("tokens", ints("N", 0, 1)), fraud(), ask("tokens", ints("N", 1, 1)), fraud()} {
			if err := s.Send(req); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		n := 0
		for err == nil {
			if _, err = s.Recv(); err == nil {
				n++
			}
		}
		if !errors.Is(err, io.EOF) || n != 3 {
			t.Fatalf("%d answers, then %v", n, err)
		}
	}
}
