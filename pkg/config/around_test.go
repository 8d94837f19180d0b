package config

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

func TestWhoKeepsARecordIsToldOfChangedFilesAndOfNothingElse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const good = "version: 1\nupstreams: {triton: {endpoints: [triton:8001]}}\npassthrough: true\n"
	write(good)
	applied := 0
	w := NewWatcher(path, func(string) string { return "" }, func(*Config) error { applied++; return nil }, slog.New(slog.DiscardHandler))
	var told []error
	w.Around = func(use func() error) error {
		err := use()
		told = append(told, err)
		return err
	}
	_ = w.read(false) // nothing has changed
	if err := w.Reload(); err != nil || applied != 1 || len(told) != 0 {
		t.Fatalf("asked for: %v, applied %d times, told %v", err, applied, told)
	}
	write(good + "\n")
	if err := w.read(false); err != nil || applied != 2 || len(told) != 1 || told[0] != nil {
		t.Errorf("changed: %v, applied %d times, told %v", err, applied, told)
	}
	write("version: 7\n")
	err := w.read(false)
	var mistakes Errors
	if !errors.As(err, &mistakes) || applied != 2 || len(told) != 2 || told[1] == nil {
		t.Errorf("with a mistake: %v, applied %d times, told %v", err, applied, told)
	}
}
