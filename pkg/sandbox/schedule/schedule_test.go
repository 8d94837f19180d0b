package schedule

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/model-gateway/model-gateway/pkg/sandbox/repository"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// model is a backend under the test's control: it notes its batches and takes its time.
type model struct {
	took time.Duration
	each func(r *repository.Request) // answers one request; nil answers at once

	mu      sync.Mutex
	batches [][]string // ids
	at      []time.Time
}

func (m *model) Execute(batch []*repository.Request) {
	var ids []string
	for _, r := range batch {
		ids = append(ids, r.ID)
	}
	m.mu.Lock()
	m.batches = append(m.batches, ids)
	m.at = append(m.at, time.Now())
	m.mu.Unlock()
	pass(m.took)
	for _, r := range batch {
		if m.each != nil {
			m.each(r)
			continue
		}
		r.Send([]repository.Tensor{{Name: "OUT"}}, nil, true)
	}
}

func (m *model) seen() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprint(m.batches)
}

// bench is a scheduler and what came out of it.
type bench struct {
	t *testing.T
	Scheduler

	mu      sync.Mutex
	answers map[string]string
}

func newBench(t *testing.T, config string, m repository.Backend) *bench {
	t.Helper()
	c := &tritonpb.ModelConfig{}
	if err := prototext.Unmarshal([]byte(`name: "m" `+config), c); err != nil {
		t.Fatal(err)
	}
	if len(c.InstanceGroup) == 0 {
		c.InstanceGroup = []*tritonpb.ModelInstanceGroup{{Count: 1}}
	}
	return &bench{t: t, Scheduler: New(c, 1, m), answers: map[string]string{}}
}

// job makes a request of one row.
func (b *bench) job(id string, change ...func(*Job)) *Job {
	j := &Job{Request: repository.Request{ID: id, Context: context.Background(), Rows: 1, Inputs: []repository.Tensor{{Name: "IN", Shape: []int64{1, 2}}}}}
	for _, f := range change {
		f(j)
	}
	j.Answer = func(_ []repository.Tensor, err *repository.Error, final bool) {
		b.mu.Lock()
		defer b.mu.Unlock()
		text := "ok"
		if err != nil {
			text = err.Code.String() + ": " + err.Msg
		}
		if !final {
			text += " …"
		}
		b.answers[id] += text
	}
	return j
}

func (b *bench) submit(id string, change ...func(*Job)) {
	b.t.Helper()
	if err := b.Submit(b.job(id, change...)); err != nil {
		b.t.Fatalf("%s: %v", id, err)
	}
}

func (b *bench) answer(id string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.answers[id]
}

func (b *bench) want(id, answer string) {
	b.t.Helper()
	if got := b.answer(id); got != answer {
		b.t.Errorf("%s was answered %q, want %q", id, got, answer)
	}
}

// run runs a test in a bubble with its own clock.
func run(t *testing.T, f func(t *testing.T)) { t.Helper(); synctest.Test(t, f) }

// pass lets time go by on the bubble's clock.
func pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // no real time passes

const batching = `max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 5000 }`

func TestRequestsAreJoinedAtThePreferredSize(t *testing.T) {
	run(t, func(t *testing.T) {
		m := &model{}
		b := newBench(t, batching, m)
		defer b.Close()
		began := time.Now()
		for _, id := range []string{"a", "b", "c", "d"} {
			b.submit(id)
		}
		synctest.Wait()
		if got := m.seen(); got != "[[a b c d]]" || time.Since(began) != 0 {
			t.Errorf("batches %s after %v, want one of four at once", got, time.Since(began))
		}
	})
}

func TestALoneRequestLeavesAfterTheQueueDelay(t *testing.T) {
	run(t, func(t *testing.T) {
		m := &model{}
		b := newBench(t, batching, m)
		defer b.Close()
		began := time.Now()
		b.submit("a")
		pass(2 * time.Millisecond)
		b.submit("b")
		pass(10 * time.Millisecond)
		synctest.Wait()
		if got := m.seen(); got != "[[a b]]" {
			t.Fatalf("batches %s", got)
		}
		if waited := m.at[0].Sub(began); waited != 5*time.Millisecond {
			t.Errorf("left after %v, want 5ms", waited)
		}
	})
}

func TestWhatWaitsBehindABusyModelIsJoined(t *testing.T) {
	run(t, func(t *testing.T) {
		m := &model{took: time.Second}
		b := newBench(t, `max_batch_size: 3 dynamic_batching { preferred_batch_size: [ 3 ] }`, m)
		defer b.Close()
		b.submit("a")
		synctest.Wait()
		for _, id := range []string{"b", "c", "d", "e"} {
			b.submit(id)
		}
		pass(5 * time.Second)
		if got := m.seen(); got != "[[a] [b c d] [e]]" {
			t.Errorf("batches %s", got)
		}
	})
}

func TestABatchNeverExceedsItsLimitInRows(t *testing.T) {
	run(t, func(t *testing.T) {
		m := &model{took: time.Second}
		b := newBench(t, `max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 8 ] }`, m)
		defer b.Close()
		rows := func(n int) func(*Job) { return func(j *Job) { j.Rows = n } }
		b.submit("first")
		synctest.Wait()
		b.submit("a", rows(5))
		b.submit("b", rows(3))
		b.submit("c", rows(5))
		b.submit("d", rows(4))
		pass(9 * time.Second)
		if got := m.seen(); got != "[[first] [a b] [c] [d]]" {
			t.Errorf("batches %s", got)
		}
		st := b.Statistics()
		if st.InferenceCount != 18 || st.ExecutionCount != 4 {
			t.Errorf("inference_count %d, execution_count %d; want 18 rows in 4 runs", st.InferenceCount, st.ExecutionCount)
		}
		if n := len(st.BatchStats); n != 4 || st.BatchStats[3].BatchSize != 8 {
			t.Errorf("batch_stats %v", st.BatchStats)
		}
	})
}

func TestRequestsOfDifferentShapesAreNotJoined(t *testing.T) {
	run(t, func(t *testing.T) {
		m := &model{}
		b := newBench(t, batching, m)
		defer b.Close()
		b.submit("a")
		b.submit("wide", func(j *Job) { j.Inputs[0].Shape = []int64{1, 3} })
		pass(time.Second)
		if got := m.seen(); got != "[[a] [wide]]" {
			t.Errorf("batches %s", got)
		}
	})
}

func TestInstancesRunSideBySide(t *testing.T) {
	run(t, func(t *testing.T) {
		m := &model{took: time.Second}
		b := newBench(t, `instance_group { count: 3 }`, m)
		defer b.Close()
		began := time.Now()
		for _, id := range []string{"a", "b", "c"} {
			b.submit(id)
		}
		pass(time.Second)
		synctest.Wait()
		for _, id := range []string{"a", "b", "c"} {
			b.want(id, "ok")
		}
		if d := time.Since(began); d != time.Second {
			t.Errorf("took %v", d)
		}
	})
}

func TestAFullQueueRefusesAtOnce(t *testing.T) {
	run(t, func(t *testing.T) {
		b := newBench(t, `max_batch_size: 1 dynamic_batching { default_queue_policy { max_queue_size: 2 } }`, &model{took: time.Second})
		defer b.Close()
		synctest.Wait() // the instance waits for work
		for _, id := range []string{"running", "b", "c"} {
			b.submit(id)
		}
		err := b.Submit(b.job("7"))
		if err == nil || err.Code != codes.Unavailable || err.Msg != "[request id: 7] Exceeds maximum queue size" {
			t.Errorf("got %v", err)
		}
	})
}

func TestUrgentRequestsOvertake(t *testing.T) {
	run(t, func(t *testing.T) {
		m := &model{took: time.Second}
		b := newBench(t, `max_batch_size: 1 dynamic_batching { priority_levels: 2 default_priority_level: 2 }`, m)
		defer b.Close()
		b.submit("running")
		synctest.Wait()
		b.submit("usual")
		b.submit("urgent", func(j *Job) { j.Priority = 1 })
		b.submit("beyond", func(j *Job) { j.Priority = 99 })
		pass(5 * time.Second)
		if got := m.seen(); got != "[[running] [urgent] [usual] [beyond]]" {
			t.Errorf("order %s", got)
		}
	})
}

func TestTimeInTheQueueIsLimited(t *testing.T) {
	const config = `max_batch_size: 1 dynamic_batching { default_queue_policy { timeout_action: %s default_timeout_microseconds: 1500000 allow_timeout_override: true } }`
	run(t, func(t *testing.T) {
		b := newBench(t, fmt.Sprintf(config, "REJECT"), &model{took: 3 * time.Second})
		defer b.Close()
		b.submit("running")
		synctest.Wait()
		b.submit("a")
		b.submit("short", func(j *Job) { j.Timeout = 100 * time.Millisecond })
		b.submit("longer does not count", func(j *Job) { j.Timeout = time.Hour })
		pass(101 * time.Millisecond)
		b.want("short", "Unavailable: Request timeout expired")
		b.want("a", "")
		pass(1400 * time.Millisecond)
		b.want("a", "Unavailable: Request timeout expired")
		b.want("longer does not count", "Unavailable: Request timeout expired")
		pass(3 * time.Second)
		b.want("running", "ok")
		if f := b.Statistics().InferenceStats.Fail.Count; f != 3 {
			t.Errorf("%d failures counted, want 3", f)
		}
	})
	run(t, func(t *testing.T) {
		m := &model{took: 2 * time.Second}
		b := newBench(t, fmt.Sprintf(config, "DELAY"), m)
		defer b.Close()
		b.submit("running")
		synctest.Wait()
		b.submit("late")
		pass(1900 * time.Millisecond)
		b.submit("fresh")
		pass(10 * time.Second)
		if got := m.seen(); got != "[[running] [fresh] [late]]" {
			t.Errorf("order %s", got)
		}
	})
}

func TestACancelledRequestNeverRuns(t *testing.T) {
	for _, config := range []string{`max_batch_size: 1 dynamic_batching {}`, `sequence_batching {} max_batch_size: 1`} {
		run(t, func(t *testing.T) {
			m := &model{took: time.Second}
			b := newBench(t, config, m)
			defer b.Close()
			start := func(j *Job) { j.Sequence = repository.Sequence{ID: int64(1), Start: true} }
			ctx, cancel := context.WithCancel(t.Context())
			b.submit("running", start)
			synctest.Wait()
			b.submit("waits", start, func(j *Job) { j.Context = ctx })
			cancel()
			synctest.Wait()
			b.want("waits", "Canceled: request cancelled")
			if n := b.Waiting(); n != 0 {
				t.Errorf("%d wait", n)
			}
			pass(3 * time.Second)
			if got := m.seen(); got != "[[running]]" {
				t.Errorf("batches %s", got)
			}
		})
	}
}

func TestARunningModelSeesItsCallerGo(t *testing.T) {
	run(t, func(t *testing.T) {
		b := newBench(t, ``, &model{each: func(r *repository.Request) {
			<-r.Context.Done()
			r.Send(nil, &repository.Error{Code: codes.Canceled, Msg: "seen"}, true)
		}})
		defer b.Close()
		ctx, cancel := context.WithCancel(t.Context())
		b.submit("a", func(j *Job) { j.Context = ctx })
		synctest.Wait()
		cancel()
		synctest.Wait()
		b.want("a", "Canceled: seen")
	})
}

func TestAModelThatPanicsFailsItsBatchAndLivesOn(t *testing.T) {
	run(t, func(t *testing.T) {
		first := true
		b := newBench(t, ``, &model{each: func(r *repository.Request) {
			if first {
				first = false
				panic("oh no")
			}
			r.Send(nil, nil, true)
		}})
		defer b.Close()
		b.submit("a")
		synctest.Wait()
		b.submit("b")
		synctest.Wait()
		b.want("a", "Internal: Failed to process the request(s) for model 'm_0_0', message: oh no")
		b.want("b", "ok")
		if st := b.Statistics().InferenceStats; st.Fail.Count != 1 || st.Success.Count != 1 {
			t.Errorf("fail %d, success %d", st.Fail.Count, st.Success.Count)
		}
	})
}

func TestADecoupledModelFreesItsInstanceBeforeItHasAnswered(t *testing.T) {
	run(t, func(t *testing.T) {
		b := newBench(t, `model_transaction_policy { decoupled: true }`, &model{each: func(r *repository.Request) {
			go func() {
				r.Send(nil, nil, false)
				pass(time.Second)
				r.Send(nil, nil, true)
				r.Send(nil, nil, true) // too late, and without effect
			}()
		}})
		b.submit("a")
		b.submit("b")
		synctest.Wait()
		b.want("a", "ok …")
		b.want("b", "ok …")
		b.Close() // waits for both
		b.want("a", "ok …ok")
		b.want("b", "ok …ok")
	})
}

func TestCloseFinishesWhatWasTakenAndTakesNoMore(t *testing.T) {
	for _, config := range []string{`max_batch_size: 1 dynamic_batching {}`, `sequence_batching {} max_batch_size: 4`} {
		run(t, func(t *testing.T) {
			b := newBench(t, config, &model{took: time.Second})
			start := func(j *Job) { j.Sequence = repository.Sequence{ID: j.ID, Start: true} }
			b.submit("a", start)
			b.submit("b", start)
			b.Close()
			b.want("a", "ok")
			b.want("b", "ok")
			if err := b.Submit(b.job("c", start)); err == nil || !strings.HasPrefix(err.Msg, "Server is stopping") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// summing is a model with a state: the ids of the sequence so far.
func summing(r *repository.Request) {
	before, _ := (*r.Sequence.State).(string)
	*r.Sequence.State = before + r.ID
	r.Send(nil, &repository.Error{Msg: before + r.ID}, true)
}

func of(id any, flags ...string) func(*Job) {
	return func(j *Job) {
		j.Sequence.ID = id
		for _, f := range flags {
			j.Sequence.Start = j.Sequence.Start || f == "start"
			j.Sequence.End = j.Sequence.End || f == "end"
		}
	}
}

func TestRequestsOfASequenceShareAStateAndKeepTheirOrder(t *testing.T) {
	run(t, func(t *testing.T) {
		b := newBench(t, `sequence_batching {} max_batch_size: 4 instance_group { count: 3 }`, &model{took: time.Millisecond, each: summing})
		defer b.Close()
		b.submit("a", of(int64(1), "start"))
		b.submit("x", of("1", "start"))
		b.submit("b", of(int64(1)))
		b.submit("y", of("1", "end"))
		b.submit("c", of(int64(1), "end"))
		pass(time.Second / 2)
		b.want("c", "OK: abc")
		b.want("y", "OK: xy")
		if err := b.Submit(b.job("d", of(int64(1)))); err == nil || err.Code != codes.InvalidArgument {
			t.Errorf("after the end: %v", err)
		}
		b.submit("e", of(int64(1), "start", "end"))
		pass(time.Second / 2)
		b.want("e", "OK: e")
	})
}

func TestASequenceThatStartsAgainForgets(t *testing.T) {
	run(t, func(t *testing.T) {
		b := newBench(t, `sequence_batching {} max_batch_size: 4`, &model{each: summing})
		defer b.Close()
		b.submit("a", of(int64(1), "start"))
		b.submit("b", of(int64(1), "start"))
		synctest.Wait()
		b.want("b", "OK: b")
		b.submit("c", of(int64(1), "end"))
		b.submit("d", of(int64(1), "start", "end")) // before the end has run
		synctest.Wait()
		b.want("c", "OK: bc")
		b.want("d", "OK: d")
	})
}

func TestAnIdleSequenceEnds(t *testing.T) {
	run(t, func(t *testing.T) {
		b := newBench(t, `sequence_batching { max_sequence_idle_microseconds: 3000000 } max_batch_size: 4`, &model{each: summing})
		defer b.Close()
		b.submit("a", of(int64(1), "start"))
		pass(2 * time.Second)
		b.submit("b", of(int64(1))) // in time, and the clock begins anew
		pass(2 * time.Second)
		b.submit("c", of(int64(1)))
		pass(3*time.Second + time.Millisecond)
		b.want("c", "OK: abc")
		if err := b.Submit(b.job("d", of(int64(1)))); err == nil || !strings.Contains(err.Msg, "must specify the START flag") {
			t.Errorf("got %v", err)
		}
	})
}

func TestASequenceWithoutASlotWaitsForOne(t *testing.T) {
	run(t, func(t *testing.T) {
		b := newBench(t, `sequence_batching { max_sequence_idle_microseconds: 60000000 } max_batch_size: 2`, &model{each: summing})
		defer b.Close()
		b.submit("a", of(int64(1), "start"))
		b.submit("b", of(int64(2), "start"))
		b.submit("c", of(int64(3), "start"))
		pass(30 * time.Second)
		b.want("c", "")
		b.submit("d", of(int64(1), "end"))
		synctest.Wait()
		b.want("c", "OK: c")
	})
}
