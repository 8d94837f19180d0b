package scripts

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the goldens")

// moments stand for themselves.
var moments = regexp.MustCompile(`"\d{4}-\d\d-\d\dT[^"]*"`)

func TestWhatTheAdminPortShowsIsAsToolsKnowIt(t *testing.T) {
	f := fix(t, map[string]string{
		"fraud.lua": canary, "rank.lua": "return 'model_v9'",
		"fraud_cases.yaml": "cases: [{call: {}, want: {outcome: no_key}}]",
	})
	p := Port{f.Store}
	var b bytes.Buffer
	show := func(what string, v any) {
		t.Helper()
		e := json.NewEncoder(&b)
		e.SetIndent("", "  ")
		b.WriteString(what + "\n")
		if err := e.Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		c := call([]string{"u1", "u2", "u15"}[i])
		c.Start = c.Start.Add(time.Duration(i) * recordEvery)
		f.Decide(t.Context(), "fraud", "fraud", c)
	}
	ctx := t.Context()
	put, _, err := p.Put(ctx, "fraud", []byte("return ("), "sre", false)
	if err == nil {
		t.Error("taken")
	}
	show("PUT that is refused", put)
	put, scope, err := p.Put(ctx, "fraud", []byte("hash(call.user)\nreturn 'model_v2'"), "sre", true)
	if err != nil || scope != ThisReplica {
		t.Error(scope, err)
	}
	show("PUT that is tried", put)
	if put, _, err = p.Put(ctx, "fraud", []byte("hash(call.user)\nreturn 'model_v2'"), "sre", false); err != nil {
		t.Error(err)
	}
	show("PUT", put)
	one, ok := p.Show("fraud")
	if !ok {
		t.Error("fraud is not there")
	}
	show("GET", one)
	if _, ok := p.Show("none"); ok {
		t.Error("none is there")
	}
	back, _, err := p.Rollback(ctx, "fraud", "1", "sre")
	if err != nil {
		t.Error(err)
	}
	show("POST rollback", back)
	bad, _, err := p.Rollback(ctx, "fraud", "7", "sre")
	if err == nil {
		t.Error("went back to nowhere")
	}
	show("POST rollback to nowhere", bad)
	show("GET list", p.List())

	got := moments.ReplaceAllString(b.String(), `"a moment"`)
	got = regexp.MustCompile(`"memory_bytes": \d+`).ReplaceAllString(got, `"memory_bytes": some`)
	path := filepath.Join("testdata", "port.golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("otherwise now (go test -update writes it):\n%s", got)
	}
	if strings.Contains(got, f.dir) {
		t.Error("it names a folder")
	}
}
