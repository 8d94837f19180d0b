package catalog

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"github.com/model-gateway/model-gateway/pkg/fault"
)

const (
	askTimeout     = 2 * time.Second // for one look-up on an upstream
	maxRefused     = 1024            // questions whose refusal is remembered
	refusedFor     = time.Second     // how long it is
	inventedPerSec = 5               // with a burst of as many, at most 10 in any second
	namedPerSec    = 50              // likewise, at most 100
)

// limits bound the look-ups on upstreams, over all reloads.
type limits struct {
	invented *rate.Limiter // about names and versions that clients may have made up
	named    *rate.Limiter // about models that the configuration declares or an upstream has confirmed
}

func newLimits() limits {
	return limits{invented: rate.NewLimiter(inventedPerSec, inventedPerSec), named: rate.NewLimiter(namedPerSec, namedPerSec)}
}

// asker asks upstreams which models they have, each question at most once at a time, and remembers refusals for a while.
// The upstreams of its questions are told apart by name, so it serves one set of upstreams.
type asker struct {
	limits
	flights singleflight.Group
	silent  sync.Map // Source → error: an outage, found by asking, that lasts until the upstream answers its prober

	mu      sync.Mutex
	refused map[string]refusal
}

type refusal struct {
	err   error
	until time.Time
}

// question is whether any of some upstreams has a model, or one version of it.
type question struct {
	sources        []Source // asked in turn
	model, version string   // version "" asks for all
	// allow says why the upstreams must not be asked now, or nil. It is called once for all who wait for the answer.
	allow func() error
	// word says an upstream's fault in the words of the client that asks.
	word func(error) error
}

type answer struct {
	source   Source
	versions []string
}

func newAsker(l limits) *asker { return &asker{limits: l, refused: make(map[string]refusal)} }

// find gives the first upstream that has what q asks for, and the versions it named.
func (a *asker) find(ctx context.Context, q question) (answer, error) {
	key := q.key()
	if err := a.recall(key); err != nil {
		return answer{}, err
	}
	if err := a.silence(q.sources); err != nil {
		return answer{}, q.word(err)
	}
	flight := a.flights.DoChan(key, func() (any, error) {
		if err := q.allow(); err != nil {
			return nil, err
		}
		// Not under ctx: the answer is for everybody who waits, whoever of them leaves.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		found, err := q.ask(ctx)
		if err != nil {
			a.silenced(q.sources, err)
			err = q.word(err)
			a.refuse(key, err)
			return nil, err
		}
		return found, nil
	})
	patience, cancel := patience(ctx)
	defer cancel()
	select {
	case r := <-flight:
		if r.Err != nil {
			return answer{}, r.Err
		}
		return r.Val.(answer), nil
	case <-patience.Done():
		if ctx.Err() != nil {
			return answer{}, context.Cause(ctx)
		}
		return answer{}, fault.New(fault.NoEndpoint, "no upstream answered in the time that the call has whether it has model %q; try again shortly", q.model)
	}
}

const (
	minMargin   = 5 * time.Millisecond
	marginShare = 20 // the margin is at least 1/marginShare of what remains
)

// patience bounds how long a call waits for an answer, so that what is answered without one still reaches its caller.
func patience(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, has := ctx.Deadline()
	if !has {
		return ctx, func() {}
	}
	left := time.Until(deadline)
	return context.WithDeadline(ctx, deadline.Add(-min(max(minMargin, left/marginShare), left/2)))
}

// silenced notes an outage of all of sources. While it lasts none of them is asked: every question would wait for it anew.
func (a *asker) silenced(sources []Source, err error) {
	switch fault.Of(err).Kind {
	case fault.NoEndpoint, fault.UpstreamUnavailable, fault.EndpointLost, fault.UpstreamTimeout:
	default:
		return // it has answered, if not with what was asked
	}
	if answering(sources) {
		return
	}
	for _, s := range sources {
		a.silent.Store(s, fault.Wrap(fault.NoEndpoint, err, "upstream %q does not answer; try again shortly", s.Name()))
	}
}

// silence is the outage of all of sources; nil when one of them may answer.
func (a *asker) silence(sources []Source) (err error) {
	for _, s := range sources {
		why, silent := a.silent.Load(s)
		if !silent {
			return nil
		}
		if s.Answers() {
			a.silent.Delete(s)
			return nil
		}
		err = why.(*fault.Fault)
	}
	return err
}

func answering(sources []Source) bool { return slices.ContainsFunc(sources, Source.Answers) }

// key names the question. Names of models come from clients, and are quoted lest two questions share a key.
func (q question) key() string {
	var b strings.Builder
	for _, s := range q.sources {
		b.WriteString(strconv.Quote(s.Name()))
	}
	return b.String() + " " + strconv.Quote(q.model) + " " + q.version
}

// ask gives the first source that has the model. When none has and some could not answer, their fault
// stands, since the model may well be there.
func (q question) ask(ctx context.Context) (answer, error) {
	var silent, absent error
	for _, s := range q.sources {
		versions, err := s.Describe(ctx, q.model, q.version)
		switch {
		case err == nil:
			return answer{s, versions}, nil
		case fault.Of(err).Kind == fault.ModelNotFound:
			absent = err
		case silent == nil:
			silent = err
		}
	}
	switch {
	case silent == nil:
		return answer{}, absent
	case errors.Is(silent, context.DeadlineExceeded):
		return answer{}, fault.Wrap(fault.NoEndpoint, silent, "no upstream answered within %s whether it has model %q; try again shortly", askTimeout, q.model)
	}
	return answer{}, silent
}

func (a *asker) recall(key string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r, ok := a.refused[key]; ok {
		if time.Now().Before(r.until) {
			return r.err
		}
		delete(a.refused, key)
	}
	return nil
}

func (a *asker) refuse(key string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.refused) >= maxRefused {
		clear(a.refused) // costs a few look-ups more, which the limits bound
	}
	a.refused[key] = refusal{err: err, until: time.Now().Add(refusedFor)}
}
