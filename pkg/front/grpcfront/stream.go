package grpcfront

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/internal/room"
	"github.com/model-gateway/model-gateway/pkg/wire"
)

// window is how many messages of one stream may be under way. The next one is read when there is room, so a client that
// sends faster than the model answers is held back by HTTP/2 flow control.
const window = 64

// stream handles PredictStream and ModelStreamInfer.
func (f *Front) stream(protocol inference.Protocol) grpc.StreamHandler {
	peek := peekOf(protocol)
	return func(_ any, ss grpc.ServerStream) error {
		c := f.newCall(ss.Context(), protocol)
		c.Method, c.Opening = methods[protocol], true
		err := f.opts.Pipeline.Open(ss.Context(), c, func(ctx context.Context, c *inference.Call) error {
			_ = ss.SetHeader(metadata.Pairs("x-request-id", c.RequestID))
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			t := &talk{
				front: f, stream: ss, opening: c, peek: peek, cancel: cancel,
				shared: &inference.Stream{Identity: c.Identity, Context: ctx},
				room:   make(chan struct{}, window), pending: pending{done: make(chan struct{})},
			}
			t.reader.init(ctx, f, ss)
			t.reader.further = true
			return t.run(ctx)
		})
		if err != nil {
			return toStatus(err)
		}
		return nil
	}
}

// talk is one client stream. Its messages go through the pipeline side by side; two lines of turns keep them in
// order where it matters: one in which they leave for the upstream, one in which their answers leave for the client.
type talk struct {
	front   *Front
	stream  grpc.ServerStream
	reader  reader
	opening *inference.Call
	peek    func(inference.Frame) (inference.Head, error)
	shared  *inference.Stream
	cancel  context.CancelFunc
	room    chan struct{}
	pending pending

	writing sync.Mutex  // one answer at a time
	begun   bool        // an answer has been sent
	late    *time.Timer // of an answer that waits for those before it to be taken; nil until there is one
	targets []*inference.Target
}

// maxTargets is how many targets of a stream its trailer names.
const maxTargets = 16

// run serves until the client has no more messages and the last one is answered, or the stream has to leave. An error
// ends the stream.
func (t *talk) run(ctx context.Context) (err error) {
	defer func() {
		t.pending.end()
		if err != nil {
			t.cancel() // nobody reads the answers any more
		}
		t.pending.under.Wait()
		t.shared.Close()
		if len(t.targets) > 0 {
			t.stream.SetTrailer(targetsMD(t.targets))
		}
	}()
	read := make(chan error, 1)
	go func() { read <- t.read(ctx) }() // ends with the stream, which may be after this
	age := t.front.age()
	defer stop(age)
	var why *fault.Fault
	select {
	case err := <-read:
		return err
	case <-t.front.serving.Done():
		why = draining()
	case <-age.C:
		why = tooOld()
	}
	t.pending.leave()
	select {
	case err := <-read:
		return err
	case <-t.pending.done:
		return why
	case <-t.front.cutting.Done():
		return fault.New(fault.ShuttingDown, "the gateway stops, and messages of this stream were not answered in time; send them again elsewhere")
	}
}

// read reads messages until the client has no more, and sees to it that they are answered.
func (t *talk) read(ctx context.Context) error {
	var sending, answering inference.Turn
	for {
		select {
		case t.room <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		m := t.newMessage()
		c := &m.call
		err := t.reader.read(ctx, &c.Request, &m.hold)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && fault.Of(err).Kind != fault.Memory:
			return err
		}
		leaving, ok := t.pending.come()
		if !ok {
			c.Free()
			m.hold.Free()
			return nil
		}
		c.Start = time.Now()
		sending, answering = sending.Next(), answering.Next()
		c.Turn = sending
		mine := answering // of this message; answering moves on
		go func() {
			defer func() { m.hold.Free(); t.pending.answered(); <-t.room }()
			t.answer(ctx, m, mine, leaving, err)
		}()
	}
}

// streamed is a message of the stream and the room that it takes.
type streamed struct {
	call inference.Call
	hold room.Hold
}

func (t *talk) newMessage() *streamed {
	o := t.opening
	return &streamed{call: inference.Call{Protocol: o.Protocol, Method: o.Method, Peer: o.Peer, TLS: o.TLS, Incoming: o.Incoming, Stream: t.shared}}
}

// answer takes one message through the pipeline and its answers, or the error that it gets in their place, to the client.
// One that comes when the stream is leaving is refused, and one that there was no room for has the fault unread.
func (t *talk) answer(ctx context.Context, m *streamed, answering inference.Turn, leaving bool, unread error) {
	c := &m.call
	defer c.Free()
	defer answering.Pass()
	defer c.Turn.Pass()
	ordered := true
	if c.Protocol == inference.KServeStream {
		c.OnDecoupled = func() { ordered = false; answering.Pass() } // its answers go out as they come
	}
	send := func(answer inference.Frame) error {
		m.hold.Answered()
		if ordered {
			if err := answering.Wait(ctx); err != nil {
				answer.Free()
				return err
			}
		}
		return t.send(c, answer) //nolint:contextcheck // what ends a stream whose answers wait outlives the call
	}
	c.Sink = send
	err := unread
	if err == nil {
		c.Head, err = t.peek(c.Request)
	}
	if leaving && err == nil {
		err = draining()
	}
	if err != nil {
		err = t.front.opts.Pipeline.Refuse(ctx, c, err)
	} else {
		err = t.front.opts.Pipeline.Message(ctx, c)
	}
	if err != nil && ctx.Err() == nil {
		_ = send(errorAnswer(c, fault.Of(err)))
	}
}

// send hands an answer of c to the client. The first one takes along, as headers, where it is from; the trailer names
// all targets that the stream's messages went to.
func (t *talk) send(c *inference.Call, answer inference.Frame) error {
	t.writing.Lock()
	defer t.writing.Unlock()
	if c.Target != nil && c.Target.Absent == nil && len(t.targets) < maxTargets && !slices.Contains(t.targets, c.Target) {
		t.targets = append(t.targets, c.Target)
		if !t.begun {
			_ = t.stream.SetHeader(targetsMD(t.targets)) // fails only when the client is gone
		}
	}
	t.begun = true
	held := t.front.holdAnswer(t.stream.Context(), &answer)
	err := t.inTime(&answer)
	held.sent()
	if err != nil {
		return fault.Wrap(fault.Cancelled, err, "the caller went away before it had taken its answers")
	}
	return nil
}

// inTime has gRPC take an answer. It waits until most of those before it have been taken, and ends the stream when that takes
// too long: messages that wait for their answers to leave hold room.
func (t *talk) inTime(answer *inference.Frame) error {
	if t.late == nil {
		t.late = time.AfterFunc(t.front.answerTimeout, t.end)
	} else {
		t.late.Reset(t.front.answerTimeout)
	}
	defer t.late.Stop()
	return t.stream.SendMsg(wire.Give{Frame: answer})
}

// end ends the stream, and with it what waits to be sent.
func (t *talk) end() {
	if t.reader.raw != nil {
		_ = t.reader.raw.WriteStatus(status.Convert(toStatus(t.front.untaken())))
	}
	t.cancel()
}

// errorAnswer tells a client, inside its healthy stream, that one message failed.
func errorAnswer(c *inference.Call, f *fault.Fault) inference.Frame {
	if c.Protocol.SpeaksPredict() {
		return wire.PredictError(f.Kind.Reason()+": "+f.Msg, time.Since(c.Start))
	}
	return wire.StreamError(c.Head.ID, c.Head.Model, f.Msg)
}
