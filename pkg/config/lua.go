package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// What scripts get that the file says nothing of.
const (
	defaultLuaDir      = "scripts/lua"
	defaultLuaDeadline = 2 * time.Millisecond
	maxLuaDeadline     = 5 * time.Millisecond
	scriptSuffix       = ".lua"
)

const envLuaDir = "GATEWAY_LUA_DIR"

// lua compiles the section `lua`.
func (c *compiler) lua(f *LuaFile) {
	if f == nil {
		f = &LuaFile{}
	}
	var l Lua
	l.Dir = setting(c, "lua.dir", f.Dir, "", "", func(dir string) (string, error) {
		return c.resolve(dir), checkLuaDir(dir)
	})
	c.luaDirWritten = f.Dir
	if dir := strings.TrimSpace(c.env(envLuaDir)); dir != "" {
		if err := checkLuaDir(dir); err != nil {
			c.badEnv(envLuaDir, err)
		}
		l.Dir = filepath.Clean(dir)
	}
	if l.DirStated = l.Dir != ""; !l.DirStated {
		l.Dir = c.defaultLuaDir()
	}
	l.Deadline = setting(c, "lua.deadline", f.Deadline, "", defaultLuaDeadline, func(d Duration) (time.Duration, error) {
		v, err := d.parse()
		if err == nil && v > maxLuaDeadline {
			err = fmt.Errorf("must be at most %s: a rule decides before a call goes on", maxLuaDeadline)
		}
		return v, err
	})
	c.cfg.Lua = l
}

// defaultLuaDir is scripts/lua beside the file where that is there, else in the current folder.
func (c *compiler) defaultLuaDir() string {
	if c.before != nil && !c.before.Lua.DirStated {
		return c.before.Lua.Dir // a folder that came meanwhile moves nothing
	}
	beside := c.resolve(defaultLuaDir)
	if info, err := os.Stat(beside); err == nil && info.IsDir() {
		return beside
	}
	return filepath.FromSlash(defaultLuaDir)
}

func checkLuaDir(dir string) error {
	if strings.TrimSpace(dir) == "" || len(dir) > maxPath || strings.ContainsFunc(dir, isControl) {
		return errors.New("must be a folder's path")
	}
	return nil
}

// scriptName gives the name of a script that a rule names by its file: bare, with .lua, or with the scripts' folder
// before it. Scripts are in that one folder.
func (c *compiler) scriptName(path, file string) string {
	if c.mistaken(path) {
		return ""
	}
	dir, base := "", file
	if i := strings.LastIndexByte(file, '/'); i >= 0 {
		dir, base = file[:i], file[i+1:]
		if dir == "" {
			dir = "/"
		}
	}
	name := strings.TrimSuffix(base, scriptSuffix)
	switch {
	case file == "":
		c.check(path, errors.New("must name a script, such as fraud_canary.lua"))
	case dir != "" && !c.isLuaDir(dir):
		c.check(path, fmt.Errorf("is in folder %s, and scripts are in %s, all in one folder; move it there and write %s, or set lua.dir", clip(dir), clip(c.cfg.Lua.Dir), clip(name+scriptSuffix)))
	case !inference.IsScriptName(name):
		c.check(path, fmt.Errorf("the name %q must be letters, digits, dots, dashes or underscores, and .lua", clip(base)))
	}
	return name
}

// isLuaDir reports whether a folder, as a rule writes it, is that of scripts: the same path, or as the file calls it. The
// latter holds where the environment says another one, for a file is checked elsewhere than it runs.
func (c *compiler) isLuaDir(dir string) bool {
	clean := filepath.Clean(dir)
	if clean == c.cfg.Lua.Dir || c.resolve(dir) == c.cfg.Lua.Dir {
		return true
	}
	if c.luaDirWritten != "" {
		return clean == filepath.Clean(c.luaDirWritten)
	}
	return clean == filepath.FromSlash(defaultLuaDir)
}
