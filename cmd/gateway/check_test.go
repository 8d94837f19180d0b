package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

func TestEveryExampleHoldsWithItsScripts(t *testing.T) {
	files, err := filepath.Glob("../../docs/examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no examples", err)
	}
	for _, path := range files {
		var out bytes.Buffer
		if err := check(strings.NewReader(""), &out, path, false); err != nil {
			t.Errorf("%s: %v\n%s", path, err, &out)
		}
	}
}
