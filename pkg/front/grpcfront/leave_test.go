package grpcfront

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/model-gateway/model-gateway/pkg/inference"
	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// serveWith serves o on loopback until the test ends.
func serveWith(t *testing.T, f *fake, o Options) (*Front, string) {
	t.Helper()
	o.Pipeline, o.Control, o.MaxMessage, o.Log = f, fakeControl{f}, maxMessage, slog.New(slog.DiscardHandler)
	front := New(o)
	front.SetServing(true)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { _ = front.Serve(l) })
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		front.Drain(ctx)
		served.Wait()
	})
	return front, l.Addr().String()
}

func client(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// wantDraining fails unless err tells the client of a stream to open it elsewhere.
func wantDraining(t *testing.T, err error, text string) {
	t.Helper()
	s := status.Convert(err)
	if s.Code() != codes.Unavailable || !strings.Contains(s.Message(), text) {
		t.Fatalf("the stream ended with %v; want UNAVAILABLE: %s", err, text)
	}
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.Reason == "DRAINING" {
			return
		}
	}
	t.Errorf("no reason DRAINING in %v", s.Details())
}

func echoing(_ context.Context, c *inference.Call) error { return c.Send(response(c)) }

func TestAStreamOnWhichNothingIsPendingEndsWithTheDrainAndSaysWhy(t *testing.T) {
	front, address := serveWith(t, &fake{do: echoing}, Options{})
	conn := client(t, address)
	s, err := tritonpb.NewGRPCInferenceServiceClient(conn).ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&tritonpb.ModelInferRequest{ModelName: "m", Id: "1"}); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Recv(); err != nil || r.InferResponse.Id != "1" {
		t.Fatal(r, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	drained := make(chan bool, 1)
	go func() { drained <- front.Drain(ctx) }()
	_, err = s.Recv()
	wantDraining(t, err, "the gateway is draining; reconnect")
	if !<-drained {
		t.Error("it was cut")
	}
}

func TestAStreamThatLeavesAnswersWhatHasComeAndRefusesWhatComes(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	f := &fake{do: func(_ context.Context, c *inference.Call) error {
		close(began)
		<-release
		return c.Send(response(c))
	}}
	front, address := serveWith(t, f, Options{})
	conn := client(t, address)
	s, err := tritonpb.NewGRPCInferenceServiceClient(conn).ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&tritonpb.ModelInferRequest{ModelName: "m", Id: "before"}); err != nil {
		t.Fatal(err)
	}
	<-began
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	drained := make(chan bool, 1)
	go func() { drained <- front.Drain(ctx) }()
	<-front.serving.Done()
	if err := s.Send(&tritonpb.ModelInferRequest{ModelName: "m", Id: "after"}); err != nil {
		t.Fatal(err)
	}
	for late := time.Now().Add(patience); f.refused.Load() == 0; runtime.Gosched() { // the refusal waits for its turn
		if time.Now().After(late) {
			t.Fatal("it was not refused")
		}
	}
	close(release)
	for _, want := range []string{"before", "after"} {
		r, err := s.Recv()
		if err != nil || (r.ErrorMessage != "") != (want == "after") || r.InferResponse.GetId() != want {
			t.Fatalf("in place of %s: %v, %v", want, r, err)
		}
		if want == "after" && r.ErrorMessage != "the gateway is draining; reconnect" {
			t.Errorf("it was refused with %q", r.ErrorMessage)
		}
	}
	_, err = s.Recv()
	wantDraining(t, err, "the gateway is draining; reconnect")
	if !<-drained {
		t.Error("it was cut")
	}
}

func TestAClientThatIsDoneEndsItsStreamWellDuringADrain(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	front, address := serveWith(t, &fake{do: func(_ context.Context, c *inference.Call) error {
		close(began)
		<-release
		return c.Send(response(c))
	}}, Options{})
	s, err := inferencepb.NewInferenceServiceClient(client(t, address)).PredictStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&inferencepb.PredictionRequest{ModelName: "m"}); err != nil {
		t.Fatal(err)
	}
	_ = s.CloseSend()
	<-began
	go front.Drain(t.Context())
	<-front.serving.Done()
	close(release)
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v", err)
	}
}

func TestWhatIsLeftAtTheEndOfTheGraceIsToldWhyItIsCut(t *testing.T) {
	began, ended := make(chan struct{}), make(chan struct{})
	front, address := serveWith(t, &fake{do: func(ctx context.Context, _ *inference.Call) error {
		close(began)
		<-ctx.Done()
		close(ended)
		return context.Cause(ctx)
	}}, Options{})
	s, err := tritonpb.NewGRPCInferenceServiceClient(client(t, address)).ModelStreamInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&tritonpb.ModelInferRequest{ModelName: "m"}); err != nil {
		t.Fatal(err)
	}
	<-began
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if front.Drain(ctx) {
		t.Error("it says that all has finished")
	}
	_, err = s.Recv()
	wantDraining(t, err, "not answered in time")
	<-ended
}

func TestOnceItLeavesHealthSaysSoForGood(t *testing.T) {
	front, address := serveWith(t, &fake{}, Options{})
	health := healthpb.NewHealthClient(client(t, address))
	watch, err := health.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: predictName})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := watch.Recv(); err != nil || r.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatal(r, err)
	}
	front.Leave()
	front.SetServing(true) // of a start that is just becoming ready
	if r, err := watch.Recv(); err != nil || r.Status != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("watch: %v, %v", r, err)
	}
	if r, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil || r.Status != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("check: %v, %v", r, err)
	}
}

func TestAnOldStreamEndsWithAReasonAndNotBeforeItsAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const age = 30 * time.Minute
		front := New(Options{Pipeline: &fake{do: func(_ context.Context, c *inference.Call) error {
			if c.Head.ID == "slow" {
				<-time.After(age + streamGrace) // longer than the stream may last
			}
			return c.Send(response(c))
		}}, MaxMessage: maxMessage, Log: slog.New(slog.DiscardHandler), MaxAge: age})
		l := bufconn.Listen(1 << 20)
		var served sync.WaitGroup
		served.Go(func() { _ = front.Serve(l) })
		conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithIdleTimeout(0),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		s, err := tritonpb.NewGRPCInferenceServiceClient(conn).ModelStreamInfer(ctx)
		if err != nil {
			t.Fatal(err)
		}
		watch, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := watch.Recv(); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if err := s.Send(&tritonpb.ModelInferRequest{ModelName: "m", Id: "slow"}); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Recv(); err != nil || r.InferResponse.Id != "slow" || time.Since(begin) < age+streamGrace {
			t.Errorf("after %s: %v, %v", time.Since(begin), r, err)
		}
		_, err = s.Recv()
		wantDraining(t, err, "max_connection_age")
		_, err = watch.Recv()
		wantDraining(t, err, "max_connection_age")
		cancel()
		_ = conn.Close()
		front.Drain(context.Background())
		served.Wait()
	})
}

// rawClient is a client that speaks HTTP/2 by hand.
type rawClient struct {
	net.Conn
	*http2.Framer
	read *bufio.Reader
}

// raw connects, and sends what HTTP/2 begins with.
func raw(t *testing.T, address string) *rawClient {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(5 * patience)) // what never comes is not waited for
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	r := &rawClient{Conn: c, read: bufio.NewReader(c)}
	r.Framer = http2.NewFramer(c, r.read)
	return r
}

// goAway reads frames until the server says to go away. It answers pings.
func (r *rawClient) goAway(t *testing.T) *http2.GoAwayFrame {
	t.Helper()
	for {
		f, err := r.ReadFrame()
		if err != nil {
			t.Fatalf("the connection ended without a GOAWAY: %v", err)
		}
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			return f
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = r.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = r.WritePing(true, f.Data)
			}
		}
	}
}

// wantEnd fails unless the server closes the connection.
func (r *rawClient) wantEnd(t *testing.T) {
	t.Helper()
	if _, err := io.Copy(io.Discard, r.read); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("the connection ended with %v", err)
	}
}

func TestIdleConnectionsAreToldToGoAway(t *testing.T) {
	front, address := serveWith(t, &fake{}, Options{})
	r := raw(t, address)
	if err := r.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	if f, err := r.ReadFrame(); err != nil || f.Header().Type != http2.FrameSettings {
		t.Fatal(f, err)
	}
	if err := r.WriteSettingsAck(); err != nil {
		t.Fatal(err)
	}
	go front.Drain(t.Context())
	if f := r.goAway(t); f.ErrCode != http2.ErrCodeNo {
		t.Errorf("told to go away with %v", f)
	}
	if f := r.goAway(t); f.ErrCode != http2.ErrCodeNo || f.LastStreamID != 0 {
		t.Errorf("told to go away with %v", f)
	}
	r.wantEnd(t)
}

func TestAnOldConnectionIsToldToGoAway(t *testing.T) {
	_, address := serveWith(t, &fake{}, Options{MaxAge: 100 * time.Millisecond})
	r := raw(t, address)
	if err := r.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	if f := r.goAway(t); f.ErrCode != http2.ErrCodeNo || string(f.DebugData()) != "max_age" {
		t.Errorf("told to go away with %v %q", f, f.DebugData())
	}
	r.goAway(t)
	r.wantEnd(t)
}

func TestAClientThatPingsTooOftenIsToldSoAndCutOff(t *testing.T) {
	_, address := serveWith(t, &fake{}, Options{})
	r := raw(t, address)
	if err := r.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	for i := range byte(4) { // the first is free, two more are forgiven
		if err := r.WritePing(false, [8]byte{i}); err != nil {
			t.Fatal(err)
		}
	}
	if f := r.goAway(t); f.ErrCode != http2.ErrCodeEnhanceYourCalm || string(f.DebugData()) != "too_many_pings" {
		t.Errorf("told to go away with %v %q", f, f.DebugData())
	}
	r.wantEnd(t)
}

func TestAConnectionThatBeginsAndThenSaysNothingIsClosed(t *testing.T) {
	_, address := serveWith(t, &fake{}, Options{Handshake: 50 * time.Millisecond})
	for name, rest := range map[string]string{"no SETTINGS": "", "half of a frame": "\x00\x00\x06\x04\x00"} {
		r := raw(t, address)
		if _, err := io.WriteString(r.Conn, rest); err != nil {
			t.Fatal(err)
		}
		t.Log(name)
		r.wantEnd(t)
	}
}

// headers of a call, as HPACK.
func callHeaders(extra ...hpack.HeaderField) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: "/" + kserveName + "/ModelInfer"},
		{Name: ":authority", Value: "x"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
	}, extra...) {
		_ = e.WriteField(f)
	}
	return b.Bytes()
}

func TestHeadersThatNeverEndEndTheConnection(t *testing.T) {
	_, address := serveWith(t, &fake{}, Options{PingIdle: time.Second, PingTimeout: 200 * time.Millisecond})
	r := raw(t, address)
	if err := r.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: callHeaders(), EndHeaders: false}); err != nil {
		t.Fatal(err)
	}
	dribble := time.NewTicker(100 * time.Millisecond) // what it dribbles on is no sign of life
	defer dribble.Stop()
	ended := make(chan struct{})
	go func() { r.wantEnd(t); close(ended) }()
	var field bytes.Buffer
	e := hpack.NewEncoder(&field)
	for i := 0; ; i++ {
		select {
		case <-ended:
			return
		case <-dribble.C:
			field.Reset()
			_ = e.WriteField(hpack.HeaderField{Name: fmt.Sprint("x-", i), Value: "y"})
			_ = r.WriteContinuation(1, false, field.Bytes())
		}
	}
}

func TestFloodsOfHeadersAreBounded(t *testing.T) {
	f := &fake{do: echoing}
	_, address := serveWith(t, f, Options{})
	var many []hpack.HeaderField
	for i := range 60_000 {
		many = append(many, hpack.HeaderField{Name: fmt.Sprint("x-", i), Value: "y"})
	}
	block := callHeaders(many...)
	r := raw(t, address)
	if err := r.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	go func() {
		const frame = 16 << 10
		_ = r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:frame]})
		for rest := block[frame:]; len(rest) > 0; {
			n := min(frame, len(rest))
			if r.WriteContinuation(1, n == len(rest), rest[:n]) != nil {
				return
			}
			rest = rest[n:]
		}
	}()
	for {
		f, err := r.ReadFrame()
		if err != nil {
			return // the connection ends: no client sends that by mistake
		}
		if h, ok := f.(*http2.HeadersFrame); ok && h.StreamID == 1 { // or the call is refused
			return
		}
		if reset, ok := f.(*http2.RSTStreamFrame); ok && reset.StreamID == 1 {
			return
		}
	}
}
