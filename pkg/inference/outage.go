package inference

import "time"

// Dynamic derives a target's timeout from how long it lately takes: Factor × P99.9, at least Floor.
type Dynamic struct {
	Floor  time.Duration
	Factor float64 // 0: there is none
	Shadow bool    // computed and shown, and no call ends by it
}

// Breaker says when a target that fails gets no calls for a while.
type Breaker struct {
	Window    time.Duration // in which calls are counted
	MinCalls  int           // in it, before it may open
	Failures  float64       // share of failed calls that opens it, 0 to 1
	Slow      float64       // share of slow calls that opens it, 0 to 1
	SlowAfter time.Duration // upstream time from which a call is slow; 0: none is
	Open      time.Duration // how long it stays open at first; it doubles
	OpenMax   time.Duration // and at most
	Probes    int           // calls let through while half-open
}

// Retry says how often a call that failed may be tried elsewhere.
type Retry struct {
	Attempts int     // in all; 1 is no retry
	Budget   float64 // share of calls that may be tried again, 0 to 1
}

// Concurrency bounds how many calls to a model are under way at once.
type Concurrency struct {
	Adaptive bool          // finds the bound by itself
	Max      int           // calls under way; 0: no bound of its own
	Queue    time.Duration // how long a call may wait for its place; 0: it does not
}

// Fallback is what answers in place of an outage: another target, else a score. A chain of them ends with a score, or with
// nothing, which is the error itself.
type Fallback struct {
	To    *Target   // asked first, where set
	Model *Model    // likewise, of another model: the target of its unpinned calls
	Else  *Fallback // when they fail too, or cannot be asked
	Score *float64  // the answer, where set; finite, and within FP32

	// Of the first of a chain, and for all of it: the protocols that get it, and the failures that it stands in for.
	Predict, V2      bool
	Outage, Overload bool
}

// Degraded is how a call came to an answer that its target did not give.
type Degraded struct {
	Cause  error   // the fault that it hides
	From   *Target // where the call would have gone
	Score  float64 // what was answered; without meaning where Target is set
	Target *Target // that answered instead; nil when the score did
}
