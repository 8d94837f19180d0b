package schedule

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// statistics counts as the server's ModelStatistics does: inference_count counts rows, execution_count runs of the model.
type statistics struct {
	mu      sync.Mutex
	total   *tritonpb.ModelStatistics
	batches map[uint64]*tritonpb.InferBatchStatistics
}

func newStatistics(model string, version int64) *statistics {
	zero := func() *tritonpb.StatisticDuration { return &tritonpb.StatisticDuration{} }
	return &statistics{
		total: &tritonpb.ModelStatistics{
			Name: model, Version: strconv.FormatInt(version, 10),
			InferenceStats: &tritonpb.InferStatistics{
				Success: zero(), Fail: zero(), Queue: zero(), ComputeInput: zero(), ComputeInfer: zero(),
				ComputeOutput: zero(), CacheHit: zero(), CacheMiss: zero(),
			},
		},
		batches: map[uint64]*tritonpb.InferBatchStatistics{},
	}
}

func add(d *tritonpb.StatisticDuration, v time.Duration) {
	d.Count++
	d.Ns += uint64(max(v, 0))
}

// refused counts a job that was cancelled or timed out in the queue.
func (s *statistics) refused(j *Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	add(s.total.InferenceStats.Fail, time.Since(j.queued))
}

// answered counts the end of a job that ran, and its execution once.
func (s *statistics) answered(j *Job, e *execution, computed time.Time, raised bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.total
	t.LastInference = uint64(computed.UnixMilli())
	if raised {
		add(t.InferenceStats.Fail, computed.Sub(j.queued))
		return
	}
	add(t.InferenceStats.Success, computed.Sub(j.queued))
	add(t.InferenceStats.Queue, j.started.Sub(j.queued))
	add(t.InferenceStats.ComputeInput, e.began.Sub(e.taken))
	add(t.InferenceStats.ComputeInfer, computed.Sub(e.began))
	add(t.InferenceStats.ComputeOutput, time.Since(computed))
	t.InferenceCount += uint64(j.Rows)
	if e.counted.Swap(true) {
		return
	}
	t.ExecutionCount++
	b := s.batches[uint64(e.rows)]
	if b == nil {
		b = &tritonpb.InferBatchStatistics{
			BatchSize:    uint64(e.rows),
			ComputeInput: &tritonpb.StatisticDuration{}, ComputeInfer: &tritonpb.StatisticDuration{}, ComputeOutput: &tritonpb.StatisticDuration{},
		}
		s.batches[uint64(e.rows)] = b
	}
	add(b.ComputeInput, e.began.Sub(e.taken))
	add(b.ComputeInfer, computed.Sub(e.began))
	add(b.ComputeOutput, time.Since(computed))
}

func (s *statistics) snapshot() *tritonpb.ModelStatistics {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := proto.CloneOf(s.total)
	for _, size := range slices.Sorted(maps.Keys(s.batches)) {
		out.BatchStats = append(out.BatchStats, proto.CloneOf(s.batches[size]))
	}
	return out
}
