// Package schedule decides when and with whom a request runs: it joins requests into batches as dynamic_batching says,
// keeps the requests of a sequence together and in order, bounds queues, drops what nobody waits for any more, and counts.
// A Scheduler belongs to one version of one model and runs its instances as goroutines.
package schedule

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/model-gateway/model-gateway/pkg/sandbox/repository"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// Job is a request on its way through a scheduler.
type Job struct {
	repository.Request
	Priority uint64        // 1 is the highest; 0 is the model's default
	Timeout  time.Duration // the most it may wait, where the model's queue policy lets requests say so

	// Answer gets every answer of the model, one after another; the last one with final. It is called from the model's goroutine,
	// which it may hold up. A job that was dropped gets one last answer with an error.
	Answer func(outputs []repository.Tensor, err *repository.Error, final bool)

	queued  time.Time
	started time.Time
	stop    func() bool // stops waiting for the caller to go
	timer   *time.Timer
	done    atomic.Bool
}

// Scheduler runs one version of a model.
type Scheduler interface {
	// Submit queues a job, or says why it cannot. After nil the job is answered through Answer.
	Submit(j *Job) *repository.Error
	// Close takes no more jobs, and returns once all those taken have been answered.
	Close()
	// Statistics are the counts so far.
	Statistics() *tritonpb.ModelStatistics
	// Waiting is how many jobs are queued and not running.
	Waiting() int
}

// New makes the scheduler that the configuration asks for and starts its instances.
func New(c *tritonpb.ModelConfig, version int64, b repository.Backend) Scheduler {
	core := &core{config: c, backend: b, stats: newStatistics(c.Name, version)}
	instances := 0
	for _, g := range c.InstanceGroup {
		instances += int(g.Count)
	}
	if c.GetSequenceBatching() != nil {
		return newSequences(core, instances)
	}
	return newBatcher(core, instances)
}

// core is what all schedulers have: running a batch, and its accounting.
type core struct {
	config  *tritonpb.ModelConfig
	backend repository.Backend
	stats   *statistics
	jobs    sync.WaitGroup // submitted and not yet answered for good
	loops   sync.WaitGroup
}

// ErrStopping refuses a job of a scheduler that is being closed: its model is unloaded, or was loaded anew.
var ErrStopping = &repository.Error{
	Code: codes.Unavailable,
	Msg:  "Server is stopping, scheduler for model has stopped accepting new inference request",
}

// admit makes j ready to be queued. The caller has checked that the scheduler is open, under its lock.
func (c *core) admit(j *Job) {
	j.queued = time.Now()
	c.jobs.Add(1)
}

// onGone calls drop when the caller of j goes away before j has started.
func (j *Job) onGone(drop func()) {
	j.stop = context.AfterFunc(j.Context, drop)
}

// settle ends what could still happen to a queued job.
func (j *Job) settle() {
	if j.stop != nil {
		j.stop()
	}
	if j.timer != nil {
		j.timer.Stop()
	}
}

// refuse answers a job that never ran.
func (c *core) refuse(j *Job, err *repository.Error) {
	j.settle()
	if j.done.Swap(true) {
		return
	}
	c.stats.refused(j)
	j.Answer(nil, err, true)
	c.jobs.Done()
}

func (c *core) cancelled(j *Job) {
	c.refuse(j, &repository.Error{Code: codes.Canceled, Msg: "request cancelled"})
}

// run executes a batch and returns when the instance is free again.
func (c *core) run(batch []*Job) {
	now := time.Now()
	requests := make([]*repository.Request, len(batch))
	e := &execution{core: c, size: len(batch), taken: now}
	for i, j := range batch {
		j.settle()
		j.started = now
		e.rows += j.Rows
		j.Send = func(outputs []repository.Tensor, err *repository.Error, final bool) { e.send(j, outputs, err, final) }
		requests[i] = &j.Request
	}
	e.began = time.Now()
	defer func() {
		if p := recover(); p != nil {
			for _, j := range batch {
				j.Send(nil, &repository.Error{Code: codes.Internal, Msg: fmt.Sprintf("Failed to process the request(s) for model '%s_0_0', message: %v", c.config.Name, p), Raised: true}, true)
			}
		}
	}()
	c.backend.Execute(requests)
}

// execution is one run of a batch.
type execution struct {
	*core
	size, rows   int
	taken, began time.Time
	counted      atomic.Bool
}

func (e *execution) send(j *Job, outputs []repository.Tensor, err *repository.Error, final bool) {
	if j.done.Load() || (final && j.done.Swap(true)) {
		return // the model answered after its last answer
	}
	computed := time.Now()
	if final {
		e.stats.answered(j, e, computed, err != nil && err.Raised)
	}
	j.Answer(outputs, err, final)
	if final {
		e.jobs.Done()
	}
}
