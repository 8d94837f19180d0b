package health

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/proto/triton"
)

// queue is a heap of entries by when they are due.
type queue []*entry

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due < q[j].due }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = int32(i), int32(j) //nolint:gosec // bounded by the number of versions
}

func (q *queue) Push(x any) {
	n := x.(*entry)
	n.place = int32(len(*q)) //nolint:gosec // likewise
	*q = append(*q, n)
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	n := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	n.place = -1
	return n
}

// probeLoop asks for the readiness of wanted versions, the most urgent first, within the budget.
func (e *endpoint) probeLoop() {
	var probes sync.WaitGroup
	defer probes.Wait()
	places := make(chan struct{}, parallel)
	gap := time.Second / time.Duration(e.p.opts.PerSecond)
	for {
		n, wait := e.next(time.Now())
		if n == nil {
			if !sleep(e.ctx, wait, e.newDue) {
				return
			}
			continue
		}
		select {
		case places <- struct{}{}:
		case <-e.ctx.Done():
			return
		}
		probes.Go(func() {
			e.probe(n)
			<-places
		})
		if !sleep(e.ctx, gap, nil) {
			return
		}
	}
}

// next takes the entry that is due, or says how long there is none.
func (e *endpoint) next(now time.Time) (*entry, time.Duration) {
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	if len(e.queue) == 0 {
		return nil, time.Hour
	}
	if wait := time.Duration(e.queue[0].due - e.p.at(now)); wait > 0 {
		return nil, wait
	}
	n := heap.Pop(&e.queue).(*entry)
	n.probing = true
	return n, 0
}

func (e *endpoint) probe(n *entry) {
	begin := time.Now()
	ready, err := e.ask(n)
	if e.ctx.Err() != nil {
		return
	}
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	n.probing = false
	wait := e.answered(n, ready, err)
	if n.wanted {
		n.due = e.p.at(begin.Add(wait))
		heap.Push(&e.queue, n)
		wake(e.newDue)
	}
}

// ask asks whether n is ready, in words or by an inference.
func (e *endpoint) ask(n *entry) (bool, error) {
	if e.infersNow(n) {
		if ready, err, done := e.inferOn(n); done {
			return ready, err
		}
	}
	ctx, cancel := context.WithTimeout(e.ctx, e.p.opts.Timeout)
	defer cancel()
	answer, err := e.server().ModelReady(ctx, &tritonpb.ModelReadyRequest{Name: n.model, Version: n.version})
	return answer.GetReady(), err
}

// answered takes an answer to ModelReady and says when to ask next, counted from the question.
func (e *endpoint) answered(n *entry, ready bool, err error) time.Duration {
	o := e.p.opts
	every := max(o.Every, e.stretched())
	if e.p.since(n.hot) < 0 {
		every = o.Every
	}
	if err != nil {
		switch fault.Of(err).Kind {
		case fault.ModelNotReady, fault.ModelNotFound, fault.Draining, fault.BadVersion, fault.InvalidArgument:
			ready = false // it says so
		case fault.UpstreamUnavailable, fault.EndpointLost:
			wake(e.askLife) // is it still there?
			return every
		default:
			return every // not known, so what was known stays
		}
	}
	if !n.wanted || e.live == inference.NotReady {
		return every // asked before it mattered no longer, or before the endpoint went out
	}
	first := n.probed == 0
	n.probed = e.p.at(time.Now())
	if ready {
		n.good, n.bad = oneMore(n.good), 0
		if first || n.state == inference.Unknown || int(n.good) >= o.UpAfter {
			e.setState(n, inference.Ready)
		}
		if n.state != inference.Ready {
			return o.Confirm
		}
		return every
	}
	n.good, n.bad = 0, oneMore(n.bad)
	if first || n.state == inference.Unknown || int(n.bad) >= o.DownAfter {
		if n.state == inference.Ready {
			wake(e.readIndex) // has it been unloaded, or has it failed?
		}
		e.setState(n, inference.NotReady)
	}
	if n.state != inference.NotReady {
		return o.Confirm
	}
	return every
}

// stretched is the interval at which all wanted entries fit into the budget.
func (e *endpoint) stretched() time.Duration {
	return time.Duration(len(e.p.plan)) * time.Second / time.Duration(e.p.opts.PerSecond)
}
