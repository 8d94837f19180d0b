package triton

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/wire"
)

// afterError is how long a decoupled model may be silent after an error before its call ends without a final mark.
const afterError = 5 * time.Second

// linkKey is under what a client stream keeps its link to an endpoint. Steps of sequences have one of their own, which
// stays when others are cut.
type linkKey struct {
	pool      *pool
	ep        *endpoint
	sequences bool
}

func (s *seat) linkOf(c *inference.Call) linkKey {
	return linkKey{s.pool, s.ep, c.Head.Sequence.ID != ""}
}

// inferInStream sends one message of a client stream, and its answers to the client as they come.
func (s *seat) inferInStream(ctx context.Context, c *inference.Call) error {
	m, err := s.begin(ctx, c)
	if err != nil {
		return err
	}
	if c.Request.Len() > s.ep.opts.MaxMessage+rewriteSlack {
		return fault.New(fault.TooLarge, "the message has %d bytes; max_message allows %d on upstream %s", c.Request.Len(), s.ep.opts.MaxMessage, s.pool.up.name)
	}
	if err := c.Turn.Wait(ctx); err != nil {
		return fault.Of(err)
	}
	if !m.take() {
		return s.noRoom(c)
	}
	defer m.over()
	// From here on order matters only among the messages for this endpoint: one that has to be connected to, or takes
	// nothing, must not hold up messages for others.
	line := c.Stream.Line(s.linkOf(c))
	defer line.Pass()
	// Its answers must not mix with those of the next message, which carries no id to tell them apart.
	alone := c.Protocol == inference.PredictStream && m.ends
	if !alone {
		c.Turn.Done()
	}
	if err := line.Wait(ctx); err != nil {
		return fault.Of(err)
	}
	r, err := s.enter(ctx, c)
	if err != nil {
		return err
	}
	defer r.leave()
	c.Request.Append(wire.AppendID(nil, r.id))
	if err := r.link.send(ctx, c); err != nil {
		return err
	}
	line.Done()
	err = m.answer(ctx, r)
	if alone && (err == nil || c.Answers > 0) { // else it may be tried elsewhere, and the next message waits for that too
		c.Turn.Done()
	}
	return err
}

// message is one call on its way through a stream.
type message struct {
	seat    *seat
	c       *inference.Call
	tensors inference.Tensors
	ends    bool // its answers end with a final mark, not with the first one
	failed  *fault.Fault
	taken   bool // counts as under way on its endpoint
}

// take takes a place at the endpoint; false when there is none.
func (m *message) take() bool {
	m.taken = m.seat.ep.enter()
	return m.taken
}

// over: the endpoint is done with it.
func (m *message) over() {
	if m.taken {
		m.taken = false
		m.seat.ep.exit()
	}
}

// begin rewrites the request. Where the model cannot be asked whether it is decoupled it is taken to be so: the final mark
// tells the end of any model's answers.
func (s *seat) begin(ctx context.Context, c *inference.Call) (*message, error) {
	m := &message{seat: s, c: c}
	info, err := s.pool.Info(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, err
	}
	m.ends = err != nil || info.Decoupled
	if err == nil && info.Decoupled {
		c.MarkDecoupled()
	}
	if !c.Protocol.SpeaksPredict() {
		rewrite(c, m.ends)
		return m, nil
	}
	switch {
	case c.Model.Tensors != nil:
		m.tensors = *c.Model.Tensors
	case err != nil:
		return nil, err
	default:
		m.tensors = info.Tensors
	}
	if err := rewritePredict(c, m.tensors); err != nil {
		return nil, err
	}
	if m.ends {
		c.Request.Append(wire.AppendEmptyFinal(nil))
	}
	return m, nil
}

// enter takes a place on the client stream's link to the endpoint, opening one where there is none that works.
func (s *seat) enter(ctx context.Context, c *inference.Call) (*reply, error) {
	broken := func(k io.Closer) bool { return k.(*link).isBroken() }
	for range 2 {
		k, err := c.Stream.Keep(s.linkOf(c), broken, func() (io.Closer, error) { return s.openLink(ctx, c) })
		if err != nil {
			return nil, Classify(ctx, err)
		}
		if r := k.(*link).enter(); r != nil {
			return r, nil
		} // it broke just now
	}
	return nil, fault.New(fault.EndpointLost, "the stream to the model server broke; send the message again")
}

// answer hands the model's answers to the client until the call has been answered for good.
func (m *message) answer(ctx context.Context, r *reply) error {
	limit := m.c.Model.Timeouts.FirstAnswer
	for {
		a, err := r.next(ctx, limit)
		if err != nil {
			return m.lost(err, limit)
		}
		limit = m.c.Model.Timeouts.Idle
		end := !m.ends || a.head.Final || a.refused()
		if end {
			m.over() // its answer may yet have to wait for those of messages before it, and the endpoint is free
		} else {
			m.c.MarkDecoupled() // where nobody could say so before: its answers must not wait for those of calls before it
		}
		if a.head.Error != "" {
			m.failed = m.seat.reread(inBand(restoreID(a.head.Error, r.id, m.c.Head.ID)))
		}
		if m.failed != nil && (limit <= 0 || limit > afterError) {
			limit = afterError
		}
		if m.c.Protocol.SpeaksPredict() {
			err = m.predictAnswer(a, end)
		} else {
			err = m.kserveAnswer(a)
		}
		if err != nil || end {
			return err
		}
	}
}

// refused reports an error from before the model saw the request: nothing follows it, not even a final mark. Triton names
// the model in all that a model says, its errors included, and in nothing else.
func (a letter) refused() bool { return a.head.Error != "" && a.head.Model == "" }

// predictAnswer hands over one answer as a PredictionResponse. An error is kept until the model is done, and is then the
// call's.
func (m *message) predictAnswer(a letter, end bool) error {
	switch {
	case a.head.Error != "", m.ends && a.head.Empty && a.head.Final:
		a.frame.Free()
	default:
		if err := wire.UnwrapStreamAnswer(&a.frame); err != nil {
			a.frame.Free()
			return err
		}
		if err := sendPredict(m.c, a.frame, m.tensors); err != nil {
			return err
		}
	}
	if end && m.failed != nil {
		return m.failed
	}
	return nil
}

// kserveAnswer hands over one answer as it came, under the id and the name that the caller knows.
func (m *message) kserveAnswer(a letter) error {
	c := m.c
	if m.ends && a.head.Empty && a.head.Final && !c.Head.EmptyFinal {
		a.frame.Free()
		return nil
	}
	model := ""
	if a.head.Model != "" && a.head.Model != c.Head.Model {
		model = c.Head.Model
	}
	fields := wire.AppendStreamAnswer(nil, c.Head.ID, model)
	if a.refused() && c.Answers == 0 && c.Head.Sequence.ID == "" && m.failed.Kind.Row().Elsewhere {
		a.frame.Free()
		return m.failed // nobody has seen the request yet: another endpoint may, or a fallback answer
	}
	if a.head.Error != "" {
		c.InBand = m.failed
		// What outsiders may see of it: their own id in place of ours, and of a model that threw no traceback.
		if text := m.failed.Msg; text != a.head.Error {
			fields = protowire.AppendString(protowire.AppendTag(fields, 1, protowire.BytesType), text)
		}
	}
	a.frame.Append(fields)
	return c.Send(a.frame)
}

// restoreID puts the caller's id where Triton quotes ours: "[request id: …] ".
func restoreID(text, ours, callers string) string {
	if callers == "" {
		callers = "<id_unknown>" // what Triton says of requests without one
	}
	return strings.Replace(text, "[request id: "+ours+"]", "[request id: "+callers+"]", 1)
}

// lost is the fault of a call whose next answer did not come.
func (m *message) lost(err error, limit time.Duration) error {
	if errors.Is(err, errSilent) {
		switch {
		case m.failed == nil:
			return fault.New(fault.UpstreamTimeout, "model %q gave no answer for %s", m.c.Head.Model, limit)
		case m.c.Protocol.SpeaksPredict():
			return m.failed
		}
		return nil // the error that it sent was its last answer
	}
	f := *fault.Of(err) // a copy: all calls of the link get the same
	return &f
}
