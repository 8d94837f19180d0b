package redis

import (
	"context"
	"time"
)

// watch has the alarm go off when something is to be done for q, unless it is to go off before. One timer for all: to set
// one for each question costs more than the rest of waiting. b is locked.
func (b *batcher) watch(q *question) {
	at := b.soonest(q.due)
	if !b.alarmAt.IsZero() && !at.Before(b.alarmAt) {
		return
	}
	b.alarmAt = at
	wait := time.Until(at)
	if b.alarm == nil {
		b.alarm = time.AfterFunc(wait, b.expire)
		return
	}
	b.alarm.Reset(wait)
}

// soonest is due, or when those who wait may have a lane of their own where that is sooner. b is locked.
func (b *batcher) soonest(due time.Time) time.Time {
	if len(b.waiting) == 0 || len(b.driving) == 0 || len(b.driving) >= lanes {
		return due
	}
	for _, l := range b.driving {
		if old := l.begun.Add(b.patience()); old.Before(due) {
			due = old
		}
	}
	return due
}

// expire decides the questions that are due, lets those who wait go if who is under way takes long, and watches over the
// others.
func (b *batcher) expire() {
	b.mu.Lock()
	now := time.Now()
	late, next := b.late(now)
	var l *lane
	var driver *question
	if len(b.waiting) > 0 && b.goes(now) {
		l = b.lane()
		l.begun = now
		driver = b.next(l)
	}
	b.alarmAt = time.Time{}
	if !next.IsZero() {
		b.alarmAt = b.soonest(next)
		b.alarm.Reset(b.alarmAt.Sub(now))
	}
	b.mu.Unlock()
	if driver != nil {
		driver.turn <- l
	}
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
