package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// outcome is what came of a call, as its client sees it.
type outcome uint8

const (
	ok       outcome = iota // the model's own answer, and the right one
	degraded                // the declared answer in place of it, marked
	refused                 // RESOURCE_EXHAUSTED: said no in time
	failed                  // anything else, a wrong answer and silence too
)

func (o outcome) String() string { return [...]string{"OK", "degraded", "refused", "failed"}[o] }

// record is one call.
type record struct {
	at     time.Time // when it was due; an open loop does not wait for the one before
	took   time.Duration
	kind   string // predict, kserve, …
	stream bool   // a message of a stream
	outcome
	why string // of what is not ok
	// inBand: a message whose stream told of its failure and lived on.
	inBand bool
}

func (r record) end() time.Time { return r.at.Add(r.took) }

// tally keeps every call of a scenario.
type tally struct {
	mu   sync.Mutex
	list []record
}

func (t *tally) add(r record) {
	t.mu.Lock()
	t.list = append(t.list, r)
	t.mu.Unlock()
}

// records gives those that fit, by the time they were due.
func (t *tally) records(fit func(record) bool) []record {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []record
	for _, r := range t.list {
		if fit(r) {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b record) int { return a.at.Compare(b.at) })
	return list
}

func (t *tally) count(fit func(record) bool) int { return len(t.records(fit)) }

// Ways to choose records.
func every(record) bool { return true }

func is(o outcome) func(record) bool      { return func(r record) bool { return r.outcome == o } }
func unary(r record) bool                 { return !r.stream }
func streamed(r record) bool              { return r.stream }
func after(t time.Time) func(record) bool { return func(r record) bool { return r.at.After(t) } }

func before(t time.Time) func(record) bool      { return func(r record) bool { return r.at.Before(t) } }
func not(f func(record) bool) func(record) bool { return func(r record) bool { return !f(r) } }
func kindIs(k string) func(record) bool         { return func(r record) bool { return r.kind == k } }

func slower(d time.Duration) func(record) bool { return func(r record) bool { return r.took > d } }

func both(fs ...func(record) bool) func(record) bool {
	return func(r record) bool {
		for _, f := range fs {
			if !f(r) {
				return false
			}
		}
		return true
	}
}

// row is a line of the table.
type row struct {
	name                               string
	calls, ok, degraded, refused, fail int
	p99, worst                         time.Duration
	detect, recovery                   time.Duration // below 0: none was measured
	verdict                            string
}

func (t *tally) row(name string) row {
	r := row{name: name, detect: -1, recovery: -1}
	var took []time.Duration
	for _, c := range t.records(every) {
		r.calls++
		took = append(took, c.took)
		switch c.outcome {
		case ok:
			r.ok++
		case degraded:
			r.degraded++
		case refused:
			r.refused++
		case failed:
			r.fail++
		}
	}
	slices.Sort(took)
	if n := len(took); n > 0 {
		r.p99, r.worst = took[(n*99+99)/100-1], took[n-1]
	}
	return r
}

var columns = []string{"scenario", "calls", "OK", "degraded", "refused", "failed", "p99", "worst", "detect", "recover", ""}

func (r row) cells() []string {
	n := func(i int) string { return fmt.Sprint(i) }
	return []string{
		r.name, n(r.calls), n(r.ok), n(r.degraded), n(r.refused), n(r.fail),
		short(r.p99), short(r.worst), short(r.detect), short(r.recovery), r.verdict,
	}
}

// short writes a time with as much as tells something.
func short(d time.Duration) string {
	switch {
	case d < 0:
		return "-"
	case d < 100*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// table lays rows out for people.
func table(rows []row) string {
	lines := [][]string{columns}
	for _, r := range rows {
		lines = append(lines, r.cells())
	}
	width := make([]int, len(columns))
	for _, l := range lines {
		for i, c := range l {
			width[i] = max(width[i], len(c))
		}
	}
	var b strings.Builder
	for _, l := range lines {
		for i, c := range l {
			if i == 0 || i == len(l)-1 {
				fmt.Fprintf(&b, "%-*s  ", width[i], c)
			} else {
				fmt.Fprintf(&b, "%*s  ", width[i], c)
			}
		}
		text := strings.TrimRight(b.String(), " ")
		b.Reset()
		b.WriteString(text + "\n")
	}
	return b.String()
}

// reasons tells what calls ended with that were not ok, most frequent first.
func reasons(list []record) string {
	type key struct{ kind, outcome, why string }
	count := map[key]int{}
	for _, r := range list {
		if r.outcome != ok {
			count[key{r.kind, r.outcome.String(), r.why}]++
		}
	}
	keys := slices.SortedFunc(maps.Keys(count), func(a, b key) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a.kind, b.kind), cmp.Compare(a.why, b.why))
	})
	var b strings.Builder
	for i, k := range keys {
		if i == 12 {
			fmt.Fprintf(&b, "    … and %d more kinds\n", len(keys)-i)
			break
		}
		fmt.Fprintf(&b, "    %5d × %s %s: %s\n", count[k], k.kind, k.outcome, k.why)
	}
	return b.String()
}

// normalAfter tells how long after t the last call was due that was not ok; 0 when all were.
func (t *tally) normalAfter(start time.Time) time.Duration {
	bad := t.records(both(after(start), not(is(ok))))
	if len(bad) == 0 {
		return 0
	}
	return bad[len(bad)-1].at.Sub(start)
}

// firstAfter tells how long after start the first call had ended that fits; below 0: none did.
func (t *tally) firstAfter(start time.Time, fit func(record) bool) time.Duration {
	first := time.Duration(-1)
	for _, r := range t.records(fit) {
		if d := r.end().Sub(start); d >= 0 && (first < 0 || d < first) {
			first = d
		}
	}
	return first
}

// bySecond counts records in each second since start, for notes.
func bySecond(list []record, start time.Time) string {
	var counts []int
	for _, r := range list {
		at := max(0, int(r.at.Sub(start)/time.Second))
		for len(counts) <= at {
			counts = append(counts, 0)
		}
		counts[at]++
	}
	return fmt.Sprint(counts)
}
