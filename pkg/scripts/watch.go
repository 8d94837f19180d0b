package scripts

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settleFor is how long the folder must be left alone before it is read: editors and volume mounts touch files several
	// times. settleMost bounds the wait where something is always written.
	settleFor  = 150 * time.Millisecond
	settleMost = 600 * time.Millisecond
	// lookEvery is how often the folder is looked at besides, for file systems that tell nobody.
	lookEvery = 2 * time.Second
)

// watchFiles reads the folder again when something in it changes, until ctx ends. It follows symbolic links that are
// swapped, as those of a mounted ConfigMap, editors that write a new file over the old, and a folder that is made later.
func (s *Store) watchFiles(ctx context.Context) {
	f := &follower{dir: s.opts.Dir}
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
			settled.Reset(settleFor)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			wait()
		case err := <-problems:
			s.log.Debug("changes in the folder of scripts may have been missed; it is looked at instead", "error", err)
			wait()
		case <-look.C:
			f.follow()
			if f.touched() {
				wait()
			}
		case <-settled.C:
			since = time.Time{}
			f.follow()
			f.touched()
			_ = s.reload(ctx) // it has been logged
			if f.touched() {
				wait() // somebody wrote meanwhile
			}
		}
	}
}

// follower tells when files in a folder may have changed.
type follower struct {
	dir     string
	watcher *fsnotify.Watcher // nil where the system cannot tell of changes: looking has to do
	folders map[string]bool   // that are watched
	last    map[string]seen
}

// seen is how a file looked.
type seen struct {
	size int64
	time int64
	real string // what a link leads to
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

// follow watches the folder, where it really is, the folder that it is in, and those that files in it are linked from.
func (f *follower) follow() {
	if f.watcher == nil {
		return
	}
	now := map[string]bool{f.dir: true, filepath.Dir(f.dir): true}
	if real, err := filepath.EvalSymlinks(f.dir); err == nil {
		now[real] = true
		now[filepath.Dir(real)] = true
	}
	const most = 32 // folders of links; what is in more is looked at
	for _, s := range f.last {
		if len(now) < most && s.real != "" {
			now[filepath.Dir(s.real)] = true
		}
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

// touched reports whether the folder looks otherwise than it last did.
func (f *follower) touched() bool {
	before := f.last
	f.last = make(map[string]seen)
	entries, _ := os.ReadDir(f.dir) // none when it cannot be read
	changed := false
	for _, e := range entries {
		if len(f.last) >= 4*MaxScripts {
			break
		}
		path := filepath.Join(f.dir, e.Name())
		info, err := os.Stat(path)
		if err != nil || info.IsDir() {
			continue
		}
		now := seen{size: info.Size(), time: info.ModTime().UnixNano()}
		if e.Type()&os.ModeSymlink != 0 {
			now.real, _ = filepath.EvalSymlinks(path)
		}
		f.last[e.Name()] = now
		if was, ok := before[e.Name()]; !ok || was != now {
			changed = true
		}
	}
	return changed || len(before) != len(f.last)
}
