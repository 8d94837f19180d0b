package wire

import (
	"errors"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ledger is a buffer pool that knows which buffers are out, and overwrites those that come back, so that who reads
// one after its Free reads poison.
type ledger struct {
	t   testing.TB
	out map[*[]byte]bool
}

func newLedger(t testing.TB) *ledger { return &ledger{t: t, out: map[*[]byte]bool{}} }

const poison = 0xdb

// Get makes buffers of more than 1 KiB of capacity, since grpc/mem does not count references of smaller ones.
func (l *ledger) Get(n int) *[]byte {
	b := make([]byte, n, max(n, 1025))
	l.out[&b] = true
	return &b
}

func (l *ledger) Put(b *[]byte) {
	l.t.Helper()
	if !l.out[b] {
		l.t.Fatal("a buffer was freed twice")
	}
	delete(l.out, b)
	for i := range (*b)[:cap(*b)] {
		(*b)[:cap(*b)][i] = poison
	}
}

// settled fails when buffers are still out.
func (l *ledger) settled() {
	l.t.Helper()
	if n := len(l.out); n > 0 {
		l.t.Fatalf("%d buffers were not freed", n)
	}
}

// frame cuts b into buffers: sizes are taken in turn, from the start again when they are used up. A size of 0 makes
// an empty buffer.
func (l *ledger) frame(b []byte, sizes ...int) inference.Frame {
	var f inference.Frame
	for i := 0; len(b) > 0; i++ {
		n := len(b)
		if len(sizes) > 0 {
			n = min(n, sizes[i%len(sizes)])
		}
		data := l.Get(n)
		copy(*data, b[:n])
		f.Buf = append(f.Buf, mem.NewBuffer(data, l))
		b = b[n:]
	}
	return f
}

// sizesOf makes sizes for frame of foreign bytes; at least one of them is not 0.
func sizesOf(cuts []byte) []int {
	sizes := []int{1 + len(cuts)}
	for _, c := range cuts {
		sizes = append(sizes, int(c))
	}
	return sizes
}

func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func decode[M proto.Message](t testing.TB, f inference.Frame, m M) M {
	t.Helper()
	if err := proto.Unmarshal(f.Buf.Materialize(), m); err != nil {
		t.Fatalf("the frame does not decode: %v", err)
	}
	return m
}

// wantKind fails unless err is a fault of that kind.
func wantKind(t testing.TB, err error, kind fault.Kind) *fault.Fault {
	t.Helper()
	var f *fault.Fault
	if !errors.As(err, &f) {
		t.Fatalf("got error %v, want a fault of kind %s", err, kind.Reason())
	}
	if f.Kind != kind {
		t.Fatalf("got %v, want a fault of kind %s", f, kind.Reason())
	}
	return f
}
