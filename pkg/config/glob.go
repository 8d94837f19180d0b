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

// MatchSAN reports whether a certificate's subject alternative name matches a caller's pattern, in which * and ? never reach
// over a part's end: parts of a URI end at slashes, those of any other name at dots, and there letters' case does not matter.
func MatchSAN(pattern, san string) bool {
	if !strings.Contains(pattern, "://") {
		parts := strings.NewReplacer(".", "/", "/", "\x00")
		pattern, san = parts.Replace(strings.ToLower(pattern)), parts.Replace(strings.ToLower(san))
	}
	ok, err := path.Match(pattern, san)
	return ok && err == nil
}

var errPattern = errors.New("is no pattern: a [ has no ], or a \\ nothing after it")

func checkPattern(p string) error {
	if _, err := path.Match(flat(p), ""); err != nil {
		return errPattern
	}
	return nil
}
