package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Mistake is one thing that is wrong with a configuration, and what to do about it.
type Mistake struct {
	// File is the file's path as it was given; "" when the mistake is in the environment.
	File string `json:"file,omitempty"`
	// Path is the field, models[2].targets.v1.version, or the environment variable; "" means the whole file.
	Path string `json:"path"`
	// Line and Col count from 1; 0 when there is no place in a file.
	Line int    `json:"line,omitempty"`
	Col  int    `json:"column,omitempty"`
	Msg  string `json:"message"`
	// Excerpt is the line with a caret under the place, two lines of text; "" when there is no place.
	Excerpt string `json:"-"`
}

// String is the mistake in one line: path, message, line.
func (m Mistake) String() string {
	var b strings.Builder
	if m.Path != "" {
		b.WriteString(m.Path + ": ")
	}
	b.WriteString(m.Msg)
	switch {
	case m.Line > 0:
		fmt.Fprintf(&b, " (line %d)", m.Line)
	case m.File == "" && m.Path != "":
		b.WriteString(" (environment)")
	}
	return b.String()
}

// Errors is every mistake of a configuration, in the order of the file, those of the environment first.
// It is the error of Load and Parse.
type Errors []Mistake

// Error prints one mistake a line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, m := range e {
		lines[i] = m.String()
	}
	return strings.Join(lines, "\n")
}

// sorted puts mistakes in the order of the file.
func (e Errors) sorted() Errors {
	slices.SortStableFunc(e, func(a, b Mistake) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	return e
}
