package scripts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
		return s.settleAll(ctx, nil, err)
	}
	s.dirError = ""
	return s.settleAll(ctx, names, nil)
}

// settleAll settles those that are listed, and all others that there are. With an error files stay as they were read.
func (s *Store) settleAll(ctx context.Context, names []string, failed error) error {
	var refused []error
	if failed != nil {
		refused = append(refused, failed)
	}
	for _, name := range names {
		if s.unit(name) == nil {
			refused = append(refused, fmt.Errorf("%s%s: there are more than %d scripts; the rest are not loaded", name, suffix, MaxScripts))
			break
		}
	}
	if s.opts.Names != nil {
		for _, name := range s.opts.Names() { // also those that have no file
			if inference.IsScriptName(name) {
				s.unit(name)
			}
		}
	}
	for _, u := range s.sorted() {
		if failed == nil {
			s.read(u)
		}
		s.settle(ctx, u)
		if len(u.problems) > 0 {
			refused = append(refused, u.problems)
		}
	}
	return errors.Join(refused...)
}

// list gives the names of the scripts in the folder. Links are followed, as those of a mounted ConfigMap.
func (s *Store) list() ([]string, error) {
	if s.opts.Dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(s.opts.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // nobody has written a script yet
	}
	if err != nil {
		return nil, err
	}
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

// read reads the files of a script again. The override that stood in for a file ends when the file changes.
func (s *Store) read(u *unit) {
	if s.opts.Dir == "" {
		return
	}
	before := u.file.hash
	if u.was != nil {
		before, u.was = *u.was, nil
	}
	u.file = u.file.again(filepath.Join(s.opts.Dir, u.name+suffix), MaxSource)
	u.cases = u.cases.again(filepath.Join(s.opts.Dir, u.name+cases.Suffix), cases.MaxFile)
	if o := u.override; o != nil && o.Replaces == before && u.file.hash != before {
		s.end(u)
	}
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
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return luavm.Problem{Name: name, Message: fmt.Sprintf("cannot be read: %v; let the gateway's user read it", err)}
}
