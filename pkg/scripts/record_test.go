package scripts

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/luavm"
	"github.com/model-gateway/model-gateway/pkg/scripts/cases"
	"github.com/model-gateway/model-gateway/pkg/stats"
	"github.com/model-gateway/model-gateway/pkg/wire"
)

// telling is a call of alice with everything that must not be told.
func telling(at time.Time) *inference.Call {
	c := call("alice@example.com")
	c.Start = at
	c.Caller = &inference.Caller{Name: "web"}
	c.Incoming = map[string][]string{
		"authorization": {"Bearer hush"}, "x-api-key": {"mgk_hush"}, "cookie": {"sid=hush"}, "x-auth-token": {"hush"}, "x-my-secret": {"hush"},
		"x-user-id": {"alice@example.com"}, "x-forwarded-for": {"192.0.2.7"}, "trace-bin": {"hush"}, "x-region": {"eu"},
		"x-note": {"for alice@example.com", strings.Repeat("hush", 1000)},
	}
	c.Head.Metadata = map[string]string{"user_id": "alice@example.com", "password": "hush", "tier": "gold"}
	return c
}

func TestRecordedCallsHaveNoCredentialsAndExportsNoUsers(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": "return 'model_v1'"})
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	f.Decide(t.Context(), "fraud", "fraud", telling(at))
	f.Decide(t.Context(), "fraud", "fraud", telling(at.Add(recordEvery/2))) // too soon
	f.Decide(t.Context(), "fraud", "fraud", telling(at.Add(recordEvery)))
	inside := fmt.Sprintf("%+v", f.calls.of("fraud"))
	if strings.Contains(inside, "hush") || !strings.Contains(inside, "User:alice@example.com") || !strings.Contains(inside, "gold") {
		t.Error(inside)
	}
	var b bytes.Buffer
	if err := f.Export(&b); err != nil {
		t.Fatal(err)
	}
	for _, no := range []string{"alice", "hush", "192.0.2.7"} {
		if strings.Contains(b.String(), no) {
			t.Errorf("%q is exported:\n%s", no, &b)
		}
	}
	h, calls, err := cases.Read(&b)
	if err != nil || h.Users != cases.HashedUsers || h.Calls != 2 || len(calls) != 2 {
		t.Fatalf("%+v %v", h, err)
	}
	c := calls[0]
	if !strings.HasPrefix(c.User, "user-") || c.Headers["x-user-id"][0] != c.User || c.Metadata["user_id"] != c.User || c.Headers["x-note"][0] != "for "+c.User {
		t.Errorf("the user is not the same everywhere: %+v", c)
	}
	if c.User != calls[1].User || c.Headers["x-region"][0] != "eu" || c.Metadata["tier"] != "gold" || !c.Now.Equal(at) || c.Caller != "web" || c.Model != "fraud" {
		t.Errorf("%+v", c)
	}
	if !strings.Contains(fmt.Sprintf("%+v", f.calls.of("fraud")), "alice@example.com") {
		t.Error("the export changed what is recorded")
	}
}

func TestAtMostAThousandCallsAreRecordedTheNewestOnes(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": "return 'model_v1'", "rank.lua": "return 'model_v1'"})
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for i := range MaxRecorded + 500 {
		c := call(fmt.Sprint("u", i))
		c.Start = at.Add(time.Duration(i) * recordEvery)
		f.Decide(t.Context(), "fraud", []string{"fraud", "rank"}[i%2], c)
	}
	all := f.calls.of("")
	if len(all) != MaxRecorded || all[0].User != "u500" || all[MaxRecorded-1].User != "u1499" || len(f.calls.of("rank")) != MaxRecorded/2 {
		t.Errorf("%d calls, from %s to %s", len(all), all[0].User, all[len(all)-1].User)
	}
}

func TestAScriptSeesTheCallItsParametersAndWhatTargetsDid(t *testing.T) {
	registry := stats.NewRegistry(nil)
	for i := range 100 {
		outcome := stats.OK
		if i < 5 {
			outcome = stats.Failure
		}
		registry.Target(stats.KeyOf(targets["model_v2"])).Record("e", stats.Live, outcome, 10*time.Millisecond)
	}
	f := fix(t, map[string]string{"fraud.lua": `
local s = stats("model_v2")
if call.params.region == "eu" and call.params.n == 7 and call.caller == "web" and call.rows == 3 and s.error_rate == 0.05 and s.p99 > 0 then
  return "model_v2"
end
return "model_v1"`}, func(o *Options) { o.Stats = FromRegistry(registry) })
	c := call("u1")
	c.Protocol, c.Caller, c.Head.Rows = inference.KServe, &inference.Caller{Name: "web"}, 3
	c.Request = inference.NewFrame(params)
	if got, reason, _ := f.Decide(t.Context(), "fraud", "fraud", c); got != "model_v2" {
		t.Errorf("got %q %q\n%s", got, reason, f.log)
	}
	if recorded := f.calls.of("fraud"); len(recorded) != 1 || recorded[0].Params["region"] != "eu" || recorded[0].Params["n"] != int64(7) {
		t.Errorf("%+v", recorded)
	}
	c.Protocol = inference.Predict // whose bytes are others
	if got, _, _ := f.Decide(t.Context(), "fraud", "fraud", c); got != "model_v1" {
		t.Errorf("got %q", got)
	}
}

// params is a ModelInferRequest with the parameters region = "eu" and n = 7.
var params = []byte("\x22\x0e\x0a\x06region\x12\x04\x1a\x02eu\x22\x07\x0a\x01n\x12\x02\x10\x07")

func TestTheParametersOfTheTestAreWhatTheySay(t *testing.T) {
	got, err := wire.PeekParams(inference.NewFrame(params))
	if err != nil || got["region"] != "eu" || got["n"] != int64(7) {
		t.Errorf("%v %v", got, err)
	}
}

func TestWhatAScriptLogsIsWrittenNowAndThen(t *testing.T) {
	f := fix(t, map[string]string{"fraud.lua": "ngx.log(ngx.ERR, 'here is ', call.user)\nreturn 'model_v1'"})
	f.asks(1000, "u1")
	if n := strings.Count(f.log.String(), `msg="a script says" script=fraud message="here is u1"`); n < 1 || n > 30 {
		t.Errorf("%d lines\n%s", n, f.log)
	}
}

func BenchmarkDecide(b *testing.B) {
	for name, source := range map[string]string{"canary": canary, "constant": "return 'model_v1'"} {
		b.Run(name, func(b *testing.B) {
			f := benchStore(b, source)
			ctx := b.Context()
			c := call("user-12345")
			b.ReportAllocs()
			for b.Loop() {
				if target, _, _ := f.Decide(ctx, "fraud", "fraud", c); target == "" {
					b.Fatal("no target")
				}
			}
		})
	}
}

func BenchmarkDecideWithManyCallers(b *testing.B) {
	s := benchStore(b, canary)
	ctx := b.Context()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		c := call("user-12345")
		for pb.Next() {
			s.Decide(ctx, "fraud", "fraud", c)
		}
	})
}

func benchStore(b *testing.B, source string) *Store {
	b.Helper()
	s := New(Options{Limits: func() luavm.Limits { return luavm.Limits{} }})
	if _, err := s.Put(b.Context(), "fraud", []byte(source), "sre", false); err != nil {
		b.Fatal(err)
	}
	return s
}
