package pattern_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/model-gateway/model-gateway/pkg/internal/calm"
	"github.com/model-gateway/model-gateway/pkg/luavm/pattern"
)

func compile(t *testing.T, lua string) *pattern.Pattern {
	t.Helper()
	p, err := pattern.Compile(lua)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func compileRegex(t *testing.T, regex, options string) *pattern.Regex {
	t.Helper()
	r, err := pattern.CompileRegex(regex, options)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestARefusedPatternIsNamedWithItsPlaceAndARemedy(t *testing.T) {
	for _, c := range []struct {
		lua, item string
		offset    int
		remedy    string
	}{
		{"(a)%1", "%1", 3, "compare the captures with =="},
		{"%0", "%0", 0, "compare the captures with =="},
		{"a%", "%", 1, "%%"},
		{"(a", "(", 0, "%("},
		{"((a)", "(", 0, "%("},
		{"a)", ")", 1, "%)"},
		{"x[a-z", "[a-z", 1, "%["},
		{"[]", "[]", 0, "%["},
		{"[a%]", "[a%]", 0, "%["},
		{"%b(", "%b(", 0, "%b()"},
		{"a%fb", "%f", 1, "%f[%w]"},
		{strings.Repeat("()", 33), "(", 64, "two steps"},
		{strings.Repeat("%b()", 33), "%b()", 128, "two steps"},
		{"%b12%b13%b14%b15%b16%b17%b18%b19%b23", "%b23", 32, "two steps"},
		{strings.Repeat("a", pattern.MaxPattern+1), "", 0, "string.find(s, text, 1, true)"},
	} {
		_, err := pattern.Compile(c.lua)
		var e *pattern.Error
		if !errors.As(err, &e) {
			t.Errorf("%q: error %v", c.lua, err)
			continue
		}
		if e.Item != c.item || e.Offset != c.offset || !strings.Contains(e.Remedy, c.remedy) {
			t.Errorf("%q: item %q at %d, remedy %q", c.lua, e.Item, e.Offset, e.Remedy)
		}
		if e.Pattern != c.lua || e.Problem == "" || !strings.Contains(err.Error(), e.Problem) || len(err.Error()) > 400 {
			t.Errorf("%q: %v", c.lua, err)
		}
	}
	_, err := pattern.Compile("(a)%1")
	want := `"%1" at character 4 of pattern "(a)%1": back-references are refused: they cannot be matched in bounded time; capture the text twice, and compare the captures with ==`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestWhatPcreHasAndWeHaveNotIsRefusedByName(t *testing.T) {
	for _, c := range []struct{ regex, options, item, problem string }{
		{`a(?=b)`, "", "(?=", "look-ahead"},
		{`a(?!b)`, "", "(?!", "look-ahead"},
		{`(?<=a)b`, "", "(?<=", "look-behind"},
		{`(?<!a)b`, "", "(?<!", "look-behind"},
		{`(a)\1`, "", `\1`, "back-reference"},
		{`(?<n>a)\k<n>`, "", `\k`, "back-reference"},
		{`(?<n>a)(?P=n)`, "", "(?P=", "back-reference"},
		{`(a)\g1`, "", `\g`, "back-reference"},
		{`(?>a)`, "", "(?>", "atomic"},
		{`a++`, "", "++", "possessive"},
		{`a{2}+`, "", "{2}+", "possessive"},
		{`(?|a|b)`, "", "(?|", "number"},
		{`(?(1)a)`, "", "(?(", "conditions"},
		{`(?R)`, "", "(?R", "recursion"},
		{`(a(?1))`, "", "(?1", "recursion"},
		{`(?&n)`, "", "(?&", "recursion"},
		{`(?P>n)`, "", "(?P>", "recursion"},
		{`(*FAIL)`, "", "(*", "verbs"},
		{`(?C)`, "", "(?C", "callouts"},
		{`a\Kb`, "", `\K`, "refused"},
		{`\Ga`, "", `\G`, "refused"},
		{`\R`, "", `\R`, "refused"},
		{`\X`, "", `\X`, "refused"},
		{`\pL`, "", `\p`, "characters"},
		{`\x{100}`, "", `\x{100}`, "byte"},
		{`[\x{100}]`, "", `\x{100}`, "byte"},
		{`\x{110000}`, "u", `\x{110000}`, "number"},
		{`\H`, "u", `\H`, "refused"},
		{`[[.a.]]`, "", "[[.a.]]"[1:6], "collating"},
		{`[[:foo:]]`, "", "[:foo:]", "class"},
		{`\y`, "", `\y`, "escape"},
		{`a\`, "", `\`, "backslash"},
		{`[a`, "", "[a", "closed"},
		{`[b-a]`, "", "b-a", "range"},
		{`(a`, "", "(", "closed"},
		{`a)`, "", ")", "open"},
		{`*a`, "", "*", "repeat"},
		{`a|*`, "", "*", "repeat"},
		{`(?x)a`, "", "(?x", "inside"},
		{`(?y)a`, "", "(?y", "group"},
		{`(?<1a>b)`, "", "(?<1a>", "name"},
		{`(?<a>b)(?<a>c)`, "", "(?<a>", "already"},
		{`(?#a`, "", "(?#a", "comment"},
		{`a{1001}`, "", "{1001}", "repeat"},
		{strings.Repeat("a{500}", 3), "", "", "instructions"},
		{`\p{Nope}`, "u", `\p{Nope}`, "range"},
		{"[A-\U0001e940]", "iu", "A-\U0001e940", "large ranges"},
		{strings.Repeat("()", 33), "", "(", "captures"},
		{strings.Repeat(`\pL`, 9), "u", `\p`, "too many"},
		{strings.Repeat("a", 1025), "", "", "1025"},
		{"\xff", "u", "", "UTF-8"},
		{"a", "d", "d", "DFA"},
		{"a", "iD", "D", "name"},
		{"a", "J", "J", "JavaScript"},
		{"a", "q", "q", "option"},
	} {
		_, err := pattern.CompileRegex(c.regex, c.options)
		var e *pattern.Error
		if !errors.As(err, &e) {
			t.Errorf("%q with %q: error %v", c.regex, c.options, err)
			continue
		}
		if e.Item != c.item || !strings.Contains(e.Problem, c.problem) {
			t.Errorf("%q with %q: item %q: %v", c.regex, c.options, e.Item, err)
		}
	}
}

func TestInitCountsAsLuaDoes(t *testing.T) {
	for _, c := range [][3]int{{1, 5, 0}, {0, 5, 0}, {5, 5, 4}, {6, 5, 5}, {99, 5, 5}, {-1, 5, 4}, {-5, 5, 0}, {-99, 5, 0}, {1, 0, 0}} {
		if got := pattern.Init(c[0], c[1]); got != c[2] {
			t.Errorf("Init(%d, %d) = %d, want %d", c[0], c[1], got, c[2])
		}
	}
}

func TestTheLongestSubjectIsSearchedAndALongerOneRefused(t *testing.T) {
	at, beyond := strings.Repeat("x", pattern.MaxSubject), strings.Repeat("x", pattern.MaxSubject+1)
	for name, find := range map[string]func(s string) (pattern.Match, bool, error){
		"pattern":            func(s string) (pattern.Match, bool, error) { return compile(t, "(x-)$").Find(s, 0) },
		"literal":            func(s string) (pattern.Match, bool, error) { return compile(t, "xx").Find(s, len(s)-2) },
		"regular expression": func(s string) (pattern.Match, bool, error) { return compileRegex(t, "x*$", "").Find(s, 0) },
		"gmatch": func(s string) (pattern.Match, bool, error) {
			it, err := compile(t, "x*").Gmatch(s)
			if err != nil {
				return pattern.Match{}, false, err
			}
			return it.Next()
		},
		"gsub": func(s string) (pattern.Match, bool, error) {
			_, n, err := compile(t, "x").GsubString(s, "yy", -1, pattern.MaxResult)
			return pattern.Match{End: n}, n > 0, err
		},
	} {
		if m, ok, err := find(at); err != nil || !ok || m.End != len(at) {
			t.Errorf("%s: %v, %v, %v", name, m, ok, err)
		}
		if _, _, err := find(beyond); !errors.Is(err, pattern.ErrSubject) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if start, end, ok := pattern.Plain(beyond+"y", "y", 0); !ok || start != len(beyond) || end != start+1 {
		t.Errorf("Plain: %d, %d, %v", start, end, ok)
	}
}

func TestReplacements(t *testing.T) {
	for _, c := range []struct {
		lua, s, repl string
		max          int
		want         string
		n            int
	}{
		{"hello", "hello hello", "bye", 1, "bye hello", 1},
		{"%w+", "hello world", "%0 %0", -1, "hello hello world world", 2},
		{"(%w+) = (%w+)", "a = b", "%2 = %1", -1, "b = a", 1},
		{"%w*", "abc", "x", -1, "xx", 2}, // as Lua 5.1; 5.4 has "x"
		{"", "abc", "-", -1, "-a-b-c-", 4},
		{"^a", "aaa", "b", -1, "baa", 1},
		{"()b", "abab", "%1", -1, "a2a4", 2},
		{"a", "banana", "", -1, "bnn", 3},
		{"a", "banana", "%%", -1, "b%n%n%", 3},
		{"a", "banana", "%x%1", 2, "bxanxana", 2},
		{"a", "banana", "o", 0, "banana", 0},
		{"\xc3\xa9", "caf\xc3\xa9", "e", -1, "cafe", 1},
		{".", "\xc3\xa9\n", "x", -1, "xxx", 3},
	} {
		got, n, err := compile(t, c.lua).GsubString(c.s, c.repl, c.max, pattern.MaxResult)
		if err != nil || got != c.want || n != c.n {
			t.Errorf("gsub(%q, %q, %q, %d) = %q, %d, %v, want %q, %d", c.s, c.lua, c.repl, c.max, got, n, err, c.want, c.n)
		}
	}
	for _, c := range []struct {
		regex, s, repl string
		want           string
	}{
		{`(\w)(\w)`, "abcd", "$2$1", "badc"},
		{`(\w)(\w)`, "abcd", "${2}0$$$0", "b0$abd0$cd"},
		{`x*`, "abc", "-", "-a-b-c-"},
		{`(a)|(b)`, "ab", "[$1|$2]", "[a|][|b]"},
	} {
		got, _, err := compileRegex(t, c.regex, "").GsubString(c.s, c.repl, -1, pattern.MaxResult)
		if err != nil || got != c.want {
			t.Errorf("ngx.re.gsub(%q, %q, %q) = %q, %v, want %q", c.s, c.regex, c.repl, got, err, c.want)
		}
	}
}

func TestAReplacementThatNamesWhatIsNotThereIsRefused(t *testing.T) {
	for _, repl := range []string{"%2", "%", "a%9", strings.Repeat("%1", 65)} {
		_, _, err := compile(t, "(a)").GsubString("a", repl, -1, pattern.MaxResult)
		var e *pattern.Error
		if !errors.As(err, &e) || e.Pattern != repl {
			t.Errorf("%q: %v", repl, err)
		}
	}
	for _, repl := range []string{"$2", "$", "$x", "${1", "${}", "${x}", "$999999", strings.Repeat("$1", 65)} {
		_, _, err := compileRegex(t, "(a)", "").GsubString("a", repl, -1, pattern.MaxResult)
		var e *pattern.Error
		if !errors.As(err, &e) || e.Pattern != repl {
			t.Errorf("%q: %v", repl, err)
		}
	}
}

func TestAResultGrowsUpToItsLimitOnly(t *testing.T) {
	p, s := compile(t, "."), strings.Repeat("x", 100)
	if got, n, err := p.GsubString(s, "%0%0", -1, 200); err != nil || n != 100 || len(got) != 200 {
		t.Errorf("%d bytes, %d, %v", len(got), n, err)
	}
	for name, gsub := range map[string]func() error{
		"text": func() error { _, _, err := p.GsubString(s, "%0%0", -1, 199); return err },
		"rest": func() error { _, _, err := p.GsubString(s, "xxx", 1, 101); return err },
		"none": func() error { _, _, err := p.GsubString(s, "", 0, 99); return err },
		"one":  func() error { _, _, err := p.GsubString(s, strings.Repeat("a", 51)+"%0", -1, 50); return err },
		"function": func() error {
			_, _, err := p.Gsub(s, -1, 1000, func(pattern.Match) (string, bool, error) { return s, false, nil })
			return err
		},
		"regular expression": func() error { _, _, err := compileRegex(t, ".", "").GsubString(s, "$0$0", -1, 199); return err },
	} {
		if err := gsub(); !errors.Is(err, pattern.ErrResult) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestAReplacersErrorEndsTheReplacement(t *testing.T) {
	mine, calls := errors.New("mine"), 0
	_, _, err := compile(t, "a").Gsub("aaa", -1, 100, func(pattern.Match) (string, bool, error) {
		calls++
		return "", false, mine
	})
	if !errors.Is(err, mine) || calls != 1 {
		t.Errorf("error %v after %d calls", err, calls)
	}
}

// TestAReplacerMaySearchItself: the machine of the replacement around it must not be the one it gets.
func TestAReplacerMaySearchItself(t *testing.T) {
	p := compile(t, "(%w+)")
	got, n, err := p.Gsub("ab cd", -1, 100, func(m pattern.Match) (string, bool, error) {
		inner, _, err := compile(t, "(.)").GsubString("xyz", "%1"+m.Captures[0].Text("ab cd"), -1, 100)
		return inner, false, err
	})
	if got != "xabyabzab xcdycdzcd" || n != 2 || err != nil {
		t.Errorf("%q, %d, %v", got, n, err)
	}
}

func TestGmatchEndsOnce(t *testing.T) {
	it, err := compile(t, "(%d)(%d?)").Gmatch("1a23")
	if err != nil {
		t.Fatal(err)
	}
	var got []pattern.Match
	for {
		m, ok, err := it.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		got = append(got, m)
	}
	want := []pattern.Match{
		{Start: 0, End: 1, Captures: []pattern.Capture{{Start: 0, End: 1}, {Start: 1, End: 1}}},
		{Start: 2, End: 4, Captures: []pattern.Capture{{Start: 2, End: 3}, {Start: 3, End: 4}}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	it.Close()
	if _, ok, err := it.Next(); ok || err != nil || it.Size() != 0 {
		t.Errorf("after its end: %v, %v, %d bytes", ok, err, it.Size())
	}
}

func TestAClosedIteratorGivesNothing(t *testing.T) {
	it, err := compileRegex(t, "a", "").Gmatch("aaa")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := it.Next(); !ok || it.Size() == 0 {
		t.Error("no first match")
	}
	it.Close()
	it.Close()
	if _, ok, err := it.Next(); ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
}

func TestOptionsOfRegexes(t *testing.T) {
	for _, c := range []struct {
		regex, options, s string
		init              int
		want              string // "-" is no match
	}{
		{"b", "a", "ab", 0, "-"},
		{"b", "a", "ab", 1, "b"},
		{"^b", "", "ab", 1, "-"},
		{`\bb`, "", "ab", 1, "-"},
		{"^b", "m", "a\nb", 0, "b"},
		{"B.", "ijos", "ab\n", 0, "b\n"},
		{"a b # c", "x", "ab", 0, "ab"},
		{"a(?#x)+", "", "aa", 0, "aa"},
		{".", "", "\xc3\xa9", 0, "\xc3"},
		{".", "u", "\xc3\xa9", 0, "\xc3\xa9"},
		{"[\xc3\xa9]+", "", "\xa9\xc3", 0, "\xa9\xc3"},
		{"[\xc3\xa9]", "u", "e\xc3\xa9", 0, "\xc3\xa9"},
		{"\xc3\xa9", "iu", "\xc3\x89", 0, "\xc3\x89"},
		{"\xc3\xa9", "i", "\xc3\x89", 0, "-"},
		{`\xe9`, "", "\xe9", 0, "\xe9"},
		{`\xe9`, "u", "\xc3\xa9", 0, "\xc3\xa9"},
		{`\p{Greek}+`, "u", "a\xce\xb1\xce\xb2", 0, "\xce\xb1\xce\xb2"},
		{`[^\p{L}]`, "u", "\xce\xb1!", 0, "!"},
		{`\S+`, "iu", " \xce\xb1 ", 0, "\xce\xb1"},
		{`[\h]`, "u", "a\xc2\xa0", 0, "\xc2\xa0"},
		{`\w`, "iu", "\xe2\x84\xaa", 0, "-"}, // the Kelvin sign is no K
		{"x$", "", "x\n", 0, "x"},
		{`x\z`, "", "x\n", 0, "-"},
	} {
		m, ok, err := compileRegex(t, c.regex, c.options).Find(c.s, c.init)
		got := "-"
		if ok {
			got = c.s[m.Start:m.End]
		}
		if err != nil || got != c.want {
			t.Errorf("%q with %q in %q from %d: %q, %v, want %q", c.regex, c.options, c.s, c.init, got, err, c.want)
		}
	}
	if _, _, err := compileRegex(t, ".", "u").Find("\xff", 0); !errors.Is(err, pattern.ErrUTF8) {
		t.Errorf("no UTF-8: %v", err)
	}
	if m, ok, err := compileRegex(t, ".", "U").Find("\xff", 0); err != nil || !ok || m.End != 1 {
		t.Errorf("unchecked: %v, %v, %v", m, ok, err)
	}
	got, n, err := compileRegex(t, "a", "a").GsubString("aaba", "x", -1, 100)
	if err != nil || got != "xxba" || n != 2 {
		t.Errorf("anchored: %q, %d, %v", got, n, err)
	}
	got, n, err = compileRegex(t, "", "u").GsubString("\xc3\xa9a", "-", -1, 100)
	if err != nil || got != "-\xc3\xa9-a-" || n != 3 {
		t.Errorf("empty between characters: %q, %d, %v", got, n, err)
	}
}

func TestCapturesOfRegexesHaveNamesAndMayBeUnset(t *testing.T) {
	r := compileRegex(t, `(?<year>\d+)-(\d+)(?P<day>-\d+)?(?'rest'$)`, "")
	if d := cmp.Diff([]string{"year", "", "day", "rest"}, r.Names()); d != "" || r.Captures() != 4 {
		t.Error(d)
	}
	const s = "2024-02"
	m, ok, err := r.Find(s, 0)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	var texts []string
	for _, c := range m.Captures {
		texts = append(texts, fmt.Sprintf("%s %v", c.Text(s), c.Unset()))
	}
	if d := cmp.Diff([]string{"2024 false", "02 false", " true", " false"}, texts); d != "" {
		t.Error(d)
	}
}

func TestTheCacheGivesTheSameToAll(t *testing.T) {
	first, err := pattern.Cached("^%a+$")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 1000 {
				// As many of their own as make the cache turn over a few times, and one that stays in use.
				if _, err := pattern.Cached(fmt.Sprintf("a%d%d", g, i)); err != nil {
					t.Error(err)
				}
				if p, err := pattern.Cached("^%a+$"); err != nil || p != first {
					t.Errorf("another one: %p, %p, %v", p, first, err)
					return
				}
				if _, err := pattern.CachedRegex("a+", "i"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if _, err := pattern.Cached("%1"); err == nil {
		t.Error("a refused pattern was accepted")
	}
	one, err1 := pattern.CachedRegex("a+", "i")
	other, err2 := pattern.CachedRegex("a+", "")
	if one == other || err1 != nil || err2 != nil {
		t.Errorf("options are not told apart: %v, %v", err1, err2)
	}
}

func TestTheCacheIsBounded(t *testing.T) {
	for i := range 20_000 {
		if _, err := pattern.Cached(fmt.Sprintf("bound%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 200 {
		if _, err := pattern.Cached(strings.Repeat("[ab]-", 150) + fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	entries, bytes := pattern.CacheSize()
	if entries > 4<<10+16 || bytes > 4<<20+64<<10 {
		t.Errorf("%d entries, %d bytes", entries, bytes)
	}
}

func TestAMatchOfAUsualPatternCostsLittle(t *testing.T) {
	for text, most := range map[string]float64{"^user%-%d+$": 0, "^user%-(%d+)$": 1} {
		p := compile(t, text)
		calm.Luck(t, func() error { // in which few of the pool's machines are lost: the race detector throws some away
			if n := testing.AllocsPerRun(100, func() { _, _, _ = p.Find("user-4711", 0) }); n > most {
				return fmt.Errorf("%s: %v allocations, at most %v", text, n, most)
			}
			return nil
		})
	}
}
