package triton

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/wire"
	"github.com/model-gateway/model-gateway/proto/triton"
)

// Infer sends c to the endpoint and its answers to c.Send.
//
// The request is rewritten in place, once for each target: a second attempt on another endpoint sends the same
// frame again, and for another target the fields of that target are put behind it. A Predict request becomes a
// ModelInferRequest by the tensors of the first target, so further targets must take the same tensors.
//
// For a message of a stream the turn is given on once the message has its place in the line for the endpoint, or, for a
// decoupled model's PredictStream, once it has been answered. An attempt that fails before that leaves the turn with the
// caller, who may try elsewhere and ends it (Turn.Pass) when the call is over.
func (s *seat) Infer(ctx context.Context, c *inference.Call) error {
	var err error
	if c.Stream != nil {
		err = s.inferInStream(ctx, c)
	} else {
		err = s.inferUnary(ctx, c)
	}
	err = s.pool.up.stopped(ctx, err)
	failed := err
	if failed == nil {
		failed = c.InBand
	}
	s.learn(failed)
	if c.Head.Sequence.ID != "" {
		err = s.left(c, err)
	}
	return err
}

// inferUnary is a call by itself.
func (s *seat) inferUnary(ctx context.Context, c *inference.Call) error {
	if !s.ep.enter() {
		return s.noRoom(c)
	}
	defer s.ep.exit()
	if c.Protocol.SpeaksPredict() {
		return s.predict(ctx, c)
	}
	return s.infer(ctx, c)
}

// infer is a unary KServe call.
func (s *seat) infer(ctx context.Context, c *inference.Call) error {
	rewrite(c, false)
	answer, err := s.invoke(ctx, c)
	if err != nil {
		return err
	}
	if c.Head.Model != c.Target.Model {
		answer.Append(wire.AppendAnswerModel(nil, c.Head.Model))
	}
	return c.Send(answer)
}

// predict is a unary Predict: a ModelInfer around the same bytes, or, for a decoupled model, a stream of one request.
func (s *seat) predict(ctx context.Context, c *inference.Call) error {
	tensors, decoupled, err := s.manner(ctx, c)
	if err != nil {
		return err
	}
	if err := rewritePredict(c, tensors); err != nil {
		return err
	}
	if decoupled {
		return s.predictDecoupled(ctx, c, tensors)
	}
	answer, err := s.invoke(ctx, c)
	if err != nil {
		return err
	}
	return sendPredict(c, answer, tensors)
}

// sendPredict turns a ModelInferResponse into a PredictionResponse and hands it over.
func sendPredict(c *inference.Call, answer inference.Frame, tensors inference.Tensors) error {
	datatype, err := wire.InferToPredict(&answer, tensors, "OK", time.Since(c.Start))
	if err != nil {
		answer.Free()
		return err
	}
	c.AnswerType = datatype
	return c.Send(answer)
}

// manner tells how the target's model takes tensors, and whether it is decoupled. Tensors that are declared win, and then
// a server that does not describe its models can be called all the same.
func (s *seat) manner(ctx context.Context, c *inference.Call) (inference.Tensors, bool, error) {
	info, err := s.pool.Info(ctx)
	declared := c.Model.Tensors
	if err == nil && info.Decoupled {
		c.MarkDecoupled()
	}
	switch {
	case err == nil && declared == nil:
		return info.Tensors, info.Decoupled, nil
	case err == nil:
		return *declared, info.Decoupled, nil
	case declared != nil && ctx.Err() == nil:
		return *declared, false, nil
	}
	return inference.Tensors{}, false, err
}

// rewrite puts behind a ModelInferRequest what the target asks for and the caller did not say: names only where they
// differ, so that most calls leave as they came. ends adds the wish for an empty final answer.
func rewrite(c *inference.Call, ends bool) {
	if c.Rewritten == c.Target {
		return
	}
	model, version := c.Target.Model, c.Target.Version
	if c.Rewritten == nil {
		if model == c.Head.Model {
			model = ""
		}
		if version == c.Head.Version {
			version = ""
		}
	}
	var fields []byte
	if model != "" || version != "" {
		fields = wire.AppendTarget(nil, model, version)
	}
	if ends {
		fields = wire.AppendEmptyFinal(fields)
	}
	if c.Model.PassPriority {
		fields = wire.AppendPriority(fields, level(c.Priority))
	}
	c.Request.Append(fields)
	c.Rewritten = c.Target
}

// rewritePredict makes a PredictionRequest the target's ModelInferRequest.
func rewritePredict(c *inference.Call, tensors inference.Tensors) error {
	if c.Rewritten != nil {
		rewrite(c, false)
		return nil
	}
	if err := wire.PredictToInfer(&c.Request, c.Head, c.Target.Model, c.Target.Version, tensors); err != nil {
		return err
	}
	if c.Model.PassPriority {
		c.Request.Append(wire.AppendPriority(nil, level(c.Priority)))
	}
	c.Rewritten = c.Target
	return nil
}

// level is a priority as Triton counts them.
func level(p inference.Priority) uint64 {
	switch p {
	case inference.PriorityCritical:
		return 1
	case inference.PrioritySheddable:
		return 3
	default:
		return 2
	}
}

// invoke sends c.Request as a ModelInfer and gives the answer, which the caller owns.
func (s *seat) invoke(ctx context.Context, c *inference.Call) (inference.Frame, error) {
	conn, err := s.ep.conn(c.Head.Sequence.ID != "")
	if err != nil {
		return inference.Frame{}, err
	}
	defer conn.release()
	var answer inference.Frame
	err = conn.cc.Invoke(s.pool.up.outgoing(ctx, c.Outgoing), tritonpb.GRPCInferenceService_ModelInfer_FullMethodName,
		&c.Request, &answer, grpc.Header((*metadata.MD)(&c.Header)), grpc.Trailer((*metadata.MD)(&c.Trailer)))
	if err != nil {
		answer.Free() // an error after an answer drops the answer
		return inference.Frame{}, s.explain(ctx, err)
	}
	return answer, nil
}

// explain is Classify with what only the seat knows. err is not nil.
func (s *seat) explain(ctx context.Context, err error) error {
	f := s.reread(fault.Of(Classify(ctx, err)))
	if f.Kind == fault.TooLarge && f.Upstream && strings.Contains(f.Msg, "larger than max") {
		return fault.Wrap(fault.TooLarge, f, "the message is larger than the %d bytes that max_message allows on upstream %s", s.ep.opts.MaxMessage, s.pool.up.name)
	}
	return f
}
