package split

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Records is where all replicas know from where sequences are: a text for each, kept for a while from when it was last
// asked for. redis.Sequences is one. An error means that nobody can tell now: what a replica knows by itself has to do.
type Records interface {
	// Ask gives what is known under key, "" when nothing is, and keeps it for keep from now.
	Ask(ctx context.Context, key string, keep time.Duration) (string, error)
	// Put keeps text, in place of anything.
	Put(ctx context.Context, key, text string, keep time.Duration) error
	// Claim keeps text where nothing is known, and gives what is known then.
	Claim(ctx context.Context, key, text string, keep time.Duration) (string, error)
	// Swap keeps next in place of text, unless something else is known by now.
	Swap(ctx context.Context, key, text, next string, keep time.Duration) error
}

// endedFor is how long the record of a sequence is kept from its last step on: that one may have to be sent again.
const endedFor = 10 * time.Second

// record is what all replicas know of a sequence.
type record struct {
	Mark     string            `json:"mark"` // tells it from later ones of the same id
	Target   string            `json:"target"`
	Upstream string            `json:"upstream"`
	Model    string            `json:"model"` // on the upstream
	Version  string            `json:"version,omitempty"`
	Headers  map[string]string `json:"headers,omitempty"` // of the rule that decided
	Endpoint string            `json:"endpoint"`          // host:port
	Lost     bool              `json:"lost,omitempty"`    // its state is gone, and callers have been told
}

// parseRecord gives what text says; ok is false when it says nothing that can be used.
func parseRecord(text string) (r record, ok bool) {
	if text == "" || json.Unmarshal([]byte(text), &r) != nil {
		return record{}, false
	}
	return r, r.Mark != "" && r.Endpoint != ""
}

func (r *record) text() string {
	b, _ := json.Marshal(r) //nolint:errchkjson // strings only
	return string(b)
}

// together finds out what all replicas know of c's sequence, and gives what this one may go by: known, which it remembers,
// where the others say nothing else. It sets c.Home.
//
// A step that comes alone asks each time, and not just when this replica has never heard of the sequence: the one that it
// remembers may have ended by way of another replica, and the id begun anew. The steps of a stream all come this way.
func (s *Stage) together(ctx context.Context, c *inference.Call, of *shard, key sequenceKey, known *begun) (*begun, error) {
	h := &home{ctx: ctx, stage: s, call: c, of: of, key: key}
	c.Home = &inference.Home{Settle: h.settle, Lose: h.lose}
	step := &c.Head.Sequence
	if step.Start {
		c.Home.New = !step.End // what begins and ends at once is known to nobody else
		return known, nil
	}
	now := time.Now()
	if known != nil {
		was := of.recorded(known)
		h.text, h.begins = was.text, was.begins
		if h.begins {
			c.Home.New = true
			return known, nil
		}
		if was.fresh(now) && c.Stream != nil && !step.End {
			if r, ok := parseRecord(was.text); ok {
				h.tell(&r)
			}
			return known, nil
		}
	}
	keep := sequenceIdle
	if step.End {
		keep = endedFor
	}
	text, err := s.Records.Ask(ctx, key.name(), keep)
	if err != nil {
		return known, nil //nolint:nilerr // what is known here has to do
	}
	r, ok := parseRecord(text)
	if !ok {
		c.Home.New = true
		return known, nil
	}
	return h.follow(text, &r, known, now) //nolint:contextcheck // it has that of the call
}

// home is what makes a Home that which all replicas know, for one call.
type home struct {
	ctx   context.Context //nolint:containedctx // of the call, which it ends with
	stage *Stage
	call  *inference.Call
	of    *shard
	key   sequenceKey
	text  string // the record; "" while there is none

	begins bool // see onRecord
}

// follow goes by record r, whose text is text, and gives what is to be remembered in place of known.
func (h *home) follow(text string, r *record, known *begun, now time.Time) (*begun, error) {
	h.text = text
	h.tell(r)
	if known == nil || !r.is(known.target) {
		t, err := r.find(h.ctx, h.call.Model)
		if err != nil {
			return nil, err
		}
		if t == nil {
			h.lose()
			return nil, noTarget(h.call.Model, r.Target)
		}
		known = h.of.remember(&begun{key: h.key, target: t, headers: r.Headers, last: now})
	}
	h.of.record(known, text, now)
	return known, nil
}

func (h *home) tell(r *record) {
	to := h.call.Home
	to.Endpoint, to.Mark, to.Lost, to.New = r.Endpoint, r.Mark, r.Lost, false
}

// settle is Home.Settle.
func (h *home) settle(endpoint string) {
	c := h.call
	c.Home.New = false
	t := c.Target
	r := record{
		Mark: rand.Text()[:12], Target: t.Name, Upstream: t.Upstream, Model: t.Model, Version: t.Version,
		Headers: c.Choice.SetHeaders, Endpoint: endpoint,
	}
	text, err := r.text(), error(nil)
	if c.Head.Sequence.Start || h.begins {
		err = h.stage.Records.Put(h.ctx, h.key.name(), text, sequenceIdle)
	} else if text, err = h.stage.Records.Claim(h.ctx, h.key.name(), text, sequenceIdle); err == nil {
		var ok bool
		if r, ok = parseRecord(text); !ok {
			return
		}
	}
	if err != nil {
		return
	}
	h.text = text
	h.tell(&r)
	if !r.is(t) {
		c.Home.Lost = true // this step is on its way to another target already, where the sequence is not
		return
	}
	now := time.Now()
	if known := h.of.begun(h.key, now); known != nil {
		h.of.record(known, text, now)
	}
}

// lose is Home.Lose.
func (h *home) lose() {
	r, ok := parseRecord(h.text)
	if !ok || r.Lost {
		return
	}
	r.Lost = true
	ctx := context.WithoutCancel(h.ctx)                                         // it may be over, and with that the call has failed
	_ = h.stage.Records.Swap(ctx, h.key.name(), h.text, r.text(), sequenceIdle) // whoever asks the next endpoint finds out by himself
}

// is reports whether r is of t, whatever either is called.
func (r *record) is(t *inference.Target) bool {
	return r.Upstream == t.Upstream && r.Model == t.Model && r.Version == t.Version
}

// find gives the target of m that r is of; nil when there is none. The error is that of an upstream which cannot tell.
func (r *record) find(ctx context.Context, m *inference.Model) (*inference.Target, error) {
	if t := m.Targets[r.Target]; t != nil && r.is(t) {
		return t, nil
	}
	for _, t := range m.Targets {
		if r.is(t) {
			return t, nil
		}
	}
	if m.Stable != nil {
		return nil, nil //nolint:nilnil // as said
	}
	find := m.Choose
	if r.Version != "" {
		find = func(ctx context.Context) (*inference.Target, error) { return m.Pin(ctx, r.Version) }
	}
	found, err := find(ctx)
	switch {
	case err != nil && fault.Of(err).Kind.Row().Outage:
		return nil, err
	case err != nil || !r.is(found):
		return nil, nil //nolint:nilnil,nilerr // as said
	}
	return found, nil
}

func (k sequenceKey) name() string { return hex.EncodeToString(k[:]) }

// onRecord is what a replica knows of the record of a sequence that it remembers.
type onRecord struct {
	text   string    // what it said when it was last looked at; "" for nothing
	looked time.Time // when that was
	begins bool      // it began here, and there is no record of that yet: what is there is a predecessor's
}

// fresh reports whether the record was kept by asking for it lately.
func (o onRecord) fresh(now time.Time) bool {
	return o.text != "" && now.Sub(o.looked) < sequenceIdle/2
}

func (h *shard) recorded(known *begun) onRecord {
	h.mu.Lock()
	defer h.mu.Unlock()
	return known.onRecord
}

// record notes what is on record of known.
func (h *shard) record(known *begun, text string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known.onRecord = onRecord{text: text, looked: now}
}
