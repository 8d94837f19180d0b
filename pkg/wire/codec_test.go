package wire

import (
	"bytes"
	"context"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

func TestAFrameIsReceivedByReferenceWithHeadroom(t *testing.T) {
	l := newLedger(t)
	data := l.frame([]byte("0123456789"), 3).Buf
	data = data[:len(data):len(data)]
	var f inference.Frame
	if err := (Codec{}).Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	data.Free() // as gRPC does
	if string(f.Buf.Materialize()) != "0123456789" || cap(f.Buf)-len(f.Buf) < inference.Headroom {
		t.Fatalf("%d buffers with room for %d", len(f.Buf), cap(f.Buf))
	}
	f.Free()
	l.settled()
}

func TestASentFrameStaysWithItsOwner(t *testing.T) {
	l := newLedger(t)
	f := l.frame([]byte("0123456789"), 3)
	f.Buf = slices.Grow(f.Buf, inference.Headroom) // where both would append, if they could
	data, err := (Codec{}).Marshal(&f)
	if err != nil {
		t.Fatal(err)
	}
	f.Append([]byte("more"))
	_ = append(data, mem.SliceBuffer("theirs"))
	if string(f.Buf.Materialize()) != "0123456789more" {
		t.Fatal("the owner's frame has changed")
	}
	f.Free()
	if string(data.Materialize()) != "0123456789" {
		t.Fatal("what is being sent has changed")
	}
	data.Free()
	l.settled()
}

func TestAGivenFrameIsGone(t *testing.T) {
	l := newLedger(t)
	f := l.frame([]byte("0123456789"), 3)
	data, err := (Codec{}).Marshal(Give{&f})
	if err != nil {
		t.Fatal(err)
	}
	if !f.Empty() {
		t.Fatal("the frame still has its buffers")
	}
	f.Free()
	if string(data.Materialize()) != "0123456789" {
		t.Fatal("what is being sent has changed")
	}
	data.Free()
	l.settled()
}

func TestProtobufMessagesPassAsUsual(t *testing.T) {
	for _, size := range []int{0, 10, 5000} {
		want := &tritonpb.ModelInferRequest{ModelName: "m", RawInputContents: [][]byte{make([]byte, size)}}
		data, err := (Codec{}).Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		for _, cut := range []int{7, 10_000} {
			l := newLedger(t)
			f := l.frame(data.Materialize(), cut)
			var got tritonpb.ModelInferRequest
			err := (Codec{}).Unmarshal(f.Buf, &got)
			f.Free()
			l.settled()
			if err != nil || !proto.Equal(&got, want) {
				t.Fatal(err)
			}
		}
		data.Free()
	}
}

func TestTheCodecRefusesWhatItCannotCarry(t *testing.T) {
	if _, err := (Codec{}).Marshal(42); err == nil || !strings.Contains(err.Error(), "int") {
		t.Fatal(err)
	}
	var n int
	if err := (Codec{}).Unmarshal(nil, &n); err == nil || !strings.Contains(err.Error(), "*int") {
		t.Fatal(err)
	}
	for _, size := range []int{10, 5000} {
		bad := &tritonpb.ModelReadyRequest{Name: strings.Repeat("\xff", size)}
		if _, err := (Codec{}).Marshal(bad); err == nil {
			t.Fatal("a string that is not UTF-8 was sent")
		}
	}
	if err := (Codec{}).Unmarshal(inference.NewFrame([]byte{0xff}).Buf, &tritonpb.ModelReadyRequest{}); err == nil {
		t.Fatal("a malformed message was received")
	}
}

// serve starts a server that gives frames back as they came, with health and reflection, and a client of it.
func serve(t *testing.T) *grpc.ClientConn {
	t.Helper()
	echo := func(_ any, s grpc.ServerStream) error {
		var f inference.Frame
		if err := s.RecvMsg(&f); err != nil {
			return err
		}
		f.Append(AppendID(nil, "echo"))
		return s.SendMsg(Give{&f})
	}
	s := grpc.NewServer(grpc.ForceServerCodecV2(Codec{}), grpc.UnknownServiceHandler(echo), grpc.MaxRecvMsgSize(32<<20))
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	reflection.Register(s)
	listener := bufconn.Listen(1 << 20)
	done := make(chan error, 1)
	go func() { done <- s.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///bufconn",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(Codec{}), grpc.MaxCallRecvMsgSize(32<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return conn
}

func TestFramesAndMessagesShareAConnection(t *testing.T) {
	conn := serve(t)
	ctx := t.Context()
	for _, size := range []int{0, 100, 70_000, 5 << 20} {
		tensor := bytes.Repeat([]byte("tensor"), size/6+1)[:size]
		f := inference.NewFrame(encode(t, &tritonpb.ModelInferRequest{ModelName: "m", RawInputContents: [][]byte{tensor}}))
		var back inference.Frame
		if err := conn.Invoke(ctx, "/inference.GRPCInferenceService/ModelInfer", &f, &back); err != nil {
			t.Fatal(err)
		}
		r := decode(t, back, &tritonpb.ModelInferRequest{})
		if r.GetId() != "echo" || !bytes.Equal(r.GetRawInputContents()[0], tensor) {
			t.Fatalf("a tensor of %d bytes came back changed", size)
		}
		back.Free()
	}
	if r, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil || r.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Fatal(r, err)
	}
	stream, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	if r, err := stream.Recv(); err != nil || len(r.GetListServicesResponse().GetService()) == 0 {
		t.Fatal(r, err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
}
