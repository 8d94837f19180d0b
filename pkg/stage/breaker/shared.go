package breaker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"strings"
	"time"
)

// Shared is where what operators force is shared with other replicas. pkg/redis has the implementation. Each is a text by a
// key, with an id. Errors mean that nothing is known to have happened.
type Shared interface {
	// Poll gives the revision, and the ids by key when it is another than known; else ids is nil. Revisions are
	// <epoch>.<number>; another epoch, or none, means that what was there has been lost.
	Poll(ctx context.Context, known string) (rev string, ids map[string]string, err error)
	// Get gives what stands under a key; id is "" when nothing does.
	Get(ctx context.Context, key string) (id string, text []byte, err error)
	// Put sets it, in place of what has the id over; AnyID whatever is there.
	Put(ctx context.Context, key, id string, text []byte, over string) error
	// Remove takes away what has that id, or AnyID, and leaves alone what has another by now.
	Remove(ctx context.Context, key, id string) error
}

// AnyID stands for any id in Shared.Put and Shared.Remove.
const AnyID = "any"

const (
	pollEvery = time.Second
	askAtMost = 2 * time.Second // of one round
	maxWho    = 256             // bytes
)

// MaxName bounds the names of models and targets, in bytes.
const MaxName = 256

// key is the name of n among what is shared: names of models may be longer than a key.
func (n names) key() string {
	sum := sha256.Sum256([]byte(n.model + "\x00" + n.target))
	return hex.EncodeToString(sum[:16])
}

// share tells other replicas of o, which is nil where old was taken back. The lock of forces is held.
func (s *Stage) share(ctx context.Context, n names, o, old *override) error {
	ctx, cancel := context.WithTimeout(ctx, askAtMost)
	defer cancel()
	if o == nil {
		err := s.opts.Shared.Remove(ctx, n.key(), AnyID)
		if err != nil && old != nil {
			s.forces.taken[n.key()] = old.ID
		}
		return err
	}
	text, err := json.Marshal(o)
	if err == nil {
		err = s.opts.Shared.Put(ctx, n.key(), o.ID, text, AnyID)
	}
	if err == nil {
		s.known(n, o)
	}
	return err
}

// known notes that other replicas know of o.
func (s *Stage) known(n names, o *override) {
	all := maps.Clone(*s.forces.all.Load())
	if all[n] == o {
		shared := *o
		shared.pending = false
		all[n] = &shared
		s.forces.all.Store(&all)
	}
}

// watchShared follows what operators of other replicas force, until ctx ends. While Redis does not answer, what was known
// last holds.
func (s *Stage) watchShared(ctx context.Context) {
	for {
		if err := s.Follow(ctx); err != nil && ctx.Err() == nil {
			s.opts.Log.Debug("what is forced on other replicas cannot be followed; breakers stay as they are", "error", err)
		}
		wait := time.NewTimer(pollEvery*9/10 + rand.N(pollEvery/5)) // apart from the others
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
	}
}

// Follow asks once for what operators of other replicas have forced, and puts it to use. Watch does so every second.
func (s *Stage) Follow(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askAtMost)
	defer cancel()
	f := &s.forces
	f.mu.Lock()
	defer f.mu.Unlock()
	rev, ids, err := s.opts.Shared.Poll(ctx, f.rev)
	if err != nil {
		return err
	}
	if ids != nil {
		if err := s.merge(ctx, rev, ids); err != nil {
			return err
		}
		f.rev = rev
	}
	return s.publish(ctx)
}

// merge takes over what is shared: ids is all there is. The lock of forces is held.
func (s *Stage) merge(ctx context.Context, rev string, ids map[string]string) error {
	f := &s.forces
	before := *f.all.Load()
	lost := rev == "" || f.rev != "" && epochOf(f.rev) != epochOf(rev)
	next := make(map[names]*override, len(before))
	mine := make(map[string]names, len(before))
	for n, o := range before {
		mine[n.key()] = n
		switch id := ids[n.key()]; {
		case id == o.ID:
			next[n] = o.with(false)
		case id == "" && lost: // what Redis has lost we still have
			next[n] = o.with(true)
		case id == "" && !o.pending: // it was taken back
		default:
			next[n] = o
		}
	}
	for key, id := range ids {
		n, have := mine[key]
		if have && before[n].ID == id || f.taken[key] == id {
			continue
		}
		o, err := s.fetch(ctx, key)
		if err != nil {
			return err
		}
		if o == nil || have && before[n].pending && before[n].When.After(o.When) {
			continue // ours is newer; it is shared next
		}
		if n = (names{o.Model, o.Target}); next[n] != nil || len(next) < MaxForces {
			next[n] = o
		}
	}
	s.apply(next)
	for n := range before {
		if next[n] == nil {
			s.changedElsewhere(n, before[n], nil)
		}
	}
	for n, o := range next {
		s.changedElsewhere(n, before[n], o)
	}
	return nil
}

func (o *override) with(pending bool) *override {
	if o.pending == pending {
		return o
	}
	other := *o
	other.pending = pending
	return &other
}

// fetch reads an override; nil when it is gone or damaged.
func (s *Stage) fetch(ctx context.Context, key string) (*override, error) {
	id, text, err := s.opts.Shared.Get(ctx, key)
	if err != nil || id == "" {
		return nil, err
	}
	o := new(override)
	err = json.Unmarshal(text, o)
	if err == nil {
		err = o.check(key, id)
	}
	if err != nil {
		s.opts.Log.Warn("what is forced on another replica cannot be used", "key", key, "error", err)
		return nil, nil // it cannot be helped by asking again
	}
	return o, nil
}

// check says what is wrong with an override that another replica has written.
func (o *override) check(key, id string) error {
	switch state, err := ParseState(o.State); {
	case err != nil:
		return err
	case state == Auto:
		return errors.New("auto is nothing that is forced")
	case o.ID != id || (names{o.Model, o.Target}).key() != key:
		return errors.New("it is another one's")
	case len(o.Model) > MaxName || len(o.Target) > MaxName || len(o.Who) > maxWho:
		return errors.New("a name is too long")
	}
	return nil
}

// publish shares what was changed here while Redis did not answer. The lock of forces is held.
func (s *Stage) publish(ctx context.Context) error {
	var failed error
	for n, o := range *s.forces.all.Load() {
		if !o.pending {
			continue
		}
		if err := s.share(ctx, n, o, nil); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		s.opts.Log.Info("what is forced here is shared with the other replicas now", "model", n.model, "target", n.target, "state", o.State, "who", o.Who)
	}
	for key, id := range s.forces.taken {
		if err := s.opts.Shared.Remove(ctx, key, id); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		delete(s.forces.taken, key)
	}
	return failed
}

func epochOf(rev string) string {
	epoch, _, _ := strings.Cut(rev, ".")
	return epoch
}
