package control

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/model-gateway/model-gateway/pkg/inference"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// statistics sums what all endpoints have counted, under the names clients know.
func (s *Service) statistics(ctx context.Context, caller *inference.Caller, r *tritonpb.ModelStatisticsRequest) (*tritonpb.ModelStatisticsResponse, error) {
	sum := &summary{byModel: make(map[modelVersion]*tritonpb.ModelStatistics)}
	if r.Name != "" {
		if err := s.modelStatistics(ctx, caller, r, sum); err != nil {
			return nil, err
		}
		return sum.answer(), nil
	}
	err := s.everyEndpoint(ctx, func(ctx context.Context, up Upstream, client tritonpb.GRPCInferenceServiceClient) error {
		answer, err := client.ModelStatistics(ctx, &tritonpb.ModelStatisticsRequest{})
		if err != nil {
			return err
		}
		for _, m := range answer.ModelStats {
			for _, name := range s.seen(caller, up, m.Name) {
				sum.add(name, m)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return sum.answer(), nil
}

// modelStatistics sums one model over the endpoints of its upstream. Endpoints that do not have it count nothing.
func (s *Service) modelStatistics(ctx context.Context, caller *inference.Caller, r *tritonpb.ModelStatisticsRequest, sum *summary) error {
	t, err := s.target(ctx, caller, r.Name, r.Version)
	if err != nil {
		return err
	}
	version := ""
	if r.Version != "" {
		version = t.Version
	}
	ctx, cancel := context.WithTimeoutCause(ctx, questionTimeout, late)
	defer cancel()
	var first error
	for _, up := range s.View.Upstreams() {
		if up.Name() != t.Upstream {
			continue
		}
		failed := up.Each(ctx, func(ctx context.Context, _ string, conn grpc.ClientConnInterface) error {
			answer, err := tritonpb.NewGRPCInferenceServiceClient(conn).ModelStatistics(ctx, &tritonpb.ModelStatisticsRequest{Name: t.Model, Version: version})
			if err != nil {
				return err
			}
			for _, m := range answer.ModelStats {
				sum.add(r.Name, m)
			}
			return nil
		})
		for _, err := range failed {
			first = cmp.Or(first, err)
		}
	}
	if len(sum.byModel) == 0 {
		return first
	}
	return nil
}

type modelVersion struct{ name, version string }

// summary adds statistics up. It may be used by several goroutines.
type summary struct {
	mu      sync.Mutex
	byModel map[modelVersion]*tritonpb.ModelStatistics
}

func (s *summary) add(name string, m *tritonpb.ModelStatistics) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := modelVersion{name, m.Version}
	total := s.byModel[k]
	if total == nil {
		total = proto.CloneOf(m)
		total.Name = name
		s.byModel[k] = total
		return
	}
	last := max(total.LastInference, m.LastInference)
	batches := addBatches(total.BatchStats, m.BatchStats)
	memory := total.MemoryUsage
	total.BatchStats, total.MemoryUsage = nil, nil
	addUp(total.ProtoReflect(), m.ProtoReflect())
	total.LastInference, total.BatchStats = last, batches
	total.MemoryUsage = append(memory, m.MemoryUsage...)
}

func (s *summary) answer() *tritonpb.ModelStatisticsResponse {
	answer := &tritonpb.ModelStatisticsResponse{}
	for _, m := range s.byModel {
		answer.ModelStats = append(answer.ModelStats, m)
	}
	slices.SortFunc(answer.ModelStats, func(a, b *tritonpb.ModelStatistics) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), inference.CompareVersions(a.Version, b.Version))
	})
	return answer
}

// addBatches adds the executions of each batch size.
func addBatches(a, b []*tritonpb.InferBatchStatistics) []*tritonpb.InferBatchStatistics {
	bySize := make(map[uint64]*tritonpb.InferBatchStatistics, len(a))
	for _, x := range a {
		bySize[x.BatchSize] = x
	}
	for _, x := range b {
		total := bySize[x.BatchSize]
		if total == nil {
			a = append(a, proto.CloneOf(x))
			continue
		}
		size := total.BatchSize
		addUp(total.ProtoReflect(), x.ProtoReflect())
		total.BatchSize = size
	}
	slices.SortFunc(a, func(x, y *tritonpb.InferBatchStatistics) int { return cmp.Compare(x.BatchSize, y.BatchSize) })
	return a
}

// addUp adds every counter of src to dst, in nested messages and maps too. All fields of statistics are counters,
// but for names and those that the callers see to.
func addUp(dst, src protoreflect.Message) {
	src.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			into := dst.Mutable(f).Map()
			v.Map().Range(func(k protoreflect.MapKey, entry protoreflect.Value) bool {
				addUp(into.Mutable(k).Message(), entry.Message())
				return true
			})
		case f.IsList():
		case f.Message() != nil:
			addUp(dst.Mutable(f).Message(), v.Message())
		case f.Kind() == protoreflect.Uint64Kind:
			dst.Set(f, protoreflect.ValueOfUint64(dst.Get(f).Uint()+v.Uint()))
		}
		return true
	})
}
