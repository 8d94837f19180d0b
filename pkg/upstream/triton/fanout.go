package triton

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"

	"google.golang.org/grpc"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// maxFanout bounds how many endpoints are asked at a time.
const maxFanout = 32

// EndpointError is how a question to one endpoint ended badly.
type EndpointError struct {
	Endpoint string
	Err      error // as do returned it
}

// Each runs do for every endpoint, side by side, and gives the errors in order of endpoint; none when
// all went well. Errors of conn are gRPC's own; Classify makes faults of them.
func (u *Upstream) Each(ctx context.Context, do func(endpoint string, conn grpc.ClientConnInterface) error) []EndpointError {
	endpoints := u.list()
	if len(endpoints) == 0 {
		return []EndpointError{{Err: u.noEndpoints()}}
	}
	errs := make([]error, len(endpoints))
	places := make(chan struct{}, maxFanout)
	var all sync.WaitGroup
	for i, e := range endpoints {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			if errs[i] = context.Cause(ctx); errs[i] == nil {
				errs[i] = do(e.name, line{e})
			}
		})
	}
	all.Wait()
	var failed []EndpointError
	for i, err := range errs {
		if err != nil {
			failed = append(failed, EndpointError{Endpoint: endpoints[i].name, Err: err})
		}
	}
	return failed
}

// Any runs do for one endpoint that answers, and for a second one when the first turned out to be lost.
// Its error is do's last.
func (u *Upstream) Any(ctx context.Context, do func(endpoint string, conn grpc.ClientConnInterface) error) error {
	return u.best(ctx, do, func(e *endpoint) int {
		if u.health.Up(e.name) {
			return 0
		}
		return 1
	})
}

// AnyReady is Any for a question about a version of a model: it prefers endpoints where that is ready.
func (u *Upstream) AnyReady(ctx context.Context, model, version string, do func(endpoint string, conn grpc.ClientConnInterface) error) error {
	return u.best(ctx, do, func(e *endpoint) int {
		switch u.health.State(e.name, model, version) {
		case inference.Ready:
			return 0
		case inference.Unknown:
			return 1
		default:
			return 2
		}
	})
}

// best runs do for an endpoint of the lowest rank there is, and for another one when that was lost.
func (u *Upstream) best(ctx context.Context, do func(endpoint string, conn grpc.ClientConnInterface) error, rank func(*endpoint) int) error {
	endpoints := slices.Clone(u.list())
	rand.Shuffle(len(endpoints), func(i, j int) { endpoints[i], endpoints[j] = endpoints[j], endpoints[i] })
	slices.SortStableFunc(endpoints, func(a, b *endpoint) int { return rank(a) - rank(b) })
	err := error(u.noEndpoints())
	for _, e := range endpoints[:min(2, len(endpoints))] {
		err = do(e.name, line{e})
		if err == nil || ctx.Err() != nil || !fault.Of(Classify(ctx, err)).Kind.Row().Elsewhere {
			return err
		}
	}
	return err
}

func (u *Upstream) noEndpoints() *fault.Fault {
	return fault.New(fault.NoEndpoint, "upstream %s has no endpoints: %s gives no address yet; try again shortly", u.name, *u.source.Load())
}
