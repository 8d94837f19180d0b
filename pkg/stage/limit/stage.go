// Package limit refuses a call that would overdraw a token bucket: of its model, of its user or caller on that model,
// and then of its caller and of the gateway as a whole. All replicas draw from the same buckets, in a Store.
//
// A call waits for the store at most once, and at most Options.Timeout; all its buckets pay, or none does. Buckets that
// are hot, and those that span models, are paid from leases fetched in the background, and a bucket known to be empty
// refuses by itself until it is not. When the store does not answer, each limit's WhenDown decides: by default this
// replica's share of the rate. A caller that leaves is nobody's failure. docs/limits.md has the bounds.
package limit

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/readmap"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
)

const (
	defaultTimeout = 20 * time.Millisecond
	defaultBuckets = 1 << 17
	maxAsking      = 256 // calls that ask the store at once
	maxFetching    = 64  // leases being fetched at once
	slackOfFetch   = 5   // a fetch may take this many times as long as a call may wait
)

// Options of a Stage.
type Options struct {
	// Store holds the buckets that replicas share.
	Store Store
	// Alone says that Store is this process's own and answers at once: every draw is exact, nothing is leased, and
	// rates are divided by Peers, since nobody else knows what was drawn here.
	Alone bool
	// Timeout is the most a call waits for Store; 0 is 20 ms.
	Timeout time.Duration
	// Peers tells how many replicas share the rates, this one included; nil is 1. It is asked on the request path.
	Peers func() int
	// Metrics count decisions; nil counts where nobody looks.
	Metrics *telemetry.Metrics
	// Buckets is how many buckets are remembered at most: heat, leases and emptiness of the least used are forgotten
	// beyond it, which costs draws but no exactness. 0 is 131,072, some 50 MB when full.
	Buckets int
}

// Stage applies limits. Make it with New; Close stops its work in the background.
type Stage struct {
	store    Store
	alone    bool
	bounded  bool // store is, by no more than timeout
	timeout  time.Duration
	peers    func() int
	metrics  *telemetry.Metrics
	accounts *book
	kinds    readmap.Map[name, *kind]
	spanning atomic.Pointer[spanning]
	rounds   sync.Pool
	epoch    time.Time

	asking   chan struct{} // a place for each call that asks the store
	fetching atomic.Int64
	life     context.Context //nolint:containedctx // the life of what runs in the background
	end      context.CancelFunc
	running  sync.WaitGroup
	closing  sync.RWMutex // held while something starts running
}

// spanning is a snapshot of the limits that are not a model's, by where they apply.
type spanning struct {
	door, stage []*inference.Limit
}

// New makes a stage without spanning limits.
func New(o Options) *Stage {
	s := &Stage{store: o.Store, alone: o.Alone, timeout: o.Timeout, peers: o.Peers, metrics: o.Metrics, epoch: time.Now()}
	if s.timeout <= 0 {
		s.timeout = defaultTimeout
	}
	if store, ok := s.store.(Bounded); ok {
		s.bounded = store.Within() <= s.timeout
	}
	if s.peers == nil {
		s.peers = func() int { return 1 }
	}
	if s.metrics == nil {
		s.metrics = telemetry.New(telemetry.Build{})
	}
	if o.Buckets <= 0 {
		o.Buckets = defaultBuckets
	}
	s.accounts = newBook(o.Buckets, s.forget)
	s.spanning.Store(&spanning{})
	s.asking = make(chan struct{}, maxAsking)
	s.rounds.New = func() any { return new(round) }
	s.life, s.end = context.WithCancel(context.Background())
	s.running.Go(s.sweep)
	return s
}

// Close stops fetching leases. Calls may still come; they find the store as it is.
func (s *Stage) Close() {
	s.closing.Lock()
	s.end()
	s.closing.Unlock()
	s.running.Wait()
}

// SetSpanning replaces the limits per IP, per caller and of everything. Buckets are kept by name.
func (s *Stage) SetSpanning(limits []*inference.Limit) {
	next := &spanning{}
	for _, l := range limits {
		switch {
		case l.Mode == inference.Off:
		case l.Per == inference.PerIP:
			next.door = append(next.door, l)
		default:
			next.stage = append(next.stage, l)
		}
	}
	s.spanning.Store(next)
}

// Wrap returns a handler that runs next only for calls within their limits.
func (s *Stage) Wrap(next inference.Handler) inference.Handler {
	return func(ctx context.Context, c *inference.Call) error {
		if spanning := s.spanning.Load().stage; len(c.Model.Limits)+len(spanning) > 0 {
			if err := s.admit(ctx, c, c.Model.Limits, spanning); err != nil {
				return err
			}
		}
		return next(ctx, c)
	}
}

// Question returns a handler that runs next only for calls within the limits of their caller and of the gateway. It is for
// calls that are not inferences: they cost one, and have no model whose buckets could be asked.
func (s *Stage) Question(next inference.Handler) inference.Handler {
	return func(ctx context.Context, c *inference.Call) error {
		if spanning := s.spanning.Load().stage; len(spanning) > 0 {
			if err := s.admit(ctx, c, nil, spanning); err != nil {
				return err
			}
		}
		return next(ctx, c)
	}
}

// Door refuses a call whose address has used up a limit per IP. It never waits.
func (s *Stage) Door(ctx context.Context, c *inference.Call) error {
	if door := s.spanning.Load().door; len(door) > 0 {
		return s.admit(ctx, c, nil, door)
	}
	return nil
}

func (s *Stage) admit(ctx context.Context, c *inference.Call, own, spanning []*inference.Limit) error {
	r := s.rounds.Get().(*round)
	r.begin(s)
	for _, l := range own {
		if l.Mode != inference.Off {
			r.add(l, s.account(l, c.Model.Name, c), c)
		}
	}
	for _, l := range spanning {
		r.add(l, s.account(l, "", c), c)
	}
	err := r.run(ctx)
	r.end()
	s.rounds.Put(r)
	return err
}

// account finds the account of the bucket that l has for c; model is "" for limits that span models.
func (s *Stage) account(l *inference.Limit, model string, c *inference.Call) *account {
	n := nameOf(l, model, c)
	if a := s.accounts.find(n); a != nil {
		return a
	}
	return s.accounts.open(n, func(n name) *account {
		a := &account{kind: s.kind(n), subject: n.subject, own: n.own, key: keyOf(n)}
		a.use(l)
		return a
	})
}

// kind is shared by all buckets of a limit of a model.
func (s *Stage) kind(n name) *kind {
	n.subject, n.own = "", false
	return s.kinds.GetOrAdd(n, func(size int) (*kind, bool) {
		return &kind{limit: n.limit, model: n.model, counts: s.metrics.Limit(n.limit, n.model)}, size < telemetry.MaxModels
	})
}

// moment is a time since the stage was made, plus a nanosecond: 0 is never.
type moment = time.Duration

func (s *Stage) now() moment { return time.Since(s.epoch) + 1 }

// share is how many replicas a bucket is divided by when each decides alone.
func (s *Stage) share() float64 { return float64(max(s.peers(), 1)) }
