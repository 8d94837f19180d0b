package grpcfront

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/calm"
	"github.com/model-gateway/model-gateway/pkg/internal/room"
	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
)

const large = 3_600_000

// answering answers every message with so many bytes.
func answering(size int) *fake {
	return &fake{do: func(_ context.Context, c *inference.Call) error {
		b, _ := proto.Marshal(&inferencepb.PredictionResponse{OutputTensor: make([]byte, size)})
		return c.Send(inference.NewFrame(b))
	}}
}

// idler is a client of the stream method that sends so many messages of a size and takes no answer.
func idler(t *testing.T, conn *grpc.ClientConn, method string, messages, size int) grpc.ClientStream {
	t.Helper()
	s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		t.Fatal(err)
	}
	m := &inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: make([]byte, size)}
	for range messages {
		if err := s.SendMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// holds waits until at least so many bytes are held.
func holds(t *testing.T, r *room.Room, bytes int64) {
	t.Helper()
	if err := reaches(r, bytes, patience); err != nil {
		t.Fatal(err)
	}
}

// reaches waits for at most so long until at least so many bytes are held.
func reaches(r *room.Room, bytes int64, within time.Duration) error {
	for end := time.Now().Add(within); r.State().Bytes < bytes; {
		if time.Now().After(end) {
			return fmt.Errorf("held are only %+v, not %d bytes", r.State(), bytes)
		}
		<-time.After(time.Millisecond)
	}
	return nil
}

func TestAnswersHalfWrittenGiveTheirRoomBackWhenTheirConnectionDies(t *testing.T) {
	for _, method := range []string{inferencepb.InferenceService_Predict_FullMethodName, inferencepb.InferenceService_PredictStream_FullMethodName} {
		r := roomy()
		address, _ := serve(t, answering(large), r, 4<<20)
		for range 2 {
			const clients = 4
			messages := 1
			if method == inferencepb.InferenceService_PredictStream_FullMethodName {
				messages = 3
			}
			var conns []*grpc.ClientConn
			for range clients {
				conn := client(t, address)
				conns = append(conns, conn)
				s := idler(t, conn, method, messages, 10)
				if _, err := s.Header(); err != nil {
					t.Fatal(err)
				}
			}
			holds(t, r, clients*large)
			for _, conn := range conns {
				_ = conn.Close()
			}
			settled(t, r)
		}
	}
}

// Windows are wide open here, so that it is the connection itself that the server cannot write to.
func TestAnAnswerStuckInTheMiddleOfAFrameGivesItsRoomBackOnceItsClientIsGoneOrTooLate(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"gone": time.Minute, "late": time.Second} {
		t.Run(name, func(t *testing.T) {
			const size = 32 << 20         // more than sockets take
			calm.Moment(t, func() error { // in which it is seen that the answer is held
				r := roomy()
				address, _ := serveUntaken(t, answering(size), r, 40<<20, timeout)
				c := raw(t, address)
				if err := c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1}); err != nil {
					t.Fatal(err)
				}
				_ = c.WriteWindowUpdate(0, 1<<30)
				_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: callHeaders(), EndHeaders: true})
				if err := c.WriteData(1, true, make([]byte, 5)); err != nil { // an empty message
					t.Fatal(err)
				}
				err := reaches(r, size, 10*time.Second)
				if name == "gone" {
					_ = c.Conn.Close()
				}
				settled(t, r)
				return err
			})
		})
	}
}

func TestAnAnswerThatIsNotTakenInTimeEndsItsConnection(t *testing.T) {
	r := roomy()
	_, conn := serveUntaken(t, answering(large), r, 4<<20, time.Second)
	s := idler(t, conn, inferencepb.InferenceService_Predict_FullMethodName, 1, 10)
	if _, err := s.Header(); err != nil {
		t.Fatal(err)
	}
	settled(t, r)
	if err := s.RecvMsg(&inferencepb.PredictionResponse{}); status.Code(err) != codes.Unavailable {
		t.Errorf("its client is told %v", err)
	}
	calm.Moment(t, func() error { // it may come again, and take its answer in time
		_, err := inferencepb.NewInferenceServiceClient(conn).Predict(t.Context(), &inferencepb.PredictionRequest{ModelName: "fraud"}, grpc.WaitForReady(true))
		return err
	})
}

// narrow is a client whose windows do not grow.
func narrow(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithInitialWindowSize(1<<16))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestSmallCallsAreServedBesideMessagesWhoseAnswersWaitBehindUntakenOnes(t *testing.T) {
	const bound, size = 4 << 20, 1_500_000
	r := room.New(room.Options{Bytes: bound})
	address, conn := serve(t, answering(room.Small-100), r, bound)
	idle := narrow(t, address)
	idler(t, idle, inferencepb.InferenceService_PredictStream_FullMethodName, 7, size)
	holds(t, r, bound)
	others := inferencepb.NewInferenceServiceClient(conn)
	for i := range 20 {
		if _, err := others.Predict(t.Context(), &inferencepb.PredictionRequest{ModelName: "fraud"}); err != nil {
			t.Fatalf("call %d: %v, %+v", i, err, r.State())
		}
	}
	_ = idle.Close()
	settled(t, r)
}

func TestAStreamWhoseAnswersWaitTooLongEndsWithAReasonAndItsConnectionLivesOn(t *testing.T) {
	calm.Moment(t, func() error { return tooLong(t) })
}

// The error is that the moment was missed in which messages wait.
func tooLong(t *testing.T) error {
	r := roomy()
	address, _ := serveUntaken(t, answering(room.Small-100), r, 4<<20, time.Second)
	conn := narrow(t, address)
	s := idler(t, conn, inferencepb.InferenceService_PredictStream_FullMethodName, 8, 200_000)
	held := reaches(r, 4*200_000, 10*time.Second) // messages whose answers wait behind others
	settled(t, r)
	if held != nil {
		return held
	}
	took := 0
	for {
		err := s.RecvMsg(&inferencepb.PredictionResponse{})
		if err == nil {
			took++
			continue
		}
		if errors.Is(err, io.EOF) || status.Code(err) != codes.ResourceExhausted {
			t.Errorf("after %d answers the stream ended with %v", took, err)
		}
		break
	}
	if took >= 8 {
		t.Error("all answers were to be had")
	}
	if _, err := inferencepb.NewInferenceServiceClient(conn).Predict(t.Context(), &inferencepb.PredictionRequest{ModelName: "fraud"}); err != nil {
		return fmt.Errorf("another call: %w", err) // which has a second to take its answer, too
	}
	return nil
}

func TestSmallCallsAreServedWhileOtherClientsDoNotTakeTheirAnswers(t *testing.T) {
	const bound = 8 << 20
	r := room.New(room.Options{Bytes: bound})
	echo := &fake{do: func(_ context.Context, c *inference.Call) error {
		b, _ := proto.Marshal(&inferencepb.PredictionResponse{OutputTensor: make([]byte, c.Request.Len())})
		return c.Send(inference.NewFrame(b))
	}}
	address, conn := serve(t, echo, r, 4<<20)
	var idle []*grpc.ClientConn
	for i := range 3 {
		c := client(t, address)
		idle = append(idle, c)
		s := idler(t, c, inferencepb.InferenceService_PredictStream_FullMethodName, 1, large)
		if _, err := s.Header(); err != nil {
			t.Fatal(err)
		}
		holds(t, r, int64(i+1)*large)
	}
	others := inferencepb.NewInferenceServiceClient(conn)
	for i := range 100 {
		if _, err := others.Predict(t.Context(), &inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: make([]byte, 1000)}); err != nil {
			t.Fatalf("call %d: %v, %+v", i, err, r.State())
		}
	}
	if _, err := others.Predict(t.Context(), &inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: make([]byte, large)}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a large call: %v", err)
	}
	for _, c := range idle {
		_ = c.Close()
	}
	settled(t, r)
	if _, err := others.Predict(t.Context(), &inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: make([]byte, large)}); err != nil {
		t.Errorf("when they are gone: %v", err)
	}
}
