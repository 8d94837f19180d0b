package luavm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is a mistake in a script, and what to do about it.
type Problem struct {
	Name    string // of the script
	Line    int    // 1 is the first; 0 when the whole is meant
	Column  int    // 1 is the first; 0 when unknown
	Message string
}

// String is name:line:column: message, as editors understand it.
func (p Problem) String() string {
	switch {
	case p.Line == 0:
		return p.Name + ": " + p.Message
	case p.Column == 0:
		return fmt.Sprintf("%s:%d: %s", p.Name, p.Line, p.Message)
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.Name, p.Line, p.Column, p.Message)
}

// Problems are mistakes in order of lines.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// maxProblems is how many problems of a kind are told of one script.
const maxProblems = 50

// sorted gives ps in order, without repetitions, and not too many.
func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	ps = slices.Compact(ps)
	return ps[:min(len(ps), maxProblems)]
}
