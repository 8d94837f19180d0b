package telemetry

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

func TestMetricsOfScriptsAreAsPeoplesAlertsKnowThem(t *testing.T) {
	m := New(Build{})
	states := []ScriptState{
		{Script: "fraud", Hash: "9f86d081", Source: "file", State: "ok", Memory: 2048},
		{Script: "rank", Source: "last_good", State: "off", Off: true},
		{Script: "rank", Source: "file", State: "ok"}, // twice
	}
	s := NewScripts(m, func() []ScriptState { return states }, func() int { return 7 })
	fraud := s.Script("fraud", []string{"ok", "timeout"})
	fraud.Ran(0)
	fraud.Ran(0)
	fraud.Ran(1)
	fraud.Took(3 * time.Microsecond)
	s.Refused("rank")
	_, body := scrape(t, m, "text/plain")
	var got strings.Builder
	for line := range strings.Lines(body) {
		if strings.Contains(line, "gateway_script_") {
			got.WriteString(line)
		}
	}
	path := filepath.Join("testdata", "scripts.golden")
	if *update {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("got\n%s", got.String())
	}
	problems, err := promlint.New(strings.NewReader(got.String())).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

func TestNamesOfScriptsAreBounded(t *testing.T) {
	m := New(Build{})
	s := NewScripts(m, func() []ScriptState { return nil }, func() int { return 0 })
	for i := range MaxScripts + 10 {
		s.Script(fmt.Sprint("s", i), []string{"ok"}).Ran(0)
	}
	_, body := scrape(t, m, "text/plain")
	if n := strings.Count(body, "\n"+ScriptRuns+"{"); n != MaxScripts+1 {
		t.Errorf("%d series", n)
	}
	if !strings.Contains(body, ScriptRuns+`{outcome="ok",script="other"} 10`) {
		t.Error("what is beyond the bound is not counted")
	}
}
