package config

import (
	"errors"
	"path"
	"strings"
)

// MatchModel reports whether a model's name, whole, matches a pattern of an access rule: * is any number of characters, a
// slash as good as any other, ? is one, [a-z] one of a class, and a backslash makes the next character plain.
func MatchModel(pattern, name string) bool {
	ok, err := path.Match(flat(pattern), flat(name))
	return ok && err == nil
}

// flat puts what no name has in place of the one character that path.Match treats specially.
func flat(s string) string { return strings.ReplaceAll(s, "/", "\x00") }

var errPattern = errors.New("is no pattern: a [ has no ], or a \\ nothing after it")

func checkPattern(p string) error {
	if _, err := path.Match(flat(p), ""); err != nil {
		return errPattern
	}
	return nil
}
