package deadline

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/stats"
	"github.com/model-gateway/model-gateway/pkg/telemetry"
)

// fraud is the target of all these tests.
var fraud = &inference.Target{Name: "model_v1", Model: "fraud", Version: "1", Upstream: "triton", Asked: "fraud"}

// changing is held while a test changes what the table's loop reads.
var changing sync.Mutex

func change(f func()) {
	changing.Lock()
	defer changing.Unlock()
	f()
}

// oracle is a Prometheus that says what a test has it say.
type oracle struct {
	p999, count, age float64
	silent           bool // it knows no such target
	err              error
	asked            int
}

func (o *oracle) Vector(_ context.Context, expr string, each func(map[string]string, float64)) error {
	changing.Lock()
	defer changing.Unlock()
	o.asked++
	if expr != Expression {
		return errors.New("another question")
	}
	if o.err != nil || o.silent {
		return o.err
	}
	for part, v := range map[string]float64{partP999: o.p999, partCount: o.count, partAge: o.age} {
		each(map[string]string{"model": "fraud", "target": "model_v1", "part": part}, v)
	}
	return nil
}

// room is a table that runs in a synctest bubble, over a registry and, unless it is nil, an oracle.
type room struct {
	*Table
	t      *testing.T
	stats  *stats.Registry
	limits inference.Timeouts
	log    bytes.Buffer
}

func newRoom(t *testing.T, o *oracle) *room {
	r := &room{t: t, stats: stats.NewRegistry(nil), limits: users}
	options := Options{
		Stats: r.stats, Timeouts: func(string) (now inference.Timeouts) {
			change(func() { now = r.limits })
			return now
		},
		Targets: func() []*inference.Target { return []*inference.Target{fraud} },
		Log:     slog.New(slog.NewTextHandler(&r.log, nil)),
	}
	if o != nil {
		options.Prometheus = func() Prometheus { return o }
	}
	r.Table = NewTable(options)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
	return r
}

// wait lets n steps be taken.
func (r *room) wait(n int) {
	<-time.After(time.Duration(n) * Every)
	synctest.Wait()
}

// has fails unless the target's timeout is that, by that.
func (r *room) has(timeout time.Duration, source Source) {
	r.t.Helper()
	s, ok := r.State(fraud)
	if !ok || s.Timeout != timeout || s.Source != source {
		r.t.Errorf("the timeout is %s by %s, want %s by %s (%+v)", s.Timeout, s.Source, timeout, source, s)
	}
}

// saw records n attempts that took d, or were given up then.
func (r *room) saw(n int, outcome stats.Outcome, d time.Duration) {
	target := r.stats.Target(stats.KeyOf(fraud))
	for range n {
		target.Record("a:8001", stats.Live, outcome, d)
	}
}

func TestTheTimeoutFollowsPrometheusStepByStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &oracle{p999: 4, count: 10_000, age: 5}
		r := newRoom(t, o)
		r.has(54*time.Second, ByPrometheus)
		r.wait(1)
		r.has(48600*time.Millisecond, ByPrometheus)
		r.wait(60)
		r.has(6*time.Second, ByPrometheus)
		change(func() { o.p999 = 20 })
		r.wait(1)
		r.has(7500*time.Millisecond, ByPrometheus)
		r.wait(1)
		r.has(9375*time.Millisecond, ByPrometheus)
		r.wait(60)
		r.has(30*time.Second, ByPrometheus)
		change(func() { o.p999 = 0.002 })
		r.wait(60)
		r.has(2*time.Second, ByPrometheus)
		if o.asked != 1+60+1+1+1+60+60 {
			t.Errorf("asked %d times: one question each 15 s is for all targets", o.asked)
		}
	})
}

func TestAColdModelThatTakesFiveSecondsIsNotKilledByTheFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, o := range map[string]*oracle{"without Prometheus": nil, "with it": {p999: .01, count: MinSamples - 1}} {
			r := newRoom(t, o)
			r.saw(MinSamples-1, stats.OK, 10*time.Millisecond)
			for range 20 {
				r.wait(1)
				r.has(time.Minute, ByMax)
			}
			if s, _ := r.State(fraud); s.Samples != MinSamples-1 {
				t.Errorf("%s: %d samples are shown", name, s.Samples)
			}
			r.saw(1, stats.OK, 5*time.Second)
			r.wait(1)
			r.has(54*time.Second, ByStats)
		}
	})
}

func TestOnlyAnswersAndOurTimeoutsTellHowLongAModelTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t, nil)
		for _, o := range stats.Outcomes() {
			if !stats.Timed.Has(o) {
				r.saw(20_000, o, time.Microsecond)
			}
		}
		r.wait(1)
		r.has(time.Minute, ByMax)
	})
	if !strings.Contains(Expression, `outcome=~"ok|timeout"`) {
		t.Errorf("Prometheus is asked for other outcomes: %s", Expression)
	}
}

// TestATimeoutThatHasBecomeTooShortRisesAgain has a model that answered within 100 ms take 5 s from one moment on. Attempts
// that are given up are counted at the timeout they had.
func TestATimeoutThatHasBecomeTooShortRisesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t, nil)
		takes := 100 * time.Millisecond
		minute := func() (answered int) {
			for range 60 {
				s, _ := r.State(fraud)
				if takes <= s.Timeout {
					answered += 200
					r.saw(200, stats.OK, takes)
				} else {
					r.saw(200, stats.Timeout, s.Timeout)
				}
				<-time.After(time.Second)
			}
			return answered
		}
		for range 15 {
			minute()
		}
		r.has(2*time.Second, ByStats)
		takes = 5 * time.Second
		minutes := 0
		for minutes = 1; minute() < 200*60 && minutes < 30; minutes++ {
		}
		if s, _ := r.State(fraud); s.Timeout < takes || minutes > 3 {
			t.Errorf("after %d minutes the timeout is %s, and the model takes %s", minutes, s.Timeout, takes)
		}
	})
}

func TestWithoutAWordOfPrometheusTheLastGoodOneCountsForAMinuteAndThenTheOwnWindow(t *testing.T) {
	for name, bad := range map[string]func(*oracle){
		"an outage":              func(o *oracle) { o.err = errors.New("connection refused") },
		"NaN":                    func(o *oracle) { o.p999 = math.NaN() },
		"infinite":               func(o *oracle) { o.p999 = math.Inf(1) },
		"negative":               func(o *oracle) { o.p999 = -1 },
		"zero":                   func(o *oracle) { o.p999 = 0 },
		"a count that is NaN":    func(o *oracle) { o.count = math.NaN() },
		"an infinite count":      func(o *oracle) { o.count = math.Inf(1) },
		"too few":                func(o *oracle) { o.count = MinSamples - 1 },
		"nothing":                func(o *oracle) { o.silent = true },
		"nothing new":            func(o *oracle) { o.age = frozen.Seconds() + 1 },
		"an age that is no time": func(o *oracle) { o.age = math.NaN() },
	} {
		synctest.Test(t, func(t *testing.T) {
			o := &oracle{p999: 4, count: 1e6}
			r := newRoom(t, o)
			r.wait(60)
			r.has(6*time.Second, ByPrometheus)
			good := *o
			change(func() { bad(o) })
			for range 3 { // from 15 s, from 30 s, and from 45 s until a minute is over
				r.wait(1)
				r.has(6*time.Second, ByStale)
			}
			r.wait(1)
			r.has(time.Minute, ByMax) // nothing has been seen here

			change(func() { *o = good })
			r.wait(60)
			change(func() { bad(o) })
			r.saw(MinSamples, stats.OK, 8*time.Second)
			r.wait(3)
			r.has(6*time.Second, ByStale)
			r.wait(1)
			r.has(7500*time.Millisecond, ByStats)
			change(func() { *o = good })
			r.wait(1)
			r.has(6750*time.Millisecond, ByPrometheus)
			outages := 0 // once each time
			if name == "an outage" {
				outages = 2
			}
			if n := strings.Count(r.log.String(), "does not answer"); n != outages {
				t.Errorf("%s: it is in the log %d times, want %d:\n%s", name, n, outages, r.log.String())
			}
		})
	}
}

func TestBeyondTheLastBucketNothingShortensTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &oracle{p999: telemetry.LongestBucket.Seconds(), count: 1e6}
		r := newRoom(t, o)
		change(func() { r.limits.Max = 10 * time.Minute })
		r.wait(60)
		r.has(10*time.Minute, ByPrometheus)
		if s, _ := r.State(fraud); !s.Beyond {
			t.Error("it is shown as if it were known exactly")
		}
	})
}

func TestLabelsOfManyTargetsTogetherAreNobodys(t *testing.T) {
	p := labelled{{"other", "other"}, {"fraud", "other"}, {"", ""}, {"fraud", "model_v1"}}
	all, err := ask(t.Context(), p)
	if err != nil || len(all) != 1 || !all[name{"fraud", "model_v1"}].enough() {
		t.Errorf("%v, %v", all, err)
	}
}

type labelled []name

func (l labelled) Vector(_ context.Context, _ string, each func(map[string]string, float64)) error {
	for _, n := range l {
		for _, part := range []string{partP999, partCount, partAge, "else"} {
			labels := map[string]string{"model": n.model, "target": n.target, "part": part}
			each(labels, map[string]float64{partP999: 1, partCount: 1e5}[part])
		}
	}
	return nil
}

func TestTheModelsTimeoutHoldsWhereTheDynamicOneIsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t, &oracle{p999: 1, count: 1e6})
		r.wait(60)
		change(func() { r.limits.Dynamic = inference.Dynamic{} })
		r.wait(1)
		r.has(time.Minute, ByMax)
	})
}

func TestFloorAndMaxOfANewConfigurationHoldAtTheNextStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &oracle{p999: 1, count: 1e6}
		r := newRoom(t, o)
		r.wait(60)
		change(func() { r.limits.Dynamic.Floor = 10 * time.Second })
		r.wait(1)
		r.has(10*time.Second, ByPrometheus)
		change(func() { r.limits.Max = 3 * time.Second })
		change(func() { o.err = errors.New("gone") })
		r.wait(1)
		r.has(3*time.Second, ByStale)
	})
}

func TestTheNumberOfTargetsIsBounded(t *testing.T) {
	many := make([]*inference.Target, maxTargets+10)
	for i := range many {
		many[i] = &inference.Target{Name: "model_v1", Asked: strings.Repeat("x", i%7) + time.Duration(i).String()}
	}
	table := NewTable(Options{Stats: stats.NewRegistry(nil), Timeouts: func(string) inference.Timeouts { return users }, Targets: func() []*inference.Target { return many }})
	table.move(time.Now(), nil)
	if n := len(table.States()); n != maxTargets {
		t.Errorf("%d targets", n)
	}
}

func TestTargetsThatAreGoneComeLast(t *testing.T) {
	registry := stats.NewRegistry(nil)
	old := *fraud
	old.Version = "0"
	registry.Target(stats.KeyOf(&old)).Record("a:1", stats.Live, stats.OK, time.Second)
	table := NewTable(Options{Stats: registry, Timeouts: func(string) inference.Timeouts { return users }, Targets: func() []*inference.Target { return []*inference.Target{fraud} }})
	table.move(time.Now(), nil)
	if all := table.States(); len(all) != 2 || all[0].Key.Version != "1" || all[1].Key.Version != "0" {
		t.Errorf("%+v", all)
	}
}

func TestATableThatNobodyRunsHasNothing(t *testing.T) {
	table := NewTable(Options{Stats: stats.NewRegistry(nil)})
	if _, ok := table.State(fraud); ok || len(table.States()) != 0 {
		t.Error("it claims to know")
	}
	var none *Table
	if none.of(fraud) != nil {
		t.Error("no table knows something")
	}
}

func TestFaultsOfTimeoutsAreKeptInABoundedNumber(t *testing.T) {
	f := &faults{text: "within %s"}
	for i := range 3 * maxKept {
		d := time.Duration(i + 1)
		if got := f.of(d); got.Kind != fault.UpstreamTimeout || got.Msg != "within "+d.String() {
			t.Fatalf("%v", got)
		}
	}
	if n := f.made.Len(); n != maxKept {
		t.Errorf("%d are kept", n)
	}
}
