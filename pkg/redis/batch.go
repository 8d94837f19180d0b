package redis

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/model-gateway/model-gateway/pkg/stage/limit"
)

// batcher lets questions that are asked at once go together, as one call of the script: a write, a read and what Redis
// does to run a script cost more than all the rest. While none is under way, or none but one that has been for long, a
// question goes alone and at once. The others wait; then one of those that wait takes all of them along. There is no
// goroutine.
type batcher struct {
	breaker *breaker
	budget  time.Duration // of a question, from when it is asked

	mu      sync.Mutex
	waiting []*question // in the order of their deadlines
	free    []*lane
	driving []*lane
	alarm   *time.Timer // for the first deadline among those who wait for somebody else; nil before the first
	alarmAt time.Time   // when it goes off; zero for never
}

const (
	lanes    = 2
	patience = 3 * time.Millisecond // once a lane is under way for so long, those who come do not wait for it
	maxBatch = 128                  // questions
)

// lane is a batch under way, and what is used to make it.
type lane struct {
	questions []*question
	riders    []*question // those who are told that they have been driven
	sheets    []*sheet
	used      int       // of sheets
	begun     time.Time // when it was last under way; guarded by batcher.mu
	// conn is the connection it goes by: taking one from the library's pool and giving it back for each round trip costs
	// half as much as the round trip. nil until the first one, after a failure, and with a cluster or TLS.
	conn *goredis.Conn
}

// question is what one call wants of its buckets. It has copies: whoever asked may leave while it is under way.
type question struct {
	mode  byte // as draw.lua has it
	draws []limit.Draw
	due   time.Time
	turn  chan *lane // the lane, for who shall drive it; nil for who has been decided
	state state      // guarded by batcher.mu

	// The answer: err, or what the buckets held. held and failed belong to who drives, until the question is answered.
	held   []float64
	failed error
	err    error
}

type state uint8

const (
	waits   state = iota
	drives        // or is about to
	rides         // somebody else drives
	decided       // answered, or too late; there is something in turn, or will be at once
	gone          // nobody wants the answer
)

var questions = sync.Pool{New: func() any { return &question{turn: make(chan *lane, 1)} }}

// newQuestion takes a question from the pool. Only who got an answer may put it back: else somebody may still have it.
func newQuestion(mode byte, draws []limit.Draw, due time.Time) *question {
	q := questions.Get().(*question)
	q.mode, q.draws, q.held, q.due = mode, append(q.draws[:0], draws...), q.held[:0], due
	q.failed, q.err = nil, nil
	return q
}

func (q *question) release() {
	clear(q.draws) // the keys
	questions.Put(q)
}

// ask answers q within the budget. When ctx ends first its buckets may pay or not.
func (b *batcher) ask(ctx context.Context, q *question) error {
	b.mu.Lock()
	if asked := q.due.Add(-b.budget); b.goes(asked) {
		q.state = drives
		l := b.lane()
		l.begun = asked
		l.questions = append(l.questions, q)
		b.mu.Unlock()
		b.drive(ctx, l, q)
		return q.err
	}
	q.state = waits
	b.waiting = append(b.waiting, q)
	b.watch(q)
	b.mu.Unlock()

	for {
		select {
		case l := <-q.turn:
			if l == nil {
				return q.err
			}
			if b.board(l, q) {
				b.drive(context.Background(), l, q) //nolint:contextcheck // nobody's leaving ends what is done for many
				return q.err
			}
		case <-ctx.Done():
			return b.leave(ctx, q)
		}
	}
}

// goes reports whether a question that is asked now gets a lane of its own. A Redis nearby answers those who are under way
// sooner than patience ends, and all who wait then go at once; one that is far, or hangs, keeps nobody waiting for a
// single round trip. b is locked.
func (b *batcher) goes(now time.Time) bool {
	for _, l := range b.driving {
		if now.Sub(l.begun) < b.patience() {
			return false
		}
	}
	return len(b.driving) < lanes
}

func (b *batcher) patience() time.Duration { return min(patience, b.budget/4) }

// lane is one that nobody drives, and from now on is driven. b is locked.
func (b *batcher) lane() *lane {
	l := &lane{}
	if n := len(b.free); n > 0 {
		l, b.free = b.free[n-1], b.free[:n-1]
	}
	b.driving = append(b.driving, l)
	return l
}

// board takes those who wait along with q, who drives. If q has little time left, which is all that the others would
// have, it lets the last of them drive, and gives false.
func (b *batcher) board(l *lane, q *question) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if last := len(b.waiting) - 1; last >= 0 && q.due.Sub(now) < b.budget/2 && b.waiting[last].due.After(q.due) {
		next := b.waiting[last]
		copy(b.waiting[1:], b.waiting[:last])
		b.waiting[0] = q
		q.state, next.state = waits, drives
		b.watch(q)
		next.turn <- l
		return false
	}
	n := min(len(b.waiting), maxBatch-1)
	for _, w := range b.waiting[:n] {
		w.state = rides
	}
	l.begun = now
	l.questions = append(append(l.questions, q), b.waiting[:n]...)
	b.waiting = slices.Delete(b.waiting, 0, n)
	return true
}

// drive asks Redis for all on the lane and passes the lane on. ctx is that of who drives alone.
func (b *batcher) drive(ctx context.Context, l *lane, q *question) {
	err := b.breaker.tryWithin(ctx, q.draws[0].Key, time.Until(q.due), len(l.questions), func(w within) error { //nolint:contextcheck // it has the time of ctx
		return b.send(w, l)
	})
	b.arrive(l, err)
}

// arrive gives all on the lane their answers, and the lane to one of those that wait. err is for who has no answer and
// no error of his own.
func (b *batcher) arrive(l *lane, err error) {
	b.mu.Lock()
	riders := l.riders[:0]
	for _, q := range l.questions {
		if len(q.held) != len(q.draws) && (q.failed == nil || len(l.questions) == 1) {
			q.failed = err
		}
		switch q.state {
		case drives:
			q.err = q.failed
		case rides:
			q.state, q.err = decided, q.failed
			riders = append(riders, q)
		case waits, decided, gone:
		}
	}
	clear(l.questions)
	l.questions = l.questions[:0] // before anybody is told: a question that is done may soon be another
	b.mu.Unlock()

	for _, q := range riders {
		q.turn <- nil
	}
	clear(riders)
	l.riders = riders

	b.mu.Lock()
	next := b.next(l)
	b.mu.Unlock()
	if next != nil {
		next.turn <- l
	}
}

// next is who drives the lane from now on; nil if nobody waits. b is locked.
func (b *batcher) next(l *lane) *question {
	if len(b.waiting) == 0 {
		b.driving = slices.DeleteFunc(b.driving, func(d *lane) bool { return d == l })
		b.free = append(b.free, l)
		return nil
	}
	last := len(b.waiting) - 1 // who has the most time left: the others' budgets end within its own
	q := b.waiting[last]
	b.waiting[last], b.waiting = nil, b.waiting[:last]
	q.state = drives
	return q
}

// leave is for who cannot wait longer. Whoever has just been told to drive lets another do it.
func (b *batcher) leave(ctx context.Context, q *question) error {
	b.mu.Lock()
	was := q.state
	if was == waits || was == rides {
		q.state = gone
	}
	if was == waits {
		b.waiting = slices.DeleteFunc(b.waiting, func(w *question) bool { return w == q })
	}
	b.mu.Unlock()
	switch was {
	case decided:
		<-q.turn
		return q.err
	case drives:
		b.arrive(<-q.turn, nil)
	case waits, rides, gone:
	}
	return b.breaker.left(ctx, q)
}

// send asks Redis within w, in as few calls of the script as there can be: nearly always one. It gives
// the first error.
func (b *batcher) send(w within, l *lane) error {
	c := b.breaker.client
	l.used = 0
	for _, q := range l.questions {
		l.put(q, c)
	}
	sheets := l.sheets[:l.used]
	defer func() {
		for _, s := range sheets {
			s.clear()
		}
	}()
	l.run(w, c, sheets)
	var first error
	for _, s := range sheets {
		if err := s.answer(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// put finds or makes a sheet for q.
func (l *lane) put(q *question, c *Client) {
	for _, s := range l.sheets[:l.used] {
		if s.add(q) {
			return
		}
	}
	if l.used == len(l.sheets) {
		l.sheets = append(l.sheets, newSheet(c.prefix, c.options.Mode == Cluster))
	}
	l.used++
	l.sheets[l.used-1].add(q)
}

// run runs the script for sheets; with its text for those that Redis says it does not know it for.
func (l *lane) run(w within, c *Client, sheets []*sheet) {
	l.process(w, c, sheets, "evalsha", drawing.hash)
	var again []*sheet
	for _, s := range sheets {
		if unknownScript(s.cmd.Err()) {
			again = append(again, s)
		}
	}
	if len(again) > 0 {
		l.process(w, c, again, "eval", drawing.text)
	}
}

// process runs the script for each of the sheets, whose commands have their errors.
func (l *lane) process(w within, c *Client, sheets []*sheet, name, script string) {
	if len(sheets) == 1 && l.conn != nil && !errors.Is(l.keep(w, sheets[0], name, script), errEnded) {
		return
	}
	ctx, cancel := w.timed() // there may be waiting for a connection
	defer cancel()
	if len(sheets) > 1 {
		pipe := c.rdb.Pipeline()
		for _, s := range sheets {
			_ = pipe.Process(ctx, s.command(ctx, name, script)) // only queues
		}
		_, _ = pipe.Exec(ctx)
		return
	}
	if c.single == nil {
		_ = c.rdb.Process(ctx, sheets[0].command(ctx, name, script))
		return
	}
	l.conn = c.single.Conn()
	_ = l.keep(ctx, sheets[0], name, script)
}

// keep runs the script for a sheet by the lane's own connection, and keeps that where nothing is wrong with it.
func (l *lane) keep(ctx context.Context, s *sheet, name, script string) error {
	err := l.conn.Process(ctx, s.command(ctx, name, script))
	if err != nil && !unknownScript(err) {
		_ = l.conn.Close() // Redis may have said that it is a replica now: another connection goes to the new master
		l.conn = nil
	}
	return err
}
