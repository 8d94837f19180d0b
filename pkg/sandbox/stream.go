package sandbox

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/sandbox/repository"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// maxInStream is how many requests of one stream may be unanswered; then the stream is not read until some are.
const maxInStream = 1024

// finalKey marks an answer of a stream as the last one of its request, or not.
const finalKey = "triton_final_response"

// ModelStreamInfer answers any number of requests, to any models. Answers of models that are not decoupled, and errors,
// come in the order of the requests; those of decoupled models as they are made.
func (s *Server) ModelStreamInfer(g grpc.BidiStreamingServer[tritonpb.ModelInferRequest, tritonpb.ModelStreamInferResponse]) error {
	ctx, cancel := context.WithCancel(g.Context())
	st := &stream{server: s, grpc: g, ctx: ctx, out: make(chan *tritonpb.ModelStreamInferResponse, 64), room: make(chan struct{}, maxInStream)}
	written := make(chan error, 1)
	go func() { written <- st.write(cancel) }()
	err := st.read()
	st.pending.Wait()
	close(st.out)
	sent := <-written
	cancel()
	if err == nil {
		err = sent
	}
	return err
}

type stream struct {
	server  *Server
	grpc    grpc.BidiStreamingServer[tritonpb.ModelInferRequest, tritonpb.ModelStreamInferResponse]
	ctx     context.Context // ends with the client or when an answer cannot be written
	out     chan *tritonpb.ModelStreamInferResponse
	room    chan struct{}
	pending sync.WaitGroup // requests not yet answered for good

	mu   sync.Mutex
	line []*place // requests whose answers must come in order
}

// place keeps the turn of a request in the order of answers.
type place struct {
	answer *tritonpb.ModelStreamInferResponse
}

// write sends what the models answer. After the first error it goes on reading, so that no model gets stuck.
func (st *stream) write(cancel context.CancelFunc) error {
	var failed error
	for a := range st.out {
		if failed != nil {
			continue
		}
		if failed = st.grpc.Send(a); failed != nil {
			cancel()
		}
	}
	return failed
}

func (st *stream) read() error {
	for {
		req := &tritonpb.ModelInferRequest{}
		msg := &message{to: req}
		if err := st.grpc.RecvMsg(msg); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if msg.err != nil {
			return nil //nolint:nilerr // a real server ends the stream without a word
		}
		select {
		case st.room <- struct{}{}:
		case <-st.ctx.Done():
			return status.FromContextError(st.ctx.Err()).Err()
		}
		st.pending.Add(1)
		st.request(req)
	}
}

// request starts one request; it never waits for the answer, other than a fault that makes the whole stream wait.
func (st *stream) request(req *tritonpb.ModelInferRequest) {
	s := st.server
	visit := s.seen.arrive(st.ctx, s.models, "ModelStreamInfer", req)
	done := func() {
		visit.leave(st.ctx)
		<-st.room
		st.pending.Done()
	}
	p := st.queue()
	fail := func(err error) {
		visit.failed(err) //nolint:errcheck // gives back what it got
		st.settle(p, &tritonpb.ModelStreamInferResponse{
			ErrorMessage: status.Convert(err).Message(), InferResponse: &tritonpb.ModelInferResponse{Id: req.Id},
		})
		done()
	}
	ev := event{method: "ModelStreamInfer", model: req.ModelName, version: req.ModelVersion, id: req.Id, infer: true}
	if !s.Faults.touches(ev) {
		st.submit(req, p, visit, done, fail)
		return
	}
	go func() { // a slow or hanging model must not hold up the others of the stream
		if err := s.Faults.play(st.ctx, ev); err != nil {
			fail(err)
			return
		}
		st.submit(req, p, visit, done, fail)
	}()
}

func (st *stream) submit(req *tritonpb.ModelInferRequest, p *place, visit *visit, done func(), fail func(error)) {
	r, err := st.server.submit(st.ctx, req, true, func(r *request) answerFunc {
		return func(outputs []repository.Tensor, e *repository.Error, final bool) {
			st.answer(r, req, p, visit, outcome{outputs, e, final})
			if final {
				done()
			}
		}
	})
	if err != nil {
		fail(err)
	} else if r.decoupled() {
		st.settle(p, nil) // though it has not answered yet
	}
}

// answer sends one answer of a model: at once when the model is decoupled, else when it is the request's turn.
func (st *stream) answer(r *request, req *tritonpb.ModelInferRequest, p *place, visit *visit, o outcome) {
	a := st.render(r, req, o)
	if o.err != nil {
		visit.failed(status.Error(o.err.Code, o.err.Msg)) //nolint:errcheck // gives back what it got
	} else if a != nil {
		visit.answered()
	}
	if r.decoupled() {
		st.settle(p, nil) // its answers have no turn
		st.send(a)
	} else {
		st.settle(p, a)
	}
}

func (r *request) decoupled() bool { return r.served.config.GetModelTransactionPolicy().GetDecoupled() }

// render gives the message for an outcome; nil for the end of a decoupled model's answers that nobody asked to be told.
func (st *stream) render(r *request, req *tritonpb.ModelInferRequest, o outcome) *tritonpb.ModelStreamInferResponse {
	a := &tritonpb.ModelStreamInferResponse{}
	switch {
	case o.err != nil:
		a.ErrorMessage = o.err.Msg
		a.InferResponse = &tritonpb.ModelInferResponse{ModelName: req.ModelName, Id: req.Id}
	case o.outputs == nil && o.final && r.decoupled():
		if !r.emptyFinal {
			return nil
		}
		a.InferResponse = &tritonpb.ModelInferResponse{ModelName: req.ModelName, Id: req.Id}
	default:
		a.InferResponse = r.response(req, o.outputs)
	}
	a.InferResponse.Parameters = map[string]*tritonpb.InferParameter{
		finalKey: {ParameterChoice: &tritonpb.InferParameter_BoolParam{BoolParam: o.final}},
	}
	return a
}

// queue takes the next turn.
func (st *stream) queue() *place {
	st.mu.Lock()
	defer st.mu.Unlock()
	p := &place{}
	st.line = append(st.line, p)
	return p
}

// nothing is the answer of a place whose turn passes unused.
var nothing = &tritonpb.ModelStreamInferResponse{}

// settle gives a place its answer, and sends all that are now first in line. nil gives up the turn.
func (st *stream) settle(p *place, a *tritonpb.ModelStreamInferResponse) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if a == nil {
		a = nothing
	}
	p.answer = a
	for len(st.line) > 0 && st.line[0].answer != nil {
		if st.line[0].answer != nothing {
			st.send(st.line[0].answer)
		}
		st.line = st.line[1:]
	}
}

// send hands an answer to the writer. It waits while the client reads slowly.
func (st *stream) send(a *tritonpb.ModelStreamInferResponse) {
	if a == nil {
		return
	}
	select {
	case st.out <- a:
	case <-st.ctx.Done():
	}
}
