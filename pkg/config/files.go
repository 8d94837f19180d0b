package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// maxPath is how long a file's name may be.
const maxPath = 4096

// Files are the other files that a configuration took texts from: keys, passwords, header values. Their texts are secrets,
// and are not shown.
type Files struct{ read map[string]sideFile }

// sideFile is what a configuration took from a file.
type sideFile struct {
	text string
	gone bool // it could not be read; the text is what it held before
}

// Paths lists the files by name.
func (f Files) Paths() []string { return slices.Sorted(maps.Keys(f.read)) }

// Equal reports whether both have the same files with the same texts.
func (f Files) Equal(o Files) bool {
	return maps.EqualFunc(f.read, o.read, func(a, b sideFile) bool { return a.text == b.text })
}

// String counts the files.
func (f Files) String() string { return fmt.Sprintf("%d files", len(f.read)) }

// GoString is String, so that no format shows the texts.
func (f Files) GoString() string { return f.String() }

// fingerprint tells one state of a configuration's files from another. source is the SHA-256 of its own text.
func (f Files) fingerprint(source string) string {
	sum := sha256.New()
	sum.Write([]byte(source))
	for _, path := range f.Paths() {
		file := f.read[path]
		text := sha256.Sum256([]byte(file.text))
		if file.gone {
			text = [sha256.Size]byte{}
		}
		fmt.Fprintf(sum, "%q %x\n", path, text)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// now reads the same files again.
func (f Files) now() Files {
	read := make(map[string]sideFile, len(f.read))
	for path := range f.read {
		text, err := readFile(path)
		read[path] = sideFile{string(text), err != nil}
	}
	return Files{read}
}

// resolve gives the path of a file that the configuration names: one that is not absolute counts from the folder of the
// configuration.
func (c *compiler) resolve(name string) string {
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	return filepath.Join(c.base, name)
}

func checkPath(name string) error {
	switch {
	case strings.TrimSpace(name) == "":
		return errors.New("must name a file")
	case len(name) > maxPath || strings.ContainsFunc(name, isControl):
		return errors.New("must be a file's path")
	}
	return nil
}

// side gives the text of a file that field path names, which is read again when it changes. When it cannot be read,
// what it held in the configuration before stays good; where there was none, that is a mistake.
func (c *compiler) side(path, name string) (text string, ok bool) {
	if c.mistaken(path) {
		return "", false
	}
	if err := checkPath(name); err != nil {
		c.wrong(path, "%s", err)
		return "", false
	}
	name = c.resolve(name)
	if known, ok := c.cfg.Files.read[name]; ok {
		return known.text, true
	}
	if c.cfg.Files.read == nil {
		c.cfg.Files.read = make(map[string]sideFile)
	}
	source, err := readFile(name)
	if err == nil && len(source) > MaxFile {
		err = errors.New("is larger than 1 MiB")
	}
	if err == nil {
		c.cfg.Files.read[name] = sideFile{text: string(source)}
		return string(source), true
	}
	c.cfg.Files.read[name] = sideFile{gone: true}
	if c.before != nil {
		if old, ok := c.before.Files.read[name]; ok {
			c.cfg.Files.read[name] = sideFile{old.text, true}
			c.note("%s: %s; what it held before stays in force", path, cannotRead(name, err))
			return old.text, true
		}
	}
	c.wrong(path, "%s; mount the file there, and let the gateway's user read it", cannotRead(name, err))
	return "", false
}

// cannotRead words why a file could not be read.
func cannotRead(name string, err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return fmt.Sprintf("%s cannot be read: %v", clip(name), err)
}

// secret gives the one text that a file holds, without the white space around it.
func (c *compiler) secret(path, name string) (string, bool) {
	text, ok := c.side(path, name)
	if !ok {
		return "", false
	}
	text = strings.TrimSpace(text)
	if text == "" {
		c.wrong(path, "%s is empty; write the value into it", clip(c.resolve(name)))
		return "", false
	}
	return text, true
}

// note tells the operator something that is no mistake.
func (c *compiler) note(format string, args ...any) {
	const most = 100 // who has more wants to see the first ones
	if len(c.cfg.Notes) < most {
		c.cfg.Notes = append(c.cfg.Notes, clean([]rune(fmt.Sprintf(format, args...))))
	}
}

// hide keeps a text out of what mistakes show of the file.
func (c *compiler) hide(secret string) {
	if len(secret) >= minSecret {
		c.secrets = append(c.secrets, secret)
	}
}
