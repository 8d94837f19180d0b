package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const twoTargets = oneUpstream + `
models:
  - name: fraud
    targets: {model_v1: {version: 1}, model_v2: {version: 2}}
    stable: model_v1
`

func TestRulesCompileInTheFilesOrderToWhatTheySay(t *testing.T) {
	c := good(t, "callers: [{name: batch, keys: [\""+HashKey("k").String()+"\"]}]\n"+twoTargets+`
    split:
      - {when: {header: X-User-Type, is: premium}, to: model_v2, set_headers: {x-mesh-route: "to-{target}"}}
      - {when: {metadata: region, in: [eu, us]}, to: model_v1}
      - {when: {who: caller, prefix: bat}, weights: {model_v2: 50, model_v1: 50}}
      - {when: {who: user, regex: "^qa-[0-9]+$"}, script: night.lua}
      - {script: scripts/lua/fraud_canary.lua}
      - {weights: {model_v1: 95, model_v2: 5}, salt: fraud-2026-11}
    mirror: {to: model_v2, percent: 12.5}
`)
	want := []SplitRule{
		{Name: "header x-user-type", When: &When{Header: "x-user-type", Op: WhenIs, Values: []string{"premium"}}, To: "model_v2", SetHeaders: map[string]string{"x-mesh-route": "to-{target}"}},
		{Name: "metadata region", When: &When{Metadata: "region", Op: WhenIs, Values: []string{"eu", "us"}}, To: "model_v1"},
		{Name: "weights if caller", When: &When{Who: WhoCaller, Op: WhenPrefix, Values: []string{"bat"}}, Weights: []Weight{{"model_v2", 50}, {"model_v1", 50}}, Salt: "fraud"},
		{Name: "script night if user", When: &When{Who: WhoUser, Op: WhenRegex, Values: []string{"^qa-[0-9]+$"}}, Script: "night"},
		{Name: "script fraud_canary", Script: "fraud_canary"},
		{Name: "weights", Weights: []Weight{{"model_v1", 95}, {"model_v2", 5}}, Salt: "fraud-2026-11"},
	}
	m := c.Models[0]
	if diff := cmp.Diff(want, m.Split, cmpopts.IgnoreFields(SplitRule{}, "Place")); diff != "" {
		t.Error(diff)
	}
	if m.Scripted || *m.Mirror != (Mirror{To: "model_v2", Percent: 12.5}) {
		t.Errorf("scripted %v, mirror %+v", m.Scripted, m.Mirror)
	}
	if p := m.Split[4].Place; p.Path != "models[0].split[4].script" || !strings.Contains(p.Excerpt, "fraud_canary") || p.Line == 0 {
		t.Errorf("the script stands at %+v", p)
	}
	for i, says := range []string{`is "premium"`, `is one of "eu", "us"`, `begins with "bat"`, `matches "^qa-[0-9]+$"`} {
		if got := m.Split[i].When.String(); got != says {
			t.Errorf("rule %d says %s", i, got)
		}
	}
}

func TestAScriptDecidesByNameOnlyWhereTheFileSaysNothingElse(t *testing.T) {
	c := good(t, oneUpstream+`
models:
  - {name: plain}
  - {name: images/cnn, model: cnn}
  - {name: off, split: []}
  - {name: ruled, split: [{weights: {model_v1: 90, model_v2: 10}}]}
  - {name: declared, targets: {model_v1: {version: 1}}}
`)
	for i, want := range []bool{true, false, false, false, false} {
		if m := c.Models[i]; m.Scripted != want {
			t.Errorf("%s: scripted %v", m.Name, m.Scripted)
		}
	}
}

func TestAScriptMayBeNamedByItsNameItsFileOrItsPlace(t *testing.T) {
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		lua, script string
		env         []string
	}{
		"bare name":               {"", "canary", nil},
		"file":                    {"", "canary.lua", nil},
		"default folder":          {"", "scripts/lua/canary.lua", nil},
		"with a dot":              {"", "./scripts/lua/canary.lua", nil},
		"as lua.dir says":         {"lua: {dir: rules}\n", "rules/canary.lua", nil},
		"absolute":                {"lua: {dir: " + dir + "}\n", dir + "/canary.lua", nil},
		"environment":             {"", dir + "/canary.lua", []string{"GATEWAY_LUA_DIR=" + dir}},
		"written before it moved": {"", "scripts/lua/canary.lua", []string{"GATEWAY_LUA_DIR=" + dir}},
	} {
		c := good(t, tt.lua+twoTargets+"    split: [{script: "+tt.script+"}]\n", tt.env...)
		if got := c.Models[0].Split[0].Script; got != "canary" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestScriptsAreBesideTheFileElseWhereTheGatewayRuns(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "gateway.yaml")
	load := func(text string, pairs ...string) *Config {
		t.Helper()
		if err := os.WriteFile(file, []byte(oneUpstream+text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(file, env(pairs...))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	beside := filepath.Join(dir, "scripts", "lua")
	first := load("")
	if first.Lua.Dir != "scripts/lua" || first.Lua.DirStated {
		t.Errorf("without a folder beside it: %+v", first.Lua)
	}
	if err := os.MkdirAll(beside, 0o700); err != nil {
		t.Fatal(err)
	}
	if l := load("").Lua; l.Dir != beside || l.DirStated {
		t.Errorf("with a folder beside it: %+v", l)
	}
	source, _ := os.ReadFile(file)
	again, _, err := parse(file, dir, source, env(), first)
	if err != nil || again.Lua.Dir != "scripts/lua" {
		t.Errorf("a folder that came meanwhile moves scripts to %v, %v", again, err)
	}
	if l := load("lua: {dir: rules, deadline: 500us}").Lua; l != (Lua{Dir: filepath.Join(dir, "rules"), DirStated: true, Deadline: 500 * time.Microsecond}) {
		t.Errorf("as the file says: %+v", l)
	}
	if l := load("lua: {dir: rules}", "GATEWAY_LUA_DIR=/scripts/lua").Lua; l.Dir != "/scripts/lua" || !l.DirStated {
		t.Errorf("as the environment says: %+v", l)
	}
	if c, err := Load("", env("TRITON_GRPC_HOST=triton:8001")); err != nil || c.Lua.Dir != "scripts/lua" || c.Lua.Deadline != 2*time.Millisecond {
		t.Errorf("without a file: %+v, %v", c, err)
	}
}

func TestAnotherFolderOfScriptsTakesARestart(t *testing.T) {
	old := good(t, oneUpstream)
	if got := NeedsRestart(old, good(t, oneUpstream+"lua: {dir: elsewhere, deadline: 1ms}")); !slices.Equal(got, []string{"lua.dir"}) {
		t.Errorf("got %q", got)
	}
}

// fakeCompile takes lines "answers X" of a script for its answers, and "wrong" for a mistake.
func fakeCompile(_ string, source []byte) (targets []string, mistakes []Mistake) {
	for i, line := range strings.Split(string(source), "\n") {
		if t, ok := strings.CutPrefix(line, "answers "); ok {
			targets = append(targets, t)
		}
		if line == "wrong" {
			mistakes = append(mistakes, Mistake{Line: i + 1, Col: 2, Msg: "makes no sense"})
		}
	}
	return targets, mistakes
}

func TestScriptsAreCheckedWithTheModelsThatHaveThem(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"good.lua": "answers model_v1\nanswers model_v2", "typo.lua": "answers model_v3", "odd.lua": "answers canary", "broken.lua": "ok\nwrong",
		"fraud.lua": "answers model_v1", "plain.lua": "answers stable", "default.lua": "answers model_v9",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	fraud := func(rules string) string { return twoTargets + "    split: " + rules + "\n" }
	for name, tt := range map[string]struct {
		text            string
		mistakes, notes []string
	}{
		"a good one":       {fraud("[{script: fraud.lua}, {script: good.lua}]"), nil, nil},
		"one that is gone": {fraud("[{script: gone}, {script: fraud}]"), []string{"models[0].split[0].script: " + at("gone.lua") + " cannot be read: no such file or directory; put the script there, or say where scripts are (lua.dir, GATEWAY_LUA_DIR) (line 7)"}, nil},
		"no such target":   {fraud("[{script: typo}, {script: fraud}]"), []string{"models[0].split[0].script: " + at("typo.lua") + ` answers "model_v3", which is no target of this model; did you mean model_v1? (line 7)`}, nil},
		"one that is broken": {
			fraud("[{script: broken}, {script: fraud}]"),
			[]string{"makes no sense (line 2)"},
			nil,
		},
		"one that nothing uses": {twoTargets, nil, []string{at("fraud.lua") + " is there, and model fraud does not use it, since it has declared targets: name it in a rule, {script: fraud.lua}"}},
		"a rule of a model without targets": {
			oneUpstream + "models: [{name: x, split: [{script: odd}]}]", nil,
			[]string{at("odd.lua") + ` answers "canary", and model x has no declared targets: only model_v1, model_v2 and so on mean something; other answers mean its stable target`},
		},
		"split off": {
			oneUpstream + "models: [{name: plain, split: []}]", nil,
			[]string{at("plain.lua") + " is there, and model plain does not use it, since it has a split of its own: name it in a rule, {script: plain.lua}"},
		},
		"by name": {
			oneUpstream + "models: [{name: plain}, {name: other}]",
			[]string{"makes no sense (line 2)"}, // any script there may become a model's
			[]string{at("plain.lua") + ` answers "stable", and model plain has no declared targets: only model_v1, model_v2 and so on mean something; other answers mean its stable target`},
		},
		"names that pass through": {oneUpstream, []string{"makes no sense (line 2)"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := good(t, tt.text, "GATEWAY_LUA_DIR="+dir)
			mistakes, notes := c.CheckScripts(fakeCompile)
			var said []string
			for _, m := range mistakes {
				said = append(said, m.String())
				if m.Excerpt == "" {
					t.Errorf("%s shows no line", m)
				}
			}
			if !slices.Equal(said, tt.mistakes) || !slices.Equal(notes, tt.notes) {
				t.Errorf("mistakes %q\nnotes %q", said, notes)
			}
		})
	}
	if _, notes := good(t, oneUpstream, "GATEWAY_LUA_DIR="+at("none")).CheckScripts(fakeCompile); len(notes) != 1 {
		t.Errorf("a folder that is named and not there: %q", notes)
	}
}

func TestALineOfARuleShowsNoSecret(t *testing.T) {
	secret := HashKey("k").String()
	c := good(t, fmt.Sprintf(`{"callers": [{"name": "b", "keys": [%q]}], "upstreams": {"t": {"endpoints": "t:1", "headers": {"x-s": "secretsecret"}}}, "models": [{"name": "m", "targets": {"v": {"version": 1}}, "split": [{"script": "s"}]}]}`, secret))
	if e := c.Models[0].Split[0].Place.Excerpt; e == "" || strings.Contains(e, "secretsecret") {
		t.Errorf("shown: %s", e)
	}
}

func TestWhoUsesAScriptIsKnown(t *testing.T) {
	c := good(t, oneUpstream+`
passthrough: true
models:
  - {name: plain}
  - {name: other}
  - {name: ruled, split: [{script: canary}]}
  - {name: fraud, targets: {a: {version: 1}, b: {version: 2}}, stable: a, split: [{script: canary}, {script: night}]}
`)
	for script, want := range map[string]ScriptUse{
		"canary":  {Models: []string{"ruled", "fraud"}, Targets: []string{"a", "b"}, Open: true, Named: true},
		"night":   {Models: []string{"fraud"}, Targets: []string{"a", "b"}, Named: true},
		"plain":   {Models: []string{"plain"}, Open: true},
		"default": {Models: []string{"plain", "other"}, Open: true},
		"fraud":   {},
		"cnn":     {Open: true},
	} {
		if diff := cmp.Diff(want, c.UseOf(script)); diff != "" {
			t.Errorf("%s: %s", script, diff)
		}
	}
	if got := c.ScriptNames(); !slices.Equal(got, []string{"canary", "night"}) {
		t.Errorf("named: %q", got)
	}
}
