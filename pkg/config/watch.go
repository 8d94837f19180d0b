package config

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle is how long a file must be left alone before it is read: editors and volume mounts touch it several times.
	settle     = 200 * time.Millisecond
	settleMost = 2 * time.Second
	// lookEvery is how often the file is looked at besides, for file systems that tell nobody.
	lookEvery = 5 * time.Second
)

// Watcher reads a file again when it changes. Its methods may be called from any goroutine.
type Watcher struct {
	path   string
	env    func(string) string
	apply  func(*Config, error)
	reload chan struct{}
	done   chan struct{}

	notify *fsnotify.Watcher // nil where the system cannot tell of changes
	dirs   map[string]bool   // watched
	seen   string            // hash of the text that was read last
	stamp  stamp
}

// stamp is what a look at the file without reading it shows.
type stamp struct {
	file os.FileInfo
	size int64
	at   time.Time
}

// Watch calls apply with each new text of the file at path, compiled, or with what is wrong with it, until ctx ends;
// never twice at a time, and not at all while the text stays the same. seen is the Hash of the Config in force, so that
// what changed since it was loaded is not missed. It follows symbolic links that are swapped, as those of a ConfigMap,
// and editors that write a new file over the old.
func Watch(ctx context.Context, path string, env func(string) string, seen string, apply func(*Config, error)) *Watcher {
	w := &Watcher{
		path: path, env: env, apply: apply, seen: seen,
		reload: make(chan struct{}, 1), done: make(chan struct{}), dirs: make(map[string]bool),
	}
	w.notify, _ = fsnotify.NewWatcher() // without it, looking has to do
	w.follow()
	go w.run(ctx)
	return w
}

// Reload reads the file now and calls apply whether or not its text has changed: somebody asked.
func (w *Watcher) Reload() {
	select {
	case w.reload <- struct{}{}:
	default: // one is waiting already, and will see what is there now
	}
}

// Done is closed once the watcher has ended and will not call apply any more.
func (w *Watcher) Done() <-chan struct{} { return w.done }

func (w *Watcher) run(ctx context.Context) {
	defer close(w.done)
	var events chan fsnotify.Event
	var problems chan error
	if w.notify != nil {
		defer w.notify.Close() //nolint:errcheck // nothing is written
		events, problems = w.notify.Events, w.notify.Errors
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	settled := time.NewTimer(0) // what happened between loading and watching
	defer settled.Stop()
	var since time.Time // of the first event that has not been answered
	wait := func() {
		now := time.Now()
		if since.IsZero() {
			since = now
		}
		if now.Sub(since) < settleMost { // a folder where something is always written must not put us off for ever
			settled.Reset(settle)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			wait()
		case _, ok := <-problems:
			if !ok {
				problems = nil
				continue
			}
			wait() // events were lost: look for ourselves
		case <-look.C:
			if w.touched() {
				wait()
			}
		case <-settled.C:
			since = time.Time{}
			w.read(false)
		case <-w.reload:
			w.read(true)
		}
	}
}

// read applies the file's text when it is new, or always when forced.
func (w *Watcher) read(forced bool) {
	w.follow()
	w.touched()
	source, err := readFile(w.path)
	hash := ""
	if err == nil {
		sum := sha256.Sum256(source)
		hash = hex.EncodeToString(sum[:])
	}
	if hash == w.seen && !forced {
		return
	}
	w.seen = hash
	if err != nil {
		w.apply(nil, unreadable(w.path, err))
		return
	}
	w.apply(Parse(w.path, source, w.env))
}

// follow watches the folder of the file, and those of what it links to now. A folder is watched rather than the file,
// for whoever replaces a file takes the watch on the old one away.
func (w *Watcher) follow() {
	if w.notify == nil {
		return
	}
	now := make(map[string]bool)
	path := w.path
	for range 8 {
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
	for dir := range w.dirs {
		if !now[dir] {
			_ = w.notify.Remove(dir) // it may be gone, and its watch with it
			delete(w.dirs, dir)
		}
	}
	for dir := range now {
		// Adding again costs nothing, and heals the watch of a folder that was made anew.
		if w.notify.Add(dir) == nil {
			w.dirs[dir] = true
		}
	}
}

// touched reports whether the file looks otherwise than it last did.
func (w *Watcher) touched() bool {
	var now stamp
	if info, err := os.Stat(w.path); err == nil {
		now = stamp{info, info.Size(), info.ModTime()}
	}
	before := w.stamp
	w.stamp = now
	same := now.size == before.size && now.at.Equal(before.at) &&
		(now.file == nil) == (before.file == nil) && (now.file == nil || os.SameFile(now.file, before.file))
	return !same
}
