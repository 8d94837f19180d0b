package scripts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/model-gateway/model-gateway/pkg/internal/wholefile"
)

// kept is what state_dir has of a script: the newest entry of its history is the last version that was good.
type kept struct {
	Name     string    `json:"name"`
	History  []Entry   `json:"history"`
	Override *override `json:"override,omitempty"`
	Pending  bool      `json:"pending,omitempty"` // the override has not been shared
	File     string    `json:"file"`              // hash of the file as it last was
	None     bool      `json:"none,omitempty"`    // and that said that there is no script
	Named    bool      `json:"named,omitempty"`   // the configuration has named the script, as unit.named has it
}

const maxKept = 4 << 20 // bytes

func (s *Store) keptPath(name string) string {
	dir := s.stateDir()
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, "scripts", name+".json")
}

// keep writes what there is of a script to state_dir. What cannot be kept is a warning.
func (s *Store) keep(u *unit) {
	path := s.keptPath(u.name)
	if path == "" {
		return
	}
	k := kept{Name: u.name, History: u.history, Override: u.override, File: u.last, None: u.none, Named: u.named}
	if u.override != nil {
		k.Pending = u.override.pending
	}
	text, err := json.Marshal(k)
	if err == nil {
		if sum := hashOf(text); sum == u.kept {
			return
		} else if err = wholefile.Replace(path, text); err == nil {
			u.kept = sum
		}
	}
	if err != nil {
		s.log.Warn("the last good version of a script cannot be kept in state_dir", "script", u.name, "error", err)
	}
}

// restore reads what state_dir has of a script, when it is first heard of.
func (s *Store) restore(u *unit) {
	path := s.keptPath(u.name)
	if path == "" {
		return
	}
	text, err := readAtMost(path, maxKept+1)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var k kept
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	if err == nil && (len(text) > maxKept || k.Name != u.name || len(k.History) > MaxHistory) {
		err = errors.New("it is not what was kept")
	}
	if err == nil && k.Override != nil {
		err = k.Override.check()
	}
	for _, e := range k.History {
		if err == nil && (len(e.Source) > MaxSource || e.Back < 0 || hashOf([]byte(e.Source)) != e.Hash) {
			err = fmt.Errorf("version %s is damaged", e.Hash)
		}
	}
	if err != nil {
		s.log.Warn("what was kept of a script cannot be used", "script", u.name, "file", path, "error", err)
		return
	}
	u.history, u.kept, u.last, u.none, u.named = k.History, hashOf(text), k.File, k.None, k.Named
	if u.override = k.Override; k.Override != nil {
		u.override.pending = k.Pending
	}
}

// keptNames lists the scripts that state_dir has something of.
func (s *Store) keptNames() []string {
	dir := s.stateDir()
	if dir == "" {
		return nil
	}
	entries, err := os.ReadDir(filepath.Join(dir, "scripts"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("what was kept of scripts in state_dir cannot be read", "error", err)
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".json"); ok && scriptName(name) {
			names = append(names, name)
		}
	}
	return names
}
