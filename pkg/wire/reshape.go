package wire

import (
	"slices"

	"google.golang.org/grpc/mem"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// span is a part of a frame, in bytes.
type span struct{ off, n int }

// piece is a part of a frame put together anew: bytes of our own, then a span of what the frame was.
type piece struct {
	head []byte // must not be written again; may be empty
	span
}

// reshape makes f the pieces one after the other, in place: what a span covers stays where it is in memory, buffers
// that no span touches are freed. Spans are in ascending order, do not overlap, and are within f.
func reshape(f *inference.Frame, pieces []piece) {
	// The old buffers move to the end of the list and the new ones are written from its front. A piece writes at most
	// one more buffer than it reads for its head, and one more when its span begins in the buffer where the span
	// before it ended. So much is the move, so that the writing never overtakes the reading.
	extra := max(len(pieces)-1, 0)
	for i := range pieces {
		if len(pieces[i].head) > 0 {
			extra++
		}
	}
	count := len(f.Buf)
	list := slices.Grow(f.Buf, extra)[:count+extra]
	copy(list[extra:], f.Buf)
	r := reader{rest: list[extra:]}
	w := list[:0]
	for i := range pieces {
		if len(pieces[i].head) > 0 {
			w = append(w, mem.SliceBuffer(pieces[i].head))
		}
		w = r.take(w, pieces[i].span)
	}
	r.free()
	clear(list[len(w):]) // no references to freed buffers stay behind the list
	f.Buf = w
}

// reader hands out the buffers of a frame and owns those it has not handed out. The current one is kept here, since
// its place in the list may be written already.
type reader struct {
	current mem.Buffer // nil before the first and when it has been handed out or freed
	base    int        // offset in the frame of current, or of rest[0] without a current
	rest    mem.BufferSlice
}

// take appends to w the buffers of s: whole ones as they are, parts as views. It frees what lies before s.
func (r *reader) take(w mem.BufferSlice, s span) mem.BufferSlice {
	for off, end := s.off, s.off+s.n; off < end; off = max(off, r.base) {
		if r.current == nil {
			r.current, r.rest = r.rest[0], r.rest[1:]
		}
		b, n := r.current, r.current.Len()
		from, to := off-r.base, min(end-r.base, n)
		if from == 0 && to == n && n > 0 {
			w = append(w, b)
		} else {
			if from < to {
				w = append(w, b.Slice(from, to))
			}
			if to < n {
				return w // the next span may want the rest
			}
			b.Free()
		}
		r.current, r.base = nil, r.base+n
	}
	return w
}

// free frees what has not been handed out.
func (r *reader) free() {
	if r.current != nil {
		r.current.Free()
	}
	r.rest.Free()
}
