package pattern_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/luavm/pattern"
)

// hostile are patterns that take a backtracking matcher forever, or quadratic time, each with a subject of n bytes.
var hostile = []struct {
	name    string
	lua     string
	subject func(n int) string
}{
	{"five lazy", ".-.-.-.-.-b", same("a")},
	{"five greedy", ".*.*.*.*.*b", same("a")},
	{"captures of any", "(.-)(.-)(.-)(.-)(.-)(.-)$b", same("a")},
	{"optional", strings.Repeat("a?", 400) + "b", same("a")},
	{"greedy classes", strings.Repeat("[%w_]*", 100) + "%-", same("a")},
	{"lazy classes", strings.Repeat("[%w_]-", 100) + "%-", same("a")},
	{"no anchor", "a*b", same("a")},
	{"longest literal", strings.Repeat("a", 1000) + "b", same("a")},
	{"class then literal", "a-" + strings.Repeat("a", 1000) + "b", same("a")},
	{"unbalanced", "%b()", same("(")},
	{"unbalanced behind a loop", "(.-)(%b())(.-)%b()x", same("(")},
	{"alternating", ".-a.-b.-a.-b.-a.-b.-c", same("ab")},
	{"frontiers", ".-%f[b].-%f[a].-%f[b].-%f[c]", same("ab")},
	{"most loops", strings.Repeat(".-", 511) + "b", same("a")},
	{"most greedy loops", strings.Repeat(".*", 511) + "b", same("a")},
	{"most loops of sets", strings.Repeat("[ac]*", 204) + "[bd]", same("a")},
	{"most lazy loops of sets", strings.Repeat("[ac]-", 204) + "[bd]", same("ac")},
	{"plus", strings.Repeat("a+", 511) + "b", same("a")},
}

var hostileRegexes = []struct {
	name    string
	regex   string
	options string
	subject func(n int) string
}{
	{"stars of stars", "(a*)*b", "", same("a")},
	{"plus of plus", "(a+)+$", "", func(n int) string { return same("a")(n-1) + "!" }},
	{"three deep", "((a*)*)*b", "", same("a")},
	{"branches", "(a|aa|aaa)*b", "", same("a")},
	{"any five times", ".*.*.*.*.*b", "", same("a")},
	{"mail", `^([a-zA-Z0-9])(([\-.]|[_]+)?([a-zA-Z0-9]+))*(@){1}[a-z0-9]+[.]{1}`, "", same("a")},
	{"counted", "(?:a?){100}a{100}b", "", same("a")},
	{"counted twice", "(?:(?:a?){10}){20}b", "", same("a")},
	{"characters", "(?:.*é)*x", "u", same("é")},
	{"many branches", "(?:" + strings.Repeat("a|ab|", 100) + "b)*c", "", same("ab")},
	{"captures", "(((((((((a?)?)?)?)?)?)?)?)?)*b", "", same("a")},
	{"classes", `(?:[\w.]+\s*)+=`, "i", same("a")},
}

func same(unit string) func(n int) string {
	return func(n int) string { return strings.Repeat(unit, n/len(unit)) }
}

// atOnce is far more than any search may take, so that a busy machine does not fail the tests; what is looked for takes
// seconds, or years. BenchmarkHostile gives the true times.
const atOnce = time.Second

// fastest is the shortest of a few runs.
func fastest(f func()) time.Duration {
	best := time.Hour
	for n := 0; n < 3 || n < 20 && best > atOnce; n++ {
		begin := time.Now()
		f()
		best = min(best, time.Since(begin))
	}
	return best
}

// TestHostileLuaPatternsAnswerAtOnce: and they do answer; no pattern within the limits is too much work to find.
func TestHostileLuaPatternsAnswerAtOnce(t *testing.T) {
	for _, h := range hostile {
		p, err := pattern.Compile(h.lua)
		if err != nil {
			t.Fatal(err)
		}
		s := h.subject(pattern.MaxSubject)
		took := fastest(func() {
			if _, ok, err := p.Find(s, 0); err != nil || ok {
				t.Errorf("%s: match %v, error %v", h.name, ok, err)
			}
			if _, n, err := p.GsubString(s, "x", -1, pattern.MaxResult); err != nil || n != 0 {
				t.Errorf("%s: %d replaced, error %v", h.name, n, err)
			}
		})
		if took > atOnce {
			t.Errorf("%s: took %v", h.name, took)
		}
	}
}

// TestManyMatchesTakeLinearTime: each match of these looks far ahead before it settles for little, so that n matches
// that start anew would take quadratic time.
func TestManyMatchesTakeLinearTime(t *testing.T) {
	for _, c := range []struct{ lua, regex string }{
		{"a.-b?", "a.*?b?"},
		{"a?.-", "a|a.*b"},
		{"[ab]-[^c]", "(?:a.*c|.)"},
		{"a*", "(?:a*c)?"},
	} {
		p, err := pattern.Compile(c.lua)
		if err != nil {
			t.Fatal(err)
		}
		r, err := pattern.CompileRegex(c.regex, "")
		if err != nil {
			t.Fatal(err)
		}
		for name, steps := range map[string]func(s string) int{
			c.lua:   func(s string) int { return p.Steps(s, true) },
			c.regex: func(s string) int { return r.Steps(s, true) },
		} {
			small, large := steps(same("a")(1000)), steps(same("a")(2000))
			if large > 2*small+100 {
				t.Errorf("%s: %d steps for 1000 bytes, %d for 2000", name, small, large)
			}
		}
	}
}

// TestTooMuchWorkIsRefused: what is linear can still be more than a run has time for.
func TestTooMuchWorkIsRefused(t *testing.T) {
	p, s := compile(t, strings.Repeat("a?", 511)), strings.Repeat("b", pattern.MaxSubject)
	if _, ok, err := p.Find(s, 0); !ok || err != nil {
		t.Errorf("one match: %v, %v", ok, err)
	}
	if _, _, err := p.GsubString(s, "", -1, pattern.MaxResult); !errors.Is(err, pattern.ErrWork) {
		t.Errorf("4097 matches of 1000 steps: %v", err)
	}
	it, err := p.Gmatch(s)
	if err != nil {
		t.Fatal(err)
	}
	for {
		_, ok, err := it.Next()
		if errors.Is(err, pattern.ErrWork) {
			break
		}
		if !ok || err != nil {
			t.Fatalf("gmatch ended: %v, %v", ok, err)
		}
	}
	if _, ok, err := it.Next(); ok || err != nil {
		t.Errorf("after the end: %v, %v", ok, err)
	}
	r := compileRegex(t, "(?:a?){400}a?b", "")
	if _, _, err := r.Find(strings.Repeat("a", pattern.MaxSubject), 0); !errors.Is(err, pattern.ErrWork) {
		t.Errorf("regular expression: %v", err)
	}
}

func TestHostileRegexesTakeLinearTime(t *testing.T) {
	for _, h := range hostileRegexes {
		r, err := pattern.CompileRegex(h.regex, h.options)
		if err != nil {
			t.Fatal(err)
		}
		small, large := r.Steps(h.subject(150), false), r.Steps(h.subject(300), false)
		if large > small*9/4+2000 {
			t.Errorf("%s: %d steps for 150 bytes, %d for 300", h.name, small, large)
		}
		s := h.subject(pattern.MaxSubject)
		took := fastest(func() {
			if _, ok, err := r.Find(s, 0); ok || err != nil && !errors.Is(err, pattern.ErrWork) {
				t.Errorf("%s: match %v, error %v", h.name, ok, err)
			}
		})
		if took > atOnce {
			t.Errorf("%s: took %v", h.name, took)
		}
	}
}

func BenchmarkHostile(b *testing.B) {
	for _, h := range hostile {
		p, err := pattern.Compile(h.lua)
		if err != nil {
			b.Fatal(err)
		}
		s := h.subject(pattern.MaxSubject)
		b.Run(h.name, func(b *testing.B) {
			b.ReportAllocs()
			var err error
			for b.Loop() {
				_, _, err = p.Find(s, 0)
			}
			if err != nil {
				b.ReportMetric(1, "refused")
			}
		})
	}
	for _, h := range hostileRegexes {
		r, err := pattern.CompileRegex(h.regex, h.options)
		if err != nil {
			b.Fatal(err)
		}
		s := h.subject(pattern.MaxSubject)
		b.Run("regex "+h.name, func(b *testing.B) {
			b.ReportAllocs()
			var err error
			for b.Loop() {
				_, _, err = r.Find(s, 0)
			}
			if err != nil {
				b.ReportMetric(1, "refused")
			}
		})
	}
}
