package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/luavm"
)

const shipped = "../../scripts/lua"

func TestShippedRulesAnswerAsTheirCasesSay(t *testing.T) {
	var out strings.Builder
	if err := testScripts(t.Context(), &out, []string{shipped}, luavm.MaxDeadline, false); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if strings.Contains(out.String(), "has no cases") {
		t.Errorf("each rule has cases, that others may learn from them:\n%s", out.String())
	}
}

func TestShippedRulesHaveNothingThatLintWarnsOf(t *testing.T) {
	var out strings.Builder
	if err := (&lintFlags{strict: true, targets: []string{"model_v1", "model_v2"}}).run(&out, []string{shipped}); err != nil {
		t.Fatal(out.String())
	}
}

// A script that has the name of a model decides for that model, wherever the folder is mounted.
func TestShippedRulesDecideForNoModelByTheirName(t *testing.T) {
	models, err := os.ReadDir("../../triton-models")
	if err != nil {
		t.Fatal(err)
	}
	taken := map[string]bool{"default": true}
	for _, m := range models {
		taken[m.Name()] = m.IsDir()
	}
	files, err := filesIn(shipped, ".lua")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		if taken[scriptName(f)] {
			t.Errorf("%s would decide for calls of a model as soon as the folder is mounted", filepath.Base(f))
		}
	}
}

// The users' own script is shipped as they wrote it.
func TestTheUsersScriptIsShippedAsItIs(t *testing.T) {
	const verbatim = `local hash = ngx.crc32_short(ngx.var.arg_user_id)
if hash % 100 < 10 then
    return "model_v2"
else
    return "model_v1"
end
`
	text, err := os.ReadFile(filepath.Join(shipped, "canary.lua"))
	if err != nil || string(text) != verbatim {
		t.Errorf("canary.lua is another one, %v:\n%s", err, text)
	}
}
