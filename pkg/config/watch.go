package config

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
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

// Watcher reads a configuration file again when its text changes, or that of a file it took keys, a password or a header
// from, and hands what it says to apply. With mistakes in the file, or when apply refuses, the configuration in force stays,
// and the log says why. A file with secrets that cannot be read keeps the texts it had.
type Watcher struct {
	path  string
	env   func(string) string
	apply func(*Config) error
	log   *slog.Logger

	// Around, where set, runs use, which puts to use what changed files say, and returns its error: for who keeps a
	// record of changes. Reload does not go through it, since who asks for that keeps the record. Set it before Run.
	Around func(use func() error) error

	mu    sync.Mutex // one reading at a time
	force *Config    // in force; nil until it is told
	files Files      // that the last reading asked for
	seen  string     // fingerprint of what was read last
	err   error      // what came of it
}

// NewWatcher makes a watcher of the file at path, whose text as it is now counts as read. apply is never called twice at
// a time. env is as for Load.
func NewWatcher(path string, env func(string) string, apply func(*Config) error, log *slog.Logger) *Watcher {
	w := &Watcher{path: path, env: env, apply: apply, log: log}
	hash, _, _ := w.text()
	w.seen = w.files.fingerprint(hash)
	return w
}

// Seen tells the watcher the configuration in force: the files to watch besides its own, and the texts that are good until
// new ones are read. What has changed since it was loaded is read again. Call it before Run.
func (w *Watcher) Seen(c *Config) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.force, w.files = c, c.Files
	w.seen = c.Files.fingerprint(c.Hash)
}

// Run watches until ctx ends. It follows symbolic links that are swapped, as those of a ConfigMap, and editors that
// write a new file over the old.
func (w *Watcher) Run(ctx context.Context) {
	f := follower{paths: w.watched()}
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
			if paths := w.watched(); !slices.Equal(paths, f.paths) {
				f.paths = paths
				f.follow()
				f.touched()
				settled.Reset(settle) // one of them may have changed before it was watched
			}
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

// read applies what the files say when it is new, or always when forced.
func (w *Watcher) read(forced bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	hash, source, err := w.text()
	files := w.files.now()
	if files.fingerprint(hash) == w.seen && !forced {
		return w.err
	}
	var next *Config
	use := func() error {
		if err != nil {
			w.files, err = files, unreadable(w.path, err)
		} else if next, w.files, err = parse(w.path, folderOf(w.path), source, w.env, w.force); err == nil {
			err = w.apply(next)
		}
		return err
	}
	if w.Around != nil && !forced {
		err = w.Around(use)
	} else {
		err = use()
	}
	w.seen = w.files.fingerprint(hash)
	if w.err = err; err != nil {
		w.log.Error("the configuration was read again and cannot be served; the one before stays in force", "file", w.path, "error", err.Error())
		return err
	}
	for _, note := range next.Notes {
		w.log.Warn("about the configuration", "note", note)
	}
	w.force = next
	w.log.Info("the configuration was read again and is in force", "file", w.path, "hash", hash)
	return nil
}

// watched lists the files to follow.
func (w *Watcher) watched() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string{w.path}, w.files.Paths()...)
}

// text reads the configuration's own file; the hash of one that cannot be read is "".
func (w *Watcher) text() (hash string, source []byte, err error) {
	if source, err = readFile(w.path); err != nil {
		return "", nil, err
	}
	sum := sha256.Sum256(source)
	return hex.EncodeToString(sum[:]), source, nil
}

// follower tells when any of some files may have changed. It watches folders rather than the files, for whoever replaces a file takes
// the watch on the old one away.
type follower struct {
	paths   []string
	watcher *fsnotify.Watcher      // nil where the system cannot tell of changes: looking has to do
	folders map[string]bool        // that are watched
	last    map[string]os.FileInfo // as each was last looked at; none when it was not there
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

// follow watches the folders of the files, and those of what they link to now.
func (f *follower) follow() {
	if f.watcher == nil {
		return
	}
	now := make(map[string]bool)
	for _, path := range f.paths {
		foldersOf(path, now)
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

// foldersOf adds to now the folders in which a change can change what a file says.
func foldersOf(path string, now map[string]bool) {
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
}

// touched reports whether a file looks otherwise than it last did.
func (f *follower) touched() bool {
	before := f.last
	f.last = make(map[string]os.FileInfo, len(f.paths))
	touched := false
	for _, path := range f.paths {
		then := before[path]
		now, err := os.Stat(path)
		if err != nil {
			touched = touched || then != nil
			continue
		}
		f.last[path] = now
		touched = touched || then == nil || now.Size() != then.Size() || !now.ModTime().Equal(then.ModTime()) || !os.SameFile(now, then)
	}
	return touched
}
