package luavm

import (
	"errors"
	"os"
	"testing"
	"time"
)

// mustCompile compiles src as a script named rule.lua. Its deadline is none that a busy machine makes it miss.
func mustCompile(t testing.TB, src string) *Script {
	t.Helper()
	s, err := Compile("rule.lua", []byte(src), Limits{})
	if err != nil {
		t.Fatalf("%s\n%v", src, err)
	}
	s.deadline = 10 * time.Second
	return s
}

// ask runs src on in and gives what it decided, or outcome and message.
func ask(t testing.TB, src string, in *Input) (Decision, *RunError) {
	t.Helper()
	d, err := mustCompile(t, src).Run(t.Context(), in)
	var re *RunError
	if err != nil && !errors.As(err, &re) {
		t.Fatalf("%s\nnot a RunError: %v", src, err)
	}
	return d, re
}

func canary(t testing.TB) string {
	t.Helper()
	src, err := os.ReadFile("testdata/canary.lua")
	if err != nil {
		t.Fatal(err)
	}
	return string(src)
}

func TestTheUsersScriptRunsVerbatim(t *testing.T) {
	for user, want := range map[string]string{"user-1": "model_v1", "user-12": "model_v1", "": ""} {
		d, err := ask(t, canary(t), &Input{User: user})
		if user == "" {
			if err == nil || err.Outcome != NoKey || err.Line != 1 {
				t.Errorf("without a user: %v, %v", d, err)
			}
			continue
		}
		if err != nil || d.Target != want {
			t.Errorf("%s: %v, %v", user, d, err)
		}
	}
}
