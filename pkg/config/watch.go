package config

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle is how long a file must be left alone before it is read: editors and volume mounts touch it several
	// times. settleMost bounds the wait in a folder where something is always written.
	settle     = 200 * time.Millisecond
	settleMost = 2 * time.Second
	// lookEvery is how often the file is looked at besides, for file systems that tell nobody.
	lookEvery = 5 * time.Second
)

// Watcher reads a configuration file again when its text changes, and hands what it says to apply. With mistakes in the
// file, or when apply refuses, the configuration in force stays, and the log says why.
type Watcher struct {
	path  string
	env   func(string) string
	apply func(*Config) error
	log   *slog.Logger

	mu   sync.Mutex // one reading at a time
	seen string     // hash of the text that was read last
	err  error      // what came of it
}

// NewWatcher makes a watcher of the file at path, whose text as it is now counts as read. apply is never called twice at
// a time. env is as for Load.
func NewWatcher(path string, env func(string) string, apply func(*Config) error, log *slog.Logger) *Watcher {
	w := &Watcher{path: path, env: env, apply: apply, log: log}
	w.seen, _, _ = w.text()
	return w
}

// Seen tells the watcher the Hash of the configuration in force, so that a change between Load and NewWatcher is not
// missed. Call it before Run.
func (w *Watcher) Seen(hash string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = hash
}

// Run watches until ctx ends. It follows symbolic links that are swapped, as those of a ConfigMap, and editors that
// write a new file over the old.
func (w *Watcher) Run(ctx context.Context) {
	f := follower{path: w.path}
	events, problems := f.open()
	defer f.close()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	settled := time.NewTimer(0) // what happened before this
	defer settled.Stop()
	var since time.Time // of the first event that has not been answered
	wait := func() {
		now := time.Now()
		if since.IsZero() {
			since = now
		}
		if now.Sub(since) < settleMost {
			settled.Reset(settle)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			wait()
		case err := <-problems:
			w.log.Debug("changes of the configuration's folder may have been missed; the file is looked at instead", "error", err)
			wait()
		case <-look.C:
			if f.touched() {
				wait()
			}
		case <-settled.C:
			since = time.Time{}
			f.follow()
			f.touched()
			_ = w.read(false) // it has been logged
		}
	}
}

// Reload reads the file now and applies it, whether or not its text has changed: somebody asked. It works without Run,
// and returns Errors, or what apply said.
func (w *Watcher) Reload() error { return w.read(true) }

// Err is what came of reading the file last: nil when what it says is in force.
func (w *Watcher) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// read applies the file's text when it is new, or always when forced.
func (w *Watcher) read(forced bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	hash, source, err := w.text()
	if hash == w.seen && !forced {
		return w.err
	}
	w.seen = hash
	var next *Config
	if err != nil {
		err = unreadable(w.path, err)
	} else if next, err = Parse(w.path, source, w.env); err == nil {
		err = w.apply(next)
	}
	if w.err = err; err != nil {
		w.log.Error("the configuration was read again and cannot be served; the one before stays in force", "file", w.path, "error", err.Error())
		return err
	}
	w.log.Info("the configuration was read again and is in force", "file", w.path, "hash", hash)
	return nil
}

// text reads the file; the hash of one that cannot be read is "".
func (w *Watcher) text() (hash string, source []byte, err error) {
	if source, err = readFile(w.path); err != nil {
		return "", nil, err
	}
	sum := sha256.Sum256(source)
	return hex.EncodeToString(sum[:]), source, nil
}

// follower tells when a file may have changed. It watches folders rather than the file, for whoever replaces a file takes
// the watch on the old one away.
type follower struct {
	path    string
	watcher *fsnotify.Watcher // nil where the system cannot tell of changes: looking has to do
	folders map[string]bool   // that are watched
	last    os.FileInfo       // as it was last looked at; nil when it was not there
}

// open begins to watch. The channels stay silent where the system cannot tell.
func (f *follower) open() (<-chan fsnotify.Event, <-chan error) {
	f.folders = make(map[string]bool)
	f.touched()
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, nil
	}
	f.watcher = w
	f.follow()
	return w.Events, w.Errors
}

func (f *follower) close() {
	if f.watcher != nil {
		_ = f.watcher.Close() // nothing was written
	}
}

// follow watches the folder of the file, and those of what it links to now.
func (f *follower) follow() {
	if f.watcher == nil {
		return
	}
	now := make(map[string]bool)
	path := f.path
	for range 8 { // links that go round end here
		now[filepath.Dir(path)] = true
		if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
			now[dir] = true
		}
		next, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(next) {
			next = filepath.Join(filepath.Dir(path), next)
		}
		path = next
	}
	for dir := range f.folders {
		if !now[dir] {
			_ = f.watcher.Remove(dir) // it may be gone, and its watch with it
			delete(f.folders, dir)
		}
	}
	for dir := range now {
		// Adding again costs nothing, and heals the watch of a folder that was made anew.
		if f.watcher.Add(dir) == nil {
			f.folders[dir] = true
		}
	}
}

// touched reports whether the file looks otherwise than it last did.
func (f *follower) touched() bool {
	before := f.last
	now, err := os.Stat(f.path)
	if err != nil {
		now = nil
	}
	f.last = now
	if now == nil || before == nil {
		return (now == nil) != (before == nil)
	}
	return now.Size() != before.Size() || !now.ModTime().Equal(before.ModTime()) || !os.SameFile(now, before)
}
