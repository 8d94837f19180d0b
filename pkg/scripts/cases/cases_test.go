package cases

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/model-gateway/model-gateway/pkg/luavm"
)

func script(t testing.TB, source string) *luavm.Script {
	t.Helper()
	s, err := luavm.Compile("fraud.lua", []byte(source), luavm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const all = `# what fraud.lua must answer
targets: [model_v1, model_v2]
cases:
  - name: everything there is
    call:
      model: fraud
      user: 42
      caller: web
      version: "2"
      headers: {X-User-Type: premium, accept: [a, b]}
      metadata: {region: eu, tier: 3}
      params: {debug: true, n: 7, part: 0.5, text: "7"}
      rows: 16
      sequence: {id: 9, start: true}
      now: 2026-11-30T12:00:00Z
      stats: {model_v2: {calls: 1000, errors: 5, p50: 10ms, p99: 120ms, p999: 1s}, model_v1: {error_rate: 0.5%}}
    want: {target: model_v2, reason: premium, outcome: ok}
  - call: {}
    want: {outcome: no_key}
  - call: {sequence: s1}
    want: model_v1
  - name: a tenth
    share: {users: 1_000, want: {model_v2: 10% ± 0.5%, model_v1: 90 %}}
`

func TestAFileOfCasesIsReadWhole(t *testing.T) {
	f, err := Parse("fraud_cases.yaml", []byte(all))
	if err != nil {
		t.Fatal(err)
	}
	want := &File{
		Name: "fraud_cases.yaml", Targets: []string{"model_v1", "model_v2"},
		Cases: []Case{
			{
				Name: "everything there is", Line: 4,
				Call: Call{
					Model: "fraud", User: "42", Caller: "web", Version: "2",
					Headers:  map[string][]string{"x-user-type": {"premium"}, "accept": {"a", "b"}},
					Metadata: map[string]string{"region": "eu", "tier": "3"},
					Params:   map[string]any{"debug": true, "n": int64(7), "part": 0.5, "text": "7"},
					Rows:     16, Sequence: Sequence{ID: "9", Start: true}, Now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC),
					Stats: map[string]luavm.Stats{
						"model_v2": {Calls: 1000, Errors: 5, ErrorRate: .005, P50: 10 * time.Millisecond, P99: 120 * time.Millisecond, P999: time.Second},
						"model_v1": {ErrorRate: .005},
					},
				},
				Want: Want{Target: "model_v2", Reason: "premium"},
			},
			{Name: "case on line 18", Line: 18, Want: Want{Outcome: luavm.NoKey}},
			{Name: "case on line 20", Line: 20, Call: Call{Sequence: Sequence{ID: "s1"}}, Want: Want{Target: "model_v1"}},
			{Name: "a tenth", Line: 22, Users: 1000, Shares: []Share{{"model_v2", 10, .5}, {"model_v1", 90, 1}}},
		},
	}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Error(diff)
	}
}

func TestEveryMistakeOfAFileIsToldWithItsLine(t *testing.T) {
	_, err := Parse("x_cases.yaml", []byte(`cases:
  - name: a
    cal: {}
    want: model_v1
  - call: {users: u1, rows: -1, now: today, headers: 7}
    want: {outcome: fine}
  - call: {user: [1]}
  - call: {stats: {model_v2: {p99: fast, error_rate: 200%}}}
    want: {target: a, outcome: no_key}
  - share: {users: 5, want: {model_v2: some}}
    want: a
  - {name: a, name: b, want: a}
more: 1
`))
	if err == nil {
		t.Fatal("no error")
	}
	got := err.Error()
	for _, want := range []string{
		`x_cases.yaml:3:5: "cal" is no field of a case, which has call, name, share, want`,
		`x_cases.yaml:5:12: "users" is no field of call`, `:5:29: rows must be a whole number`, `:5:38: now must be an instant`, `:5:54: headers must be a mapping`,
		`:6:21: outcome must be one of ok, no_opinion, no_key`, `:7:18: user must be a text`, `:7:5: a case needs want`, `:8:36: p99 must be a duration`,
		`:8:54: error_rate must be a part`, `:9:11: a run that ends as no_key gives no target`, `:10:40: the part of a target must be written as 10%`,
		`:10:5: a case needs want (what the script answers to the call), or share`, `:12:15: "name" is here a second time`, `:13:1: "more" is no field of the file`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}

func TestFilesThatNoPersonWritesAreRefused(t *testing.T) {
	for name, source := range map[string]string{
		"empty":      "",
		"comments":   "# nothing\n",
		"no cases":   "targets: [a]\n",
		"a list":     "- a\n",
		"anchors":    "a: &a [1]\nb: *a\n",
		"tags":       "cases: !!seq []\n",
		"two":        "cases: []\n---\ncases: []\n",
		"deep":       "cases: " + strings.Repeat("[", 10_000),
		"deep lines": strings.Repeat("- ", 10_000),
		"binary":     "\x00",
		"not UTF-8":  "cases: \xff",
		"large":      "#" + strings.Repeat("x", MaxFile),
		"many":       "cases:\n" + strings.Repeat("  - {want: a}\n", MaxCases+1),
		"users":      "cases:\n" + strings.Repeat("  - {share: {users: 500000, want: {a: 1%}}}\n", 3),
	} {
		if _, err := Parse("x_cases.yaml", []byte(source)); err == nil {
			t.Errorf("%s: taken", name)
		} else if len(err.Error()) > 20_000 {
			t.Errorf("%s: the error has %d bytes", name, len(err.Error()))
		}
	}
}

func TestCasesPassAndFailInWords(t *testing.T) {
	s := script(t, `
if call.user == "broken" then error("no such luck") end
if call.headers["x-user-type"] == "premium" then return "model_v2", "premium" end
local h = ngx.crc32_short(ngx.var.arg_user_id)
return h % 100 < 10 and "model_v2" or "model_v1"`)
	f, err := Parse("fraud_cases.yaml", []byte(`cases:
  - {name: a, call: {user: u, headers: {x-user-type: premium}}, want: {target: model_v2, reason: premium}}
  - {name: b, call: {user: u, headers: {x-user-type: premium}}, want: {target: model_v2, reason: other}}
  - {name: c, call: {}, want: {outcome: no_key}}
  - {name: d, call: {user: broken}, want: model_v1}
  - {name: e, call: {user: broken}, want: {outcome: error}}
  - {name: f, share: {users: 20000, want: {model_v2: 10% ± 0.5%}}}
  - {name: g, share: {users: 20000, want: {model_v2: 20% ± 0.5%, model_v1: 80%}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	results, err := f.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	got := f.Failures(results).Error()
	want := `fraud_cases.yaml:3: "b": wanted model_v2 (other), got model_v2 (premium)
fraud_cases.yaml:5: "d": wanted model_v1, got error: no such luck (line 2 of the script)
fraud_cases.yaml:8: "g": wanted model_v1 80% ± 1%, model_v2 20% ± 0.5%, got model_v1 `
	if !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 2 {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if n := results[5].Counts; n["model_v1"]+n["model_v2"] != 20000 {
		t.Errorf("%v", n)
	}
}

func TestCasesEndWithTheirContext(t *testing.T) {
	f, err := Parse("x_cases.yaml", []byte("cases: [{share: {users: 1000000, want: {a: 100%}}}, {want: a}]"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if results, err := f.Run(ctx, script(t, "return hash(call.user) and 'a'")); err == nil || len(results) > 0 {
		t.Errorf("a million runs came to an end: %+v", results)
	}
}

func TestFilesAreLoadedByPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fraud_cases.yaml")
	if err := os.WriteFile(path, []byte(all), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := Load(path); err != nil || f.Name != "fraud_cases.yaml" {
		t.Errorf("%+v %v", f, err)
	}
	if _, err := Load(filepath.Dir(path)); err == nil {
		t.Error("a folder was loaded")
	}
}

func TestRecordedCallsAreReadAsTheyWereWritten(t *testing.T) {
	calls := []Call{
		{User: "user-1", Model: "fraud", Headers: map[string][]string{"a": {"<b>"}}, Params: map[string]any{"n": int64(7), "part": .5, "t": "x", "b": true}, Now: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)},
		{Sequence: Sequence{ID: "7", Start: true}, Rows: 3, Metadata: map[string]string{"k": "v"}},
	}
	var b bytes.Buffer
	if err := Write(&b, Head{Format: Format, Users: HashedUsers, Calls: 2}, calls); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	h, got, err := Read(&b)
	if diff := cmp.Diff(calls, got); diff != "" || err != nil || h.Users != HashedUsers || h.Calls != 2 {
		t.Errorf("%v %v %s", h, err, diff)
	}
	if _, got, err := Read(strings.NewReader(text[strings.Index(text, "\n"):])); err != nil || len(got) != 2 {
		t.Errorf("without a head: %v %v", got, err)
	}
	for name, bad := range map[string]string{
		"line 2": "{}\n{\"users\":1}\n", "line 1": "{\"format\":\"other 9\"}\n", "longer": "{\"user\":\"" + strings.Repeat("x", maxLine) + "\"}",
	} {
		if _, _, err := Read(strings.NewReader(bad)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAReplaySaysWhatANewVersionWouldChange(t *testing.T) {
	before := script(t, "return 'model_v1'")
	after := script(t, "if call.user == 'a' then return 'model_v2' elseif call.user == 'b' then error('no') elseif call.user == 'c' then return 'nowhere' end\nhash(call.user) return 'model_v1'")
	calls := []Call{{User: "a"}, {User: "b"}, {User: "c"}, {User: "d"}, {}}
	known := func(_ *Call, target string) bool { return strings.HasPrefix(target, "model_") }
	r := Replay(t.Context(), calls, before, after, known, nil)
	want := Replayed{
		Calls: 5, Changed: 4, Failed: 2, NoKey: 1,
		Before: map[string]int{"model_v1": 5}, After: map[string]int{"model_v1": 1, "model_v2": 1, "": 3},
		Examples: []Change{
			{Call: 1, User: "a", Before: "model_v1", After: "model_v2"},
			{Call: 2, User: "b", Before: "model_v1", Why: "line 1: no"},
			{Call: 3, User: "c", Before: "model_v1", Why: `"nowhere" is no target of model ""`},
			{Call: 5, Before: "model_v1"},
		},
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Error(diff)
	}
	if r := Replay(t.Context(), calls, nil, after, nil, nil); r.Changed != 3 || r.Before[""] != 5 {
		t.Errorf("without a version before: %+v", r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := Replay(ctx, calls, nil, before, nil, nil); !r.Cut {
		t.Errorf("%+v", r)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(all))
	f.Add([]byte("cases: [{share: {users: 5, want: {a: 10% ± 1%}}}]"))
	f.Add([]byte("cases:\n- call:\n    params: {a: 0x7f, b: .inf, c: ~}\n  want:\n"))
	f.Fuzz(func(t *testing.T, source []byte) {
		file, err := Parse("x_cases.yaml", source)
		if (file == nil) == (err == nil) {
			t.Fatalf("%v and %v", file, err)
		}
		if err == nil && (len(file.Cases) == 0 || len(file.Cases) > MaxCases) {
			t.Fatalf("%d cases", len(file.Cases))
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("{\"format\":\"model-gateway calls 1\",\"users\":\"hashed\",\"calls\":1}\n{\"user\":\"a\",\"params\":{\"n\":1e400}}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, calls, err := Read(bytes.NewReader(text))
		if err != nil && calls != nil {
			t.Fatal("half a file was taken")
		}
	})
}
