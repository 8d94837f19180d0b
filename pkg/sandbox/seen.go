package sandbox

import (
	"context"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// UnknownModel is the name under which requests for models that were never loaded are counted together.
const UnknownModel = "(unknown)"

// Seen is what a server has seen of the requests for one model, unary and in streams.
type Seen struct {
	Calls     int // requests that arrived
	Answers   int // answers without an error; several per request of a decoupled model
	Errors    int // answers with one
	Cancelled int // requests whose caller went away before they were answered for good
	InFlight  int // requests that are being worked on now
	// Of the latest request:
	Metadata metadata.MD
	Request  *tritonpb.ModelInferRequest
	Method   string        // ModelInfer or ModelStreamInfer
	Peer     string        // the caller's address
	Timeout  time.Duration // what was left until the caller's deadline; 0 without one
}

// seen counts.
type seen struct {
	mu     sync.Mutex
	models map[string]*Seen
	rpcs   map[string]int
	change chan struct{} // closed at the next change; nil while nobody waits for one
}

func newSeen() *seen {
	return &seen{models: map[string]*Seen{}, rpcs: map[string]int{}}
}

// update runs f under the lock and wakes those who wait.
func (s *seen) update(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	if s.change != nil {
		close(s.change)
		s.change = nil
	}
}

func (s *seen) rpc(method string) { s.update(func() { s.rpcs[method]++ }) }

// visit is one request under the eyes of seen.
type visit struct {
	seen *seen
	of   []*Seen // the model's, and all models'
}

func (s *seen) arrive(ctx context.Context, models *registry, method string, req *tritonpb.ModelInferRequest) *visit {
	name := req.ModelName
	if !models.known(name) {
		name = UnknownModel
	}
	md, _ := metadata.FromIncomingContext(ctx)
	v := &visit{seen: s}
	s.update(func() {
		for _, n := range []string{name, ""} {
			e := s.models[n]
			if e == nil {
				e = &Seen{}
				s.models[n] = e
			}
			e.Calls++
			e.InFlight++
			e.Metadata, e.Request, e.Method, e.Timeout, e.Peer = md, req, method, 0, ""
			if d, ok := ctx.Deadline(); ok {
				e.Timeout = time.Until(d)
			}
			if p, ok := peer.FromContext(ctx); ok {
				e.Peer = p.Addr.String()
			}
			v.of = append(v.of, e)
		}
	})
	return v
}

func (v *visit) each(f func(*Seen)) {
	v.seen.update(func() {
		for _, e := range v.of {
			f(e)
		}
	})
}

func (v *visit) answered() { v.each(func(e *Seen) { e.Answers++ }) }

// failed counts and returns err.
func (v *visit) failed(err error) error {
	v.each(func(e *Seen) { e.Errors++ })
	return err
}

// leave ends the visit.
func (v *visit) leave(ctx context.Context) {
	gone := ctx.Err() != nil
	v.each(func(e *Seen) {
		e.InFlight--
		if gone {
			e.Cancelled++
		}
	})
}

// Seen tells what requests for a model were seen; "" stands for all models, UnknownModel for those not served.
func (s *Server) Seen(model string) Seen {
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	return s.seen.get(model)
}

func (s *seen) get(model string) Seen {
	if e := s.models[model]; e != nil {
		return *e
	}
	return Seen{}
}

// RPCs tells how often each method was called, by its short name.
func (s *Server) RPCs() map[string]int {
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	return maps.Clone(s.seen.rpcs)
}

// Await waits until what was seen of a model fulfils cond, or ctx ends; it returns what was seen last.
func (s *Server) Await(ctx context.Context, model string, cond func(Seen) bool) (Seen, error) {
	for {
		s.seen.mu.Lock()
		if s.seen.change == nil {
			s.seen.change = make(chan struct{})
		}
		now, change := s.seen.get(model), s.seen.change
		s.seen.mu.Unlock()
		if cond(now) {
			return now, nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return now, context.Cause(ctx)
		}
	}
}

// Forget sets all counts to zero; requests that are being worked on are no longer counted.
func (s *Server) Forget() {
	s.seen.update(func() {
		s.seen.models, s.seen.rpcs = map[string]*Seen{}, map[string]int{}
	})
}
