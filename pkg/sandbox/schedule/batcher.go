package schedule

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/model-gateway/model-gateway/pkg/sandbox/repository"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// maxWaiting bounds a queue that the model's configuration leaves unbounded.
const maxWaiting = 100_000

// batcher serves models without sequences: one queue per priority, from which idle instances take batches.
type batcher struct {
	*core
	maxRows   int   // of a batch; 0 never joins requests
	preferred []int // ascending
	delay     time.Duration
	levels    int

	mu     sync.Mutex
	cond   sync.Cond
	queues [][]*Job // by priority, the highest first; the last one has jobs whose time is over
	idle   int      // instances that wait for work
	closed bool
}

func newBatcher(c *core, instances int) *batcher {
	b := &batcher{core: c, levels: 1}
	b.cond.L = &b.mu
	if d := c.config.GetDynamicBatching(); d != nil {
		b.maxRows = int(c.config.MaxBatchSize)
		b.delay = time.Duration(d.MaxQueueDelayMicroseconds) * time.Microsecond
		for _, p := range d.PreferredBatchSize {
			b.preferred = append(b.preferred, int(p))
		}
		slices.Sort(b.preferred)
		b.levels = int(min(max(d.PriorityLevels, 1), 100))
	}
	b.queues = make([][]*Job, b.levels+1)
	for range instances {
		c.loops.Go(b.loop)
	}
	return b
}

func (b *batcher) loop() {
	for {
		batch := b.take()
		if batch == nil {
			return
		}
		b.run(batch)
	}
}

// level is the queue a job belongs to.
func (b *batcher) level(j *Job) int {
	p := j.Priority
	if p == 0 {
		p = b.config.GetDynamicBatching().GetDefaultPriorityLevel()
	}
	return int(min(max(p, 1), uint64(b.levels))) - 1
}

func (b *batcher) policy(level int) *tritonpb.ModelQueuePolicy {
	d := b.config.GetDynamicBatching()
	if p, ok := d.GetPriorityQueuePolicy()[uint64(level+1)]; ok {
		return p
	}
	return d.GetDefaultQueuePolicy()
}

// Submit implements Scheduler.
func (b *batcher) Submit(j *Job) *repository.Error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrStopping
	}
	level := b.level(j)
	policy := b.policy(level)
	limit := int(policy.GetMaxQueueSize())
	if limit == 0 {
		limit = maxWaiting
	}
	if len(b.queues[level]) >= limit+b.idle { // what an idle instance is about to take does not wait
		return &repository.Error{Code: codes.Unavailable, Msg: "[request id: " + RequestID(j.ID) + "] Exceeds maximum queue size"}
	}
	b.admit(j)
	b.queues[level] = append(b.queues[level], j)
	b.limitWait(j, policy)
	j.onGone(func() {
		if b.remove(j) {
			b.cancelled(j)
		}
	})
	b.cond.Signal()
	return nil
}

// RequestID is how messages name a request.
func RequestID(id string) string {
	if id == "" {
		return "<id_unknown>"
	}
	return id
}

// limitWait starts the clock of a job whose time in the queue is limited.
func (b *batcher) limitWait(j *Job, policy *tritonpb.ModelQueuePolicy) {
	limit := time.Duration(policy.GetDefaultTimeoutMicroseconds()) * time.Microsecond
	if policy.GetAllowTimeoutOverride() && j.Timeout > 0 && (limit == 0 || j.Timeout < limit) {
		limit = j.Timeout
	}
	if limit <= 0 {
		return
	}
	action := policy.GetTimeoutAction()
	j.timer = time.AfterFunc(limit, func() {
		if action == tritonpb.ModelQueuePolicy_DELAY {
			b.postpone(j)
		} else if b.remove(j) {
			b.refuse(j, &repository.Error{Code: codes.Unavailable, Msg: "Request timeout expired"})
		}
	})
}

// remove takes a job out of its queue; false when it is not there any more.
func (b *batcher) remove(j *Job) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for l, q := range b.queues {
		if i := slices.Index(q, j); i >= 0 {
			b.queues[l] = slices.Delete(q, i, i+1)
			return true
		}
	}
	return false
}

func (b *batcher) postpone(j *Job) {
	if !b.remove(j) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queues[b.levels] = append(b.queues[b.levels], j)
	b.cond.Signal()
}

// take waits for the next batch; nil when the batcher is closed and empty.
func (b *batcher) take() []*Job {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle++
	defer func() { b.idle-- }()
	for {
		n, wait := b.ready(time.Now())
		if n > 0 {
			batch := b.cut(n)
			if b.waiting() > 0 {
				b.cond.Signal() // another instance may serve the rest
			}
			return batch
		}
		if b.closed && b.waiting() == 0 {
			return nil
		}
		var t *time.Timer
		if wait > 0 {
			t = time.AfterFunc(wait, func() { // under the lock, or the wake-up could come before the wait
				b.mu.Lock()
				defer b.mu.Unlock()
				b.cond.Broadcast()
			})
		}
		b.cond.Wait()
		if t != nil {
			t.Stop()
		}
	}
}

func (b *batcher) waiting() int {
	n := 0
	for _, q := range b.queues {
		n += len(q)
	}
	return n
}

// ready tells how many jobs, in order, make the next batch; or how long to wait for more to come.
func (b *batcher) ready(now time.Time) (n int, wait time.Duration) {
	var first *Job
	rows, preferred, full := 0, 0, false
	oldest := now
	for _, q := range b.queues {
		for _, j := range q {
			if first == nil {
				first = j
				if b.maxRows == 0 {
					return 1, 0
				}
			} else if rows+j.Rows > b.maxRows || !joinable(first, j) {
				full = true
				break
			}
			n++
			rows += j.Rows
			if slices.Contains(b.preferred, rows) {
				preferred = n
			}
			if j.queued.Before(oldest) {
				oldest = j.queued
			}
		}
		if full {
			break
		}
	}
	if n == 0 {
		return 0, 0
	}
	enough := full || rows >= b.maxRows || (len(b.preferred) > 0 && rows >= b.preferred[len(b.preferred)-1])
	switch age := now.Sub(oldest); {
	case enough && preferred > 0:
		return preferred, 0
	case enough, b.closed, age >= b.delay:
		return n, 0
	default:
		return 0, b.delay - age
	}
}

// joinable reports whether two jobs can run as one batch: the same inputs, of the same shapes but for the batch.
func joinable(a, b *Job) bool {
	if len(a.Inputs) != len(b.Inputs) {
		return false
	}
	for i := range a.Inputs {
		x, y := &a.Inputs[i], b.Input(a.Inputs[i].Name)
		if y == nil || len(x.Shape) != len(y.Shape) || len(x.Shape) == 0 || !slices.Equal(x.Shape[1:], y.Shape[1:]) {
			return false
		}
	}
	return true
}

// cut takes the first n jobs out of the queues.
func (b *batcher) cut(n int) []*Job {
	batch := make([]*Job, 0, n)
	for l, q := range b.queues {
		k := min(n-len(batch), len(q))
		batch = append(batch, q[:k]...)
		b.queues[l] = slices.Delete(q, 0, k)
	}
	return batch
}

// Close implements Scheduler.
func (b *batcher) Close() {
	b.mu.Lock()
	b.closed = true
	b.cond.Broadcast()
	b.mu.Unlock()
	b.loops.Wait()
	b.jobs.Wait()
}

// Statistics implements Scheduler.
func (b *batcher) Statistics() *tritonpb.ModelStatistics { return b.stats.snapshot() }

// Waiting implements Scheduler.
func (b *batcher) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting()
}
