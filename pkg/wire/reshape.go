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
	// two more buffers than it reads, one for its head and one where its span shares a buffer with the span before,
	// so that with this much room the writing never overtakes the reading.
	count, extra := len(f.Buf), 2*len(pieces)
	list := slices.Grow(f.Buf, extra)[:count+extra]
	copy(list[extra:], f.Buf)
	r := reader{old: list[extra:]}
	w := list[:0]
	for i := range pieces {
		if len(pieces[i].head) > 0 {
			w = append(w, mem.SliceBuffer(pieces[i].head))
		}
		w = r.take(w, pieces[i].span)
	}
	r.freeRest()
	clear(list[len(w):]) // no references to freed buffers stay behind the list
	f.Buf = w
}

// reader hands out the buffers of a frame and owns those it has not handed out.
type reader struct {
	old  mem.BufferSlice
	base int // offset of old[0] in the frame
}

// take appends to w the buffers of s: whole ones as they are, parts as views. It frees what lies before s.
func (r *reader) take(w mem.BufferSlice, s span) mem.BufferSlice {
	end := s.off + s.n
	for s.off < end {
		b := r.old[0]
		n := b.Len()
		from, to := s.off-r.base, min(end-r.base, n)
		if from == 0 && to == n && n > 0 {
			w = append(w, b)
			r.next()
		} else {
			if from < to {
				w = append(w, b.Slice(from, to))
			}
			if to < n {
				return w // the next span may want the rest
			}
			r.next()
			b.Free()
		}
		s.off = max(s.off, r.base)
	}
	return w
}

func (r *reader) next() {
	r.base += r.old[0].Len()
	r.old = r.old[1:]
}

func (r *reader) freeRest() { r.old.Free() }
