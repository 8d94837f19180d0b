package triton

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/upstream/triton/tritontest"
	"github.com/model-gateway/model-gateway/proto/triton"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for something that should come at once.
const patience = time.Minute

// upstream starts the servers and an upstream to all of them.
func upstream(t testing.TB, servers tritontest.Network, change ...func(*Options)) *Upstream {
	t.Helper()
	o := Options{Name: "triton", Dial: servers.Dial, Version: "test"}
	for address, s := range servers {
		o.Endpoints = append(o.Endpoints, address)
		s.Start()
		t.Cleanup(s.Stop)
	}
	for _, c := range change {
		c(&o)
	}
	u, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Close)
	return u
}

func one(t testing.TB, s *tritontest.Server, change ...func(*Options)) *Upstream {
	t.Helper()
	return upstream(t, tritontest.Network{"a:1": s}, change...)
}

// request is a ModelInferRequest for model with one byte of tensor, changed by change.
func request(model string, change ...func(*tritonpb.ModelInferRequest)) *tritonpb.ModelInferRequest {
	r := &tritonpb.ModelInferRequest{
		ModelName:        model,
		Inputs:           []*tritonpb.ModelInferRequest_InferInputTensor{{Name: "INPUT", Datatype: "UINT8", Shape: []int64{1}}},
		RawInputContents: [][]byte{{7}},
	}
	for _, c := range change {
		c(r)
	}
	return r
}

func encode(t testing.TB, m proto.Message) inference.Frame {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return inference.NewFrame(b)
}

func decode[M proto.Message](t testing.TB, f inference.Frame, into M) M {
	t.Helper()
	if err := proto.Unmarshal(f.Buf.Materialize(), into); err != nil {
		t.Fatal(err)
	}
	return into
}

// kserve is a KServe call for a target of u: version 3 of "fraud", known to clients as "risk".
func kserve(t testing.TB, u *Upstream, r *tritonpb.ModelInferRequest) *inference.Call {
	t.Helper()
	return &inference.Call{
		Protocol: inference.KServe,
		Start:    time.Now(),
		Request:  encode(t, r),
		Head:     inference.Head{Model: r.GetModelName(), Version: r.GetModelVersion(), ID: r.GetId()},
		Model:    &inference.Model{Name: "risk"},
		Target:   &inference.Target{Model: "fraud", Version: "3", Upstream: u.Name(), Asked: "risk", Pool: u.Pool("fraud", "3")},
	}
}

func infer(ctx context.Context, c *inference.Call) error {
	e, err := c.Target.Pool.Pick(c, nil)
	if err != nil {
		return err
	}
	return e.Infer(ctx, c)
}

func wantKind(t testing.TB, err error, kind fault.Kind) *fault.Fault {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %s", kind.Reason())
	}
	f := fault.Of(err)
	if f.Kind != kind {
		t.Fatalf("got %v (%s), want %s", err, f.Kind.Reason(), kind.Reason())
	}
	return f
}

func receive[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s: nothing came", what)
		panic("unreachable")
	}
}

// counting is a pool that knows how many of its buffers are out.
type counting struct {
	mem.BufferPool
	out     atomic.Int64
	mu      sync.Mutex
	changed *sync.Cond
}

func newCounting() *counting {
	c := &counting{BufferPool: mem.NopBufferPool{}}
	c.changed = sync.NewCond(&c.mu)
	return c
}

func (c *counting) Get(n int) *[]byte {
	c.out.Add(1)
	return c.BufferPool.Get(n)
}

func (c *counting) Put(b *[]byte) {
	for i := range *b {
		(*b)[i] = 0xee // whoever still reads it is found out
	}
	c.out.Add(-1)
	c.mu.Lock()
	c.changed.Broadcast()
	c.mu.Unlock()
}

// wait waits until no buffer is out.
func (c *counting) wait(t testing.TB) {
	t.Helper()
	late := time.AfterFunc(patience, func() { c.mu.Lock(); c.changed.Broadcast(); c.mu.Unlock() })
	defer late.Stop()
	until := time.Now().Add(patience)
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.out.Load() > 0 {
		if time.Now().After(until) {
			t.Fatalf("%d buffers have not been given back", c.out.Load())
		}
		c.changed.Wait()
	}
	if n := c.out.Load(); n < 0 {
		t.Fatalf("%d buffers have been given back twice", -n)
	}
}

// frame is b in buffers of 4 KiB from the pool.
func (c *counting) frame(b []byte) inference.Frame {
	var f inference.Frame
	for len(b) > 0 {
		n := min(len(b), 4096)
		buf := c.Get(max(n, 2048))
		*buf = (*buf)[:n]
		copy(*buf, b[:n])
		f.Buf = append(f.Buf, mem.NewBuffer(buf, c))
		b = b[n:]
	}
	return f
}
