package wire

import (
	"bytes"
	"slices"
	"testing"

	"google.golang.org/grpc/mem"
	"pgregory.net/rapid"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

func TestReshapingGivesThePiecesAndFreesTheRest(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 0, 400).Draw(rt, "frame")
		l := newLedger(t)
		f := l.frame(b, sizesOf(drawCuts.Draw(rt, "cuts"))...)
		f.Buf = slices.Grow(f.Buf, rapid.IntRange(0, 12).Draw(rt, "headroom"))
		second := f.Ref() // what another holder sees must not change

		var pieces []piece
		var want []byte
		for off := 0; len(pieces) < 6; {
			off += rapid.IntRange(0, len(b)-off).Draw(rt, "gap")
			n := rapid.IntRange(0, len(b)-off).Draw(rt, "span")
			head := rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(rt, "head")
			pieces = append(pieces, piece{head: head, span: span{off, n}})
			want = append(append(want, head...), b[off:off+n]...)
			off += n
		}
		pieces = pieces[:rapid.IntRange(0, len(pieces)).Draw(rt, "pieces")]
		want = want[:0]
		for _, p := range pieces {
			want = append(append(want, p.head...), b[p.off:p.off+p.n]...)
		}

		reshape(&f, pieces)
		if !bytes.Equal(f.Buf.Materialize(), want) {
			rt.Fatalf("got %v, want %v", f.Buf.Materialize(), want)
		}
		if !bytes.Equal(second.Buf.Materialize(), b) {
			rt.Fatal("the other holder's frame has changed")
		}
		second.Free()
		if !bytes.Equal(f.Buf.Materialize(), want) {
			rt.Fatal("a buffer went with the other holder")
		}
		f.Free()
		l.settled()
	})
}

func TestReshapingWithHeadroomMakesNoNewList(t *testing.T) {
	f := inference.Frame{Buf: make(mem.BufferSlice, 0, 3+inference.Headroom)}
	for range 3 {
		f.Buf = append(f.Buf, mem.SliceBuffer("0123456789"))
	}
	list := &f.Buf[:1][0]
	reshape(&f, []piece{{head: []byte("a"), span: span{0, 10}}, {head: []byte("b"), span: span{10, 20}}})
	if list != &f.Buf[0] {
		t.Fatal("the list has moved")
	}
	if got := string(f.Buf.Materialize()); got != "a0123456789b01234567890123456789" {
		t.Fatal(got)
	}
	for _, b := range f.Buf[len(f.Buf):cap(f.Buf)] {
		if b != nil {
			t.Fatal("a buffer is still referred to behind the list")
		}
	}
}
