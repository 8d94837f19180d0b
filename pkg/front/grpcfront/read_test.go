package grpcfront

import (
	"bytes"
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/room"
	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// serve serves f with room for messages, and gives its address and a connection to it.
func serve(t *testing.T, f *fake, r *room.Room, most int) (string, *grpc.ClientConn) {
	t.Helper()
	return serveUntaken(t, f, r, most, answerTimeout)
}

// serveUntaken is serve with another limit on how long answers may wait for their clients.
func serveUntaken(t *testing.T, f *fake, r *room.Room, most int, timeout time.Duration) (string, *grpc.ClientConn) {
	t.Helper()
	front := New(Options{Pipeline: f, Control: fakeControl{f}, MaxMessage: most, Room: r, Log: slog.New(slog.DiscardHandler)})
	front.answerTimeout = timeout
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { _ = front.Serve(l) })
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		front.Drain(ctx)
		served.Wait()
		if s := r.State(); s.Bytes != 0 || s.Reads != 0 || s.Waiting != 0 {
			t.Errorf("in the end there is still %+v", s)
		}
	})
	return l.Addr().String(), conn
}

func roomy() *room.Room { return room.New(room.Options{Bytes: 1 << 30}) }

// settled waits until the room is empty again: answers are given back when they are on the wire, which is after their call.
func settled(t *testing.T, r *room.Room) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		s := r.State()
		if s.Bytes == 0 && s.Reads == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("still held: %+v", s)
		}
		<-time.After(time.Millisecond)
	}
}

func TestMessagesOfAllSizesAreReadAsTheyWereSentCompressedOrNot(t *testing.T) {
	const most = 8 << 20
	r := roomy()
	_, conn := serve(t, &fake{do: func(_ context.Context, c *inference.Call) error {
		if s := r.State(); s.Bytes != int64(c.Request.Len()) {
			t.Errorf("a message of %d bytes is held as %d", c.Request.Len(), s.Bytes)
		}
		if cap(c.Request.Buf)-len(c.Request.Buf) < inference.Headroom {
			t.Error("there is no room for what is put behind the message")
		}
		b, _ := proto.Marshal(&inferencepb.PredictionResponse{OutputTensor: c.Request.Buf.Materialize()})
		return c.Send(inference.NewFrame(b))
	}}, r, most)
	client := inferencepb.NewInferenceServiceClient(conn)
	for _, size := range []int{0, 1, 1000, 64 << 10, 64<<10 + 1, 1 << 20, 3<<20 + 7} {
		tensor := make([]byte, size)
		_, _ = rand.Read(tensor[:size/2])
		want := &inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: tensor}
		for _, options := range [][]grpc.CallOption{nil, {grpc.UseCompressor("gzip")}} {
			a, err := client.Predict(t.Context(), want, options...)
			if err != nil {
				t.Fatalf("%d bytes, %d options: %v", size, len(options), err)
			}
			var got inferencepb.PredictionRequest
			if err := proto.Unmarshal(a.OutputTensor, &got); err != nil || !proto.Equal(&got, want) {
				t.Errorf("%d bytes, %d options: another message arrived (%v)", size, len(options), err)
			}
			settled(t, r)
		}
	}
	for _, options := range [][]grpc.CallOption{nil, {grpc.UseCompressor("gzip")}} {
		_, err := client.Predict(t.Context(), &inferencepb.PredictionRequest{InputTensor: make([]byte, most)}, options...)
		if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "8388608") {
			t.Errorf("%d options: %v", len(options), err)
		}
		settled(t, r)
	}
}

func TestAMessageThatThereIsNoRoomForIsRefusedAndIsWorthSendingAgain(t *testing.T) {
	r := room.New(room.Options{Bytes: 4 << 20, Wait: 20 * time.Millisecond})
	_, conn := serve(t, &fake{do: func(_ context.Context, c *inference.Call) error {
		return c.Send(inference.NewFrame(nil))
	}}, r, 4<<20)
	client := inferencepb.NewInferenceServiceClient(conn)
	r.Charge(4 << 20)
	_, err := client.Predict(t.Context(), &inferencepb.PredictionRequest{InputTensor: make([]byte, 100_000)})
	s := status.Convert(err)
	var reason string
	retry := false
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			reason = d.Reason
		case *errdetails.RetryInfo:
			retry = d.RetryDelay.AsDuration() > 0
		}
	}
	if s.Code() != codes.ResourceExhausted || reason != "MEMORY" || !retry || !strings.Contains(s.Message(), "listen.max_bytes_held") {
		t.Errorf("%v, reason %s, with a time to try again: %v", err, reason, retry)
	}
	r.Discharge(4 << 20)
	if _, err := client.Predict(t.Context(), &inferencepb.PredictionRequest{InputTensor: make([]byte, 3<<20)}); err != nil {
		t.Errorf("with room: %v", err)
	}
	settled(t, r)
}

func TestAMessageOfAStreamThatThereIsNoRoomForIsRefusedInItsPlaceAndTheStreamLivesOn(t *testing.T) {
	r := room.New(room.Options{Bytes: 4 << 20, Wait: 20 * time.Millisecond})
	f := &fake{do: func(_ context.Context, c *inference.Call) error {
		b, _ := proto.Marshal(&inferencepb.PredictionResponse{Status: "OK"})
		return c.Send(inference.NewFrame(b))
	}}
	_, conn := serve(t, f, r, 4<<20)
	s, err := inferencepb.NewInferenceServiceClient(conn).PredictStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"OK", "ERROR: MEMORY: ", "OK"} {
		full := want != "OK"
		if full {
			r.Charge(4 << 20)
		}
		if err := s.Send(&inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: make([]byte, 2<<20)}); err != nil {
			t.Fatal(err)
		}
		a, err := s.Recv()
		if err != nil || !strings.HasPrefix(a.Status, want) {
			t.Fatalf("message %d: %v %v, want %s", i, a, err, want)
		}
		if full {
			r.Discharge(4 << 20)
		}
	}
	if f.refused.Load() != 1 {
		t.Errorf("%d refusals were counted", f.refused.Load())
	}
	_ = s.CloseSend()
	settled(t, r)
}

func TestALargeAnswerCountsUntilItsClientHasTakenIt(t *testing.T) {
	const size = 8 << 20
	r := roomy()
	_, conn := serve(t, &fake{do: func(_ context.Context, c *inference.Call) error {
		b, _ := proto.Marshal(&inferencepb.PredictionResponse{OutputTensor: make([]byte, size)})
		return c.Send(inference.NewFrame(b))
	}}, r, 16<<20)
	s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, inferencepb.InferenceService_Predict_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SendMsg(&inferencepb.PredictionRequest{ModelName: "fraud"}); err != nil {
		t.Fatal(err)
	}
	_ = s.CloseSend()
	if _, err := s.Header(); err != nil { // the answer is on its way, and its client takes none of it
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); r.State().Bytes < size; {
		if time.Now().After(end) {
			t.Fatalf("held are %+v", r.State())
		}
		<-time.After(time.Millisecond)
	}
	var a inferencepb.PredictionResponse
	if err := s.RecvMsg(&a); err != nil || !bytes.Equal(a.OutputTensor, make([]byte, size)) {
		t.Fatal(err)
	}
	settled(t, r)
	// One that is never taken ends with its client.
	ctx, cancel := context.WithCancel(t.Context())
	s, err = conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, inferencepb.InferenceService_Predict_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.SendMsg(&inferencepb.PredictionRequest{ModelName: "fraud"})
	if _, err := s.Header(); err != nil {
		t.Fatal(err)
	}
	cancel()
	settled(t, r)
}

func TestWhatIsNoMessageIsRefused(t *testing.T) {
	_, conn := serve(t, &fake{}, roomy(), 1<<20)
	s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, tritonpb.GRPCInferenceService_ModelInfer_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.CloseSend()
	if err := s.RecvMsg(&inferencepb.PredictionResponse{}); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "send one") {
		t.Error(err)
	}
}
