package scripts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/model-gateway/model-gateway/pkg/internal/calm"
	"github.com/model-gateway/model-gateway/pkg/luavm"
)

const moody = `
if call.user == "bad" then error("mood") end
if call.user == "loop" then while true do end end
return "model_v2"
`

// asks makes n calls for a user and gives the last answer.
func (f *fixture) asks(n int, user string) string {
	f.t.Helper()
	last := ""
	for range n {
		target, reason, opinion := f.Decide(f.t.Context(), "fraud", "fraud", call(user))
		if !opinion {
			f.t.Fatal("a script that fails has no say, and the stable target serves")
		}
		if last = target; target == "" {
			last = reason
		}
	}
	return last
}

func (f *fixture) wants(got, want string) {
	f.t.Helper()
	if got != want {
		f.t.Errorf("got %q, want %q", got, want)
	}
}

func TestAScriptIsOffWhenTwentyRunsInTenSecondsFailedAndTheseAreHalfOfThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fix(t, map[string]string{"fraud.lua": moody})
		f.wants(f.asks(19, "bad"), "error")
		f.wants(f.asks(1, "good"), "model_v2")
		time.Sleep(11 * time.Second) //nolint:forbidigo // time in a bubble is free
		f.wants(f.asks(19, "bad"), "error")
		f.wants(f.asks(30, "good"), "model_v2") // 19 of 49
		f.wants(f.asks(10, "bad"), "error")     // 29 of 59
		f.wants(f.asks(1, "good"), "model_v2")  // 29 of 60
		f.wants(f.asks(2, "bad"), "error")      // 31 of 62: half of them
		f.wants(f.asks(1, "good"), "off")
		i := f.state1("fraud")
		if i.State != StateOff || !i.Off || i.Retry.Sub(*i.OffSince) != offFor {
			t.Errorf("%+v", i)
		}
		if !strings.Contains(f.log.String(), "level=ERROR msg=\"a script keeps failing and is off") {
			t.Error("nobody is told")
		}
	})
}

func TestAScriptThatIsOffIsTriedOnceASecondAfterAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fix(t, map[string]string{"fraud.lua": moody})
		f.asks(20, "bad")
		time.Sleep(offFor - time.Second) //nolint:forbidigo // time in a bubble is free
		f.wants(f.asks(1, "good"), "off")
		time.Sleep(time.Second) //nolint:forbidigo // as above
		f.wants(f.asks(1, "good"), "model_v2")
		f.wants(f.asks(5, "good"), "off") // one a second
		time.Sleep(time.Second)           //nolint:forbidigo // as above
		f.wants(f.asks(1, "bad"), "error")
		time.Sleep(30 * time.Second) //nolint:forbidigo // as above
		f.wants(f.asks(1, "good"), "off")
		time.Sleep(30 * time.Second) //nolint:forbidigo // as above
		for range probesToOn {
			f.wants(f.asks(1, "good"), "model_v2")
			time.Sleep(time.Second) //nolint:forbidigo // as above
		}
		f.wants(f.asks(5, "good"), "model_v2")
		if i := f.state1("fraud"); i.State != StateOK {
			t.Errorf("%+v", i)
		}
		f.wants(f.asks(19, "bad"), "error") // counts begin anew
		f.wants(f.asks(1, "good"), "model_v2")
	})
}

func TestTheNextGoodVersionIsOnAtOnceAndTheSameOneIsNot(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": moody})
	f.asks(20, "bad")
	f.wants(f.asks(1, "good"), "off")
	f.write("fraud_cases.yaml", "cases: [{call: {user: good}, want: model_v2}]")
	if err := f.Reload(); err != nil {
		t.Error(err)
	}
	f.wants(f.asks(1, "good"), "off")
	f.write("fraud.lua", "-- better\n"+moody)
	if err := f.Reload(); err != nil {
		t.Error(err)
	}
	f.wants(f.asks(1, "good"), "model_v2")
}

// O-24.
func TestAScriptThatNeverReturnsIsStoppedAndOffAfterFiveTimes(t *testing.T) {
	var f *fixture
	calm.Moment(t, func() error {
		f = fix(t, map[string]string{"fraud.lua": moody})
		begun := time.Now()
		f.wants(f.asks(5, "loop"), "timeout")
		if took := time.Since(begun); took > time.Second {
			return fmt.Errorf("five runs took %v", took)
		}
		return nil
	})
	f.wants(f.asks(1, "good"), "off")
	line := ""
	for l := range strings.Lines(f.log.String()) {
		if strings.Contains(l, "a script failed") {
			line += l
		}
	}
	if strings.Count(line, "\n") != 1 || !strings.Contains(line, "line=3") || !strings.Contains(line, "outcome=timeout") {
		t.Errorf("logged:\n%s", line)
	}
}

func TestAFewStopsAmongManyRunsAreNoReasonToTakeAScriptFromEverybody(t *testing.T) {
	const ms = int64(time.Millisecond)
	for _, c := range []struct {
		good, stopped int64
		deadline      time.Duration
		off           bool
	}{
		{good: 0, stopped: 4, deadline: luavm.DefaultDeadline},
		{good: 0, stopped: 5, deadline: luavm.DefaultDeadline, off: true},
		{good: 495, stopped: 5, deadline: luavm.DefaultDeadline, off: true}, // 1 %
		{good: 496, stopped: 5, deadline: luavm.DefaultDeadline},
		{good: 5_171, stopped: 5, deadline: luavm.DefaultDeadline},
		{good: 50_000, stopped: 100, deadline: luavm.DefaultDeadline}, // 200 ms of 10 s
		{good: 50_000, stopped: 101, deadline: luavm.DefaultDeadline, off: true},
		{good: 50_000, stopped: 40, deadline: luavm.MaxDeadline},
		{good: 50_000, stopped: 41, deadline: luavm.MaxDeadline, off: true},
	} {
		g, at := new(gate), time.Now().UnixNano()
		for range c.good {
			g.ran(at, ranWell, false, c.deadline)
		}
		was := false
		for i := range c.stopped {
			if was {
				t.Errorf("%+v: off after %d", c, i)
				break
			}
			was, _ = g.ran(at+i*ms, ranStopped, false, c.deadline)
		}
		if was != c.off {
			t.Errorf("%+v: off is %v", c, was)
		}
	}
}

func TestWhoeverSendsFiveCallsThatLoopHurtsNobodyElse(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": moody})
	f.wants(f.asks(500, "good"), "model_v2")
	for range 5 {
		f.wants(f.asks(1, "loop"), "timeout")
		f.wants(f.asks(20, "good"), "model_v2")
	}
	if i := f.state1("fraud"); i.State != StateOK {
		t.Errorf("%+v", i)
	}
}

// O-25.
func TestNothingIsLeftBehindForTheNextRun(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": "n = (n or 0) + 1\nreturn n > 1 and 'model_v2' or 'model_v1'"})
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			if target, _, _ := f.Decide(t.Context(), "fraud", "fraud", call("u1")); target != "model_v1" {
				t.Errorf("got %q", target)
			}
		})
	}
	all.Wait()
}

func TestUnknownTargetsAndWrongTypesCountAndTheStableTargetServes(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": "return call.user", "number.lua": "return 7"})
	f.decides("fraud", "unknown_target")
	f.decides("number", "wrong_type")
	f.asks(20, "nowhere")
	f.wants(f.asks(1, "model_v2"), "off")
	got := scrape(t, f)
	for _, want := range []string{
		`gateway_script_runs_total{outcome="unknown_target",script="fraud"} 20`, `gateway_script_runs_total{outcome="off",script="fraud"} 2`,
		`gateway_script_runs_total{outcome="wrong_type",script="number"} 1`, `gateway_script_off{script="fraud"} 1`, `gateway_script_off{script="number"} 0`,
		fmt.Sprintf(`gateway_script_info{hash=%q,script="fraud",source="file",state="off"} 1`, f.Hash("fraud")),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is missing in\n%s", want, got)
		}
	}
}

func TestACallerThatLeavesIsNoFailureOfTheScript(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": moody})
	ctx, cancel := contextThatEnds(t)
	cancel()
	for range 50 {
		f.Decide(ctx, "fraud", "fraud", call("loop"))
	}
	f.wants(f.asks(1, "good"), "model_v2")
}

func TestWhatOnlyTheCallerCanBringAboutIsCountedAndNeverSwitchesAScriptOff(t *testing.T) {
	var f *fixture
	calm.Moment(t, func() error {
		f = fix(t, map[string]string{"fraud.lua": "if string.find(call.headers['x-app'] or '', 'beta') then return 'model_v3' end\nreturn 'model_v2'"})
		long := call("u1")
		long.Incoming = map[string][]string{"x-app": {strings.Repeat("a", 60<<10)}}
		for range 200 {
			switch target, reason, opinion := f.Decide(t.Context(), "fraud", "fraud", long); {
			case reason == luavm.Timeout.String():
				return errors.New("a run was kept from a processor for longer than it may take")
			case target != "" || reason != "too_long" || !opinion:
				t.Fatalf("%q %q %v", target, reason, opinion)
			}
		}
		return nil
	})
	f.wants(f.asks(1, "good"), "model_v2")
	if got := scrape(t, f); !strings.Contains(got, `gateway_script_runs_total{outcome="too_long",script="fraud"} 200`) {
		t.Error(got)
	}
	if strings.Contains(f.log.String(), "a script failed") {
		t.Error("the script is blamed")
	}
}

func TestAQuestionLeavesNoTrace(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": moody})
	for range 30 {
		if _, reason, opinion := f.Try(t.Context(), "fraud", "fraud", call("bad")); !strings.HasPrefix(reason, "error: line 2:") || !opinion {
			t.Fatal(reason)
		}
	}
	f.wants(f.asks(1, "good"), "model_v2")
	if got := scrape(t, f); strings.Contains(got, `outcome="error"`) {
		t.Error("it was counted")
	}
}

func scrape(t *testing.T, f *fixture) string {
	t.Helper()
	w := httptest.NewRecorder()
	f.metrics.Handler(f.opts.Log).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	b, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func contextThatEnds(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithCancel(t.Context())
}
