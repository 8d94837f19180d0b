package triton

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/upstream/triton/tritontest"
	"github.com/model-gateway/model-gateway/proto/triton"
)

// sized is an upstream with so many endpoints, which nobody serves, and pools.
func sized(b *testing.B, endpoints, pools int) (*Upstream, []inference.Pool) {
	b.Helper()
	o := Options{Name: "triton", Dial: tritontest.Network{}.Dial}
	for i := range endpoints {
		o.Endpoints = append(o.Endpoints, fmt.Sprintf("h%d:1", i))
	}
	u, err := New(o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(u.Close)
	all := make([]inference.Pool, pools)
	for i := range all {
		all[i] = u.Pool(fmt.Sprintf("m%d", i), "1")
	}
	return u, all
}

// BenchmarkPick shows that choosing an endpoint costs the same whatever there is to choose from.
func BenchmarkPick(b *testing.B) {
	for _, size := range []struct{ endpoints, pools int }{{1, 1}, {1, 100}, {1, 10_000}, {100, 1}, {100, 100}, {100, 10_000}} {
		b.Run(fmt.Sprintf("endpoints=%d/pools=%d", size.endpoints, size.pools), func(b *testing.B) {
			_, pools := sized(b, size.endpoints, size.pools)
			c := &inference.Call{Start: time.Now()}
			// As many different pools in turn as a cache line's worth of calls would see; the first Pick of each
			// makes its choice, and is not what is measured.
			hot := pools[:min(len(pools), 64)]
			for _, p := range hot {
				if _, err := p.Pick(c, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, err := hot[i%len(hot)].Pick(c, nil); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}

// BenchmarkRewrite shows that preparing a unary request costs the same whatever its size and however many models there
// are.
func BenchmarkRewrite(b *testing.B) {
	for _, pools := range []int{1, 100, 10_000} {
		_, all := sized(b, 1, pools)
		for _, size := range []int{1 << 10, 600 << 10, 16 << 20} {
			b.Run(fmt.Sprintf("pools=%d/bytes=%d", pools, size), func(b *testing.B) {
				buf := make(mem.BufferSlice, 0, size/16384+1+inference.Headroom)
				for n := size; n > 0; n -= 16384 {
					buf = append(buf, mem.SliceBuffer(make([]byte, min(n, 16384))))
				}
				target := &inference.Target{Model: "fraud", Version: "3", Pool: all[len(all)-1]}
				c := &inference.Call{Start: time.Now(), Head: inference.Head{Model: "risk"}, Target: target}
				b.ReportAllocs()
				for b.Loop() {
					c.Request.Buf, c.Rewritten = buf, nil
					if _, err := target.Pool.Pick(c, nil); err != nil {
						b.Fatal(err)
					}
					rewrite(c, false)
				}
			})
		}
	}
}

// BenchmarkUnary is a whole call over an in-memory connection, the server's side included.
func BenchmarkUnary(b *testing.B) {
	for _, endpoints := range []int{1, 100} {
		b.Run(fmt.Sprintf("endpoints=%d", endpoints), func(b *testing.B) {
			servers := tritontest.Network{}
			for i := range endpoints {
				servers[fmt.Sprintf("h%d:1", i)] = &tritontest.Server{}
			}
			u := upstream(b, servers)
			r := request("risk")
			for range 4 * endpoints { // connect
				if err := infer(b.Context(), kserve(b, u, r)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				c := kserve(b, u, r)
				if err := infer(b.Context(), c); err != nil {
					b.Fatal(err)
				}
				c.Free()
			}
		})
	}
}

// BenchmarkStream is one message after another on one client stream.
func BenchmarkStream(b *testing.B) {
	u := one(b, &tritontest.Server{Stream: serve(func(s *tritontest.Stream, r *tritonpb.ModelInferRequest) error {
		return s.Send(tritontest.Answer(r, true, 1))
	})})
	c := newClient(b, u)
	b.ReportAllocs()
	for b.Loop() {
		call := c.message()
		if err := infer(b.Context(), call); err != nil {
			b.Fatal(err)
		}
		call.Turn.Pass()
		call.Free()
	}
}

// BenchmarkPickBy compares the ways to choose, once slow starts are over.
func BenchmarkPickBy(b *testing.B) {
	for _, how := range []inference.Pick{inference.LeastLoaded, inference.RoundRobin, inference.HashUser} {
		for _, endpoints := range []int{2, 100} {
			b.Run(fmt.Sprintf("%s/endpoints=%d", how, endpoints), func(b *testing.B) {
				u := still(endpoints, ignorance{}, Eject{})
				defer u.end()
				p := u.pool("fraud", "1")
				c := &inference.Call{Start: time.Now(), Model: &inference.Model{Pick: how}, Identity: inference.Identity{User: "somebody"}}
				b.ReportAllocs()
				for b.Loop() {
					if _, err := p.Pick(c, nil); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
