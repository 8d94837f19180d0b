package sandbox

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/model-gateway/model-gateway/pkg/sandbox/repository"
	"github.com/model-gateway/model-gateway/pkg/sandbox/schedule"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// outcome is one answer of a model, or the end of them.
type outcome struct {
	outputs []repository.Tensor
	err     *repository.Error
	final   bool
}

// answerFunc takes the answers of a job.
type answerFunc = func(outputs []repository.Tensor, err *repository.Error, final bool)

// maxResubmits is how often a model may be loaded anew under one request before that is given up.
const maxResubmits = 100

// submit checks a request and hands it to its model. When that has been loaded anew in between, it goes to the new one.
func (s *Server) submit(ctx context.Context, req *tritonpb.ModelInferRequest, stream bool, answer func(*request) answerFunc) (*request, error) {
	for range maxResubmits {
		r, err := s.parse(req, stream)
		if err != nil {
			return nil, err
		}
		s.forwardHeaders(ctx, r.job.Parameters)
		r.job.Context = ctx
		r.job.Answer = answer(r)
		switch e := r.served.run.Submit(r.job); e {
		case nil:
			return r, nil
		case schedule.ErrStopping:
		default:
			return nil, status.Error(e.Code, e.Msg)
		}
	}
	return nil, status.Error(schedule.ErrStopping.Code, schedule.ErrStopping.Msg)
}

// ModelInfer answers one request of a model that is not decoupled.
func (s *Server) ModelInfer(ctx context.Context, req *tritonpb.ModelInferRequest) (*tritonpb.ModelInferResponse, error) {
	visit := s.seen.arrive(ctx, s.models, "ModelInfer", req)
	defer visit.leave(ctx)
	if err := s.Faults.play(ctx, event{method: "ModelInfer", model: req.ModelName, version: req.ModelVersion, id: req.Id, infer: true}); err != nil {
		return nil, visit.failed(err)
	}
	answers := make(chan outcome, 1)
	r, err := s.submit(ctx, req, false, func(*request) answerFunc {
		return func(outputs []repository.Tensor, err *repository.Error, final bool) {
			answers <- outcome{outputs, err, final}
		}
	})
	if err != nil {
		return nil, visit.failed(err)
	}
	select {
	case o := <-answers:
		if o.err != nil {
			return nil, visit.failed(status.Error(o.err.Code, o.err.Msg))
		}
		visit.answered()
		return r.response(req, o.outputs), nil
	case <-ctx.Done():
		return nil, visit.failed(status.FromContextError(ctx.Err()).Err())
	}
}

// response renders the outputs that were asked for, in the order the model gave them.
func (r *request) response(req *tritonpb.ModelInferRequest, outputs []repository.Tensor) *tritonpb.ModelInferResponse {
	resp := &tritonpb.ModelInferResponse{
		ModelName: req.ModelName, ModelVersion: strconv.FormatInt(r.served.version, 10), Id: req.Id,
	}
	for _, t := range outputs {
		if r.named != nil && !slices.Contains(r.named, t.Name) {
			continue
		}
		if k := r.classify[t.Name]; k > 0 && t.Datatype == "FP32" {
			t = classes(t, k, r.served.labels[t.Name], r.served.config.MaxBatchSize > 0)
		}
		resp.Outputs = append(resp.Outputs, &tritonpb.ModelInferResponse_InferOutputTensor{Name: t.Name, Datatype: t.Datatype, Shape: t.Shape})
		resp.RawOutputContents = append(resp.RawOutputContents, t.Data)
	}
	return resp
}

// classes gives the k largest elements of each row as strings VALUE:INDEX or VALUE:INDEX:LABEL.
func classes(t repository.Tensor, k int, labels []string, batched bool) repository.Tensor {
	rows := int64(1)
	out := repository.Tensor{Name: t.Name, Datatype: "BYTES"}
	if batched && len(t.Shape) > 0 {
		rows = t.Shape[0]
		out.Shape = append(out.Shape, rows)
	}
	per := len(t.Data) / 4 / int(max(rows, 1))
	k = min(k, per)
	out.Shape = append(out.Shape, int64(k))
	for row := range int(rows) {
		data := t.Data[row*per*4 : (row+1)*per*4]
		at := func(i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:])) }
		order := make([]int, per)
		for i := range order {
			order[i] = i
		}
		sort.SliceStable(order, func(a, b int) bool { return at(order[a]) > at(order[b]) })
		for _, i := range order[:k] {
			text := fmt.Sprintf("%f:%d", at(i), i)
			if i < len(labels) {
				text += ":" + labels[i]
			}
			out.Data = append(out.Data, repository.String(text)...)
		}
	}
	return out
}

// noRegion answers a tensor that is said to be in shared memory, of which there is none here.
func noRegion(p *tritonpb.InferParameter) error {
	return status.Errorf(codes.NotFound, "Unable to find shared memory region: '%s'", p.GetStringParam())
}
