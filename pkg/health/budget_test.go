package health

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/proto/triton"
)

// counter is a server that has everything, and counts.
type counter struct{ ready, live, index atomic.Int64 }

func (c *counter) Invoke(_ context.Context, method string, _, answer any, _ ...grpc.CallOption) error {
	switch a := answer.(type) {
	case *tritonpb.ModelReadyResponse:
		c.ready.Add(1)
		a.Ready = true
	case *tritonpb.ServerLiveResponse:
		c.live.Add(1)
		a.Live = true
	default:
		c.index.Add(1)
	}
	return nil
}

func (*counter) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	panic("no streams")
}

var wide = flag.Bool("wide", false, "probe a hundred endpoints, and not five")

// TestThirtyThousandVersionsMakeNoStormOfProbes has every one of 30,000 versions wanted on every endpoint.
func TestThirtyThousandVersionsMakeNoStormOfProbes(t *testing.T) {
	endpoints, models := 5, 10_000
	if *wide {
		endpoints = 100
	}
	synctest.Test(t, func(t *testing.T) {
		versions := make([]key, 0, 3*models)
		for m := range models {
			for v := range 3 {
				versions = append(versions, key{fmt.Sprintf("model-%d", m), fmt.Sprint(v + 1)})
			}
		}
		servers := make(map[string]grpc.ClientConnInterface, endpoints)
		for i := range endpoints {
			servers[fmt.Sprintf("10.0.%d.%d:8001", i/250, i%250)] = new(counter)
		}
		heap, cpu := held(), processor(t)
		p := New(Options{})
		p.Begin(func(yield func(model, version string) bool) {
			for _, k := range versions {
				if !yield(k.model, k.version) {
					return
				}
			}
		}, func(string) {})
		p.SetEndpoints(servers)
		synctest.Wait()
		begun := processor(t) - cpu
		const long = 20 * time.Second
		counts := func() (all, worst int64) {
			for _, s := range servers {
				n := s.(*counter).ready.Load()
				all, worst = all+n, max(worst, n)
			}
			return all, worst
		}
		before, _ := counts()
		cpu = processor(t)
		after(long)
		synctest.Wait()
		all, worst := counts()
		spent := processor(t) - cpu
		each := (held() - heap) / int64(endpoints*len(versions))
		t.Logf("%d endpoints, %d versions: %.1f probes/s for each endpoint, %d bytes for each version on each endpoint, start %s, then %.1f %% of one processor, answers included",
			endpoints, len(versions), float64(all-before)/float64(endpoints)/long.Seconds(), each, begun, 100*spent.Seconds()/long.Seconds())
		if worst > int64(50*(long/time.Second+1)) {
			t.Errorf("an endpoint was probed %d times in %s", worst, long)
		}
		if all-before < int64(endpoints)*45*int64(long/time.Second) {
			t.Errorf("only %d probes in %s", all-before, long)
		}
		if each > 120+400/int64(endpoints) { // the list of versions itself is shared by all
			t.Errorf("%d bytes for each version on each endpoint", each)
		}
		p.Kick("model-0", "1")
		after(100 * time.Millisecond)
		for name := range servers {
			if p.State(name, "model-0", "1") != inference.Ready {
				t.Error("what is asked for does not overtake what waits")
			}
			if n := servers[name].(*counter).live.Load(); n > int64(long/(2*time.Second))+2 {
				t.Errorf("%d questions after its life", n)
			}
		}
		p.Close()
	})
}

func held() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // far below
}

func processor(t *testing.T) time.Duration {
	t.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
