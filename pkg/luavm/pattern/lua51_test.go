package pattern_test

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/luavm/pattern"
)

var (
	lua   = flag.String("lua", "", "record testdata/lua51.txt anew with this interpreter, which must be a Lua 5.1")
	cases = flag.Int("cases", 2500, "how many cases -lua records")
	seed  = flag.Uint64("seed", 1, "where the cases of -lua come from")
)

const recorded = "testdata/lua51.txt"

// recorder is run by the interpreter. It writes what find, gmatch and gsub answer, one line a case.
const recorder = `
local function show(v)
  if v == nil then return "nil" end
  if type(v) == "number" then return string.format("%d", v) end
  return "'" .. v:gsub("[^%w]", function(c) return string.format("\\%03d", c:byte()) end) .. "'"
end
local function line(ok, ...)
  if not ok then return "error" end
  local t = {}
  for i = 1, select("#", ...) do t[i] = show((select(i, ...))) end
  return table.concat(t, " ")
end
local function plain(ok, s) return ok and s or "error" end
local function gmatch(s, p)
  local all = {}
  for a, b in s:gmatch(p) do
    all[#all + 1] = show(a) .. ":" .. show(b)
    if #all > 100 then break end
  end
  return table.concat(all, " ")
end
function case(p, s, init, max)
  print(table.concat({
    line(pcall(string.find, s, p, init)),
    line(pcall(string.match, s, p, init)),
    plain(pcall(gmatch, s, p)),
    line(pcall(string.gsub, s, p, "<%0|%1>", max)),
    line(pcall(string.gsub, s, p, function(a, b) return a ~= "a" and "{" .. show(a) .. show(b) .. "}" end)),
  }, "\t"))
end
`

// luaString writes s as Lua and Go both read it.
func luaString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		if c := s[i]; c >= ' ' && c < 127 && c != '"' && c != '\\' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, `\%03d`, c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// luaUnquote reads what luaString wrote.
func luaUnquote(t *testing.T, s string) string {
	t.Helper()
	var b strings.Builder
	for s = strings.Trim(s, `"`); s != ""; {
		if s[0] != '\\' {
			b.WriteByte(s[0])
			s = s[1:]
			continue
		}
		n, err := strconv.ParseUint(s[1:4], 10, 8)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteByte(byte(n))
		s = s[4:]
	}
	return b.String()
}

// record asks a real Lua 5.1 and writes the file anew.
func record(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 51))
	var script bytes.Buffer
	script.WriteString(recorder)
	var asked []string
	for range *cases {
		p, s := randomPattern(r, 8), randomSubject(r, 20)
		init, most := r.IntN(27)-3, strconv.Itoa(r.IntN(4))
		if r.IntN(2) == 0 {
			init = 1
		}
		if r.IntN(3) > 0 {
			most = "nil"
		}
		fmt.Fprintf(&script, "case(%s, %s, %d, %s)\n", luaString(p), luaString(s), init, most)
		asked = append(asked, fmt.Sprintf("%s\t%s\t%d\t%s", luaString(p), luaString(s), init, most))
	}
	file := filepath.Join(t.TempDir(), "cases.lua")
	if err := os.WriteFile(file, script.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), *lua, file).Output()
	if err != nil {
		t.Fatal(err)
	}
	answers := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(answers) != len(asked) {
		t.Fatalf("%d answers to %d cases", len(answers), len(asked))
	}
	var b bytes.Buffer
	for i := range asked {
		fmt.Fprintf(&b, "%s\t%s\n", asked[i], answers[i])
	}
	if err := os.WriteFile(recorded, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestMatchesAsLua51 compares with what a real Lua 5.1.5 answered.
func TestMatchesAsLua51(t *testing.T) {
	if *lua != "" {
		record(t)
	}
	f, err := os.Open(recorded)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	compared := 0
	for sc := bufio.NewScanner(f); sc.Scan(); {
		fields := strings.Split(sc.Text(), "\t")
		if len(fields) != 9 {
			t.Fatalf("%d fields in %q", len(fields), sc.Text())
		}
		p, s := luaUnquote(t, fields[0]), luaUnquote(t, fields[1])
		init, err := strconv.Atoi(fields[2])
		if err != nil {
			t.Fatal(err)
		}
		most := -1
		if fields[3] != "nil" {
			if most, err = strconv.Atoi(fields[3]); err != nil {
				t.Fatal(err)
			}
		}
		got := answers(t, p, s, init, most)
		if got == nil {
			continue // refused; Lua itself finds most mistakes only when a match gets that far
		}
		compared++
		for i, name := range []string{"find", "match", "gmatch", "gsub with a text", "gsub with a function"} {
			if got[i] != fields[4+i] {
				t.Errorf("%s of %q in %q (init %d, max %d):\n got %s\nLua's %s", name, p, s, init, most, got[i], fields[4+i])
			}
		}
	}
	if compared < *cases/2 {
		t.Errorf("only %d patterns were not refused", compared)
	}
}

// answers gives what the recorder writes, nil if the pattern is refused.
func answers(t *testing.T, lua, s string, init, most int) []string {
	t.Helper()
	p, err := pattern.Compile(lua)
	if err != nil {
		return nil
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%q in %q: %v", lua, s, err)
		}
	}
	show := func(c pattern.Capture) string {
		if c.Position {
			return strconv.Itoa(c.Start + 1)
		}
		return quoted(c.Text(s))
	}
	all := func(m pattern.Match) []string {
		if len(m.Captures) == 0 {
			return []string{show(m.Whole())}
		}
		var l []string
		for _, c := range m.Captures {
			l = append(l, show(c))
		}
		return l
	}

	find, match := "nil", "nil"
	m, ok, err := p.Find(s, pattern.Init(init, len(s)))
	check(err)
	if ok {
		match = strings.Join(all(m), " ")
		find = fmt.Sprintf("%d %d", m.Start+1, m.End)
		if len(m.Captures) > 0 {
			find += " " + match
		}
	}

	var each []string
	it, err := p.Gmatch(s)
	check(err)
	for {
		m, ok, err := it.Next()
		check(err)
		if !ok {
			break
		}
		l := append(all(m), "nil")
		each = append(each, l[0]+":"+l[1])
	}

	var text, function string
	result, n, err := p.GsubString(s, "<%0|%1>", most, pattern.MaxResult)
	check(err)
	text = fmt.Sprintf("%s %d", quoted(result), n)
	result, n, err = p.Gsub(s, -1, pattern.MaxResult, func(m pattern.Match) (string, bool, error) {
		l := append(all(m), "nil")
		return "{" + l[0] + l[1] + "}", l[0] == "'a'", nil
	})
	check(err)
	function = fmt.Sprintf("%s %d", quoted(result), n)
	return []string{find, match, strings.Join(each, " "), text, function}
}

// quoted is the recorder's show of a string.
func quoted(s string) string {
	var b strings.Builder
	b.WriteByte('\'')
	for i := range len(s) {
		switch c := s[i]; {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, `\%03d`, c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}
