package deadline

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/stats"
)

// Source is what a target's timeout goes by.
type Source uint8

// The sources.
const (
	ByMax        Source = iota // the model's timeout holds: too little is known, or it has no dynamic one
	ByPrometheus               // attempts of all replicas
	ByStale                    // likewise, as they were when Prometheus last had something to say
	ByStats                    // attempts of this replica
)

var sourceNames = [...]string{"max", "prometheus", "stale", "stats"}

// String is the source's name on metrics.
func (s Source) String() string { return sourceNames[s] }

// State is what is known of a target's timeout. It never changes.
type State struct {
	Key     stats.Key
	Source  Source
	Timeout time.Duration // of a unary call: the dynamic one, else Max
	Max     time.Duration // the model's; 0 is none
	Shadow  bool          // no call ends by it
	P999    time.Duration // that it goes by; 0 with ByMax
	Beyond  bool          // it is longer than that
	Samples uint64        // attempts within an hour that tell; with ByMax too few of them
	At      time.Time     // when that was read
}

// entry is what calls to a target look up.
type entry struct {
	State
	after time.Duration // the dynamic timeout; 0: there is none
	cause *fault.Fault  // of calls that took longer
	least time.Duration // half of what the quickest answer took; 0: not known
}

// Options of a Table.
type Options struct {
	Stats *stats.Registry
	// Timeouts gives those of a model, by the name that clients know.
	Timeouts func(model string) inference.Timeouts
	// Targets lists those there are, beside which have had calls lately; nil: none.
	Targets func() []*inference.Target
	// Prometheus gives the one to ask; nil, or a nil one: none.
	Prometheus func() Prometheus
	// Asked is told how a question to Prometheus ended; nil: nobody is.
	Asked func(err error)
	Log   *slog.Logger // nil: nothing is logged
}

// maxTargets is how many targets have a timeout of their own.
const maxTargets = stats.MaxTargets

// Table has the dynamic timeouts of all targets. Calls read it while Run moves them. A nil Table is empty.
type Table struct {
	o       Options
	current atomic.Pointer[entries]

	// Of Run alone.
	states  map[stats.Key]*state
	failing bool // Prometheus, when it was asked last
}

// entries is what calls see. It never changes.
type entries struct {
	byName map[name]*entry // of two targets of one name the one that calls go to
	all    []*entry        // those that calls go to first
}

// state is what Run remembers of a target.
type state struct {
	after time.Duration
	good  latency // the last good word of Prometheus
	at    time.Time
}

// NewTable makes a table without any timeout; Run fills it.
func NewTable(o Options) *Table {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Table{o: o, states: make(map[stats.Key]*state)}
}

// of gives what is known of a target; nil when nothing is.
func (t *Table) of(target *inference.Target) *entry {
	if t == nil || target == nil {
		return nil
	}
	known := t.current.Load()
	if known == nil {
		return nil
	}
	// Two names are found in half the time that all that makes up a target takes.
	if e := known.byName[name{target.Asked, target.Name}]; e != nil && e.Key == stats.KeyOf(target) {
		return e
	}
	return nil
}

// State gives what is known of a target's timeout.
func (t *Table) State(target *inference.Target) (State, bool) {
	if e := t.of(target); e != nil {
		return e.State, true
	}
	return State{}, false
}

// States lists what is known of all targets; those that calls go to come before ones of the same name that are gone.
func (t *Table) States() []State {
	known := t.current.Load()
	if known == nil {
		return nil
	}
	all := make([]State, len(known.all))
	for i, e := range known.all {
		all[i] = e.State
	}
	return all
}

func (t *Table) targets() []*inference.Target {
	if t.o.Targets == nil {
		return nil
	}
	return t.o.Targets()
}

// Run moves the timeouts every 15 s until ctx ends.
func (t *Table) Run(ctx context.Context) {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for {
		told := t.askAll(ctx)
		if ctx.Err() != nil {
			return
		}
		t.move(time.Now(), told)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// askAll asks Prometheus for all targets at once; nil when there is none, or no answer.
func (t *Table) askAll(ctx context.Context) map[name]latency {
	p := t.prometheus()
	if p == nil {
		t.failing = false
		return nil
	}
	told, err := ask(ctx, p)
	if ctx.Err() != nil {
		return nil
	}
	if t.o.Asked != nil {
		t.o.Asked(err)
	}
	switch {
	case err != nil && !t.failing:
		t.o.Log.Warn("Prometheus does not answer: dynamic timeouts stay as they are for a minute, then follow what this gateway sees", "error", err)
	case err == nil && t.failing:
		t.o.Log.Info("Prometheus answers again")
	}
	if t.failing = err != nil; t.failing {
		return nil
	}
	return told
}

func (t *Table) prometheus() Prometheus {
	if t.o.Prometheus == nil {
		return nil
	}
	return t.o.Prometheus()
}

// move takes one step with every target: those there are, and those that have had calls lately.
func (t *Table) move(now time.Time, told map[name]latency) {
	next := &entries{byName: make(map[name]*entry, len(t.states)), all: make([]*entry, 0, len(t.states))}
	states := make(map[stats.Key]*state, len(t.states))
	step := func(k stats.Key) {
		if _, done := states[k]; done || len(states) >= maxTargets {
			return
		}
		s := t.states[k]
		if s == nil {
			s = &state{}
		}
		states[k] = s
		e := t.moveOne(now, k, s, told)
		next.all = append(next.all, e)
		if n := (name{k.Model, k.Target}); next.byName[n] == nil {
			next.byName[n] = e
		}
	}
	for _, target := range t.targets() {
		step(stats.KeyOf(target))
	}
	t.o.Stats.All(func(target *stats.Target) bool {
		step(target.Key)
		return true
	})
	t.states = states
	t.current.Store(next)
}

// moveOne takes one step with one target.
func (t *Table) moveOne(now time.Time, k stats.Key, s *state, told map[name]latency) *entry {
	limits := t.o.Timeouts(k.Model)
	e := entry{State: State{Key: k, Timeout: limits.Max, Max: limits.Max, At: now}, least: t.least(k)}
	if limits.Max > 0 && limits.Dynamic.Factor > 0 {
		l, source, at := t.latency(now, k, s, told)
		e.Samples = l.samples
		switch source {
		case ByMax:
			s.after = 0
		case ByStale:
			s.after = within(s.after, limits)
		case ByPrometheus, ByStats:
			s.after = nextTimeout(s.after, l, limits)
		}
		if source != ByMax {
			e.Source, e.Timeout, e.after, e.Shadow = source, s.after, s.after, limits.Dynamic.Shadow
			e.P999, e.Beyond, e.At = l.p999, l.beyond, at
			e.cause = byTarget(&e.State, limits.Dynamic)
		}
	} else {
		s.after = 0
	}
	return &e
}

// latency tells how long a target takes, by whom, and when that was so. With ByMax nobody knows enough.
func (t *Table) latency(now time.Time, k stats.Key, s *state, told map[name]latency) (latency, Source, time.Time) {
	known, ok := told[name{k.Model, k.Target}]
	if ok && known.enough() {
		s.good, s.at = known, now
		return known, ByPrometheus, now
	}
	// What is in force now is so until the next step, and steps are not taken to the millisecond.
	if !s.at.IsZero() && now.Sub(s.at) < Stale-Every/2 && t.prometheus() != nil {
		return s.good, ByStale, s.at
	}
	s.good, s.at = latency{}, time.Time{}
	if seen := t.seen(k); seen.enough() || seen.samples >= known.samples {
		known = seen
	}
	if known.enough() {
		return known, ByStats, now
	}
	return latency{samples: known.samples}, ByMax, now
}

// seen is how long this gateway's own attempts took within the last hour.
func (t *Table) seen(k stats.Key) latency {
	target, ok := t.o.Stats.Peek(k)
	if !ok {
		return latency{}
	}
	hour := target.Window(stats.W1h)
	l := latency{samples: hour.Count(stats.Timed)}
	if l.samples >= MinSamples {
		l.p999 = hour.Quantile(.999, stats.Timed)
	}
	return l
}

// least is half of what the quickest answer took within the last minute; 0 when too few tell.
func (t *Table) least(k stats.Key) time.Duration {
	target, ok := t.o.Stats.Peek(k)
	if !ok {
		return 0
	}
	minute := target.Window(stats.W1m)
	if minute.Count(stats.Of(stats.OK)) < leastSamples {
		return 0
	}
	return minute.Quantile(0, stats.Of(stats.OK)) / leastShare
}
