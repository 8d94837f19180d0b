// Package wholefile replaces small files whole: whoever reads one sees the old text or the new, also after a crash.
package wholefile

import (
	"errors"
	"os"
	"path/filepath"
)

// Replace writes a file that only we can read, and its folder where there is none: beside its place, and then onto it. An
// error leaves what was there.
func Replace(path string, text []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync() // the rename is done; not every file system can sync a folder
		_ = d.Close()
	}
	return nil
}
