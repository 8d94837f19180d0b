package limit

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
)

const (
	hotAbove    = 20                     // draws in a second that make a bucket hot
	leasePart   = 0.1                    // of burst: the most that is leased at a time
	leaseFor    = 250 * time.Millisecond // a lease is what was asked for in so long
	leaseIdle   = time.Second            // tokens of a bucket that is left alone go, at the earliest after this
	rest        = 20 * time.Millisecond  // between leases of a bucket that had too few tokens
	restFailed  = 200 * time.Millisecond
	remembered  = 10 * time.Second // the longest that a bucket is taken to be empty without asking again
	arrival     = 5 * time.Millisecond
	slowestRate = time.Hour // waits are told up to this
)

// account is what this replica knows of one bucket: how hot it is, what it has leased of it, until when it is empty,
// and this replica's own share of its rate.
//
// There are many, rarely in the processor's caches: a call that is paid from a lease touches the first two lines of 64
// bytes, and one that asks the store the third.
type account struct {
	used    atomic.Int64 // moment of the last draw
	kind    *kind
	subject string
	mu      sync.Mutex
	rule    *inference.Limit // as the last call brought it
	rate    inference.Rate   // of this bucket, the subject's own if it has one

	// Heat: draws and tokens asked for in this second and in the one before.
	second               int64
	draws, drawsBefore   int32
	tokens, tokensBefore float64

	// The lease. A negative balance was borrowed on this replica's share and is paid back by the next lease.
	balance   float64
	nextFetch moment
	holding   bool // counted as a lease
	forgotten bool // not to be counted any more
	fetching  bool
	failing   bool // the last fetch failed
	own       bool // as name has it

	// Until when the bucket cannot pay overCost or more; freeAt is what callers are told.
	over, freeAt moment
	overCost     float64
	key          string

	// What the bucket held beside the last lease. Before the first it is taken to be full.
	known   float64
	knownAt moment

	// This replica's share, a bucket of its own that is full at first.
	share   float64
	shareAt moment
}

// kind is what the buckets of one limit of one model have in common.
type kind struct {
	limit, model string
	counts       *telemetry.LimitCounts
}

// is reports whether n names the account.
func (a *account) is(n name) bool {
	return a.subject == n.subject && a.own == n.own && a.kind.limit == n.limit && a.kind.model == n.model
}

// outcome is what an account says to a call.
type outcome struct {
	verdict verdict
	source  telemetry.Source
	down    bool    // decided by what the rule says for when the store is down
	shared  bool    // paid from the share
	leased  bool    // paid from the lease, or borrowed on it
	fetch   bool    // a lease should be fetched
	left    float64 // tokens, as far as is known
	wait    time.Duration
}

// verdict is the essence of an outcome.
type verdict uint8

const (
	paid   verdict = iota
	ask            // only the store knows
	short          // not enough tokens
	above          // never enough tokens
	closed         // the store is down, and the rule refuses then
)

// use takes over the rule that a call brings. The account must be locked or not yet be known to others.
func (a *account) use(l *inference.Limit) {
	rate := rateOf(l, a.subject)
	if a.rule != nil && rate != a.rate { // what is known of the old rate says nothing of the new one
		a.over, a.overCost, a.nextFetch, a.knownAt = 0, 0, 0, 0
	}
	a.rule, a.rate = l, rate
}

// rateOf is the rate of one subject's bucket.
func rateOf(l *inference.Limit, subject string) inference.Rate {
	if own, ok := l.Overrides[subject]; ok {
		return own
	}
	return l.Rate
}

// beat keeps the heat, and lets go of tokens that nobody has come for in so long that the bucket has them again.
func (a *account) beat(l *inference.Limit, cost float64, now moment) {
	if l != a.rule {
		a.use(l)
	}
	if second := int64(now / time.Second); second != a.second {
		a.drawsBefore, a.tokensBefore = 0, 0
		if second == a.second+1 {
			a.drawsBefore, a.tokensBefore = a.draws, a.tokens
		}
		a.second, a.draws, a.tokens = second, 0, 0
	}
	a.draws++
	a.tokens += cost
	if a.balance > 0 && a.idle(now) {
		a.balance = 0
	}
	a.used.Store(int64(now))
}

// idle reports whether a lease has outlived its use.
func (a *account) idle(now moment) bool {
	keep := leaseIdle
	if a.rate.PerSecond > 0 {
		keep = max(keep, min(time.Duration(a.balance/a.rate.PerSecond*float64(time.Second)), time.Minute))
	}
	return now-moment(a.used.Load()) > keep
}

func (a *account) hot() bool { return max(a.draws, a.drawsBefore) > hotAbove }

// most is the largest lease: a tenth of burst, and less where so many replicas share that all their leases together
// would be more than half of it.
func (a *account) most(peers float64) float64 {
	return a.rate.Burst * min(leasePart, max(0.5/peers, 1/a.rate.Burst))
}

// size is how large a lease should be for what is being asked for; 0 where that is next to nothing.
func (a *account) size(peers float64) float64 {
	size := min(max(a.tokens, a.tokensBefore)*leaseFor.Seconds(), a.most(peers))
	if size < 1 {
		return 0
	}
	return size
}

// take pays cost from what this replica has, refuses it by what it knows, or says that the store has to be asked.
func (a *account) take(l *inference.Limit, cost float64, now moment, alone bool, peers float64) outcome {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.beat(l, cost, now)
	waits := !l.Per.Spans() && l.Draw != inference.DrawLease
	switch {
	case cost > a.rate.Burst:
		return outcome{verdict: above, source: telemetry.SourceLocal}
	case alone && !l.Per.Spans():
		return outcome{verdict: ask, source: telemetry.SourceExact}
	case alone:
		return a.fromShare(cost, now, peers, telemetry.SourceExact)
	case a.balance >= cost:
		a.balance -= cost
		return outcome{source: telemetry.SourceLeased, leased: true, left: a.balance, fetch: a.wants(now, peers)}
	case now < a.over && cost >= a.overCost:
		return outcome{verdict: short, source: telemetry.SourceOverMemory, wait: a.freeAt - now, left: max(a.balance, 0)}
	case waits:
		lease := l.Draw == inference.DrawAuto && a.hot() && a.most(peers) >= 1
		return outcome{verdict: ask, source: telemetry.SourceExact, fetch: lease && a.wants(now, peers)}
	case a.failing:
		o := a.whenDown(cost, now, peers)
		o.fetch = a.wants(now, peers)
		return o
	case a.rate.Burst*leasePart < 1:
		return a.fromShare(cost, now, peers, telemetry.SourceLocal)
	}
	return a.borrow(cost, now, peers)
}

// borrow pays from this replica's share and owes it to the bucket, which the next lease pays back. It borrows no more than
// this replica's share of what the bucket is known to hold.
func (a *account) borrow(cost float64, now moment, peers float64) outcome {
	left, needed := a.knownLeft(now)/peers+a.balance, min(cost, a.rate.Burst/peers)
	if left < needed {
		wait := untilPaid(a.rate.PerSecond/peers, needed-left)
		return outcome{verdict: short, source: telemetry.SourceLocal, left: max(left, 0), wait: wait, fetch: a.wants(now, peers)}
	}
	o := a.fromShare(cost, now, peers, telemetry.SourceLocal)
	if o.verdict == paid {
		a.balance -= cost
		o.leased = true
	}
	o.fetch = a.wants(now, peers)
	return o
}

// knownLeft is what the bucket holds if nobody else draws from it.
func (a *account) knownLeft(now moment) float64 {
	if a.knownAt == 0 {
		return a.rate.Burst
	}
	return Refill(a.rate, a.known, now-a.knownAt)
}

// whenDown decides without the store.
func (a *account) whenDown(cost float64, now moment, peers float64) outcome {
	o := outcome{source: telemetry.SourceLocal, left: a.rate.Burst}
	switch a.rule.WhenDown {
	case inference.DownLocal:
		o = a.fromShare(cost, now, peers, telemetry.SourceLocal)
	case inference.DownOpen:
	case inference.DownClosed:
		o.verdict = closed
	}
	o.down = true
	return o
}

// fallback is whenDown for a call that had asked the store.
func (a *account) fallback(cost float64, now moment, peers float64) outcome {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.whenDown(cost, now, peers)
}

// fromShare pays from this replica's part of the bucket. What costs more than the whole part passes when the part is
// full, and is worked off before anything else passes.
func (a *account) fromShare(cost float64, now moment, peers float64, source telemetry.Source) outcome {
	part := divide(a.rate, peers)
	a.share, a.shareAt = a.shareLeft(part, now), now
	needed := min(cost, part.Burst)
	if a.share < needed {
		return outcome{verdict: short, source: source, left: max(a.share, 0), wait: untilPaid(part.PerSecond, needed-a.share)}
	}
	a.share -= cost
	return outcome{source: source, shared: true, left: max(a.share, 0)}
}

// shareLeft is what the share holds, less than nothing while something large is being worked off.
func (a *account) shareLeft(part inference.Rate, now moment) float64 {
	if a.shareAt == 0 {
		return part.Burst
	}
	return min(a.share+part.PerSecond*(now-a.shareAt).Seconds(), part.Burst)
}

// settled reports whether forgetting the account would give nothing away: its share is full again, the bucket would be
// too, and it owes nothing.
// A limit per hour must not start anew because nobody came for five minutes.
func (a *account) settled(now moment, peers float64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	part := divide(a.rate, peers)
	const nearly = 1 - 1e-9
	return a.balance >= 0 && a.shareLeft(part, now) >= part.Burst*nearly && a.knownLeft(now) >= a.rate.Burst*nearly
}

// divide gives one of so many equal parts of a bucket.
func divide(r inference.Rate, peers float64) inference.Rate {
	return inference.Rate{PerSecond: r.PerSecond / peers, Burst: r.Burst / peers}
}

// giveBack undoes what o paid, for a call that another bucket refused.
func (a *account) giveBack(o outcome, cost float64) {
	if !o.shared && !o.leased {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if o.shared {
		a.share += cost
	}
	if o.leased {
		a.balance += cost
	}
}

// empty remembers that the bucket cannot pay cost before wait has passed.
func (a *account) empty(cost float64, wait time.Duration, now moment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	wait = min(wait, slowestRate)
	a.over, a.freeAt, a.overCost = now+min(wait, remembered), now+wait, cost
}

func untilPaid(perSecond, tokens float64) time.Duration {
	if s := tokens / perSecond; s < slowestRate.Seconds() {
		return time.Duration(math.Ceil(s*1e6)) * time.Microsecond
	}
	return slowestRate
}
