package wholefile

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAFileIsReplacedWholeAndNothingIsLeftBesideIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "state.json")
	for _, text := range []string{"a long first text", "short"} {
		if err := Replace(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: others may read it", info, err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestAPlaceThatCannotBeWrittenLeavesWhatWasThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "folder")
	if err := os.MkdirAll(filepath.Join(path, "inside"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Replace(path, []byte("x")); err == nil {
		t.Error("a folder was replaced by a file")
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}
