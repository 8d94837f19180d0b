package redis

import (
	"context"
	"time"
)

// watch has the alarm go off when q is due, unless it is to go off before. One timer for all: to set one for each
// question costs more than the rest of waiting. b is locked.
func (b *batcher) watch(q *question) {
	if !b.alarmAt.IsZero() && !q.due.Before(b.alarmAt) {
		return
	}
	b.alarmAt = q.due
	wait := time.Until(q.due)
	if b.alarm == nil {
		b.alarm = time.AfterFunc(wait, b.expire)
		return
	}
	b.alarm.Reset(wait)
}

// expire decides the questions that are due and watches over the others.
func (b *batcher) expire() {
	b.mu.Lock()
	now := time.Now()
	late, next := b.late(now)
	if b.alarmAt = next; !next.IsZero() {
		b.alarm.Reset(next.Sub(now))
	}
	b.mu.Unlock()
	for _, q := range late {
		b.breaker.late(q.draws[0].Key)
		q.turn <- nil
	}
}

// late takes out who is due, and gives the first deadline of the others; zero if there are none. b is locked.
func (b *batcher) late(now time.Time) (late []*question, next time.Time) {
	due := func(q *question) bool {
		if q.due.After(now) {
			if next.IsZero() || q.due.Before(next) {
				next = q.due
			}
			return false
		}
		q.state, q.err = decided, context.DeadlineExceeded
		late = append(late, q)
		return true
	}
	waiting := b.waiting[:0]
	for _, q := range b.waiting {
		if !due(q) {
			waiting = append(waiting, q)
		}
	}
	clear(b.waiting[len(waiting):])
	b.waiting = waiting
	for _, l := range b.driving {
		for _, q := range l.questions {
			if q.state == rides {
				due(q)
			}
		}
	}
	return late, next
}

func (b *batcher) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.alarm != nil {
		b.alarm.Stop()
	}
}
