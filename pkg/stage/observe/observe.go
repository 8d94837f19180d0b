// Package observe is the outermost stage: it sees every call as the client does. It times it, counts it, writes
// the access log, and turns a panic further in into an INTERNAL fault, so that one call's bug is one call's failure
// and the process lives. It never changes an answer, and returns the errors it is given.
package observe

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
)

// Recorder takes what the stage sees; telemetry.Metrics is one.
type Recorder interface {
	CallStarted(p inference.Protocol)
	CallEnded(c telemetry.Call)
	StreamOpened()
	StreamClosed()
	Error(http int, degraded bool)
	Panicked()
	Suppressed()
}

// Options of the stage. Recorder must be set; the rest has defaults.
type Options struct {
	Recorder Recorder
	Log      *slog.Logger  // access log and panics; nil is none
	Slow     time.Duration // calls that take as long are logged; 0 is none
	Sample   float64       // part of the other calls that is logged, 0 to 1
	// PerSecond is how many lines are written each second for one reason; further ones are counted only. 0 is 10.
	PerSecond int
	// Now tells the time; nil is time.Now.
	Now func() time.Time
}

// Stage observes calls and streams.
type Stage struct {
	Options
	limit limiter
}

// New makes the stage.
func New(o Options) *Stage {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.PerSecond <= 0 {
		o.PerSecond = 10
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Stage{Options: o, limit: limiter{perSecond: o.PerSecond}}
}

// Stage gives the stage as the pipeline takes it.
func (s *Stage) Stage() inference.Stage {
	return inference.Stage{Name: "observe", Wrap: s.Wrap, Open: s.Open}
}

// Wrap observes single calls: unary requests, and messages of streams.
func (s *Stage) Wrap(next inference.Handler) inference.Handler {
	return func(ctx context.Context, c *inference.Call) error {
		begin := c.Start
		if begin.IsZero() {
			begin = s.Now()
		}
		// What inner stages may still hold or give away when they panic is read before they run, or noted when it is read.
		bytesIn, late := c.Request.Len(), c.Source != nil
		s.Recorder.CallStarted(c.Protocol)
		err := s.run(ctx, c, next)
		if late && c.Source == nil { // a call's time begins when its message has been read
			begin, bytesIn = c.Start, c.Size
		}
		s.ended(ctx, c, err, s.Now().Sub(begin), bytesIn)
		return err
	}
}

// Open observes the life of a stream. Its messages are calls of their own, so a stream counts as an error only where
// it failed as a whole. A client that hangs up is none, nor is one that is asked to open its stream elsewhere.
func (s *Stage) Open(next inference.Handler) inference.Handler {
	return func(ctx context.Context, c *inference.Call) error {
		begin := s.Now()
		s.Recorder.StreamOpened()
		defer s.Recorder.StreamClosed()
		err := s.run(ctx, c, next)
		f := fault.Of(err)
		if f != nil && !ordinary(f.Kind) {
			s.Recorder.Error(f.HTTP(), false)
		}
		s.logStream(ctx, c, f, s.Now().Sub(begin))
		return err
	}
}

// ordinary reports whether streams end like that all the time.
func ordinary(k fault.Kind) bool {
	return k == fault.Cancelled || k == fault.Deadline || k == fault.ShuttingDown
}

// run runs next and turns a panic into a fault.
func (s *Stage) run(ctx context.Context, c *inference.Call, next inference.Handler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = s.panicked(ctx, c, p)
		}
	}()
	return next(ctx, c)
}

func (s *Stage) panicked(ctx context.Context, c *inference.Call, p any) error {
	s.Recorder.Panicked()
	attrs := append(identityAttrs(c), slog.Any(telemetry.AttrPanic, p), slog.String(telemetry.AttrStack, string(debug.Stack())))
	s.Log.LogAttrs(ctx, slog.LevelError, "a call panicked", attrs...)
	return fault.Wrap(fault.Internal, fmt.Errorf("panic: %v", p),
		"internal error of the gateway; its log has the details under request id %q", c.RequestID)
}

func (s *Stage) ended(ctx context.Context, c *inference.Call, err error, d time.Duration, bytesIn int) {
	f := fault.Of(err)
	if f == nil {
		f = fault.Of(c.InBand) // sent as it came, and yet a failure
	}
	r := telemetry.Call{Protocol: c.Protocol, HTTP: 200, Duration: d}
	r.Model, r.Version, r.Target = labels(c)
	if f == nil && c.Degraded != nil {
		f = fault.Of(c.Degraded.Cause) // what the caller was spared
		r.Degraded, r.Reason = true, f.Kind.Reason()
	}
	if f != nil {
		r.HTTP, r.GRPC = f.HTTP(), f.Code()
	}
	s.Recorder.CallEnded(r)
	s.logCall(ctx, c, f, d, bytesIn)
}

// labels names the model and target of c, for a degraded call those that could not answer, as far as they are known to exist: a declared model, or one that passes
// through and has been given a target. Names that clients make up never become labels.
func labels(c *inference.Call) (model, version, target string) {
	t := c.Target
	if c.Degraded != nil && c.Degraded.From != nil {
		t = c.Degraded.From // a failure is that of the target that failed, whoever answered
	}
	switch {
	case t != nil:
		return t.Asked, t.Version, t.Name
	case c.Model != nil && c.Model.Route:
		return c.Model.Name, "", ""
	}
	return "", "", ""
}
