package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// report is what a person sees of a file's mistakes.
func report(t *testing.T, path string) string {
	t.Helper()
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse(filepath.Base(path), source, nil)
	var mistakes Errors
	if !errors.As(err, &mistakes) || c != nil {
		t.Fatalf("%s gives (%v, %v), not its mistakes", path, c, err)
	}
	var b strings.Builder
	for _, m := range mistakes {
		fmt.Fprintf(&b, "%d:%d %s\n%s\n", m.Line, m.Col, m, m.Excerpt)
	}
	return b.String()
}

func TestEveryMistakeIsToldAtItsPlace(t *testing.T) {
	files, err := filepath.Glob("testdata/mistakes/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, path := range append(files, "testdata/whole.yaml") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			got := report(t, path)
			golden := strings.TrimSuffix(path, ".yaml") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-want +got), -update accepts it:\n%s", golden, diff)
			}
		})
	}
}
