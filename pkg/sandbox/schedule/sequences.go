package schedule

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/model-gateway/model-gateway/pkg/sandbox/repository"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// defaultIdle is how long a sequence may be silent where the configuration does not say.
const defaultIdle = time.Second

// maxQueued bounds the requests that wait in one sequence, and maxSequences those that wait for a slot.
const (
	maxQueued    = 10_000
	maxSequences = 100_000
)

// sequences serves stateful models: the requests of a sequence run one after another and share a state. A sequence
// holds one of a fixed number of slots from its START to its END, or until it was idle too long; without a free slot
// it waits.
type sequences struct {
	*core
	slots int
	batch int
	idle  time.Duration

	mu      sync.Mutex
	cond    sync.Cond
	active  map[any]*sequence
	backlog []*sequence // without a slot, in order
	ready   []*sequence // with a slot and a request that may run
	used    int         // slots
	closed  bool
}

type sequence struct {
	id      any
	queue   []*Job
	state   any
	slot    bool
	running bool
	ending  bool // END has been submitted
	timer   *time.Timer
}

func newSequences(c *core, instances int) *sequences {
	s := &sequences{core: c, active: map[any]*sequence{}, batch: int(max(c.config.MaxBatchSize, 1)), idle: defaultIdle}
	s.cond.L = &s.mu
	sb := c.config.GetSequenceBatching()
	s.slots = s.batch * max(instances, 1)
	if o := sb.GetOldest(); o != nil && o.MaxCandidateSequences > 0 {
		s.slots = int(o.MaxCandidateSequences) * max(instances, 1)
	}
	if us := sb.GetMaxSequenceIdleMicroseconds(); us > 0 {
		s.idle = time.Duration(us) * time.Microsecond
	}
	for range instances {
		c.loops.Go(s.loop)
	}
	return s
}

// Submit implements Scheduler.
func (s *sequences) Submit(j *Job) *repository.Error {
	bad := func(format string, args ...any) *repository.Error {
		return &repository.Error{Code: codes.InvalidArgument, Msg: fmt.Sprintf(format, args...)}
	}
	if j.Rows != 1 {
		return bad("inference request to model '%s' must specify batch-size 1 due to requirements of sequence batcher", s.config.Name)
	}
	id := j.Sequence.ID
	if id == nil || id == int64(0) || id == "" {
		return bad("inference request to model '%s' must specify a non-zero or non-empty correlation ID", s.config.Name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrStopping
	}
	q := s.active[id]
	switch {
	case j.Sequence.Start && (q == nil || q.ending):
		if len(s.active) >= maxSequences {
			return &repository.Error{Code: codes.Unavailable, Msg: "too many sequences"}
		}
		q = s.begin(id)
	case q == nil || q.ending:
		return bad("inference request for sequence %v to model '%s' must specify the START flag on the first request of the sequence", id, s.config.Name)
	case len(q.queue) >= maxQueued:
		return &repository.Error{Code: codes.Unavailable, Msg: "[request id: " + RequestID(j.ID) + "] Exceeds maximum queue size"}
	}
	s.admit(j)
	q.ending = q.ending || j.Sequence.End
	q.queue = append(q.queue, j)
	if q.timer != nil {
		q.timer.Stop()
	}
	s.wake(q)
	j.onGone(func() {
		if s.remove(q, j) {
			s.cancelled(j)
		}
	})
	return nil
}

// begin makes a sequence, with a slot where one is free. One that has not quite ended keeps its own state.
func (s *sequences) begin(id any) *sequence {
	q := &sequence{id: id}
	s.active[id] = q
	if s.used < s.slots && len(s.backlog) == 0 {
		s.used++
		q.slot = true
	} else {
		s.backlog = append(s.backlog, q)
	}
	return q
}

// wake lines a sequence up that can run.
func (s *sequences) wake(q *sequence) {
	if q.slot && !q.running && len(q.queue) > 0 && !slices.Contains(s.ready, q) {
		s.ready = append(s.ready, q)
		s.cond.Signal()
	}
}

func (s *sequences) remove(q *sequence, j *Job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(q.queue, j)
	if i < 0 {
		return false
	}
	q.queue = slices.Delete(q.queue, i, i+1)
	if len(q.queue) == 0 && !q.running {
		s.ready = slices.DeleteFunc(s.ready, func(o *sequence) bool { return o == q })
		s.rest(q)
	}
	return true
}

// rest is called for a sequence with nothing to do: it ends, or its idle time begins.
func (s *sequences) rest(q *sequence) {
	if q.ending {
		s.end(q)
		return
	}
	q.timer = time.AfterFunc(s.idle, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(q.queue) == 0 && !q.running {
			s.end(q)
		}
	})
}

// end forgets a sequence and gives its slot to the next.
func (s *sequences) end(q *sequence) {
	if s.active[q.id] == q {
		delete(s.active, q.id)
	}
	if !q.slot {
		s.backlog = slices.DeleteFunc(s.backlog, func(o *sequence) bool { return o == q })
		return
	}
	q.slot = false
	s.used--
	if len(s.backlog) > 0 {
		next := s.backlog[0]
		s.backlog = s.backlog[1:]
		next.slot = true
		s.used++
		s.wake(next)
	}
}

func (s *sequences) loop() {
	for {
		qs, batch := s.take()
		if batch == nil {
			return
		}
		s.run(batch)
		s.after(qs, batch)
	}
}

// take waits for sequences that can run, and takes the next request of each.
func (s *sequences) take() ([]*sequence, []*Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.ready) == 0 {
		if s.closed && len(s.backlog) == 0 && !s.busy() {
			s.cond.Broadcast()
			return nil, nil
		}
		s.cond.Wait()
	}
	n := min(len(s.ready), s.batch)
	qs := slices.Clone(s.ready[:n])
	s.ready = slices.Delete(s.ready, 0, n)
	batch := make([]*Job, n)
	for i, q := range qs {
		batch[i] = q.queue[0]
		q.queue = q.queue[1:]
		q.running = true
		if batch[i].Sequence.Start {
			q.state = nil
		}
		batch[i].Sequence.State = &q.state
	}
	if len(s.ready) > 0 {
		s.cond.Signal()
	}
	return qs, batch
}

func (s *sequences) busy() bool {
	for _, q := range s.active {
		if q.running || len(q.queue) > 0 {
			return true
		}
	}
	return false
}

func (s *sequences) after(qs []*sequence, batch []*Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, q := range qs {
		q.running = false
		switch {
		case batch[i].Sequence.End && len(q.queue) == 0:
			s.end(q)
		case len(q.queue) > 0:
			s.wake(q)
		default:
			s.rest(q)
		}
	}
	if s.closed {
		s.cond.Broadcast()
	}
}

// Close implements Scheduler. Sequences that wait for a slot are refused, those that have one finish what was submitted.
func (s *sequences) Close() {
	s.mu.Lock()
	s.closed = true
	var late []*Job
	for _, q := range s.backlog {
		late = append(late, q.queue...)
		q.queue = nil
		if s.active[q.id] == q {
			delete(s.active, q.id)
		}
	}
	s.backlog = nil
	s.cond.Broadcast()
	s.mu.Unlock()
	for _, j := range late {
		s.refuse(j, ErrStopping)
	}
	s.loops.Wait()
	s.jobs.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.active {
		if q.timer != nil {
			q.timer.Stop()
		}
	}
}

// Statistics implements Scheduler.
func (s *sequences) Statistics() *tritonpb.ModelStatistics { return s.stats.snapshot() }

// Waiting implements Scheduler.
func (s *sequences) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, q := range s.active {
		n += len(q.queue)
	}
	return n
}
