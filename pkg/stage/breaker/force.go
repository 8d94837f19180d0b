package breaker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/model-gateway/model-gateway/pkg/stats"
)

// MaxForces bounds the targets that operators can force at once.
const MaxForces = 100

// Scopes of what is forced.
const (
	AllReplicas = "all replicas"
	ThisReplica = "this replica"
)

// Answer says what came of forcing a state.
type Answer struct {
	Model  string `json:"model"`
	Target string `json:"target"`
	State  State  `json:"state"`  // Open, Closed or Auto
	Before State  `json:"before"` // what was forced until then
	Scope  string `json:"scope"`  // AllReplicas or ThisReplica
	Note   string `json:"note,omitempty"`
	Error  string `json:"error,omitempty"` // why nothing was changed
}

// Change is what an operator of another replica has forced.
type Change struct {
	Model, Target string
	From, To      State
	Who           string
}

// ParseState reads what can be forced: open, closed or auto.
func ParseState(s string) (State, error) {
	for _, state := range []State{Open, Closed, Auto} {
		if state.String() == s {
			return state, nil
		}
	}
	return Auto, errors.New("state must be open, closed or auto")
}

// names name a target as clients and operators do.
type names struct{ model, target string }

// override is what is forced for one target. It is immutable.
type override struct {
	ID     string    `json:"id"`
	Model  string    `json:"model"`
	Target string    `json:"target"`
	State  string    `json:"state"`
	Who    string    `json:"who"`
	When   time.Time `json:"when"`

	pending bool // other replicas do not know of it yet
}

func (o *override) state() State {
	if o == nil {
		return Auto
	}
	state, _ := ParseState(o.State)
	return state
}

// forces are all overrides.
type forces struct {
	all atomic.Pointer[map[names]*override] // never written once it is here

	mu    sync.Mutex        // held while they change, and while Redis is asked; calls never wait for it
	rev   string            // of those that are shared, as known
	taken map[string]string // keys of those that were taken back while Redis did not answer, with their ids
}

func (f *forces) init() {
	f.all.Store(&map[names]*override{})
	f.taken = make(map[string]string)
}

// of gives what is forced for a target.
func (f *forces) of(model, target string) State { return (*f.all.Load())[names{model, target}].state() }

// show is of for people.
func (f *forces) show(model, target string, shared bool) *Force {
	o := (*f.all.Load())[names{model, target}]
	if o == nil {
		return nil
	}
	scope := ThisReplica
	if shared && !o.pending {
		scope = AllReplicas
	}
	return &Force{State: o.state(), Who: o.Who, When: o.When, Scope: scope}
}

// Forced reports what is forced for a target now.
func (s *Stage) Forced(model, target string) State { return s.forces.of(model, target) }

// Known reports whether a target of that name has been called lately, or has something forced.
func (s *Stage) Known(model, target string) bool {
	if s.Forced(model, target) != Auto {
		return true
	}
	found := false
	s.breakers.All(func(k stats.Key, _ *breaker) bool {
		found = k.Model == model && k.Target == target
		return !found
	})
	return found
}

// Force keeps the breaker of a target open or closed until it is told otherwise; Auto takes that back. It holds here at once
// and, where Redis is shared, on all replicas within two seconds.
func (s *Stage) Force(ctx context.Context, model, target string, to State, who string) (Answer, error) {
	a := Answer{Model: model, Target: target, State: to, Scope: ThisReplica}
	f, n := &s.forces, names{model, target}
	f.mu.Lock()
	defer f.mu.Unlock()
	all := *f.all.Load()
	old := all[n]
	a.Before = old.state()
	if to != Auto && old == nil && len(all) >= MaxForces {
		a.State = Auto
		return a, fmt.Errorf("the breakers of %d targets are forced already; set some of them to auto first", MaxForces)
	}
	next := maps.Clone(all)
	delete(next, n)
	var o *override
	if to != Auto {
		o = &override{
			ID: rand.Text()[:16], Model: model, Target: target, State: to.String(), Who: who[:min(len(who), maxWho)],
			When: time.Now().UTC().Truncate(time.Millisecond), pending: true,
		}
		next[n] = o
	}
	s.apply(next)
	if s.opts.Shared == nil {
		return a, nil
	}
	delete(f.taken, n.key())
	err := s.share(ctx, n, o, old)
	if err == nil {
		a.Scope = AllReplicas
	} else {
		a.Note = "other replicas follow once Redis answers again: " + err.Error()
	}
	return a, nil
}

// apply puts overrides to use.
func (s *Stage) apply(next map[names]*override) {
	before := *s.forces.all.Load()
	s.forces.all.Store(&next)
	s.breakers.All(func(k stats.Key, b *breaker) bool {
		n := names{k.Model, k.Target}
		if before[n] != nil || next[n] != nil {
			b.setForce(next[n].state())
		}
		return true
	})
}

// changedElsewhere tells the record of what operators of other replicas have forced.
func (s *Stage) changedElsewhere(n names, from, to *override) {
	if s.opts.Changed == nil || from.state() == to.state() {
		return
	}
	c := Change{Model: n.model, Target: n.target, From: from.state(), To: to.state()}
	if to != nil {
		c.Who = to.Who
	}
	s.opts.Changed(c)
}
