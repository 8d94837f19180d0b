package triton

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/proto/triton"
)

// Info is what a server says of one version of a model.
type Info struct {
	Tensors   inference.Tensors // inputs and outputs; which output answers is left open
	Versions  []string          // the versions that it serves
	Decoupled bool              // a request may have no answer or many

	until time.Time // when it has to be asked for again
}

const (
	infoTimeout = 5 * time.Second // for asking, whoever waits
	infoAge     = time.Minute     // before it is asked for again: a reload under traffic shows nowhere else
	infoRetry   = time.Second     // how long a failure to learn stands
	maxTensors  = 1024            // inputs of a model, and outputs
)

// infoCache keeps the Info of one version. It is asked for once at a time, and again after the model has
// gone away and come back.
type infoCache struct {
	known atomic.Pointer[Info]
	doubt atomic.Bool // known may be old

	mu     sync.Mutex
	asking chan struct{} // closed when the question under way has been answered; nil when none is
	failed error         // how it ended last, if badly
	retry  time.Time     // when failed is no longer believed
}

// suspect has the next call ask again; until that has been answered, what is known stays in use.
func (i *infoCache) suspect() { i.doubt.Store(true) }

// Info gives the tensors and the manner of answering of a version of a model, from memory if they are known.
func (u *Upstream) Info(ctx context.Context, model, version string) (*Info, error) {
	return u.pool(model, version).Info(ctx)
}

// Info of the pool's version.
func (p *pool) Info(ctx context.Context) (*Info, error) {
	known := p.info.known.Load()
	if known != nil && !p.info.doubt.Load() && time.Now().Before(known.until) {
		return known, nil
	}
	wait, err := p.ask(known) //nolint:contextcheck // the answer is for everybody who waits, whoever of them leaves
	if wait == nil {
		return known, err
	}
	select {
	case <-wait:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return nil, fault.Of(context.Cause(ctx))
	}
	if known = p.info.known.Load(); known != nil {
		return known, nil
	}
	p.info.mu.Lock()
	defer p.info.mu.Unlock()
	return nil, p.info.failed
}

// Tensors implements inference.Describer: what the version's server has last said of it. While nothing is known, somebody
// who could say is asked in the background.
func (p *pool) Tensors() inference.Tensors {
	known := p.info.known.Load()
	if known == nil || p.info.doubt.Load() || !time.Now().Before(known.until) {
		_, _ = p.ask(known)
	}
	if known == nil {
		return inference.Tensors{}
	}
	return known.Tensors
}

// ask starts to ask unless somebody does already. The channel is nil when there is no need to wait: something is
// known already, or asking has failed a moment ago.
func (p *pool) ask(known *Info) (<-chan struct{}, error) {
	i := &p.info
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.asking == nil {
		if i.failed != nil && time.Now().Before(i.retry) {
			if known != nil {
				return nil, nil
			}
			return nil, i.failed
		}
		asking := make(chan struct{})
		if !p.up.run(func() { p.learn(asking) }) {
			return nil, fault.New(fault.ShuttingDown, "upstream %s has been closed", p.up.name)
		}
		i.asking = asking
		i.doubt.Store(false)
	}
	if known != nil {
		return nil, nil
	}
	return i.asking, nil
}

func (p *pool) learn(done chan struct{}) {
	ctx, cancel := context.WithTimeout(p.up.life, infoTimeout)
	defer cancel()
	info, err := p.fetch(ctx)
	i := &p.info
	i.mu.Lock()
	defer i.mu.Unlock()
	i.failed, i.retry = err, time.Now().Add(infoRetry)
	if err == nil {
		info.until = time.Now().Add(infoAge)
		i.known.Store(info)
	} else {
		i.doubt.Store(true)
	}
	i.asking = nil
	close(done)
}

// fetch asks one endpoint that can serve the version, and another one if the first has been lost.
func (p *pool) fetch(ctx context.Context) (*Info, error) {
	var not []inference.Endpoint
	var first error
	for {
		picked, err := p.any(&inference.Call{Start: time.Now()}, p.current(), not)
		if err != nil {
			return nil, cmp.Or(first, err) // what one says is better than that there is no other
		}
		info, err := describe(ctx, probe{line{picked.ep}}, p.model, p.version)
		if err == nil || len(not) > 0 || !fault.Of(err).Kind.Row().Elsewhere {
			return info, err
		}
		not, first = append(not, picked), err
	}
}

func describe(ctx context.Context, conn grpc.ClientConnInterface, model, version string) (*Info, error) {
	client := tritonpb.NewGRPCInferenceServiceClient(conn)
	meta, err := client.ModelMetadata(ctx, &tritonpb.ModelMetadataRequest{Name: model, Version: version})
	if err != nil {
		return nil, err
	}
	if len(meta.GetInputs()) > maxTensors {
		return nil, fault.New(fault.UpstreamFailed, "model %q has %d inputs; at most %d are served", model, len(meta.GetInputs()), maxTensors)
	}
	info := &Info{Versions: meta.GetVersions(), Tensors: inference.Tensors{Inputs: tensorsOf(meta.GetInputs())}}
	if len(meta.GetOutputs()) <= maxTensors {
		info.Tensors.Outputs = tensorsOf(meta.GetOutputs())
	}
	config, err := client.ModelConfig(ctx, &tritonpb.ModelConfigRequest{Name: model, Version: version})
	switch {
	case err == nil:
		info.Decoupled = config.GetConfig().GetModelTransactionPolicy().GetDecoupled()
		info.Tensors.Inputs = required(info.Tensors.Inputs, config.GetConfig())
	case fault.Of(err).Kind != fault.NotServed: // a plain KServe server has no ModelConfig, and no decoupled models
		return nil, err
	}
	return info, nil
}

func tensorsOf(metadata []*tritonpb.ModelMetadataResponse_TensorMetadata) []inference.Tensor {
	all := make([]inference.Tensor, 0, len(metadata))
	for _, t := range metadata {
		all = append(all, inference.Tensor{Name: t.GetName(), Datatype: t.GetDatatype(), Shape: t.GetShape()})
	}
	return all
}

// required leaves out inputs that the model can do without: the flat bytes of a prediction have no way to say which
// of them they carry. A model whose inputs are all optional keeps them all.
func required(inputs []inference.Tensor, config *tritonpb.ModelConfig) []inference.Tensor {
	optional := make(map[string]bool)
	for _, in := range config.GetInput() {
		optional[in.GetName()] = in.GetOptional()
	}
	var kept []inference.Tensor
	for _, in := range inputs {
		if !optional[in.Name] {
			kept = append(kept, in)
		}
	}
	if len(kept) == 0 {
		return inputs
	}
	return kept
}

// Describe asks the upstream which versions of a model it serves. version narrows the question to one. A model
// or version that does not exist is a fault ModelNotFound, one that exists and is not loaded ModelNotReady.
func (u *Upstream) Describe(ctx context.Context, model, version string) ([]string, error) {
	var versions []string
	err := u.Any(ctx, func(_ string, conn grpc.ClientConnInterface) error {
		meta, err := tritonpb.NewGRPCInferenceServiceClient(conn).ModelMetadata(ctx, &tritonpb.ModelMetadataRequest{Name: model, Version: version})
		versions = meta.GetVersions()
		return Classify(ctx, err)
	})
	var f *fault.Fault
	if errors.As(err, &f) && f.Kind == fault.ModelNotReady {
		return nil, fault.Wrap(fault.ModelNotReady, f, "model %q is not ready on upstream %s; try again shortly", model, u.name)
	}
	return versions, err
}
