package triton

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/wire"
	"github.com/model-gateway/model-gateway/proto/triton"
)

var streamDesc = grpc.StreamDesc{StreamName: "ModelStreamInfer", ClientStreams: true, ServerStreams: true}

// predictDecoupled sends a unary Predict to a decoupled model, which takes requests on streams only. It has one answer to
// give, so a model that gives none or several is refused, and told to stop.
func (s *seat) predictDecoupled(ctx context.Context, c *inference.Call, tensors inference.Tensors) error {
	conn, err := s.ep.conn(c.Head.Sequence.ID != "")
	if err != nil {
		return err
	}
	defer conn.release()
	streamCtx, cancel := context.WithCancel(ctx)
	defer cancel() // whatever the model still does for us ends with the call
	stream, err := conn.cc.NewStream(s.pool.up.outgoing(streamCtx, c.Outgoing), &streamDesc,
		tritonpb.GRPCInferenceService_ModelStreamInfer_FullMethodName)
	if err != nil {
		return s.explain(ctx, err)
	}
	c.Request.Append(wire.AppendEmptyFinal(nil))
	if err := stream.SendMsg(&c.Request); err != nil && !errors.Is(err, io.EOF) {
		return s.explain(ctx, err)
	}
	_ = stream.CloseSend()
	answer, err := s.onlyAnswer(ctx, stream)
	if err != nil {
		return err
	}
	if h, err := stream.Header(); err == nil {
		c.Header = h
	}
	return sendPredict(c, answer, tensors)
}

// onlyAnswer reads to the model's last answer and gives the one that has outputs.
func (s *seat) onlyAnswer(ctx context.Context, stream grpc.ClientStream) (only inference.Frame, err error) {
	got := 0
	defer func() {
		if err != nil {
			only.Free()
		}
	}()
	for final := false; !final; {
		var f inference.Frame
		if err := stream.RecvMsg(&f); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return only, s.explain(ctx, err)
		}
		head, err := wire.PeekStreamAnswer(f)
		switch {
		case err != nil:
		case head.Error != "":
			err = s.reread(inBand(head.Error))
		case !head.Empty:
			if got++; got > 1 {
				err = useStream(s.pool.model, "more than one answer")
				break
			}
			if err = wire.UnwrapStreamAnswer(&f); err == nil {
				only, f = f, inference.Frame{}
			}
		}
		f.Free()
		if err != nil {
			return only, err
		}
		final = head.Final
	}
	if got == 0 {
		return only, useStream(s.pool.model, "no answer")
	}
	return only, nil
}

func useStream(model, gave string) *fault.Fault {
	return fault.New(fault.UseStream, "model %q is decoupled and gave %s; call ml.inference.InferenceService/PredictStream, which takes any number", model, gave)
}
