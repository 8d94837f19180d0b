package room

import (
	"context"
	"sync"
	"time"
)

// slow is how long a message may take its place among those being read, and room for what of it has not come yet.
const slow = time.Second

// Hold is the room that one message takes. The zero Hold takes none. It must not be copied once it is used, and belongs to
// one goroutine at a time.
type Hold struct {
	room  *Room
	timer *time.Timer // of messages that are not small, while they are read

	mu    sync.Mutex // where there is a timer
	bytes int64      // held
	come  int64      // of them, what has come or is about to
	place bool       // it is one of the reads

	answered bool // its bytes count as those of an answer
}

// Begin takes room for the message of so many bytes that is about to be read, and waits where there is none. size is -1 where
// it is not known. The error is ErrFull, or that of ctx; nothing is held then.
func (h *Hold) Begin(ctx context.Context, r *Room, size int) error {
	if r == nil {
		return nil
	}
	bytes, reads := int64(size), int64(0)
	if size < 0 {
		bytes = Small
	}
	if size < 0 || size > Small {
		reads = 1
	}
	if err := r.take(ctx, want{bytes: bytes, limit: r.bytes, reads: reads, small: reads == 0}); err != nil {
		return err
	}
	h.room, h.bytes = r, bytes
	if reads > 0 {
		h.come, h.place = min(bytes, First), true
		h.timer = time.AfterFunc(slow, h.isSlow)
	}
	return nil
}

// isSlow gives back the place among the reads, and the room for what has not come yet: a client that announces much and
// sends little must not keep others from being read.
func (h *Hold) isSlow() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.place {
		h.place = false
		less := h.bytes - h.come
		h.bytes = h.come
		h.room.give(less, 1)
	}
}

// Need sees to it that so many bytes in all are held, for the next part of a message that has begun. It waits where there
// is no room; the error is ErrFull, or that of ctx, and what was held stays.
func (h *Hold) Need(ctx context.Context, bytes int) error {
	if h.room == nil {
		return nil
	}
	h.mu.Lock()
	h.come = max(h.come, int64(bytes))
	more := h.come - h.bytes
	if more <= 0 {
		h.mu.Unlock()
		return nil
	}
	h.come = h.bytes
	h.mu.Unlock()
	if err := h.room.take(ctx, want{bytes: more, limit: 2 * h.room.bytes}); err != nil {
		return err
	}
	h.mu.Lock()
	h.bytes += more
	h.come = h.bytes
	h.mu.Unlock()
	return nil
}

// Read says that the message has been read and has so many bytes, for which there is room or not.
func (h *Hold) Read(bytes int) {
	if h.room != nil {
		h.end(int64(bytes))
	}
}

// Answered says that the message has its answer, which its client has to take: what is held from here on is held by that
// client. It comes after Read, and may be called more than once.
func (h *Hold) Answered() {
	if h.room == nil || h.answered || h.timer != nil {
		return
	}
	h.answered = true
	h.room.answers.Add(h.bytes)
	h.room.wake()
}

// Free gives back everything. It may be called more than once.
func (h *Hold) Free() {
	if h.room != nil {
		h.end(0)
	}
}

// end ends the reading, after which so much is held.
func (h *Hold) end(bytes int64) {
	reads := int64(0)
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
		h.mu.Lock()
		if h.place {
			h.place, reads = false, 1
		}
		h.mu.Unlock() // from here on isSlow does nothing
	}
	if less := h.bytes - bytes; less != 0 || reads != 0 {
		h.bytes = bytes
		if h.answered {
			h.room.answers.Add(-less)
		}
		h.room.give(less, reads)
	}
}
