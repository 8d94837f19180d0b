package scripts

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/luavm"
	"github.com/model-gateway/model-gateway/pkg/scripts/cases"
)

const suffix = ".lua"

// file is a file as it was last read. The zero file is one that is not there.
type file struct {
	text []byte
	hash string // SHA-256 in hex; "" for none
	err  error  // why it could not be read; text and hash are then those before
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// scan reads the folder and settles every script whose file, cases or use have changed. A folder that cannot be read
// changes nothing. The caller holds change.
func (s *Store) scan(ctx context.Context) error {
	names, err := s.list()
	if err != nil {
		if text := err.Error(); text != s.dirError {
			s.dirError = text
			s.log.Error("the folder of scripts cannot be read; scripts stay as they are", "dir", s.opts.Dir, "error", err)
		}
		shown := fmt.Sprintf("the folder of scripts cannot be read: %v; scripts stay as they are until it is back", cause(err))
		s.dirProblem.Store(&shown)
		return s.settleAll(ctx, nil, err)
	}
	s.dirError = ""
	s.dirProblem.Store(nil)
	return s.settleAll(ctx, names, nil)
}

// errFolderGone is the error of a folder that was there before.
var errFolderGone = errors.New("it was there, and is gone")

// settleAll settles those that are listed, and all others that there are. With an error files stay as they were read.
func (s *Store) settleAll(ctx context.Context, names []string, failed error) error {
	var refused []error
	if failed != nil {
		refused = append(refused, failed)
	}
	units, left := s.heardOf(names)
	for _, name := range slices.Sorted(maps.Keys(units)) {
		u := units[name]
		if failed == nil {
			s.read(u)
		}
		s.settle(ctx, u)
		if !s.enter(u) {
			left = cmp.Or(left, name)
		}
		if len(u.problems) > 0 {
			refused = append(refused, u.problems)
		}
	}
	if left != "" {
		refused = append(refused, fmt.Errorf("%s%s: there are more than %d scripts; the rest are not loaded", left, suffix, MaxScripts))
	}
	return errors.Join(refused...)
}

// heardOf gives the units there are, and those that may come to be: of files, of what the configuration names, and at the
// start of what state_dir has. left is the first of those that are too many, "" for none.
func (s *Store) heardOf(names []string) (units map[string]*unit, left string) {
	units = maps.Clone(*s.units.Load())
	add := func(names []string) {
		for _, name := range names {
			switch {
			case units[name] != nil || !inference.IsScriptName(name):
			case len(units) >= MaxScripts:
				left = cmp.Or(left, name)
			default:
				units[name] = s.known(name)
			}
		}
	}
	add(names)
	if s.opts.Names != nil {
		add(s.opts.Names()) // also those that have no file
	}
	if !s.begun {
		s.begun = true
		add(s.keptNames())
	}
	return units, left
}

// list gives the names of the scripts in the folder. Links are followed, as those of a mounted ConfigMap.
func (s *Store) list() ([]string, error) {
	if s.opts.Dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(s.opts.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		if s.dirSeen {
			return nil, errFolderGone
		}
		return nil, nil // nobody has written a script yet
	}
	if err != nil {
		return nil, err
	}
	s.dirSeen = true
	var names []string
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), suffix)
		if !ok || strings.HasPrefix(name, ".") || !inference.IsScriptName(name) {
			continue
		}
		if info, err := os.Stat(filepath.Join(s.opts.Dir, e.Name())); err != nil || !info.Mode().IsRegular() {
			continue
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// read reads the files of a script again. The override that stood in for a file ends when the file changes, and not when
// it goes: what is mounted comes and goes.
func (s *Store) read(u *unit) {
	if s.opts.Dir == "" {
		return
	}
	stands := u.stands()
	u.file = u.file.again(filepath.Join(s.opts.Dir, u.name+suffix), MaxSource)
	u.cases = u.cases.again(filepath.Join(s.opts.Dir, u.name+cases.Suffix), cases.MaxFile)
	u.gone = !u.file.there() && u.last != "" && !u.none
	if u.file.hash == "" {
		return
	}
	if stands && u.override.Replaces != u.file.hash {
		s.end(u)
	}
	u.last, u.none = u.file.hash, noScript(u.file.text)
}

// stands reports whether an override stands in the place of the file: as long as that is the one it replaces, or is gone.
func (u *unit) stands() bool {
	o := u.override
	return o != nil && (o.Replaces == u.last || (o.Replaces == "" && !u.file.there() && (u.gone || u.none)))
}

// noScript reports whether a file says that there is no script: its first line is the comment "no script", and all others
// are comments. An empty file does not say so, since that is what is left of one that could not be written.
func noScript(text []byte) bool {
	if len(text) > 4<<10 {
		return false
	}
	first := true
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		comment, ok := strings.CutPrefix(line, "--")
		switch {
		case line == "":
		case !ok || strings.HasPrefix(comment, "["):
			return false
		case first && !strings.EqualFold(strings.Trim(comment, "-. \t"), "no script"):
			return false
		default:
			first = false
		}
	}
	return !first
}

// again reads a file. One byte more than most is read, so that who judges it sees that it is too large.
func (f file) again(path string, most int) file {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return file{}
	}
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("is no regular file")
	}
	var text []byte
	if err == nil {
		text, err = readAtMost(path, most+1)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return file{}
	}
	if err != nil {
		f.err = err
		return f
	}
	return file{text: text, hash: hashOf(text)}
}

func readAtMost(path string, most int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	return io.ReadAll(io.LimitReader(f, int64(most)))
}

// there reports whether there is a file, if only one that cannot be read.
func (f file) there() bool { return f.hash != "" || f.err != nil }

// unreadable is the problem of a file that cannot be read.
func unreadable(name string, err error) luavm.Problem {
	return luavm.Problem{Name: name, Message: fmt.Sprintf("cannot be read: %v; let the gateway's user read it", cause(err))}
}

// cause is an error without the path, which names folders.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
