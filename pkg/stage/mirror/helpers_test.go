package mirror

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"math"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/wire"
	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ledger is a buffer pool that knows which buffers are out, and overwrites those that come back.
type ledger struct {
	t   testing.TB
	mu  sync.Mutex
	out map[*[]byte]bool
}

// Get makes buffers of more than 1 KiB of capacity, since grpc/mem does not count references of smaller ones.
func (l *ledger) Get(n int) *[]byte {
	b := make([]byte, n, max(n, 1025))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil {
		l.out = make(map[*[]byte]bool)
	}
	l.out[&b] = true
	return &b
}

func (l *ledger) Put(b *[]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.out[b] {
		l.t.Error("a buffer was freed twice")
	}
	delete(l.out, b)
	clear((*b)[:cap(*b)])
}

func (l *ledger) frame(b []byte) inference.Frame {
	data := l.Get(len(b))
	copy(*data, b)
	return inference.Frame{Buf: append(make(mem.BufferSlice, 0, 1+inference.Headroom), mem.NewBuffer(data, l))}
}

// settled fails when buffers are still out.
func (l *ledger) settled() {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.out); n > 0 {
		l.t.Errorf("%d buffers were not freed", n)
	}
}

// recorder remembers what it is told.
type recorder struct {
	mu          sync.Mutex
	outcomes    map[string]int // by target and outcome
	differences []inference.Difference
	held, peak  int
	panics      int
}

func (r *recorder) Mirrored(to *inference.Target, outcome string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.outcomes == nil {
		r.outcomes = make(map[string]int)
	}
	r.outcomes[to.Name+" "+outcome]++
}

func (r *recorder) MirrorDifference(_ *inference.Target, d *inference.Difference) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.differences = append(r.differences, *d)
}

func (r *recorder) MirrorHeld(by int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held += by
	r.peak = max(r.peak, r.held)
}

func (r *recorder) Panicked() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.panics++
}

func (r *recorder) count(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.outcomes[what]
}

var (
	v1 = &inference.Target{Name: "model_v1", Model: "fraud", Version: "1", Upstream: "triton", Asked: "fraud"}
	v2 = &inference.Target{Name: "model_v2", Model: "fraud", Version: "2", Upstream: "triton", Asked: "fraud"}
)

func messages() Messages {
	return Messages{CompareInfer: wire.CompareInfer, ComparePredict: wire.ComparePredict, Unwrap: wire.UnwrapStreamAnswer, SharedMemory: wire.UsesSharedMemory}
}

// rig is a stage whose targets are functions.
type rig struct {
	*Stage
	ledger
	recorder
	t     testing.TB
	log   bytes.Buffer
	model *inference.Model
	score map[*inference.Target]float32 // what a target answers
	send  inference.Handler             // a copy's way in place of answering by score
	seen  chan *inference.Call          // copies, as they came to their target
}

func newRig(t testing.TB, o Options) *rig {
	r := &rig{
		t: t, seen: make(chan *inference.Call, 10_000), score: map[*inference.Target]float32{v1: 0.25, v2: 0.25},
		model: &inference.Model{Name: "fraud", Stable: v1, Mirror: &inference.Mirror{To: v2, Percent: 100}},
	}
	r.ledger.t = t
	o.Recorder, o.Messages, o.Log = &r.recorder, messages(), slog.New(slog.NewTextHandler(&r.log, nil))
	o.Send = func(ctx context.Context, c *inference.Call) error {
		r.seen <- c
		if r.send != nil {
			return r.send(ctx, c)
		}
		return r.answer(ctx, c)
	}
	r.Stage = New(o)
	t.Cleanup(r.Close)
	return r
}

// answer is what a target does: it changes the request in place, and gives its score.
func (r *rig) answer(_ context.Context, c *inference.Call) error {
	c.Request.Append([]byte{0x12, 1, '9'})
	delete(c.Incoming, "authorization")
	score := r.score[c.Target]
	if c.Protocol.SpeaksPredict() {
		c.AnswerType = "FP32"
		return c.Send(r.frame(encode(&inferencepb.PredictionResponse{OutputTensor: bits(score), Confidence: score, Status: "OK"})))
	}
	out := &tritonpb.ModelInferResponse{
		Outputs:           []*tritonpb.ModelInferResponse_InferOutputTensor{{Name: "score", Datatype: "FP32", Shape: []int64{1, 1}}},
		RawOutputContents: [][]byte{bits(score)},
	}
	if c.Protocol == inference.KServeStream {
		return c.Send(r.frame(encode(&tritonpb.ModelStreamInferResponse{InferResponse: out})))
	}
	return c.Send(r.frame(encode(out)))
}

// call makes a call as a front and the stages before this one do.
func (r *rig) call(p inference.Protocol) *inference.Call {
	request := encode(&tritonpb.ModelInferRequest{ModelName: "fraud", RawInputContents: [][]byte{make([]byte, 64)}})
	if p.SpeaksPredict() {
		request = encode(&inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: make([]byte, 64)})
	}
	c := &inference.Call{
		Protocol: p, Request: r.frame(request), Head: inference.Head{Model: "fraud"}, Model: r.model, Target: v1,
		Incoming: map[string][]string{"authorization": {"secret"}, "x-tenant": {"a"}},
		Identity: inference.Identity{RequestID: "r1", User: "ann"},
	}
	if p == inference.PredictStream || p == inference.KServeStream {
		c.Stream = &inference.Stream{}
		c.Sink = func(answer inference.Frame) error {
			answer.Free()
			return nil
		}
	}
	return c
}

// do takes c through the stage and ends it, as a front does.
func (r *rig) do(c *inference.Call) error {
	err := r.Wrap(r.answer)(r.t.Context(), c)
	c.Free()
	return err
}

func encode(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

func bits(v float32) []byte { return binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)) }
