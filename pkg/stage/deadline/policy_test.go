package deadline

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// users is the users' own rule, max(2 s, 1.5 × p999), under a minute.
var users = inference.Timeouts{Max: time.Minute, Dynamic: inference.Dynamic{Floor: 2 * time.Second, Factor: 1.5}}

// settled is where a timeout comes to rest.
func settled(from time.Duration, l latency, t inference.Timeouts) time.Duration {
	for range 1000 {
		from = nextTimeout(from, l, t)
	}
	return from
}

func TestATimeoutComesToRestWhereTheUsersRuleSays(t *testing.T) {
	for p999, want := range map[time.Duration]time.Duration{
		time.Nanosecond:  2 * time.Second,
		time.Second:      2 * time.Second,
		1333333333:       2 * time.Second,
		2 * time.Second:  3 * time.Second,
		30 * time.Second: 45 * time.Second,
		40 * time.Second: time.Minute,
		time.Hour:        time.Minute,
		math.MaxInt64:    time.Minute,
	} {
		for _, from := range []time.Duration{0, time.Millisecond, 2 * time.Second, 10 * time.Second, time.Minute, time.Hour} {
			if got := settled(from, latency{p999: p999}, users); got != want {
				t.Errorf("p999 %s from %s: %s, want %s", p999, from, got, want)
			}
		}
	}
	if got := settled(2*time.Second, latency{p999: time.Minute, beyond: true}, inference.Timeouts{Max: time.Hour, Dynamic: users.Dynamic}); got != time.Hour {
		t.Errorf("longer than can be told: %s", got)
	}
}

func TestANewTimeoutComesFromTheModelsOwn(t *testing.T) {
	if got := nextTimeout(0, latency{p999: time.Second}, users); got != 54*time.Second {
		t.Errorf("the first step is to %s, want 54s", got)
	}
}

func TestATimeoutMovesByStepsAndWithinItsBounds(t *testing.T) {
	length := func(name string) *rapid.Generator[time.Duration] {
		return rapid.Map(rapid.Int64Range(1, int64(time.Hour)), func(n int64) time.Duration { return time.Duration(n) })
	}
	rapid.Check(t, func(t *rapid.T) {
		limits := inference.Timeouts{Max: length("max").Draw(t, "max"), Dynamic: inference.Dynamic{
			Floor: length("floor").Draw(t, "floor"), Factor: rapid.Float64Range(1, 100).Draw(t, "factor"),
		}}
		l := latency{p999: length("p999").Draw(t, "p999"), beyond: rapid.Bool().Draw(t, "beyond")}
		now := within(length("now").Draw(t, "now"), limits)
		got := nextTimeout(now, l, limits)
		if got > limits.Max || got < min(limits.Dynamic.Floor, limits.Max) {
			t.Fatalf("%s is not between floor and max", got)
		}
		if float64(got) > float64(now)*1.25+1 || float64(got) < float64(now)*.9-1 {
			t.Fatalf("%s is more than a step from %s", got, now)
		}
		if want := max(limits.Dynamic.Floor, time.Duration(limits.Dynamic.Factor*float64(l.p999))); !l.beyond && want <= limits.Max && (got > want && now < want || got < want && now > want) {
			t.Fatalf("from %s to %s is past %s", now, got, want)
		}
	})
}
