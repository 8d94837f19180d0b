package pattern_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/luavm/pattern"
)

func FuzzLua(f *testing.F) {
	r := rand.New(rand.NewPCG(8, 8))
	for range 200 {
		f.Add(randomPattern(r, 8), randomSubject(r, 30))
	}
	for _, h := range hostile {
		f.Add(h.lua, h.subject(300))
	}
	f.Fuzz(func(t *testing.T, lua, s string) {
		p, err := pattern.Compile(lua)
		if err != nil {
			var e *pattern.Error
			if !errors.As(err, &e) || e.Offset < 0 || e.Offset+len(e.Item) > len(lua) || lua[e.Offset:e.Offset+len(e.Item)] != e.Item {
				t.Fatalf("%q: %v", lua, err)
			}
			return
		}
		if len(s) > pattern.MaxSubject {
			return
		}
		m, ok, err := p.Find(s, 0)
		if err != nil {
			t.Fatalf("%q in %q: %v", lua, s, err)
		}
		if ok {
			valid(t, s, m)
		}
		// Whatever is found, putting it back changes nothing.
		same, n, err := p.GsubString(s, "%0", -1, pattern.MaxResult)
		if errors.Is(err, pattern.ErrWork) {
			return
		}
		if err != nil || same != s || (n > 0) != ok {
			t.Fatalf("%q in %q: match %v, %d replaced to %q, %v", lua, s, ok, n, same, err)
		}
		if len(s) < 40 && len(lua) < 20 {
			compareWays(t, lua, s, len(s)/3)
		}
	})
}

// valid checks that a match and its captures lie within s.
func valid(t *testing.T, s string, m pattern.Match) {
	t.Helper()
	if m.Start < 0 || m.End < m.Start || m.End > len(s) {
		t.Fatalf("match %v of %d bytes", m, len(s))
	}
	for _, c := range m.Captures {
		if c.Unset() && c.End == -1 {
			continue
		}
		if c.Start < m.Start || c.End < c.Start || c.End > m.End {
			t.Fatalf("capture %v in match %v", c, m)
		}
	}
}

func FuzzRegex(f *testing.F) {
	r := rand.New(rand.NewPCG(9, 9))
	for range 200 {
		f.Add(randomRegex(r, 3), "", asciiSubject(r, 30))
		expr, _ := perlRegex(r, 2)
		f.Add(expr, pick(r, "", "i", "m", "s", "x", "u", "iu", "a"), randomSubject(r, 30))
	}
	for _, h := range hostileRegexes {
		f.Add(h.regex, h.options, h.subject(300))
	}
	f.Fuzz(func(t *testing.T, expr, options, s string) {
		re, err := pattern.CompileRegex(expr, options)
		if err != nil {
			var e *pattern.Error
			if !errors.As(err, &e) {
				t.Fatalf("%q: %v", expr, err)
			}
			return
		}
		if len(s) > pattern.MaxSubject {
			return
		}
		m, ok, err := re.Find(s, 0)
		if err != nil {
			if !errors.Is(err, pattern.ErrWork) && !errors.Is(err, pattern.ErrUTF8) {
				t.Fatalf("%q in %q: %v", expr, s, err)
			}
			return
		}
		if ok {
			valid(t, s, m)
		}
		same, n, err := re.GsubString(s, "$0", -1, pattern.MaxResult)
		if errors.Is(err, pattern.ErrWork) {
			return
		}
		if err != nil || same != s || (n > 0) != ok {
			t.Fatalf("%q in %q: match %v, %d replaced to %q, %v", expr, s, ok, n, same, err)
		}
		// Go means the same by what is plain.
		if options == "" && ascii(expr) && ascii(s) && !strings.ContainsAny(s, "\n\v\x00") && !strings.ContainsAny(expr, "\\\n\v\x00") && !strings.Contains(expr, "(?") && !strings.Contains(expr, "[") {
			compareWithGo(t, expr, s)
		}
	})
}

func ascii(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= 128 }) < 0
}
