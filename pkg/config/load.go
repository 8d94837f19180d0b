package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Load reads and compiles the file at path, or, when path is "", what the environment alone says. env looks up
// an environment variable, as os.Getenv does; nil is an empty environment. The error is Errors.
//
// Where both say something, the environment wins for listen.* and state_dir, which are about this one process, and the
// file wins for all else: TRITON_GRPC_HOST and GATEWAY_UPSTREAMS count only where the file declares no upstreams, and a
// Note says so where they do not count. What is overruled is checked all the same.
//
// Files that the file names count from its folder, where their names are not absolute.
func Load(path string, env func(string) string) (*Config, error) {
	return loadFrom(path, folderOf(path), env)
}

// loadFrom is Load with the folder that files' names count from.
func loadFrom(path, base string, env func(string) string) (*Config, error) {
	var source []byte
	if path != "" {
		var err error
		if source, err = readFile(path); err != nil {
			return nil, unreadable(path, err)
		}
	}
	cfg, _, err := parse(path, base, source, env, nil)
	return cfg, err
}

// folderOf is the folder of a configuration; the current one for what is no file.
func folderOf(path string) string {
	if path == "" || path == "-" {
		return ""
	}
	return filepath.Dir(path)
}

// unreadable words the system's error.
func unreadable(path string, err error) Errors {
	msg := "cannot be read: " + err.Error()
	var p *fs.PathError
	if errors.As(err, &p) {
		msg = fmt.Sprintf("cannot be read: %s: %v", path, p.Err)
	}
	return Errors{{File: path, Msg: msg}}
}

// Parse compiles a file's text; path is what mistakes call it, and tells the folder of files that the text names; "-" is the
// current folder. See Load.
func Parse(path string, source []byte, env func(string) string) (*Config, error) {
	cfg, _, err := parse(path, folderOf(path), source, env, nil)
	return cfg, err
}

// parse is Parse after before, the configuration in force, if any. It also tells which files were asked for, even where
// there are mistakes.
func parse(path, base string, source []byte, env func(string) string, before *Config) (*Config, Files, error) {
	if env == nil {
		env = func(string) string { return "" }
	}
	r := newReader(path, source)
	file := r.file(source)
	if file == nil {
		return nil, Files{}, r.all()
	}
	c := compiler{reader: r, env: env, base: base, before: before, limitNames: make(map[string]limitAt)}
	cfg := c.compile(file)
	if len(r.found) > 0 {
		return nil, cfg.Files, r.all()
	}
	r.placeScripts(cfg)
	hash := sha256.Sum256(source)
	cfg.Path, cfg.Source, cfg.Hash = path, source, hex.EncodeToString(hash[:])
	return cfg, cfg.Files, nil
}

// all lists the mistakes in the order of the file.
func (r *reader) all() Errors {
	found := r.found.sorted()
	for i := range found {
		found[i].Excerpt = r.withoutSecrets(found[i].Excerpt)
	}
	if r.more > 0 {
		found = append(found, Mistake{File: r.path, Msg: fmt.Sprintf("and %d more mistakes, shown once these are mended", r.more)})
	}
	return found
}

// withoutSecrets stars out what must not be shown of the file.
func (r *reader) withoutSecrets(excerpt string) string {
	for _, secret := range r.secrets {
		excerpt = strings.ReplaceAll(excerpt, secret, stars(secret))
	}
	return hidden(excerpt)
}

// credential finds what looks like one, in a text that may be no YAML and of which nothing is known.
var credential = regexp.MustCompile(`(?i)(\b(?:bearer|basic)[ \t]+|\b(?:authorization|password|token|secret|x-api-key|triton-grpc-protocol-[a-z0-9-]*)["']?[ \t]*:[ \t]*["']?|\bmgw_)([^\s"',}\]{\[][^\s"',}\]]*(?:[ \t]+[^\s"',}\]:]+)?)`)

// hidden stars out what looks like a credential: mistakes end in logs.
func hidden(excerpt string) string {
	return credential.ReplaceAllStringFunc(excerpt, func(found string) string {
		parts := credential.FindStringSubmatch(found)
		return parts[1] + stars(parts[2])
	})
}

func stars(s string) string { return strings.Repeat("*", utf8.RuneCountInString(s)) }

// file gives what the text says; nil when it is no YAML at all, or too much to read.
func (r *reader) file(source []byte) *File {
	body, bad := parseYAML(source)
	if bad != nil {
		bad.File, bad.Excerpt = r.path, hidden(excerpt(r.lines, bad.Line, bad.Col))
		r.found = Errors{*bad}
		return nil
	}
	file := &File{}
	if body != nil {
		r.read(body, field{}, reflect.ValueOf(file).Elem(), 0)
	}
	if r.nodes > maxNodes {
		// What was not read would only be told as more mistakes.
		r.found = Errors{{File: r.path, Msg: fmt.Sprintf("has more than %d values, those that aliases repeat included", maxNodes)}}
		r.more = 0
		return nil
	}
	return file
}
