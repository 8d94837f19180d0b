package health

import (
	"context"
	"sync"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/proto/triton"
)

// A model may say that it is ready and answer nothing: its device is gone, or the process that runs it. Where the operator
// wants that found without traffic, a request of zeros takes the place of a question whether it is ready now and then, and
// of every one while it fails. It says nothing of models whose answers depend on what was sent before, or come in any number,
// so those are not sent any.

const (
	inferEvery   = 10 * time.Second
	inferTimeout = 10 * time.Second // models may be slow, and cold
	inferAfter   = 3                // failures in a row, until the version is not ready
	inferBytes   = 1 << 20          // of zeros at most; models that need more are not sent any
	shapesFor    = 10 * time.Minute // until metadata are read again
)

// SetInfer says which models are sent inferences of zeros, by their names on the upstream. nil: none.
func (p *Prober) SetInfer(models func(model string) bool) {
	if models == nil {
		models = func(string) bool { return false }
	}
	p.infer.Store(&models)
}

// inferring is what inferences of zeros have shown of one version on one endpoint. It is guarded by the table's lock.
type inferring struct {
	last time.Time
	bad  int // in a row
}

// zeros makes the request for each version.
type zeros struct {
	mu    sync.Mutex
	known map[key]shape
}

type shape struct {
	request *tritonpb.ModelInferRequest // nil: it is not sent any
	until   time.Time
}

// infersNow reports whether the next question of n is an inference.
func (e *endpoint) infersNow(n *entry) bool {
	if wants := e.p.infer.Load(); wants == nil || !(*wants)(n.model) {
		return false
	}
	e.p.mu.RLock()
	defer e.p.mu.RUnlock()
	at := e.inferred[n]
	return n.state == inference.Ready && at == nil || at != nil && (at.bad > 0 || time.Since(at.last) >= inferEvery)
}

// inferOn asks n by an inference. done is false when it was not sent any, and is to be asked whether it is ready.
func (e *endpoint) inferOn(n *entry) (ready bool, err error, done bool) { //nolint:revive // the error is one of two outcomes
	ctx, cancel := context.WithTimeout(e.ctx, inferTimeout)
	defer cancel()
	request, err := e.p.zeros.request(ctx, e.server(), *n.key)
	switch {
	case err != nil:
		return false, err, e.isDead(n) // nobody could say what to send; a dead one stays so
	case request == nil:
		e.inferredNow(n, 0)
		return false, nil, false
	}
	_, err = e.server().ModelInfer(ctx, request)
	if err == nil {
		e.inferredNow(n, 0)
		return true, nil, true
	}
	switch fault.Of(err).Kind {
	case fault.UpstreamFailed, fault.UpstreamTimeout, fault.Deadline:
		e.inferredNow(n, 1)
		return false, err, true
	case fault.ModelNotReady, fault.ModelNotFound, fault.Draining, fault.BadVersion, fault.UpstreamUnavailable, fault.EndpointLost, fault.Internal, fault.UpstreamQueue:
		return false, err, true // speaks of something else than this inference
	default:
		e.p.zeros.forget(*n.key) // it works, and does not like zeros; they may have another shape by now
		e.inferredNow(n, 0)
		return true, nil, true
	}
}

// inferredNow notes how an inference went: bad is 1 or 0.
func (e *endpoint) inferredNow(n *entry, bad int) {
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	at := e.inferred[n]
	if at == nil {
		if !n.wanted {
			return
		}
		at = new(inferring)
		e.inferred[n] = at
	}
	at.last = time.Now()
	before := at.bad
	if at.bad += bad; bad == 0 {
		at.bad = 0
	}
	log := e.p.opts.Logger.With("endpoint", e.name, "model", n.model, "version", n.version)
	switch {
	case at.bad == inferAfter:
		n.good = 0
		e.setState(n, inference.NotReady)
		log.Warn("model says that it is ready, and answers nothing", "failures", at.bad)
	case before >= inferAfter && at.bad == 0:
		log.Info("model answers again")
	}
}

func (e *endpoint) isDead(n *entry) bool {
	e.p.mu.RLock()
	defer e.p.mu.RUnlock()
	return e.dead(n)
}

// dead reports whether n is not ready for want of answers to inferences.
func (e *endpoint) dead(n *entry) bool {
	at := e.inferred[n]
	return at != nil && at.bad >= inferAfter
}

// request gives the request for k, asking for metadata where they are not known; nil when none is sent.
func (z *zeros) request(ctx context.Context, server tritonpb.GRPCInferenceServiceClient, k key) (*tritonpb.ModelInferRequest, error) {
	z.mu.Lock()
	s, ok := z.known[k]
	z.mu.Unlock()
	if ok && time.Now().Before(s.until) {
		return s.request, nil
	}
	meta, err := server.ModelMetadata(ctx, &tritonpb.ModelMetadataRequest{Name: k.model, Version: k.version})
	if err != nil {
		return nil, err
	}
	config, err := server.ModelConfig(ctx, &tritonpb.ModelConfigRequest{Name: k.model, Version: k.version})
	if err != nil && fault.Of(err).Kind != fault.NotServed {
		return nil, err
	}
	s = shape{until: time.Now().Add(shapesFor)}
	if c := config.GetConfig(); !c.GetModelTransactionPolicy().GetDecoupled() && c.GetSequenceBatching() == nil {
		s.request = zerosFor(k, meta.GetInputs())
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.known == nil {
		z.known = make(map[key]shape)
	}
	z.known[k] = s
	return s.request, nil
}

func (z *zeros) forget(k key) {
	z.mu.Lock()
	defer z.mu.Unlock()
	delete(z.known, k)
}

// widths are the bytes of one element; a BYTES element is its length, which is 0.
var widths = map[string]int64{
	"BOOL": 1, "UINT8": 1, "INT8": 1, "UINT16": 2, "INT16": 2, "FP16": 2, "BF16": 2,
	"UINT32": 4, "INT32": 4, "FP32": 4, "BYTES": 4, "UINT64": 8, "INT64": 8, "FP64": 8,
}

// zerosFor is a request of zeros, one of every dimension that may vary; nil when it would be too large, or cannot be made.
func zerosFor(k key, inputs []*tritonpb.ModelMetadataResponse_TensorMetadata) *tritonpb.ModelInferRequest {
	r := &tritonpb.ModelInferRequest{ModelName: k.model, ModelVersion: k.version, Id: "probe"}
	left := int64(inferBytes)
	for _, in := range inputs {
		size := widths[in.GetDatatype()]
		if size == 0 {
			return nil
		}
		dims := make([]int64, 0, len(in.GetShape()))
		for _, d := range in.GetShape() {
			d = max(d, 1)
			if d > left/size {
				return nil
			}
			size *= d
			dims = append(dims, d)
		}
		left -= size
		r.Inputs = append(r.Inputs, &tritonpb.ModelInferRequest_InferInputTensor{Name: in.GetName(), Datatype: in.GetDatatype(), Shape: dims})
		r.RawInputContents = append(r.RawInputContents, make([]byte, size))
	}
	return r
}
