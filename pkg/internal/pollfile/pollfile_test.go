package pollfile

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFilesThatAreCutElsewhereAreOtherFiles(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write(t, a, "xy")
	write(t, b, "z")
	one, err := Read(a, b)
	if err != nil || string(one.Texts[0]) != "xy" || string(one.Texts[1]) != "z" {
		t.Fatalf("%q, %v", one.Texts, err)
	}
	write(t, a, "x")
	write(t, b, "yz")
	if two, err := Read(a, b); err != nil || two.Sum == one.Sum {
		t.Errorf("the change went unnoticed: %v", err)
	}
}

func TestAFileThatIsNoneOfOursIsNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "big")
	write(t, path, strings.Repeat("x", MaxBytes+1))
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "big has more than") {
		t.Errorf("got %v", err)
	}
	if _, err := Read(path + ".not"); err == nil || !strings.Contains(err.Error(), "big.not") {
		t.Errorf("got %v", err)
	}
}

func TestEachChangeIsToldOnceAndAnErrorUntilItIsGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "one")
	first, _ := Read(path)
	type told struct {
		text string
		bad  bool
	}
	events := make(chan told)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		Watch(ctx, time.Millisecond, []string{path}, first.Sum, func(f Files, err error) {
			e := told{bad: err != nil}
			if err == nil {
				e.text = string(f.Texts[0])
			}
			events <- e
		})
	})
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if e := <-events; !e.bad {
		t.Errorf("got %+v", e)
	}
	write(t, path+".new", "two")
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if e := <-events; e.text != "two" {
		t.Errorf("got %+v", e)
	}
	if err := os.Rename(path+".old", path); err != nil {
		t.Fatal(err)
	}
	if e := <-events; e.text != "one" {
		t.Errorf("got %+v", e)
	}
	cancel()
	running.Wait()
}
