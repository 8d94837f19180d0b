package control

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// index is the union of all endpoints' indexes, under the names clients know. A version that is ready on one endpoint
// and not on another is listed as ready: calls for it are served. Each caller finds only what it may see.
func (s *Service) index(ctx context.Context, caller *inference.Caller, r *tritonpb.RepositoryIndexRequest) (*tritonpb.RepositoryIndexResponse, error) {
	type key struct{ name, version string }
	var mu sync.Mutex
	merged := make(map[key]*tritonpb.RepositoryIndexResponse_ModelIndex)
	err := s.everyEndpoint(ctx, func(ctx context.Context, up Upstream, client tritonpb.GRPCInferenceServiceClient) error {
		answer, err := client.RepositoryIndex(ctx, &tritonpb.RepositoryIndexRequest{RepositoryName: r.RepositoryName, Ready: r.Ready})
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for _, m := range answer.Models {
			for _, name := range s.seen(caller, up, m.Name) {
				k := key{name, m.Version}
				if old := merged[k]; old == nil || (old.State != "READY" && m.State == "READY") {
					merged[k] = &tritonpb.RepositoryIndexResponse_ModelIndex{Name: name, Version: m.Version, State: m.State, Reason: m.Reason}
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	answer := &tritonpb.RepositoryIndexResponse{}
	for _, m := range merged {
		answer.Models = append(answer.Models, m)
	}
	slices.SortFunc(answer.Models, func(a, b *tritonpb.RepositoryIndexResponse_ModelIndex) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), inference.CompareVersions(a.Version, b.Version))
	})
	return answer, nil
}

// everyEndpoint asks all endpoints of all upstreams. It fails only when nobody answered.
func (s *Service) everyEndpoint(ctx context.Context, ask func(ctx context.Context, up Upstream, client tritonpb.GRPCInferenceServiceClient) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, questionTimeout, late)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	answered := 0
	for _, up := range s.View.Upstreams() {
		wg.Go(func() {
			failed := up.Each(ctx, func(ctx context.Context, _ string, conn grpc.ClientConnInterface) error {
				err := ask(ctx, up, tritonpb.NewGRPCInferenceServiceClient(conn))
				if err == nil {
					mu.Lock()
					answered++
					mu.Unlock()
				}
				return err
			})
			mu.Lock()
			defer mu.Unlock()
			for _, err := range failed {
				first = cmp.Or(first, err)
			}
		})
	}
	wg.Wait()
	switch {
	case answered > 0:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case first != nil:
		return first
	}
	return fault.New(fault.NoEndpoint, "no upstream has an endpoint that answers; try again shortly")
}
