package luavm

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/model-gateway/model-gateway/pkg/internal/calm"
)

func TestANameThatIsNeverSetIsAnErrorWhereItIsNeeded(t *testing.T) {
	for _, c := range [][2]string{
		{"local u = call.user\nreturn hash(u .. salt2)", "rule.lua:2:18: salt2 is never set, and joined here: set it first (local salt2 = ...)"},
		{"local salt = 'x'\nreturn hash(call.user .. salt2)", "is salt meant?"},
		{"return hash(usr)", "rule.lua:1:13: usr is never set, and hashed here"},
		{"return hash(call.user, SALT)", "rule.lua:1:24: SALT is never set, and hashed here"},
		{"return ngx.crc32_short(uid) % 100", "rule.lua:1:24: uid is never set, and hashed here"},
		{"local crc = ngx.crc32_short\nreturn crc(uid)", "rule.lua:2:12: uid is never set, and hashed here"},
		{"return split(key, {a = 1})", "key is never set, and hashed here"},
		{"return split(call.user, weights)", "weights is never set, and hashed here"},
		{"return sticky(call.user, percent)", "percent is never set, and hashed here"},
		{"return call.rows * factor > 5 and 'a'", "factor is never set, and calculated with here"},
		{"return -n", "n is never set, and calculated with here"},
		{"return 'a' .. 'b' .. cc .. 'd'", "rule.lua:1:22: cc is never set, and joined here"},
		{"local x\nlocal y = nil\nreturn 'a' .. x .. y", "rule.lua:3:15: x is never set, and joined here"},
		{"return hash(call.usr)", "rule.lua:1:18: call.usr is not available, and hashed here: it is nil in every call; is call.user meant?"},
		{"return 'a' .. ngx.var.remote_addr", "rule.lua:1:23: ngx.var.remote_addr is not available, and joined here"},
	} {
		src, want := c[0], c[1]
		errs, warnings := Lint("rule.lua", []byte(src))
		if len(errs) == 0 || !strings.Contains(errs[0].String(), want) {
			t.Errorf("%s\n got %v, %v\nwant %s", src, errs, warnings, want)
		}
		for _, w := range warnings {
			if strings.Contains(w.Message, "is never set") || strings.Contains(w.Message, "is not available") {
				t.Errorf("%s: told twice: %v", src, w)
			}
		}
		if _, err := Compile("rule.lua", []byte(src), Limits{}); err == nil {
			t.Errorf("%s: compiled", src)
		}
	}
}

func TestWhatMayBeSetIsNoError(t *testing.T) {
	for _, src := range []string{
		"function f() n = 'x' end f() return 'a' .. n",
		"local x; if call.user then x = 'a' end return hash(x or 'b')",
		"local x; if call.user then x = 'a' end return hash(x)",
		"local x; local function f() x = 'b' end f() return 'a' .. x",
		"_G.salt = 'x' return hash(call.user .. salt)",
		"local function f(a, b) return a .. b end return f('x', 'y')",
		"for k, v in pairs(call.headers) do local s = k .. v end return 'a'",
		"local function f() return 1, 2 end local a, b = f() return a + b",
		"return hash((salt2 or 'x') .. call.user)",
		"return hash(call.metadata.anything)",
		"return ngx.crc32_short(ngx.var.arg_anything .. ngx.var.http_x .. call.params.p .. call.sequence.id)",
		"function hash(a, b) return 'v' end return hash(call.user, b)",
		"return math.pi * 2 .. _VERSION",
		"local s = stats('a') return s.p99 + s.p50 > 5 and 'a'",
	} {
		if errs, _ := Lint("rule.lua", []byte(src)); len(errs) > 0 {
			t.Errorf("%s: %v", src, errs)
		}
	}
}

func TestAHeaderWithoutBracketsIsTold(t *testing.T) {
	for _, c := range [][2]string{
		{`return call.headers.x-user-type == "premium" and "a"`, `rule.lua:1:21: call.headers.x-user-type is call.headers.x minus user minus type: write call.headers["x-user-type"]`},
		{`return call.metadata.user-id == "u" and "a"`, `write call.metadata["user-id"]`},
		{`return call.params.a-b-c == "u" and "a"`, `write call.params["a-b-c"]`},
		{`return ngx.var.http_x-user == "u" and "a"`, `write ngx.var.http_x_user`},
		{`return ngx.var.arg_a-b == "u" and "a"`, `write ngx.var["arg_a-b"]`},
		{`local h = call.headers; return h.x-user-type == "u" and "a"`, `write call.headers["x-user-type"]`},
		{`local type = "x"; return call.headers.x-user-type == "u" and "a"`, `write call.headers["x-user-type"]`},
	} {
		src, want := c[0], c[1]
		errs, warnings := Lint("rule.lua", []byte(src))
		if len(errs) != 1 || len(warnings) > 0 || !strings.Contains(errs[0].String(), want) {
			t.Errorf("%s\n got %v, %v\nwant %s", src, errs, warnings, want)
		}
	}
	src := `local user = "1"; return call.headers.x-user == 5 and "a"`
	if errs, warnings := Lint("rule.lua", []byte(src)); len(errs) > 0 || len(warnings) != 1 || !strings.Contains(warnings[0].Message, `write call.headers["x-user"]`) {
		t.Errorf("%s: %v %v", src, errs, warnings)
	}
	for _, src := range []string{
		`local used = 3; return call.params.limit - used > 5 and "a"`, `return call.rows - 3 > 5 and "a"`, `local t = {x = 1}; local y = 2; return t.x-y > 5 and "a"`,
		`return call.params.limit - math.pi > 5 and "a"`,
	} {
		if errs, warnings := Lint("rule.lua", []byte(src)); len(errs)+len(warnings) > 0 {
			t.Errorf("%s: %v %v", src, errs, warnings)
		}
	}
}

func TestATextThatIsComparedWithANumberIsTold(t *testing.T) {
	for _, c := range [][2]string{
		{`return call.metadata.age > 18 and "a"`, `rule.lua:1:22: a text is compared with a number by > (the script fails): use tonumber, such as (tonumber(call.metadata.age) or 0)`},
		{`return call.rows > "5" and "a"`, `rule.lua:1:20: a text is compared with a number by > (the script fails): write 5 without quotes`},
		{`return call.headers["x-age"] >= 18 and "a"`, `tonumber(call.headers["x-age"])`},
		{`return 18 < call.headers.age and "a"`, `tonumber(call.headers.age)`},
		{`return call.metadata.age == 18 and "a"`, `by == (never true): use tonumber`},
		{`return call.metadata.age ~= 18 and "a"`, `by ~= (always true): use tonumber`},
		{`return (call.metadata.age or 0) > 18 and "a"`, `tonumber(call.metadata.age)`},
		{`local age = call.metadata.age
if age > 18 then return "a" end`, `rule.lua:2:4: a text is compared with a number by > (the script fails): use tonumber, such as (tonumber(age) or 0)`},
		{`return ngx.var.arg_age < call.rows and "a"`, `tonumber(ngx.var.arg_age)`},
		{`return call.version == 2 and "a"`, `tonumber(call.version)`},
		{`return #call.user == "5" and "a"`, `write 5 without quotes`},
		{`return call.rows == "many" and "a"`, `call.rows is a number`},
		{`return hash(call.user) % 100 < "10" and "a"`, `write 10 without quotes`},
	} {
		src, want := c[0], c[1]
		errs, warnings := Lint("rule.lua", []byte(src))
		if len(errs) > 0 || len(warnings) != 1 || !strings.Contains(warnings[0].String(), want) {
			t.Errorf("%s\n got %v, %v\nwant %s", src, errs, warnings, want)
		}
	}
	for _, src := range []string{
		`return tonumber(call.metadata.age) == 18 and "a"`, `return (tonumber(call.metadata.age) or 0) > 18 and "a"`, `return call.params.age > 18 and "a"`,
		`return call.user > "m" and "a"`, `return call.rows > 5 and "a"`, `return (call.metadata.age or 0) == "18" and "a"`,
		`local x = call.user; x = 5; return x == 5 and "a"`, `return hash(call.user) % 100 < 10 and "a"`, `return stats("a").p99 > 5 and "a"`,
		`local n = call.metadata.age; n = tonumber(n); return n and n > 18 and "a"`, `return call.user == nil and "a"`,
		`local call = {rows = "5"}; return call.rows == "5" and "a"`, `return call.headers == 5 and "a"`, `return ("5"):len() == 1 and "a"`,
	} {
		if errs, warnings := Lint("rule.lua", []byte(src)); len(errs)+len(warnings) > 0 {
			t.Errorf("%s: %v %v", src, errs, warnings)
		}
	}
}

// list is a script with a table of n names.
func list(n int) string {
	var b strings.Builder
	b.WriteString("local users = {")
	for i := range n {
		fmt.Fprintf(&b, "['u%d'] = true, ", i)
	}
	b.WriteString("}\nreturn users[call.user] and 'a' or 'b'")
	return b.String()
}

func TestALargeTableIsTold(t *testing.T) {
	if _, warnings := Lint("rule.lua", []byte(list(100))); len(warnings) > 0 {
		t.Error(warnings)
	}
	_, warnings := Lint("rule.lua", []byte(list(1000)))
	if len(warnings) != 1 || !strings.HasPrefix(warnings[0].String(), "rule.lua:1: this table of 1000 fields is built anew in every run that comes here: about ") || !strings.Contains(warnings[0].Message, "µs") {
		t.Error(warnings)
	}
}

// BenchmarkLargeTable is a thousand fields: what fieldTime stands for.
func BenchmarkLargeTable(b *testing.B) {
	s, in := mustCompile(b, list(1000)), facts()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Run(b.Context(), in); err != nil {
			b.Fatal(err)
		}
	}
}

func TestAFieldThatATableDoesNotHaveIsTold(t *testing.T) {
	src := "local conf = {salt = 'x', percent = 5}\nreturn hash(call.user .. conf.slat) and 'a'"
	if _, warnings := Lint("rule.lua", []byte(src)); len(warnings) != 1 || warnings[0].String() != "rule.lua:2:31: conf.slat is never set: it is nil; is conf.salt meant?" {
		t.Error(warnings)
	}
	for _, src := range []string{
		`local t = {a = 1}; t.b = 2; return t.b and "a"`, `local t = {}; function t.f() return "a" end return t.f()`, `local t = {}; function t:f() return "a" end return t:f()`,
		`local t = setmetatable({}, {__index = function() return "a" end}); return t.x`, `local t = {}; t[call.user or 1] = "a"; return t.b`,
		`local t = {["a" .. call.model] = 1}; return t.b and "a"`, `local t = {1, 2}; t = call.metadata; return t.b and "a"`, `local t = {a = {b = 1}}; return t.a.c and "a"`,
	} {
		if errs, warnings := Lint("rule.lua", []byte(src)); len(errs)+len(warnings) > 0 {
			t.Errorf("%s: %v %v", src, errs, warnings)
		}
	}
}

func TestWhatIsLookedForTakesNoLongTime(t *testing.T) {
	wide := "local x0 = call.user\n"
	for i := range 12 {
		wide += fmt.Sprintf("local x%d = x%d%s\n", i+1, i, strings.Repeat(fmt.Sprintf(" or x%d", i), 100))
	}
	var names, fields strings.Builder
	fields.WriteString("local t = {")
	for i := range 2500 {
		fmt.Fprintf(&fields, "f%d=1,", i)
	}
	fields.WriteString("} local x = 0\n")
	for i := range 180 {
		fmt.Fprintf(&names, "local abcdef%d\n", i)
	}
	for i := range 1500 {
		fmt.Fprintf(&names, "do local y = u%d .. 'a' end\n", i)
		fmt.Fprintf(&fields, "x = t.g%d\n", i)
	}
	for name, src := range map[string]string{"kinds": wide + "return x12 > 5", "names": names.String(), "fields": fields.String()} {
		calm.Moment(t, func() error {
			begun := time.Now()
			errs, warnings := Lint("rule.lua", []byte(src))
			took := time.Since(begun)
			if len(errs) > 0 && name != "names" {
				t.Errorf("%s: %d errors, %d warnings", name, len(errs), len(warnings))
			}
			if took > time.Duration(raceFactor)*2*time.Second {
				return fmt.Errorf("%s: %v", name, took)
			}
			return nil
		})
	}
}
