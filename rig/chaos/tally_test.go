package main

import (
	"strings"
	"testing"
	"time"
)

func TestARowCountsEveryCallOnceByItsOutcome(t *testing.T) {
	var list tally
	now := time.Now()
	for i := range 100 {
		list.add(record{at: now, took: time.Duration(i+1) * time.Millisecond, outcome: outcome(i % 4)})
	}
	r := list.row("x")
	if r.calls != 100 || r.ok != 25 || r.degraded != 25 || r.refused != 25 || r.fail != 25 {
		t.Errorf("row %+v", r)
	}
	if r.p99 != 99*time.Millisecond || r.worst != 100*time.Millisecond {
		t.Errorf("p99 %v, worst %v", r.p99, r.worst)
	}
	if got := table([]row{r}); !strings.Contains(got, "scenario") || !strings.Contains(got, "99ms") {
		t.Errorf("table:\n%s", got)
	}
}

func TestRecoveryEndsWithTheLastCallThatWasNotOK(t *testing.T) {
	var list tally
	start := time.Now()
	list.add(record{at: start.Add(-time.Second), outcome: degraded})
	list.add(record{at: start.Add(time.Second), outcome: degraded})
	list.add(record{at: start.Add(2 * time.Second), outcome: ok})
	list.add(record{at: start.Add(3 * time.Second), outcome: failed})
	list.add(record{at: start.Add(4 * time.Second), outcome: ok})
	if got := list.normalAfter(start); got != 3*time.Second {
		t.Errorf("normal again after %v", got)
	}
}
