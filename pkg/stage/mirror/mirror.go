// Package mirror sends copies of calls to another target after their callers have been answered, and compares the two
// answers. A copy never delays, charges or fails the call that it is of: it leaves when the call is over, waits in a bounded
// queue or is dropped, and what becomes of it is seen in metrics of its own, in the arm stats.Mirror, and in a sampled log.
//
// Tensors are not copied for it: call and copy share buffers by reference. Not mirrored are calls that name their version,
// steps of sequences, calls that failed or were answered by a fallback, calls of decoupled models, calls whose tensors are
// in shared memory, and calls that the mirror target has answered itself.
package mirror

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Recorder takes what becomes of copies; telemetry.Metrics is one.
type Recorder interface {
	Mirrored(to *inference.Target, outcome string)
	MirrorDifference(to *inference.Target, d *inference.Difference)
	MirrorHeld(by int)
	Panicked()
}

// Messages is what the stage must know of messages: functions of package wire.
type Messages struct {
	CompareInfer   func(answer, mirrored inference.Frame, t inference.Tensors) (inference.Difference, error)
	ComparePredict func(answer, mirrored inference.Frame, datatype, mirroredType string) (inference.Difference, error)
	// Unwrap turns a ModelStreamInferResponse into the ModelInferResponse inside.
	Unwrap func(answer *inference.Frame) error
	// SharedMemory reports whether a ModelInferRequest has tensors in shared memory.
	SharedMemory func(request inference.Frame) bool
}

// Options of the stage. Send, Recorder and Messages must be set; the rest has defaults.
type Options struct {
	// Send takes a copy to its target: inject, Mark, forward. Stages that limit, admit or break are not for copies.
	Send     inference.Handler
	Recorder Recorder
	Messages Messages
	Log      *slog.Logger // nil is none

	// Calls and Bytes bound the copies that are held, waiting or under way: their requests and both answers. A target gets at
	// most half of each, so that one that hangs leaves room for others. 0 is 1,024 and 64 MiB.
	Calls int
	Bytes int64
	// InFlight is how many copies are under way to one target; 0 is 32.
	InFlight int
	// Timeout bounds a copy's time upstream where timeout.max of the model allows more; 0 is 30 s.
	Timeout time.Duration
	// Draw gives a random number from 0 up to 1; nil is math/rand's. It is asked by calls side by side.
	Draw func() float64
}

// Stage mirrors calls. Make it with New.
type Stage struct {
	Options
	queue *queue
	lines limiter
	ctx   context.Context // of copies; ends with Close
	end   context.CancelFunc
}

// New makes the stage.
func New(o Options) *Stage {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Calls <= 0 {
		o.Calls = 1024
	}
	if o.Bytes <= 0 {
		o.Bytes = 64 << 20
	}
	if o.InFlight <= 0 {
		o.InFlight = 32
	}
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Draw == nil {
		o.Draw = rand.Float64
	}
	s := &Stage{Options: o}
	s.ctx, s.end = context.WithCancel(context.Background())
	s.queue = &queue{run: s.run, calls: o.Calls, bytes: o.Bytes, inFlight: o.InFlight}
	return s
}

// Close drops the copies that wait, gives up those under way, and returns when the last one is gone. Calls may go on; they
// are not mirrored any more.
func (s *Stage) Close() {
	for _, dropped := range s.queue.close() {
		s.drop(dropped)
	}
	s.end()
	s.queue.running.Wait()
}

// Wrap mirrors calls of models that have a mirror. For others it costs a comparison.
func (s *Stage) Wrap(next inference.Handler) inference.Handler {
	return func(ctx context.Context, c *inference.Call) error {
		m := c.Model.Mirror
		if m == nil || !s.wants(c, m) {
			return next(ctx, c)
		}
		return s.watch(ctx, c, m, next)
	}
}

// wants draws whether to mirror c. Calls are drawn, not users: what is wanted is a fair sample of requests.
func (s *Stage) wants(c *inference.Call, m *inference.Mirror) bool {
	return m.To != nil && !c.Pinned && c.Head.Sequence == (inference.Sequence{}) && !same(c.Target, m.To) &&
		(m.Percent >= 100 || s.Draw()*100 < m.Percent)
}

// same reports whether two targets are one version of a model.
func same(a, b *inference.Target) bool {
	return a == b || a != nil && a.Upstream == b.Upstream && a.Model == b.Model && a.Version == b.Version
}

// watch runs next, keeping what a copy needs, since stages further in change the request and its metadata in place.
func (s *Stage) watch(ctx context.Context, c *inference.Call, m *inference.Mirror, next inference.Handler) error {
	k := kept{request: c.Request.Ref(), incoming: maps.Clone(c.Incoming)}
	defer k.free()
	sink := c.Sink
	if sink != nil {
		c.Sink = func(answer inference.Frame) error {
			k.see(answer)
			return sink(answer)
		}
		defer func() { c.Sink = sink }()
	}
	err := next(ctx, c)
	if err != nil || c.InBand != nil || c.Degraded != nil || c.Decoupled || c.Answers != 1 || same(c.Target, m.To) {
		return err
	}
	if sink == nil {
		k.see(c.Answer)
	}
	s.offer(c, m, &k)
	return nil
}

// kept is what a copy needs of a call: references of its own.
type kept struct {
	request, answer inference.Frame
	incoming        map[string][]string
}

// see keeps an answer; of several the last.
func (k *kept) see(answer inference.Frame) {
	k.answer.Free()
	k.answer = answer.Ref()
}

func (k *kept) free() {
	k.request.Free()
	k.answer.Free()
}
