package luavm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/internal/calm"
)

// What a hostile script may take at most: the bytes that are allocated for it, freed or not, and the time it runs. The
// time is that of the quickest of some runs, for the machine may be busy with others.
const (
	hostileBytes = 16 << 20
	hostileTime  = DefaultDeadline + 4*time.Millisecond
	hostileRuns  = 12
)

func hostile(t testing.TB) map[string]string {
	t.Helper()
	files, err := filepath.Glob("testdata/hostile/*.lua")
	if err != nil || len(files) < 100 {
		t.Fatal(len(files), err)
	}
	all := map[string]string{}
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(f)] = string(src)
	}
	return all
}

// allocated gives the bytes that f allocates and the time it takes.
func allocated(f func()) (uint64, time.Duration) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	f()
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, took
}

func TestHostileScriptsEndInTimeWithinTheirMemoryAndHurtNobody(t *testing.T) {
	good := mustCompile(t, canary(t))
	for name, src := range hostile(t) {
		first, _, _ := strings.Cut(src, "\n")
		want, ok := strings.CutPrefix(first, "-- ends: ")
		if !ok {
			t.Errorf("%s: does not say how it ends", name)
			continue
		}
		s, err := Compile(name, []byte(src), Limits{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		quickest, late := time.Hour, 0 // late are runs of one that ends by itself, during which the machine was busy
		for range hostileRuns {
			got, message := OK, ""
			bytes, took := allocated(func() {
				d, err := s.Run(t.Context(), facts())
				if err != nil {
					got, message = err.(*RunError).Outcome, err.Error() //nolint:errorlint // Run returns it bare
				} else if d.Target == "" {
					got = NoOpinion
				}
			})
			// What is stopped by its memory on a quick machine may be stopped by the clock on a slow one.
			if got == Timeout && (want == "ok" || want == "no_opinion") {
				late++
				continue
			}
			if got.String() != want && !(want != "ok" && want != "no_opinion" && got == Timeout) && !(want == "either" && (got == Memory || got == Timeout)) {
				t.Errorf("%s: ended as %v (%s)", name, got, message)
			}
			if bytes > hostileBytes {
				t.Errorf("%s: allocated %d KiB", name, bytes>>10)
			}
			if len(message) > 600 {
				t.Errorf("%s: a message of %d bytes", name, len(message))
			}
			quickest = min(quickest, took)
			if d, err := good.Run(t.Context(), &Input{User: "user-35"}); err != nil || d.Target != "model_v2" {
				t.Fatalf("%s: then a good script says %v, %v", name, d, err)
			}
			if quickest < hostileTime {
				break
			}
		}
		if late == hostileRuns {
			t.Errorf("%s: never ended by itself", name)
		}
		if quickest > hostileTime*raceFactor {
			t.Errorf("%s: took %v", name, quickest)
		}
	}
}

func TestAHostileScriptKeepsTheOthersAnswering(t *testing.T) {
	good := mustCompile(t, canary(t))
	bad, err := Compile("rule.lua", []byte("while true do end"), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for !stop.Load() {
				if _, err := bad.Run(t.Context(), &Input{}); err == nil {
					t.Error("a loop came to its end")
					return
				}
			}
		})
	}
	for range 20_000 {
		if d, err := good.Run(t.Context(), &Input{User: "user-35"}); err != nil || d.Target != "model_v2" {
			t.Errorf("a good script says %v, %v", d, err)
			break
		}
	}
	stop.Store(true)
	wg.Wait()
}

func TestMemoryIsBoundedWithoutAClock(t *testing.T) {
	n := 0
	for name, src := range hostile(t) {
		if !strings.HasPrefix(src, "-- ends: memory\n") {
			continue
		}
		n++
		s := mustCompile(t, src)
		var err error
		bytes, _ := allocated(func() { _, err = s.Run(t.Context(), facts()) })
		var re *RunError
		if !errors.As(err, &re) || re.Outcome != Memory || re.Line == 0 {
			t.Errorf("%s: %v", name, err)
		}
		if bytes > hostileBytes {
			t.Errorf("%s: allocated %d KiB", name, bytes>>10)
		}
	}
	if n < 20 {
		t.Error(n)
	}
}

// sources are scripts that are hard to read rather than to run.
func sources() map[string]string {
	rep := strings.Repeat
	names := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i, i)
		}
		return b.String()
	}
	return map[string]string{
		"parentheses": "return " + rep("(", 30_000) + "1" + rep(")", 30_000), "open parentheses": "return " + rep("(", 60_000),
		"braces": "return " + rep("{", 30_000) + rep("}", 30_000), "brackets": "return " + rep("t[", 20_000) + "1" + rep("]", 20_000),
		"minus": "return " + rep("- ", 32_000) + "1", "not": "return " + rep("not ", 16_000) + "1", "length": "return " + rep("#", 60_000) + "t",
		"or": "return " + rep("a or ", 13_000) + "1", "plus": "return 1" + rep("+1", 32_000), "power": "return 1" + rep("^1", 32_000),
		"concat": "return x" + rep("..'a'", 12_000), "calls": "f" + rep("()", 32_000), "indexes": "return f" + rep(".x", 32_000),
		"methods": "return f" + rep(":x()", 16_000), "elseif": "if a then " + rep("elseif a then ", 4_500) + "end",
		"do": rep("do ", 9_000) + rep("end ", 9_000), "if": rep("if a then ", 4_000) + rep("end ", 4_000),
		"functions": rep("return function() ", 2_800) + rep("end ", 2_800), "while": rep("while a do ", 4_000) + rep("end ", 4_000),
		"repeat": rep("repeat ", 4_000) + rep("until a ", 4_000), "labels": names(5_000, "::l%d:: --%d\n"), "gotos": names(2_500, "goto l%d --%d\n"),
		"gotos and labels": names(2_000, "goto l%d ::l%d::\n"), "numbers": "return {" + names(6_000, "%d.5,%d,") + "}",
		"strings": "return {" + names(4_000, "a%d='b%d',") + "}", "locals": names(3_000, "local a%d=%d\n"), "globals": names(4_000, "a%d=%d\n"),
		"assignments": rep("a,", 30_000) + "a=1", "arguments": "f(" + rep("1,", 30_000) + "1)", "parameters": "local function f(" + names(300, "a%d,b%d,") + "z) end",
		"upvalues": names(190, "local a%d=%d\n") + "local function g() " + names(190, "local b%d=%d\n") + "return function() return 1" + names(190, "+a%d+b%d") + " end end return g()()",
		"keys":     "local k=1 return {" + rep("[k]=1,", 10_000) + "}", "dynamic": "local k = 1 return {" + rep("[k]=1,", 5_000) + "}",
		"string": "return '" + rep("x", 65_000) + "'", "long string": "return [[" + rep("x", 65_000), "comment": "--[==[" + rep("x", 60_000),
		"zeros": rep("\x00", 1_000), "bytes": rep("\xff", 1_000), "quote": "return '\\", "escapes": "return '" + rep("\\999", 1_000) + "'",
		"too long": rep(" ", 65_537), "number": "return " + rep("9", 60_000), "hex": "return 0x" + rep("f", 60_000), "exponent": "return 1e" + rep("9", 60_000),
		"break": "break", "varargs": "local function f() return ... end", "method": "function a.b:c.d() end", "assign to call": "f() = 1",
	}
}

func TestHostileSourcesAreReadInTime(t *testing.T) {
	for name, src := range sources() {
		bytes, took := allocated(func() {
			s, err := Compile("rule.lua", []byte(src), Limits{})
			var ps Problems
			if err != nil && !errors.As(err, &ps) {
				t.Errorf("%s: %T %v", name, err, err)
			}
			for _, p := range ps {
				if p.Message == "" || len(p.Message) > 600 || p.Line < 0 || p.Name != "rule.lua" {
					t.Errorf("%s: %#v", name, p)
				}
			}
			if s != nil {
				_, _ = s.Run(t.Context(), facts())
			}
		})
		if took > 5*time.Second*raceFactor || bytes > 128<<20 {
			t.Errorf("%s: took %v and %d MiB", name, took, bytes>>20)
		}
	}
}

func FuzzAScriptNeverPanicsOrExceedsItsBounds(f *testing.F) {
	for _, src := range hostile(f) {
		f.Add(src)
	}
	for _, src := range sources() {
		if len(src) < 2_000 {
			f.Add(src)
		}
	}
	f.Add(canary(f))
	f.Fuzz(func(t *testing.T, src string) {
		s, err := Compile("rule.lua", []byte(src), Limits{})
		_, _ = Lint("rule.lua", []byte(src))
		if err != nil {
			return
		}
		calm.Moment(t, func() error {
			bytes, took := allocated(func() {
				d, err := s.Run(t.Context(), facts())
				var re *RunError
				if err != nil && (!errors.As(err, &re) || re.Outcome == OK || re.Outcome == NoOpinion || d != Decision{}) {
					t.Errorf("%v %v", d, err)
				}
			})
			if bytes > 4*hostileBytes {
				t.Errorf("%d KiB", bytes>>10)
			}
			if took > time.Second {
				return fmt.Errorf("took %v", took)
			}
			return nil
		})
		s.Targets()
	})
}
