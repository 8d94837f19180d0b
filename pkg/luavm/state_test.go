package luavm

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// O-25.
func TestNothingIsLeftForTheNextRun(t *testing.T) {
	for _, src := range []string{
		`n = (n or 0) + 1; return n > 1 and "v2" or "v1"`,
		`local function count() n = (n or 0) + 1 return n end return count() > 1 and "v2" or "v1"`,
		`_G.n = (_G.n or 0) + 1; return _G.n > 1 and "v2" or "v1"`,
		`_G["n"] = (rawget(_G, "n") or 0) + 1; return n > 1 and "v2" or "v1"`,
		`local n = 0; local function inc() n = n + 1 return n end return inc() > 1 and "v2" or "v1"`,
		`pcall(function() string.n = 1 end); pcall(rawset, string, "n", 1); return string.n and "v2" or "v1"`,
		`pcall(function() ngx.var.n = 1 end); pcall(setmetatable, ngx.var, nil); return ngx.var.n and "v2" or "v1"`,
		`pcall(function() call.n = 1 end); pcall(table.insert, call, 1); return (call.n or call[1]) and "v2" or "v1"`,
		`local mt = getmetatable(""); if mt then pcall(function() mt.n = 1 end) end return type(mt) == "table" and "v2" or "v1"`,
		`local h = ngx.req.get_headers(); local was = h.n; h.n = 1; pcall(function() getmetatable(h).n = 1 end); return was and "v2" or "v1"`,
		`local p = call.params; pcall(function() p.n = 1 end); return p.n and "v2" or "v1"`,
		`pcall(function() pcall = nil end); pcall = pcall and pcall; tostring = tostring == nil and "v2" or function() return "v1" end; return tostring()`,
		`local mt = {}; pcall(setmetatable, {}, getmetatable(_G)); return getmetatable(ngx) and "v2" or "v1"`,
	} {
		s := mustCompile(t, src)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 25 {
					if d, err := s.Run(t.Context(), &Input{User: "u"}); err != nil || d.Target != "v1" {
						t.Errorf("%s: %v, %v", src, d, err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
}

func TestNothingThatRunsShareCanBeWritten(t *testing.T) {
	seen := map[lua.LValue]bool{}
	var look func(path string, v lua.LValue)
	look = func(path string, v lua.LValue) {
		if seen[v] {
			return
		}
		seen[v] = true
		switch v := v.(type) {
		case *lua.LTable:
			mt, ok := v.Metatable.(*lua.LTable)
			if !ok || mt.RawGetString("__metatable") == lua.LNil || !frozen[mt] {
				t.Errorf("%s can be written", path)
				return
			}
			look(path+"<meta>", mt)
			v.ForEach(func(k, v lua.LValue) { look(path+"."+show(k), v) })
		case *lua.LUserData:
			if mt, ok := v.Metatable.(*lua.LTable); ok {
				look(path+"<meta>", mt)
			}
		}
	}
	look("_G", library)
	for name, v := range map[string]*lua.LTable{
		"string": stringMeta, "globals": globalMeta, "headers": headersMeta, "stats": statsMeta, "call": callProxy,
		"call.headers": headersProxy, "call.metadata": metadataProxy, "ngx.var": varProxy,
	} {
		look(name, v)
	}
	if len(seen) < 100 {
		t.Error(len(seen))
	}
}

// O-24.
func TestAScriptThatNeverReturnsLeavesNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	s, err := Compile("rule.lua", []byte("while true do end"), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		var re *RunError
		if _, err := s.Run(t.Context(), &Input{}); !errors.As(err, &re) || re.Outcome != Timeout || re.Line != 1 {
			t.Fatal(err)
		}
		if _, err := ask(t, `error("x")`, &Input{}); err == nil || err.Outcome != Error || err.Message != "x" || err.Line != 1 {
			t.Fatal(err)
		}
	}
	for late := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; runtime.Gosched() { // others may be on their way out
		if time.Now().After(late) {
			t.Fatalf("%d goroutines, of %d before", runtime.NumGoroutine(), before)
		}
	}
}

func TestRunsOfManyScriptsAtOnceDoNotMeet(t *testing.T) {
	scripts := []*Script{
		mustCompile(t, canary(t)),
		mustCompile(t, `return call.user, call.metadata.k`),
		mustCompile(t, `x = call.user; local t = {x, [x] = x}; return t[1] .. t[x]`),
		mustCompile(t, `local ok, e = pcall(error, call.user, 0); return e`),
		mustCompile(t, `return hash(nil)`),
		mustCompile(t, `local s = "" for w in (call.user):gmatch("%d") do s = s .. w end return s`),
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				n := g*1000 + i
				user := fmt.Sprint("u", n)
				in := &Input{User: user, Metadata: map[string]string{"k": user}}
				want := []string{"model_v1", user, user + user, user, "", fmt.Sprint(n)}
				if crc32.ChecksumIEEE([]byte(user))%100 < 10 {
					want[0] = "model_v2"
				}
				for k, s := range scripts {
					d, err := s.Run(t.Context(), in)
					if d.Target != want[k] || (err != nil) != (k == 4) || k == 1 && d.Reason != user {
						t.Errorf("%s: %v, %v, want %q", s.Source, d, err, want[k])
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestACallThatEndsIsNotTheScriptsFailure(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, src := range []string{"while true do end", "while true do pcall(function() while true do end end) end"} {
		_, err := mustCompile(t, src).Run(ctx, &Input{})
		var re *RunError
		if !errors.Is(err, context.Canceled) || errors.As(err, &re) {
			t.Errorf("%s: %v", src, err)
		}
	}
}

func TestADeadlineIsHeld(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{0: DefaultDeadline, time.Millisecond: time.Millisecond, time.Hour: MaxDeadline} {
		s, err := Compile("x", []byte("while true do end"), Limits{Deadline: given})
		if err != nil {
			t.Fatal(err)
		}
		quickest := time.Hour
		// A run in which the machine was busy says nothing.
		for n := 0; n < 10 || n < 500 && quickest > want+time.Millisecond*raceFactor; n++ {
			start := time.Now()
			if _, err := s.Run(t.Context(), &Input{}); err == nil || !strings.Contains(err.Error(), want.String()) {
				t.Error(err)
			}
			quickest = min(quickest, time.Since(start))
		}
		if quickest < want || quickest > want+time.Millisecond*raceFactor {
			t.Errorf("%v: ended after %v", want, quickest)
		}
	}
}

func TestLongFactsAreAsIfTheyWereNotThere(t *testing.T) {
	long := strings.Repeat("x", maxString+1)
	in := &Input{User: long, Headers: map[string][]string{"x": {long}, "y": {long[:40_000], long[:40_000]}}, Metadata: map[string]string{"k": long}}
	d, err := ask(t, `return (call.user or call.headers.x or call.headers.y or call.metadata.k or ngx.var.http_x) and "there" or "not"`, in)
	if err != nil || d.Target != "not" {
		t.Error(d, err)
	}
	if _, err := ask(t, canary(t), in); err == nil || err.Outcome != NoKey {
		t.Error(err)
	}
}

func TestLogsAreHandedOnAndBounded(t *testing.T) {
	var got []string
	in := &Input{Log: func(level int, msg string) { got = append(got, fmt.Sprint(level, " ", msg)) }}
	if _, err := ask(t, `ngx.log(ngx.WARN, "a", 1, nil, true, {}); for i = 1, 100 do ngx.log(ngx.ERR, ("x"):rep(5000)) end`, in); err != nil {
		t.Fatal(err)
	}
	if len(got) != maxLogs || got[0] != "5 a1niltruetable" || len(got[1]) > maxLogText+2 {
		t.Errorf("%d: %.60q", len(got), got)
	}
	if _, err := ask(t, `ngx.log("a")`, in); err == nil || err.Outcome != Error {
		t.Error(err)
	}
}

// users is how many ids the split is compared for.
func users() int {
	if raceFactor > 1 || testing.Short() {
		return 50_000
	}
	return 1_000_000
}

func TestTheUsersSplitIsThatOfCRC32IdById(t *testing.T) {
	s := mustCompile(t, canary(t))
	in := &Input{}
	low := 0
	for i := range users() {
		in.User = fmt.Sprint("user-", i)
		want := "model_v1"
		if crc32.ChecksumIEEE([]byte(in.User))%100 < 10 {
			want = "model_v2"
			low++
		}
		if d, err := s.Run(t.Context(), in); err != nil || d.Target != want {
			t.Fatalf("%s: %v, %v; want %s", in.User, d, err, want)
		}
	}
	if share := float64(low) / float64(users()); share < 0.095 || share > 0.105 {
		t.Error(share)
	}
}

func TestPythonAgreesOnTheSplit(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	const program = `
import zlib
for i in range(5000):
    for u in ("user-%d" % i, "%d" % i, "\u7528\u6237%d" % i):
        print("model_v2" if zlib.crc32(u.encode()) % 100 < 10 else "model_v1")`
	out, err := exec.CommandContext(t.Context(), python, "-c", program).Output()
	if err != nil {
		t.Skip("python3 has no zlib: ", err)
	}
	want := strings.Fields(string(out))
	s := mustCompile(t, canary(t))
	for i := range 5000 {
		for k, u := range []string{fmt.Sprint("user-", i), fmt.Sprint(i), fmt.Sprint("用户", i)} {
			if d, err := s.Run(t.Context(), &Input{User: u}); err != nil || d.Target != want[3*i+k] {
				t.Fatalf("%s: %v, %v", u, d, err)
			}
		}
	}
}

func TestASplitHasItsSharesAndKeepsUsersWhenOneGrows(t *testing.T) {
	in := &Input{Model: "fraud"}
	counts := map[string]int{}
	before := mustCompile(t, `return split(call.user, {model_v1 = 70, model_v2 = 20, model_v3 = 10})`)
	after := mustCompile(t, `local w = {model_v1 = 6.5}; w.model_v2, w.model_v3 = 2, 1.5; return split(call.user, w)`)
	stick := mustCompile(t, `return sticky(call.user, 20) and "model_v2" or nil`)
	for i := range 20_000 {
		in.User = fmt.Sprint("user-", i)
		a, err1 := before.Run(t.Context(), in)
		b, err2 := after.Run(t.Context(), in)
		c, err3 := stick.Run(t.Context(), in)
		if err1 != nil || err2 != nil || err3 != nil {
			t.Fatal(err1, err2, err3)
		}
		counts[a.Target]++
		if a != b && (a.Target != "model_v1" || b.Target != "model_v3") {
			t.Fatalf("%s went from %s to %s", in.User, a.Target, b.Target)
		}
		if (c.Target == "model_v2") != (a.Target == "model_v2") {
			t.Fatalf("%s is in 20 %% but for sticky %q, for split %q", in.User, c.Target, a.Target)
		}
	}
	for name, want := range map[string]int{"model_v1": 14_000, "model_v2": 4_000, "model_v3": 2_000} {
		if n := counts[name]; n < want-300 || n > want+300 {
			t.Errorf("%s: %d of %d", name, n, want)
		}
	}
}

func TestAThousandScriptsTakeLittleMemory(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&before)
	scripts := make([]*Script, 1000)
	var estimate int64
	for i := range scripts {
		scripts[i] = mustCompile(t, strings.ReplaceAll(canary(t), "model_v2", fmt.Sprint("model_", i)))
		if _, err := scripts[i].Run(t.Context(), &Input{User: "u"}); err != nil {
			t.Fatal(err)
		}
		estimate += scripts[i].Memory()
	}
	runtime.GC()
	runtime.GC() // of states that are idle nothing is left by now
	runtime.ReadMemStats(&after)
	each := int64(after.HeapAlloc-before.HeapAlloc) / 1000
	t.Logf("%d bytes each, by the estimate %d", each, estimate/1000)
	if each > 8<<10 || estimate/1000 > 2*each || estimate/1000 < each/2 {
		t.Errorf("%d bytes each, by the estimate %d", each, estimate/1000)
	}
	runtime.KeepAlive(scripts)
}
