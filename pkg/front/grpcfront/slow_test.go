package grpcfront

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/room"
	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
)

// tricklers are clients that begin messages of 1 MiB on many streams, send a part of each, and then nothing. They speak
// HTTP/2 by hand, so that they take hardly any memory themselves.
type tricklers struct {
	conns []net.Conn
	ended atomic.Int64 // streams that the server has ended
	wg    sync.WaitGroup
}

const (
	frameData, frameHeaders, frameReset, frameSettings, framePing, frameWindow = 0, 1, 3, 4, 6, 8
	part                                                                       = 16 << 10
)

func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	b := make([]byte, 9, 9+len(payload))
	b[0], b[1], b[2] = byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload))
	b[3], b[4] = kind, flags
	binary.BigEndian.PutUint32(b[5:], stream)
	return append(b, payload...)
}

// headersOf begins a Predict; each header is a literal without an index.
func headersOf() []byte {
	var b []byte
	for _, h := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", inferencepb.InferenceService_Predict_FullMethodName},
		{":authority", "gateway"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		b = append(append(b, 0, byte(len(h[0]))), h[0]...)
		b = append(append(b, byte(len(h[1]))), h[1]...)
	}
	return b
}

// trickle opens connections with streams each, and returns when all have sent so much of their messages as they are going to.
func trickle(t *testing.T, address string, conns, streams, sent int) *tricklers {
	t.Helper()
	tr := &tricklers{}
	var sending sync.WaitGroup
	for range conns {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		tr.conns = append(tr.conns, c)
		sending.Go(func() { tr.talk(t, c, streams, sent) })
	}
	sending.Wait()
	return tr
}

func (tr *tricklers) talk(t *testing.T, c net.Conn, streams, sent int) {
	var mu sync.Mutex
	more := sync.NewCond(&mu)
	window, gone := 65535, make(map[uint32]bool)
	closed := false
	write := func(b []byte) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = c.Write(b)
	}
	write(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(frameSettings, 0, 0, nil)...))
	tr.wg.Go(func() {
		defer func() { mu.Lock(); closed = true; mu.Unlock(); more.Broadcast() }()
		head, payload := make([]byte, 9), make([]byte, part)
		for {
			if _, err := io.ReadFull(c, head); err != nil {
				return
			}
			n := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
			if _, err := io.ReadFull(c, payload[:n]); err != nil {
				return
			}
			stream := binary.BigEndian.Uint32(head[5:])
			switch {
			case head[3] == frameSettings && head[4] == 0:
				write(frame(frameSettings, 1, 0, nil))
			case head[3] == framePing && head[4] == 0:
				write(frame(framePing, 1, 0, payload[:8]))
			case head[3] == frameWindow && stream == 0:
				mu.Lock()
				window += int(binary.BigEndian.Uint32(payload))
				mu.Unlock()
				more.Broadcast()
			case head[3] == frameReset, head[3] == frameHeaders && head[4]&1 == 1:
				mu.Lock()
				if !gone[stream] {
					gone[stream] = true
					tr.ended.Add(1)
				}
				mu.Unlock()
			}
		}
	})
	headers, data := headersOf(), make([]byte, part)
	for i := range streams {
		write(frame(frameHeaders, 4, uint32(2*i+1), headers)) //nolint:gosec // small numbers, here and below
	}
	for at := 0; at < sent; at += part {
		for i := range streams {
			stream := uint32(2*i + 1) //nolint:gosec // small
			b := data
			if at == 0 {
				b = make([]byte, part)
				binary.BigEndian.PutUint32(b[1:], 1<<20) // a message of 1 MiB
			}
			mu.Lock()
			for window < part && !closed {
				more.Wait()
			}
			if closed {
				mu.Unlock()
				return
			}
			if !gone[stream] {
				window -= part
				_, _ = c.Write(frame(frameData, 0, stream, b))
			}
			mu.Unlock()
		}
	}
}

func (tr *tricklers) leave() {
	for _, c := range tr.conns {
		_ = c.Close()
	}
	tr.wg.Wait()
}

// heapWhile gives the most that lives on the heap while do runs, beyond what lived there before.
func heapWhile(do func()) int64 {
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	live := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc) //nolint:gosec // fits
	}
	before, most := live(), int64(0)
	done := make(chan struct{})
	var sampling sync.WaitGroup
	sampling.Go(func() {
		for {
			most = max(most, live()-before)
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	func() {
		defer sampling.Wait() // also when do ends the test
		defer close(done)
		do()
	}()
	return max(most, live()-before)
}

// Ten thousand clients, each of which has sent a part of a large message; in the short form a thousand. Without room being
// looked at, all that they have sent would be held.
func TestThousandsOfSlowClientsFillNoMoreThanTheirRoom(t *testing.T) {
	conns, streams, sent := 10, 100, 192<<10
	if os.Getenv("SLOW") != "" {
		conns = 100
	}
	const most = 16 << 20
	sentInAll := int64(conns * streams * sent)
	r := room.New(room.Options{Bytes: most, Reads: 64})
	address, conn := serve(t, &fake{do: func(_ context.Context, c *inference.Call) error {
		return c.Send(inference.NewFrame(nil))
	}}, r, 4<<20)
	var tr *tricklers
	heap := heapWhile(func() {
		tr = trickle(t, address, conns, streams, sent)
		for end := time.Now().Add(patience); tr.ended.Load() < int64(conns*streams)-2*most/room.First; {
			if time.Now().After(end) {
				t.Fatalf("%d of %d slow clients were refused, %+v", tr.ended.Load(), conns*streams, r.State())
			}
			<-time.After(10 * time.Millisecond)
		}
	})
	defer settled(t, r)
	defer tr.leave()
	t.Logf("%d clients sent up to %d MiB in all; at most %d MiB were held, %d were refused", conns*streams, sentInAll>>20, heap>>20, tr.ended.Load())
	// What is read, what waits for as long as it may, as much again in the hands of those who take it apart, and per stream a bit.
	if limit := int64(4*most + conns*streams*(10<<10)); heap > limit {
		t.Errorf("%d MiB were held of %d, at most %d may be", heap>>20, sentInAll>>20, limit>>20)
	}
	// They hold all the room there is. When they are gone others are served.
	client := inferencepb.NewInferenceServiceClient(conn)
	if _, err := client.Predict(t.Context(), &inferencepb.PredictionRequest{ModelName: "fraud"}); status.Code(err) != codes.ResourceExhausted {
		t.Logf("a call beside them: %v", err)
	}
	tr.leave()
	settled(t, r)
	if _, err := client.Predict(t.Context(), &inferencepb.PredictionRequest{ModelName: "fraud"}); err != nil {
		t.Errorf("when they are gone: %v", err)
	}
}

func TestALargeMessageThatTakesTooLongEndsItsStreamAndGivesItsRoomBack(t *testing.T) {
	r := roomy()
	f := &fake{}
	front := New(Options{Pipeline: f, Control: fakeControl{f}, MaxMessage: 4 << 20, Room: r})
	front.readTimeout = 100 * time.Millisecond
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { _ = front.Serve(l) })
	tr := trickle(t, l.Addr().String(), 1, 3, part)
	for end := time.Now().Add(patience); tr.ended.Load() < 3; {
		if time.Now().After(end) {
			t.Fatalf("%d of 3 were ended", tr.ended.Load())
		}
		<-time.After(time.Millisecond)
	}
	settled(t, r)
	if f.refused.Load() != 3 {
		t.Errorf("%d were refused", f.refused.Load())
	}
	tr.leave()
	front.Drain(t.Context())
	served.Wait()
}

// A model that does not answer holds the messages that were sent to it, and no more are read than there is room for.
func TestASlowModelIsSentNoMoreThanThereIsRoomFor(t *testing.T) {
	const size, most = 1 << 20, 16 << 20
	r := room.New(room.Options{Bytes: most, Wait: 100 * time.Millisecond})
	answer := make(chan struct{})
	_, conn := serve(t, &fake{do: func(_ context.Context, c *inference.Call) error {
		<-answer
		return c.Send(inference.NewFrame(nil))
	}}, r, 4<<20)
	client := inferencepb.NewInferenceServiceClient(conn)
	tensor := make([]byte, size)
	var refused, ok, other atomic.Int64
	heap := heapWhile(func() {
		var calls sync.WaitGroup
		for range 150 {
			calls.Go(func() {
				_, err := client.Predict(t.Context(), &inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: tensor})
				switch {
				case err == nil:
					ok.Add(1)
				case strings.Contains(err.Error(), "max_bytes_held"):
					refused.Add(1)
				default:
					other.Add(1)
					t.Log(err)
				}
			})
		}
		for end := time.Now().Add(patience); refused.Load() < 150-2*most/size-1; {
			if time.Now().After(end) {
				t.Errorf("%d refused, %d others, %+v", refused.Load(), other.Load(), r.State())
				break
			}
			<-time.After(time.Millisecond)
		}
		close(answer)
		calls.Wait()
	})
	t.Logf("%d calls were answered and %d refused; at most %d MiB were held, the clients' own included", ok.Load(), refused.Load(), heap>>20)
	if ok.Load() < most/size || ok.Load() > 2*most/size+1 || other.Load() > 0 {
		t.Errorf("%d answered, %d refused, %d others", ok.Load(), refused.Load(), other.Load())
	}
}
