package luavm

import (
	"strings"
	"testing"
)

func TestACallerCannotMakeAGoodScriptFail(t *testing.T) {
	in := func(s string) *Input {
		return &Input{
			Model: "ranker", User: s, Headers: map[string][]string{"x-a": {s}, "x-many": {s[:len(s)/2], s[:len(s)/2]}}, Metadata: map[string]string{"m": s},
			Params: func() map[string]any { return map[string]any{"p": s} }, SequenceID: s,
		}
	}
	const good, huge = 40, 40_000
	for _, src := range []string{
		`return call.headers["x-a"]:match("^a+$") and "v2" or "v1"`,
		`return string.find(call.headers.x_many, "^a+") and "v2"`,
		`for a in string.gmatch(call.user, "a") do return "v2" end`,
		`local s = string.gsub(call.metadata.m, "a", "b") return "v2"`,
		`return ngx.re.match(call.params.p, "a") and "v2"`,
		`return ngx.re.find(call.sequence.id, "a") and "v2"`,
		`for m in ngx.re.gmatch(ngx.var.arg_m, "a") do return "v2" end`,
		`local s = ngx.re.gsub(ngx.var.http_x_a, "a", "b") return "v2"`,
		`local h = ngx.req.get_headers() return h["x-a"]:match("a") and "v2"`,
		`local t = {} for k, v in pairs(call.headers) do t[#t + 1] = v end return table.concat(t):match("a") and "v2"`,
		`local key = call.user .. call.headers["x-a"] return hash(key) and "v2"`,
		`local key = ("%s/%s"):format(call.user, call.metadata.m) return hash(key) and "v2"`,
		`local ok, m = pcall(string.match, call.user, "a") return ok and "v2"`,
		`return ngx.escape_uri(call.user .. "/////") and ngx.encode_base64(call.user .. call.user) and "v2"`,
	} {
		if d, err := ask(t, src, in(strings.Repeat("a", good))); err != nil || d.Target != "v2" {
			t.Errorf("%s\nas meant: %v, %v", src, d, err)
		}
		if d, err := ask(t, src, in(strings.Repeat("a", huge))); err == nil || err.Outcome != TooLong || err.Line != 1 || err.Message == "" {
			t.Errorf("%s\nlong: %v, %v", src, d, err)
		}
	}
	src := `return ngx.re.match(call.user, ".", "u") and "v2"`
	if d, err := ask(t, src, in("\xff")); err == nil || err.Outcome != TooLong {
		t.Errorf("%s\nnot UTF-8: %v, %v", src, d, err)
	}
}

func TestAScriptIsBlamedForItsOwnLongStrings(t *testing.T) {
	in := &Input{User: "user-1", Headers: map[string][]string{"x-region": {"eu"}}}
	for _, c := range []struct {
		src  string
		want Outcome
	}{
		{`return string.rep("a", 5000):match("a")`, Error},
		{`return string.rep(call.user, 1000):match("a")`, Error},
		{`return string.rep(call.user, 70000)`, Memory},
		{`local s = call.headers.x_region for i = 1, 20 do s = s .. s end return s`, Memory},
	} {
		if d, err := ask(t, c.src, in); err == nil || err.Outcome != c.want {
			t.Errorf("%s: %v, %v, want %v", c.src, d, err, c.want)
		}
	}
}

func TestACallThatIsTooLongCostsNoInterpreter(t *testing.T) {
	s := mustCompile(t, `return call.user:match("a")`)
	st := newState()
	for range 3 {
		if _, err := st.do(t.Context(), s, &Input{User: strings.Repeat("a", 5000)}); err == nil || st.spoilt {
			t.Fatal(err, st.spoilt)
		}
	}
	if d, err := st.do(t.Context(), s, &Input{User: "abc"}); err != nil || d.Target != "a" {
		t.Error(d, err)
	}
}

func TestAScriptFailedWhenItIsToBlame(t *testing.T) {
	for _, o := range Outcomes() {
		blameless := o == OK || o == NoOpinion || o == NoKey || o == TooLong
		if o.Failed() == blameless {
			t.Error(o)
		}
	}
}
