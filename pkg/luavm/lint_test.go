package luavm

import (
	"slices"
	"strings"
	"testing"
)

func TestLintSaysWhereAndWhatToDo(t *testing.T) {
	for _, c := range [][2]string{
		{"return 1 +", "rule.lua:1: the script ends too early"},
		{"local x = = 1", "rule.lua:1:11: syntax error near \"=\": equality is written =="},
		{"if x != 1 then end", "rule.lua:1:6: Invalid token near \"!\": not is written `not`, unequal ~="},
		{"\n  print('x')", "rule.lua:2:3: print is not available: use ngx.log(ngx.INFO, ...)"},
		{"local m = require 'cjson'", "rule.lua:1:11: require is not available: a rule is one file"},
		{"return os.date('%H')", "rule.lua:1:8: os is not available: the time is ngx.time()"},
		{"\n\nngx.say('x')", "rule.lua:3:5: ngx.say is not available: a rule only decides"},
		{"return ngx.shared.dict", "rule.lua:1:12: ngx.shared is not available: nothing is kept between calls"},
		{"return ('x'):find('%b')", "rule.lua:1:19: "},
		{"return string.gsub('x', '(', '')", "rule.lua:1:25: "},
		{"return ngx.re.match('x', '(a)\\\\1')", "rule.lua:1:26: "},
		{"goto nowhere", "rule.lua:1:6: goto and labels are not available: use if"},
		{"\n::again::", "rule.lua:2:3: goto and labels are not available"},
		{"break", "rule.lua:1: no loop to break"},
		{"coroutine.wrap(f)", "rule.lua:1:1: coroutine is not available"},
		{"return load('x')", "rule.lua:1:8: load is not available"},
		{strings.Repeat("(", 200), "rule.lua:1:151: more than 150 brackets and blocks"},
		{strings.Repeat(" ", 65_537), "rule.lua: the script has 65537 bytes; at most 65536"},
	} {
		src, want := c[0], c[1]
		errs, _ := Lint("rule.lua", []byte(src))
		if len(errs) == 0 || !strings.HasPrefix(errs[0].String(), want) {
			t.Errorf("%.60s\n got %v\nwant %s", src, errs, want)
		}
	}
	for _, c := range [][2]string{
		{"n = 1 return 'a'", "rule.lua:1:1: n is a global variable: write local n"},
		{"return usr", "rule.lua:1:8: usr is never set: it is nil"},
		{"return calls.user", "rule.lua:1:8: calls is never set: it is nil; is call meant?"},
		{"return call.usr", "rule.lua:1:13: call.usr is not available: it is nil; is call.user meant?"},
		{"return ngx.crc32_shrt(call.user)", "rule.lua:1:12: ngx.crc32_shrt is not available: it is nil; is ngx.crc32_short meant?"},
		{"local x = string.foo return 'a'", "rule.lua:1:18: string.foo is not available: it is nil"},
		{"local x = 1", "rule.lua:1: it returns nothing"},
		{"\n\nfunction f() end\nreturn f()", "rule.lua:3:10: f is a global variable"},
	} {
		src, want := c[0], c[1]
		errs, warnings := Lint("rule.lua", []byte(src))
		if len(errs) > 0 || len(warnings) == 0 || !strings.HasPrefix(warnings[0].String(), want) {
			t.Errorf("%s\n got %v, %v\nwant %s", src, errs, warnings, want)
		}
	}
	for _, src := range []string{
		canary(t), `local print = 1; return "a" .. print`, `local t = {find = 1}; return t.find and "a"`, `return ngx.var.http_anything or call.headers.anything or call.metadata.x or "a"`,
		`return call.params.x and call.sequence.id or "a"`, `local ok = _G and _VERSION return "a"`, "\xef\xbb\xbfreturn 'a'", "return 'a'\r\n-- end\r\n",
		`return ("x"):find(".", 1, true) and "a" or nil`,
	} {
		if errs, warnings := Lint("rule.lua", []byte(src)); len(errs)+len(warnings) > 0 {
			t.Errorf("%s: %v %v", src, errs, warnings)
		}
	}
}

func TestEveryMistakeIsTold(t *testing.T) {
	_, err := Compile("rule.lua", []byte("print(1)\nlocal x = require('y')\nreturn ('a'):match('(')"), Limits{})
	if err == nil || strings.Count(err.Error(), "\n") != 2 || !strings.Contains(err.Error(), "rule.lua:2:") {
		t.Error(err)
	}
}

func TestTargetsAreThoseThatCanBeTold(t *testing.T) {
	for _, c := range [][2]string{
		{canary(t), "model_v1 model_v2"},
		{`return "a", "reason"`, "a"},
		{`return call.user == "x" and "a" or "b"`, "a b"},
		{`return nil`, ""},
		{`local t = "a"; if call.rows > 5 then t = "b" end; return t`, "a b"},
		{`local function pick(u) if u then return "a" end return "b" end return pick(call.user)`, "a b"},
		{`function pick() return "g" end return pick()`, "g"},
		{`return split(call.user, {a = 90, ["b"] = 10})`, "a b"},
		{`local w = {a = 1, c = 2} return split(call.user, w)`, "a c"},
		{`return ({"x", "y"})[1]`, ""},
		{`local function f() return "inner" end return "outer"`, "outer"},
		{`local t = "a"; t = t; return t`, "a"},
		{`local function f() return f() end return f()`, ""},
		{`return "a" .. "b"`, ""},
		{`return (function() return "f" end)()`, ""},
		{`for i = 1, 2 do if i == 2 then return "loop" end end`, "loop"},
	} {
		src, want := c[0], c[1]
		s := mustCompile(t, src)
		if got := strings.Join(s.Targets(), " "); got != want || !slices.IsSorted(s.Targets()) {
			t.Errorf("%s: %q, want %q", src, got, want)
		}
	}
}

func TestAScriptKnowsWhatItIs(t *testing.T) {
	s := mustCompile(t, "return 'a'")
	if s.Name != "rule.lua" || s.Source != "return 'a'" || len(s.Hash) != 64 || s.Memory() < 500 || s.Memory() > 5000 {
		t.Errorf("%+v %d", s, s.Memory())
	}
	for _, o := range Outcomes() {
		if o.String() == "" {
			t.Error(o)
		}
	}
}
