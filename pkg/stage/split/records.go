package split

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"time"
	"weak"

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
	// Swap keeps next in place of text, unless something else is known by now, and gives what is known then.
	Swap(ctx context.Context, key, text, next string, keep time.Duration) (string, error)
}

const (
	// recordIdle is how long a record is kept from when it was last asked for, which in a stream may be half of
	// sequenceIdle before its last step.
	recordIdle = sequenceIdle + sequenceIdle/2
	// over is for what is no longer of use: as long as there can be.
	over = time.Millisecond
)

// record is what all replicas know of a sequence.
type record struct {
	Mark     string            `json:"mark"`  // tells it from later ones of the same id
	Began    int64             `json:"began"` // ms since 1970, by the clock of the replica that it began at
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
// remembers may have ended by way of another replica, and the id begun anew. While a stream is open its steps all come
// this way.
func (s *Stage) together(h *home, known *begun) (*begun, error) {
	c, of := h.call, h.of
	c.Home = &inference.Home{Settle: h.settle, Lose: h.lose}
	step := &c.Head.Sequence
	if step.Start {
		c.Home.New = !step.End // what begins and ends at once is known to nobody else
		return known, nil
	}
	now := time.Now()
	var was onRecord
	if known != nil {
		was = of.recorded(known)
		h.began = was.unsaid
		if was.freshTo(c.Stream, now) {
			if r, ok := parseRecord(was.text); ok {
				h.text = was.text
				h.tell(&r)
			}
			return known, nil
		}
	}
	text, err := s.Records.Ask(h.ctx, h.key.name(), recordIdle)
	if err != nil {
		return known, nil //nolint:nilerr // what is known here has to do
	}
	r, ok := parseRecord(text)
	if !ok || r.Began < was.unsaid { // nobody knows: what is there cannot be read, or is of an earlier one
		h.text, c.Home.New = text, true
		return known, nil
	}
	return h.follow(text, &r, known, now)
}

// home is what makes a Home that which all replicas know, for one call.
type home struct {
	ctx   context.Context //nolint:containedctx // of the call, which it ends with
	stage *Stage
	call  *inference.Call
	of    *shard
	key   sequenceKey
	text  string // the record; "" while there is none
	began int64  // when it began here, where that is not on record; else 0
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
	h.note(known, now)
	return known, nil
}

func (h *home) tell(r *record) {
	to := h.call.Home
	to.Endpoint, to.Mark, to.Lost, to.New = r.Endpoint, r.Mark, r.Lost, false
}

// settle is Home.Settle. What this replica has no room to remember is not put on record either, so that callers cannot
// fill the store with sequences; only a predecessor's record goes, which nobody is to follow any more.
func (h *home) settle(endpoint string) {
	c, now := h.call, time.Now()
	c.Home.New = false
	known := h.of.begun(h.key, now)
	if known == nil {
		if c.Head.Sequence.Start {
			_ = h.stage.Records.Put(h.ctx, h.key.name(), "-", over)
		}
		return
	}
	t := c.Target
	if h.began == 0 {
		h.began = now.UnixMilli()
	}
	mine := record{
		Mark: rand.Text()[:12], Began: h.began, Target: t.Name, Upstream: t.Upstream, Model: t.Model, Version: t.Version,
		Headers: c.Choice.SetHeaders, Endpoint: endpoint,
	}
	text, err := h.put(mine.text())
	r, ok := parseRecord(text)
	if err != nil || !ok {
		return
	}
	h.text = text
	h.tell(&r)
	if !r.is(t) {
		c.Home.Lost = true // this step is on its way to another target already, where the sequence is not
		return
	}
	h.note(known, now)
}

// put keeps text as the record, in place of the one that h goes by, and gives what is on record then. A start goes before
// anything.
func (h *home) put(text string) (string, error) {
	records, key := h.stage.Records, h.key.name()
	switch {
	case h.call.Head.Sequence.Start:
		return text, records.Put(h.ctx, key, text, recordIdle)
	case h.text == "":
		return records.Claim(h.ctx, key, text, recordIdle)
	default:
		return records.Swap(h.ctx, key, h.text, text, recordIdle)
	}
}

// ended takes the record away, once the last step has been answered.
func (h *home) ended() {
	if h.text != "" {
		_, _ = h.stage.Records.Swap(context.WithoutCancel(h.ctx), h.key.name(), h.text, h.text, over) // else it goes a little later
	}
}

// lose is Home.Lose.
func (h *home) lose() {
	r, ok := parseRecord(h.text)
	if !ok || r.Lost {
		return
	}
	r.Lost = true
	ctx := context.WithoutCancel(h.ctx)                                          // it may be over, and with that the call has failed
	_, _ = h.stage.Records.Swap(ctx, h.key.name(), h.text, r.text(), recordIdle) // whoever asks the endpoint next finds out by himself
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
	text   string                         // what it said when it was last looked at; "" for nothing
	looked time.Time                      // when that was
	by     weak.Pointer[inference.Stream] // the stream whose step looked
	unsaid int64                          // when it began here, ms since 1970, while that is not on record; else 0
}

// freshTo reports whether steps of a stream may go by what was looked at.
func (o onRecord) freshTo(stream *inference.Stream, now time.Time) bool {
	return stream != nil && o.text != "" && o.by == weak.Make(stream) && now.Sub(o.looked) < sequenceIdle/2
}

func (h *shard) recorded(known *begun) onRecord {
	h.mu.Lock()
	defer h.mu.Unlock()
	return known.onRecord
}

// note keeps for the steps to come what is on record of known.
func (h *home) note(known *begun, now time.Time) {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	known.onRecord = onRecord{text: h.text, looked: now, by: weak.Make(h.call.Stream)}
}
