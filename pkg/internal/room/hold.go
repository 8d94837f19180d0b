package room

import (
	"context"
	"sync/atomic"
	"time"
)

// slow is how long a message may take its place among those being read.
const slow = time.Second

// Hold is the room that one message takes. The zero Hold takes none. It must not be copied once it is used, and belongs to
// one goroutine at a time.
type Hold struct {
	room  *Room
	bytes int64
	place atomic.Int32 // 1 while it is one of the reads
	timer *time.Timer
}

// Begin takes room for the message of so many bytes that is about to be read, or for its first chunk, and waits where there
// is none. size is -1 where it is not known. The error is ErrFull, or that of ctx; nothing is held then.
func (h *Hold) Begin(ctx context.Context, r *Room, size int) error {
	if r == nil {
		return nil
	}
	bytes, reads := min(int64(size), Chunk), int64(0)
	if size < 0 {
		bytes = Small
	}
	if size < 0 || size > Small {
		reads = 1
	}
	if err := r.take(ctx, bytes, r.bytes, reads); err != nil {
		return err
	}
	h.room, h.bytes = r, bytes
	if reads > 0 {
		h.place.Store(1)
		h.timer = time.AfterFunc(slow, func() { h.leave(r) })
	}
	return nil
}

// leave gives back the place among the reads. It may be called at any time.
func (h *Hold) leave(r *Room) {
	if h.place.CompareAndSwap(1, 0) {
		r.give(0, 1)
	}
}

// Need sees to it that so many bytes in all are held, for the next part of a message that has begun. It waits where there
// is no room; the error is ErrFull, or that of ctx, and what was held stays.
func (h *Hold) Need(ctx context.Context, bytes int) error {
	more := int64(bytes) - h.bytes
	if h.room == nil || more <= 0 {
		return nil
	}
	if err := h.room.take(ctx, more, 2*h.room.bytes, 0); err != nil {
		return err
	}
	h.bytes += more
	return nil
}

// Read says that the message has been read and has so many bytes, for which there is room or not.
func (h *Hold) Read(bytes int) {
	if h.room == nil {
		return
	}
	h.done()
	if less := h.bytes - int64(bytes); less != 0 {
		h.bytes = int64(bytes)
		h.room.give(less, 0)
	}
}

func (h *Hold) done() {
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
		h.leave(h.room)
	}
}

// Free gives back everything. It may be called more than once.
func (h *Hold) Free() {
	if h.room == nil {
		return
	}
	h.done()
	bytes := h.bytes
	h.bytes = 0
	if bytes != 0 {
		h.room.give(bytes, 0)
	}
	h.room = nil
}
