package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// flow is a kind of calls that come at a fixed rate, whatever becomes of those before.
type flow struct {
	kind string
	rate float64 // calls a second
	call func(ctx context.Context, i int) (outcome, string)
}

// load is calls under way until it is stopped.
type load struct {
	tally
	deadline time.Duration
	stop     context.CancelFunc
	ended    []func() // run once, when it is over
	calls    sync.WaitGroup
}

// begin starts flows and, on each of the streams, a message every 100 ms.
func begin(deadline time.Duration, flows []flow, streams ...stream) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{deadline: deadline, stop: cancel}
	for _, f := range flows {
		l.calls.Go(func() { l.flow(ctx, f) })
	}
	for _, s := range streams {
		l.calls.Go(func() { l.stream(ctx, s) })
	}
	return l
}

// end lets no further call begin, and waits for those under way.
func (l *load) end() {
	l.stop()
	l.calls.Wait()
	for _, f := range l.ended {
		f()
	}
	l.ended = nil
}

func (l *load) flow(ctx context.Context, f flow) {
	start := time.Now()
	for i := 0; ; i++ {
		due := start.Add(time.Duration(float64(i) / f.rate * float64(time.Second)))
		if wait := time.Until(due); wait > 0 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
		}
		if ctx.Err() != nil {
			return
		}
		l.calls.Go(func() { l.call(f, i, due) }) //nolint:contextcheck // a call outlives the load that began it
	}
}

func (l *load) call(f flow, i int, due time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), l.deadline)
	defer cancel()
	o, why := f.call(ctx, i)
	l.add(record{at: due, took: time.Since(due), kind: f.kind, outcome: o, why: why})
}

// stream is a stream of messages that is opened again when it ends.
type stream struct {
	kind string
	open func(ctx context.Context) (conversation, error)
}

// conversation is an open stream. Answers are told apart by the number of their message.
type conversation interface {
	send(i int) error
	receive() (i int, o outcome, why string, err error)
	finish() error
}

const messageEvery = 100 * time.Millisecond

func (l *load) stream(ctx context.Context, s stream) {
	for i := 0; ctx.Err() == nil; {
		i = l.converse(ctx, s, i)
	}
}

// converse keeps one stream until it breaks or ctx ends; it gives the number of the next message.
func (l *load) converse(ctx context.Context, s stream, i int) int {
	life, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := s.open(life) //nolint:contextcheck // it is ended in order, after ctx
	if err != nil {
		l.pause(ctx)
		return i
	}
	var mu sync.Mutex
	pending := map[int]time.Time{}
	broken := make(chan error, 1)
	go func() {
		for {
			n, o, why, err := c.receive()
			if err != nil {
				broken <- err
				return
			}
			mu.Lock()
			due, known := pending[n]
			delete(pending, n)
			mu.Unlock()
			if !known {
				o, why, due = failed, "an answer that nobody asked for", time.Now()
			}
			l.add(record{at: due, took: time.Since(due), kind: s.kind, stream: true, outcome: o, why: why, inBand: o == failed})
		}
	}()
	end := l.messages(ctx, c, &i, &mu, pending, broken)
	if end == nil { // in order: those under way are waited for
		_ = c.finish()
		select {
		case end = <-broken:
		case <-time.After(l.deadline):
			end = fmt.Errorf("no answer within %v", l.deadline)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, due := range pending {
		l.add(record{at: due, took: time.Since(due), kind: s.kind, stream: true, outcome: failed, why: "the stream ended with " + describe(end)})
	}
	if ctx.Err() == nil {
		l.pause(ctx)
	}
	return i
}

// messages sends one after the other until the stream breaks, which it tells, or ctx ends.
func (l *load) messages(ctx context.Context, c conversation, i *int, mu *sync.Mutex, pending map[int]time.Time, broken chan error) error {
	tick := time.NewTicker(messageEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-broken:
			return err
		case <-tick.C:
		}
		n := *i
		*i++
		mu.Lock()
		pending[n] = time.Now()
		mu.Unlock()
		if c.send(n) != nil { // it has not gone out: the stream's end has the reason
			mu.Lock()
			delete(pending, n)
			mu.Unlock()
			return <-broken
		}
	}
}

func (l *load) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
}

func describe(err error) string {
	if err == nil {
		return "OK"
	}
	s := status.Convert(err)
	return s.Code().String() + ": " + clip(s.Message())
}

// predictStream is a PredictStream: answers come in the order of requests.
func (c *client) predictStream(i int, model string) stream {
	return stream{kind: "predict stream", open: func(ctx context.Context) (conversation, error) {
		s, err := c.predicts(i).PredictStream(ctx)
		return &predictTalk{s: s, model: model, samples: c.samples}, err
	}}
}

type predictTalk struct {
	s       grpc.BidiStreamingClient[inferencepb.PredictionRequest, inferencepb.PredictionResponse]
	model   string
	samples []sample
	mu      sync.Mutex
	order   []int
}

func (t *predictTalk) send(i int) error {
	t.mu.Lock()
	t.order = append(t.order, i)
	t.mu.Unlock()
	return t.s.Send(&inferencepb.PredictionRequest{ModelName: t.model, InputTensor: t.samples[i%len(t.samples)].input})
}

func (t *predictTalk) receive() (int, outcome, string, error) {
	a, err := t.s.Recv()
	if err != nil {
		return 0, failed, "", err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.order) == 0 {
		return -1, failed, "", nil
	}
	i := t.order[0]
	t.order = t.order[1:]
	o, why := judge(a, t.samples[i%len(t.samples)])
	return i, o, why, nil
}

func (t *predictTalk) finish() error { return t.s.CloseSend() }

// inferStream is a ModelStreamInfer.
func (c *client) inferStream(i int, model string) stream {
	return stream{kind: "kserve stream", open: func(ctx context.Context) (conversation, error) {
		s, err := c.infers(i).ModelStreamInfer(ctx)
		return &inferTalk{s, model, c.samples}, err
	}}
}

type inferTalk struct {
	s       grpc.BidiStreamingClient[tritonpb.ModelInferRequest, tritonpb.ModelStreamInferResponse]
	model   string
	samples []sample
}

func (t *inferTalk) send(i int) error {
	return t.s.Send(scoreRequest(t.model, strconv.Itoa(i), t.samples[i%len(t.samples)]))
}

func (t *inferTalk) receive() (int, outcome, string, error) {
	a, err := t.s.Recv()
	if err != nil {
		return 0, failed, "", err
	}
	i, err := strconv.Atoi(a.GetInferResponse().GetId())
	if err != nil {
		return -1, failed, "", nil //nolint:nilerr // an answer that cannot be told apart is counted as one that nobody asked for
	}
	if a.ErrorMessage != "" {
		return i, failed, clip(a.ErrorMessage), nil
	}
	o, why := judgeV2(a.InferResponse, t.samples[i%len(t.samples)])
	return i, o, why, nil
}

func (t *inferTalk) finish() error { return t.s.CloseSend() }
