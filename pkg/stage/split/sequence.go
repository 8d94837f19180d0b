package split

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// The steps of a sequence must all go to the target that the first one went to, whatever the rules, their scripts and
// the versions on the upstream have come to meanwhile.

const (
	maxSequences = 100_000     // remembered in all; the targets of more go by the rules alone
	sequenceIdle = time.Minute // without a step, until a target is forgotten: as long as upstreams remember endpoints
	shards       = 16
)

// sequences remembers the targets of sequences. The zero value is empty.
type sequences [shards]shard

type shard struct {
	mu    sync.Mutex
	byKey map[sequenceKey]*list.Element
	order list.List // of *begun, the one that had a step last in front
}

// sequenceKey is a digest of who calls which sequence, so that long ids cost no memory and none can be made to collide.
type sequenceKey [16]byte

// begun is a sequence that goes on.
type begun struct {
	key     sequenceKey
	target  *inference.Target
	headers map[string]string // of the rule that decided
	last    time.Time         // when it last had a step

	onRecord // guarded by the shard
}

// keyOf is the key of c's sequence. Steps that pin a version are a sequence of that version.
func keyOf(c *inference.Call, version string) sequenceKey {
	var room [256]byte
	b := room[:0]
	for _, part := range [...]string{c.Model.Name, c.CallerName(), c.Head.Sequence.ID, version} {
		b = append(binary.AppendUvarint(b, uint64(len(part))), part...)
	}
	sum := sha256.Sum256(b)
	return sequenceKey(sum[:16])
}

// sequence takes a step of a sequence on, to the target of its first.
func (s *Stage) sequence(ctx context.Context, c *inference.Call, version, script string, next inference.Handler) error {
	if c.Stream != nil {
		// Messages of a stream come through here side by side, and the first one has to be the first.
		if err := c.Turn.Wait(ctx); err != nil {
			return err
		}
	}
	key := keyOf(c, version)
	of := &s.sequences[key[0]%shards]
	known := of.begun(key, time.Now())
	h := &home{ctx: ctx, stage: s, call: c, of: of, key: key}
	if s.Records != nil {
		var err error
		if known, err = s.together(h, known); err != nil { //nolint:contextcheck // h has it
			return err
		}
	}
	goesOn := known != nil && !c.Head.Sequence.Start
	if goesOn && version == "" {
		if c.Target = sameTarget(c.Model, known.target); c.Target == nil {
			h.lose() //nolint:contextcheck // it has it
			return noTarget(c.Model, known.target.Name)
		}
		c.Choice = inference.Choice{By: inference.BySequence, SetHeaders: known.headers}
	} else {
		if err := unanswered(c, s.choose(ctx, c, version, script)); err != nil {
			return err
		}
		if c.Target.Absent != nil {
			return next(ctx, c) // the sequence has not begun
		}
		if !goesOn {
			known = of.remember(&begun{key: key, target: c.Target, headers: c.Choice.SetHeaders, last: time.Now(), onRecord: onRecord{unsaid: begins(c)}})
		}
	}
	s.count(c, script)
	err := next(ctx, c)
	if err == nil && c.InBand == nil && c.Head.Sequence.End {
		of.forget(known)
		h.ended() //nolint:contextcheck // it has it
	}
	return err
}

// begins gives the ms since 1970 at which a sequence starts whose start is to be put on record, else 0.
func begins(c *inference.Call) int64 {
	if c.Home == nil || !c.Home.New || !c.Head.Sequence.Start {
		return 0
	}
	return time.Now().UnixMilli()
}

func noTarget(m *inference.Model, name string) error {
	return fault.New(fault.SequenceLost, "target %q, where the sequence began, is not configured for model %q now; start the sequence anew", name, m.Name)
}

// sameTarget gives t as m has it now, whatever it is called there; nil when it has it no more.
func sameTarget(m *inference.Model, t *inference.Target) *inference.Target {
	if m.Stable == nil { // every version is one of its targets
		return t
	}
	if now := m.Targets[t.Name]; now != nil && same(now, t) {
		return now
	}
	for _, now := range m.Targets {
		if same(now, t) {
			return now
		}
	}
	return nil
}

func same(a, b *inference.Target) bool {
	return a == b || a.Upstream == b.Upstream && a.Model == b.Model && a.Version == b.Version
}

// begun gives the sequence under key and notes that it has had a step; nil when there is none.
func (h *shard) begun(key sequenceKey, now time.Time) *begun {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expire(now)
	e := h.byKey[key]
	if e == nil {
		return nil
	}
	h.order.MoveToFront(e)
	known := e.Value.(*begun)
	known.last = now
	return known
}

// remember keeps n in place of a predecessor, unless there are too many: those that are remembered already go on as they
// are.
func (h *shard) remember(n *begun) *begun {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.byKey[n.key]; e != nil {
		e.Value = n
		h.order.MoveToFront(e)
		return n
	}
	if len(h.byKey) >= maxSequences/shards {
		return n
	}
	if h.byKey == nil {
		h.byKey = make(map[sequenceKey]*list.Element)
	}
	h.byKey[n.key] = h.order.PushFront(n)
	return n
}

// forget drops n, if it is still the one that is remembered.
func (h *shard) forget(n *begun) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.byKey[n.key]; e != nil && e.Value == n {
		h.order.Remove(e)
		delete(h.byKey, n.key)
	}
}

func (h *shard) expire(now time.Time) {
	for e := h.order.Back(); e != nil && now.Sub(e.Value.(*begun).last) > sequenceIdle; e = h.order.Back() {
		delete(h.byKey, e.Value.(*begun).key)
		h.order.Remove(e)
	}
}
