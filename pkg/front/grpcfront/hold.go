package grpcfront

import (
	"google.golang.org/grpc/mem"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/room"
)

// holdAnswer counts a large answer as held until its last part is on the wire: gRPC takes an answer at once, and keeps it
// for as long as the client likes to take.
func (f *Front) holdAnswer(answer *inference.Frame) {
	if f.opts.Room == nil || len(answer.Buf) == 0 {
		return
	}
	size := answer.Len()
	if size <= room.Small {
		return
	}
	for i := len(answer.Buf) - 1; i >= 0; i-- {
		last := answer.Buf[i]
		data := last.ReadOnlyData()
		if mem.IsBelowBufferPoolingThreshold(cap(data)) {
			continue // gRPC does not tell when such a small one is free
		}
		f.opts.Room.Charge(size)
		answer.Buf[i] = mem.NewBuffer(&data, &taken{room: f.opts.Room, size: size, buffer: last})
		return
	}
}

// taken is told when the client has taken an answer: it is the pool of one of its buffers.
type taken struct {
	room   *room.Room
	size   int
	buffer mem.Buffer
}

// Get implements mem.BufferPool. Nobody gets a buffer here.
func (*taken) Get(length int) *[]byte { return mem.DefaultBufferPool().Get(length) }

// Put implements mem.BufferPool.
func (t *taken) Put(*[]byte) {
	t.buffer.Free()
	t.room.Discharge(t.size)
}
