package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/sandbox/repository"
	"github.com/model-gateway/model-gateway/pkg/sandbox/schedule"
)

// FaultKind is a way to fail.
type FaultKind string

// The faults. The first three are of the whole server, whatever model they name; the others of calls.
const (
	Down     FaultKind = "down"     // ports closed, connections reset: the process is gone
	Freeze   FaultKind = "freeze"   // connections stay, no byte moves: stopped, or packets dropped
	Stopping FaultKind = "stopping" // a server after SIGTERM: nothing new is taken

	Slow        FaultKind = "slow"         // answers come Delay later
	Hang        FaultKind = "hang"         // no answer until the caller goes away
	Fail        FaultKind = "fail"         // answers Code and Message
	QueueFull   FaultKind = "queue_full"   // answers that the queue is full
	NotReady    FaultKind = "not_ready"    // ModelReady is false and requests are refused as for a version that loads
	Drop        FaultKind = "drop"         // closes the caller's connection before any answer
	DropHeaders FaultKind = "drop_headers" // closes it after the headers of an answer
	Cut         FaultKind = "cut"          // closes it after Bytes more bytes, in the middle of an answer
	SlowLoad    FaultKind = "slow_load"    // loads take Delay
	FailLoad    FaultKind = "fail_load"    // loads fail with Message
)

var faultKinds = []FaultKind{Down, Freeze, Stopping, Slow, Hang, Fail, QueueFull, NotReady, Drop, DropHeaders, Cut, SlowLoad, FailLoad}

// Fault is one thing that goes wrong until it is cleared.
type Fault struct {
	Kind    FaultKind     `json:"kind"`
	Model   string        `json:"model,omitempty"`   // "" is every model
	Version string        `json:"version,omitempty"` // as the request has it; "" is every one
	Method  string        `json:"method,omitempty"`  // "" is ModelInfer and the requests of ModelStreamInfer; "*" every RPC; else one, by its short name
	Delay   time.Duration `json:"-"`
	Code    codes.Code    `json:"-"`
	Message string        `json:"message,omitempty"`
	Bytes   int           `json:"bytes,omitempty"` // for Cut
	// Times ends the fault after so many calls; 0 keeps it until it is cleared.
	Times int `json:"times,omitempty"`
	// Every lets it hit only each n-th call; 0 and 1 hit all.
	Every int `json:"every,omitempty"`
}

// Faults are the faults of a server. All methods may be called at any time, by anyone.
type Faults struct {
	conns *conns
	log   *slog.Logger

	mu     sync.Mutex
	active []*armed
	next   int
}

type armed struct {
	Fault
	id    int
	calls int
	over  chan struct{} // closed when it is cleared
}

func newFaults(c *conns, log *slog.Logger) *Faults { return &Faults{conns: c, log: log} }

// maxFaults bounds how many faults may be active at once.
const maxFaults = 1000

func (f Fault) check() error {
	switch {
	case !slices.Contains(faultKinds, f.Kind):
		return fmt.Errorf("kind: %q is unknown; one of %q", f.Kind, faultKinds)
	case (f.Kind == Slow || f.Kind == SlowLoad) && f.Delay <= 0:
		return fmt.Errorf("delay: %s needs one, such as 200ms", f.Kind)
	case f.Kind == Fail && f.Code == codes.OK:
		return errors.New("code: fail needs a gRPC code other than OK, such as INTERNAL")
	case f.Times < 0 || f.Every < 0 || f.Bytes < 0:
		return errors.New("times, every and bytes must not be negative")
	}
	return nil
}

// Set lets f happen from now on. The returned function ends it.
func (fs *Faults) Set(f Fault) (undo func(), err error) {
	if err := f.check(); err != nil {
		return nil, fmt.Errorf("sandbox: fault: %w", err)
	}
	a := &armed{Fault: f, over: make(chan struct{})}
	fs.mu.Lock()
	if len(fs.active) >= maxFaults {
		fs.mu.Unlock()
		return nil, fmt.Errorf("sandbox: fault: more than %d faults are active; clear some", maxFaults)
	}
	fs.next++
	a.id = fs.next
	fs.active = append(fs.active, a)
	fs.mu.Unlock()
	fs.log.Info("fault set", "kind", f.Kind, "model", f.Model)
	return func() { fs.remove(func(o *armed) bool { return o == a }) }, fs.sync()
}

// List gives the faults that are set.
func (fs *Faults) List() []Fault {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	list := make([]Fault, len(fs.active))
	for i, a := range fs.active {
		list[i] = a.Fault
	}
	return list
}

// Clear ends all faults. Calls that hang or wait because of one go on.
func (fs *Faults) Clear() { fs.remove(func(*armed) bool { return true }) }

// ClearModel ends the faults that name this model.
func (fs *Faults) ClearModel(model string) {
	fs.remove(func(a *armed) bool { return a.Model == model })
}

func (fs *Faults) remove(which func(*armed) bool) {
	fs.mu.Lock()
	fs.active = slices.DeleteFunc(fs.active, func(a *armed) bool {
		if !which(a) {
			return false
		}
		close(a.over)
		return true
	})
	fs.mu.Unlock()
	if err := fs.sync(); err != nil {
		fs.log.Error("the port cannot be opened again", "error", err)
	}
}

// sync brings the connections in line with the faults of the whole server.
func (fs *Faults) sync() error {
	fs.mu.Lock()
	down, frozen := fs.has(Down), fs.has(Freeze)
	fs.mu.Unlock()
	fs.conns.freeze(frozen)
	return fs.conns.setDown(down)
}

func (fs *Faults) has(k FaultKind) bool {
	return slices.ContainsFunc(fs.active, func(a *armed) bool { return a.Kind == k })
}

// event is something that a fault may hit.
type event struct {
	method, model, version, id string
	infer                      bool
}

func (a *armed) hits(e event) bool {
	switch a.Method {
	case "":
		if !e.infer {
			return false
		}
	case "*", e.method:
	default:
		return false
	}
	return (a.Model == "" || a.Model == e.model) && (a.Version == "" || a.Version == e.version)
}

// touches reports whether a fault may hit e, without counting it.
func (fs *Faults) touches(e event) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return slices.ContainsFunc(fs.active, func(a *armed) bool { return a.hits(e) || a.Kind == Stopping })
}

// strike finds the faults that hit e now, in the order they were set, and counts them.
func (fs *Faults) strike(e event) []*armed {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	var hit []*armed
	fs.active = slices.DeleteFunc(fs.active, func(a *armed) bool {
		switch a.Kind {
		case Down, Freeze, NotReady, SlowLoad, FailLoad:
			return false
		case Stopping:
			hit = append(hit, a)
			return false
		default:
		}
		if !a.hits(e) {
			return false
		}
		a.calls++
		if a.Every > 1 && a.calls%a.Every != 0 {
			return false
		}
		hit = append(hit, a)
		return a.spent()
	})
	return hit
}

// spent counts one more time that a happened, and reports whether it was the last.
func (a *armed) spent() bool {
	if a.Times == 0 {
		return false
	}
	a.Times--
	return a.Times == 0
}

// play lets the faults happen that hit e. The error, if any, is the answer.
func (fs *Faults) play(ctx context.Context, e event) error {
	for _, a := range fs.strike(e) {
		if err := a.happen(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

func (a *armed) happen(ctx context.Context, e event) error {
	switch a.Kind {
	case Slow:
		t := time.NewTimer(a.Delay)
		defer t.Stop()
		return a.wait(ctx, t.C)
	case Hang:
		return a.wait(ctx, nil)
	case Fail:
		return status.Error(a.Code, a.Message)
	case QueueFull:
		return status.Errorf(codes.Unavailable, "[request id: %s] Exceeds maximum queue size", schedule.RequestID(e.id))
	case Stopping:
		return stopping(e)
	case DropHeaders:
		_ = grpc.SendHeader(ctx, nil)
		return drop(ctx)
	case Drop:
		return drop(ctx)
	case Cut:
		if c := connOf(ctx); c != nil {
			c.cutAfter(a.Bytes)
		}
	default: // what befalls the server, its models' states or loads happens elsewhere
	}
	return nil
}

// wait waits for c, the end of the fault, or the caller's.
func (a *armed) wait(ctx context.Context, c <-chan time.Time) error {
	select {
	case <-c:
		return nil
	case <-a.over:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// stopping is what a server says that was told to stop.
func stopping(e event) error {
	switch {
	case e.infer:
		return status.Errorf(codes.Unavailable, "[request id: %s] Server is stopping, scheduler for model has stopped accepting new inference request", schedule.RequestID(e.id))
	case e.method == "ServerReady" || e.method == "ServerLive" || e.method == "Check":
		return status.Error(codes.Unavailable, "Server exiting")
	}
	return status.Error(codes.Unavailable, "Server not ready")
}

// connOf finds the connection a call came over.
func connOf(ctx context.Context) *conn {
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.Addr.(connAddr); ok {
			return a.conn
		}
	}
	return nil
}

// drop closes the caller's connection.
func drop(ctx context.Context) error {
	if c := connOf(ctx); c != nil {
		c.kill()
	}
	return status.Error(codes.Unavailable, "connection dropped")
}

// anyUnready reports whether any model is said not to be ready.
func (fs *Faults) anyUnready() bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.has(NotReady)
}

// unready reports whether a version is said not to be ready.
func (fs *Faults) unready(model string, version int64) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return slices.ContainsFunc(fs.active, func(a *armed) bool {
		return a.Kind == NotReady && (a.Model == "" || a.Model == model) && (a.Version == "" || a.Version == strconv.FormatInt(version, 10))
	})
}

// loading lets the faults of a load happen.
func (fs *Faults) loading(ctx context.Context, model string) error {
	fs.mu.Lock()
	var hit []*armed
	fs.active = slices.DeleteFunc(fs.active, func(a *armed) bool {
		if a.Kind != SlowLoad && a.Kind != FailLoad || a.Model != "" && a.Model != model {
			return false
		}
		hit = append(hit, a)
		return a.spent()
	})
	fs.mu.Unlock()
	for _, a := range hit {
		if a.Kind == FailLoad {
			return &repository.VersionError{Model: model, Version: 1, Err: errors.New(a.Message)}
		}
		t := time.NewTimer(a.Delay)
		err := a.wait(ctx, t.C)
		t.Stop()
		if err != nil {
			return err
		}
	}
	return nil
}
