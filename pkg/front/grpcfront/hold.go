package grpcfront

import (
	"context"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/room"
)

// answerTimeout is how long a client may take for a large answer, and how long an answer may wait for those before it.
const answerTimeout = time.Minute

// holdAnswer counts a large answer as held until its last part is on the wire, or its connection is no more: gRPC takes an
// answer at once, and keeps it for as long as the client likes to take. It gives nil where nothing is counted.
func (f *Front) holdAnswer(ctx context.Context, answer *inference.Frame) *taken {
	if f.opts.Room == nil || len(answer.Buf) == 0 {
		return nil
	}
	size := answer.Len()
	if size <= room.Small {
		return nil
	}
	l := linkOf(ctx)
	if l == nil {
		return nil // not gRPC's own transport, which alone takes an answer before its client does
	}
	for i := len(answer.Buf) - 1; i >= 0; i-- {
		last := answer.Buf[i]
		data := last.ReadOnlyData()
		if mem.IsBelowBufferPoolingThreshold(cap(data)) {
			continue // gRPC does not tell when such a small one is free
		}
		if !l.charge(size) {
			return nil
		}
		// The timer knows the link and not the answer, which must not live on for it.
		t := &taken{link: l, size: size, buffer: last, timer: time.AfterFunc(f.answerTimeout, l.late)}
		answer.Buf[i] = mem.NewBuffer(&data, t)
		return t
	}
	return nil
}

// taken is told when the client has taken an answer: it is the pool of one of its buffers.
type taken struct {
	link   *link
	size   int
	buffer mem.Buffer
	timer  *time.Timer
	done   bool // under the link's lock
}

// sent says that gRPC has taken the answer, for which others before it had to be taken. Now it is the client's turn.
func (t *taken) sent() {
	if t == nil {
		return
	}
	t.link.mu.Lock()
	defer t.link.mu.Unlock()
	if !t.done && t.timer.Stop() {
		t.timer.Reset(t.link.front.answerTimeout)
	}
}

// Get implements mem.BufferPool. Nobody gets a buffer here.
func (*taken) Get(length int) *[]byte { return mem.DefaultBufferPool().Get(length) }

// Put implements mem.BufferPool.
func (t *taken) Put(*[]byte) {
	t.link.discharge(t)
	t.buffer.Free()
}

func (f *Front) untaken() error {
	return fault.New(fault.Memory, "answers of this stream were not taken within %v; read them as they come", f.answerTimeout)
}
