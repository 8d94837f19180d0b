//go:build linux && !race

package socket

import (
	"io"
	"net"
	"testing"
)

func TestReadingAndWritingMakeNoGarbage(t *testing.T) {
	near, far := pair(t, "tcp")
	far = Quick(far)
	p := make([]byte, 100)
	q := near.(Conn)
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := far.Write(p); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(near, p); err != nil {
			t.Fatal(err)
		}
		q.Silent()
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// There and back, on connections that are quick and on those that are not.
func BenchmarkEcho(b *testing.B) {
	for name, make := range map[string]func(net.Conn) net.Conn{"plain": func(c net.Conn) net.Conn {
		if q, ok := c.(*conn); ok {
			return q.Conn
		}
		return c
	}, "quick": Quick} {
		b.Run(name, func(b *testing.B) {
			near, far := pair(b, "tcp")
			near, far = make(near), make(far)
			go func() { _, _ = io.Copy(struct{ io.Writer }{far}, struct{ io.Reader }{far}) }()
			var p [100]byte
			b.ReportAllocs()
			for b.Loop() {
				if _, err := near.Write(p[:]); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(near, p[:]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
