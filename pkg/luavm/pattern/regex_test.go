package pattern_test

import (
	"errors"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/model-gateway/model-gateway/pkg/luavm/pattern"
)

// randomRegex is a regular expression that means the same in RE2 and PCRE, on subjects of ASCII without line feeds.
func randomRegex(r *rand.Rand, depth int) string {
	var b strings.Builder
	for range 1 + r.IntN(4) {
		var item string
		switch n := r.IntN(12); {
		case n < 3 && depth > 0:
			item = pick(r, "(", "(", "(?:", "(?i:") + randomRegex(r, depth-1) + ")"
		case n == 3 && depth > 0:
			item = "(?:" + randomRegex(r, depth-1) + "|" + randomRegex(r, depth-1) + ")"
		case n == 4:
			b.WriteString(pick(r, "^", "$", `\b`, `\B`, `\A`, `\z`))
			continue
		case n < 7:
			item = pick(r, ".", `\d`, `\w`, `\W`, "[ab]", "[^a]", "[a-c]", `[\w.]`, "[[:alpha:]]", `\x61`, `\.`)
		default:
			item = pick(r, "a", "a", "b", "b", "c", "0", "1", " ", "_", ",", "A")
		}
		b.WriteString(item + pick(r, "", "", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,2}?"))
	}
	if r.IntN(8) == 0 {
		return b.String() + "|" + pick(r, "a", "b", "", "ab*")
	}
	return b.String()
}

func asciiSubject(r *rand.Rand, most int) string {
	return strings.Map(func(c rune) rune {
		if c >= 128 || c == 0 {
			return 'a'
		}
		return c
	}, randomSubject(r, most))
}

// TestRegexesMatchAsInGo compares with the standard library, which has the same syntax but other machines.
func TestRegexesMatchAsInGo(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	compared := 0
	for range 6_000 {
		if compareWithGo(t, randomRegex(r, 3), asciiSubject(r, 20)) {
			compared++
		}
	}
	if compared < 4_000 {
		t.Errorf("only %d were not refused", compared)
	}
}

func compareWithGo(t *testing.T, expr, s string) bool {
	t.Helper()
	want, err := regexp.Compile(expr)
	if err != nil {
		return false
	}
	got, err := pattern.CompileRegex(expr, "")
	if err != nil {
		var e *pattern.Error
		if !errors.As(err, &e) {
			t.Fatalf("%q: %v", expr, err)
		}
		return false
	}
	m, ok, err := got.Find(s, 0)
	if err != nil {
		t.Fatalf("%q in %q: %v", expr, s, err)
	}
	var places []int
	if ok {
		places = append(places, m.Start, m.End)
		for _, c := range m.Captures {
			places = append(places, c.Start, c.End)
		}
	}
	if d := cmp.Diff(want.FindStringSubmatchIndex(s), places); d != "" {
		t.Errorf("%q in %q: Go's (-), ours (+):\n%s", expr, s, d)
	}
	return true
}
