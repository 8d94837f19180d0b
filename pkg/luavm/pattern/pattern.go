// Package pattern matches Lua 5.1's string patterns and the regular expressions
// of ngx.re for scripts that nobody may wait for: the time a match takes grows
// with the length of the pattern times the length of the subject, never faster,
// and a match that would need more than MaxSteps steps ends as ErrWork. %b and
// %f work as in Lua; what cannot be matched in linear time (back-references,
// look-around) is refused by name when the pattern is compiled. Patterns and
// subjects are bytes. Compiled patterns never change: any number of goroutines
// may use one at once.
package pattern

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// What a match may cost. The sizes are in bytes.
const (
	MaxPattern  = 1 << 10  // longest pattern
	MaxSubject  = 4 << 10  // longest subject
	MaxCaptures = 32       // most captures of one pattern, as in Lua
	MaxProgram  = 1 << 10  // most instructions one pattern may compile to
	MaxSteps    = 1 << 18  // most steps of one Find or Gsub, or of all of an Iterator's matches together: about 2 ms
	MaxResult   = 64 << 10 // the usual limit of a result of Gsub, for callers to pass on
)

// Reasons for a match to end without an answer. They are wrapped with the sizes in question: use errors.Is.
var (
	ErrSubject = fmt.Errorf("the subject of a pattern may be %d bytes long at most; cut it with string.sub, or search it with string.find(s, text, init, true)", MaxSubject)
	ErrWork    = errors.New("the pattern needs too many steps on this subject; use fewer repetitions that overlap (such as .*.* or .-.-), anchor it with ^, or shorten the subject")
	ErrResult  = errors.New("the result of a replacement is too long")
	ErrUTF8    = errors.New("the subject is not UTF-8, which option \"u\" of ngx.re asks for; leave out \"u\" to match bytes")
)

// Error is a pattern (or the text of a replacement) that cannot be used.
type Error struct {
	Pattern string // the whole pattern
	Item    string // the part of it that is at fault
	Offset  int    // where Item begins, in bytes from 0
	Problem string // what is wrong with it
	Remedy  string // what to write instead; may be empty
}

// Error names the item, where it is (counted from 1, as Lua does) and the remedy.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Item != "" {
		fmt.Fprintf(&b, "%s at character %d of pattern %s: ", quote(e.Item), e.Offset+1, quote(e.Pattern))
	} else {
		fmt.Fprintf(&b, "pattern %s: ", quote(e.Pattern))
	}
	b.WriteString(e.Problem)
	if e.Remedy != "" {
		b.WriteString("; " + e.Remedy)
	}
	return b.String()
}

// quote makes a part of a pattern fit into a message: short, and on one line.
func quote(s string) string {
	const most = 60
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + "..."
	}
	return strconv.QuoteToASCII(s)
}

// Capture is what one pair of parentheses held: bytes Start up to End of the subject.
type Capture struct {
	Start, End int  // offsets in bytes from 0; both -1 if the group took no part in the match (ngx.re only)
	Position   bool // written "()": stands for the number Start+1 rather than for a text
}

// Unset tells whether the group took no part in the match, as b in (a)|(b) on "a". Captures of Lua patterns never are.
func (c Capture) Unset() bool { return c.Start < 0 }

// Text is the captured text; of a position capture its number in decimal, as Lua writes it; of an unset one "".
func (c Capture) Text(subject string) string {
	switch {
	case c.Start < 0:
		return ""
	case c.Position:
		return strconv.Itoa(c.Start + 1)
	}
	return subject[c.Start:c.End]
}

// Match is one place where a pattern matches.
type Match struct {
	Start, End int       // what matched: bytes Start up to End of the subject
	Captures   []Capture // in order of their opening parentheses; none if the pattern has none
}

// Whole is the match itself as a capture, which is what Lua hands out for a pattern without captures (and as %0).
func (m Match) Whole() Capture { return Capture{Start: m.Start, End: m.End} }

// First is the first capture, else the whole match: the key under which gsub looks into a table.
func (m Match) First() Capture {
	if len(m.Captures) > 0 {
		return m.Captures[0]
	}
	return m.Whole()
}

// Init turns the init argument of string.find and string.match (from 1; negative: from the end) into an offset from 0
// in a subject of n bytes, as Lua 5.1 does: what lies before the start is the start, what lies behind the end the end.
func Init(init, n int) int {
	switch {
	case init > 0:
		return min(init-1, n)
	case init < 0:
		return max(n+init, 0)
	}
	return 0
}

// Pattern is a compiled Lua pattern.
type Pattern struct {
	source  string
	prog    *program
	literal bool     // no magic characters: finding it is finding source
	gmatch  *program // differs from prog if the pattern begins with ^, which gmatch takes as a character
}

// Compile reads a Lua 5.1 pattern. Its error is an *Error.
func Compile(lua string) (*Pattern, error) {
	lua = strings.Clone(lua) // it may be cut from a far longer string, which must not be kept for it
	prog, err := compileLua(lua, true)
	if err != nil {
		return nil, err
	}
	p := &Pattern{source: lua, prog: prog, gmatch: prog, literal: !strings.ContainsAny(lua, "^$*+?.([%-")}
	if strings.HasPrefix(lua, "^") {
		if p.gmatch, err = compileLua(lua, false); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// String is the pattern as it was given.
func (p *Pattern) String() string { return p.source }

// Captures is how many captures the pattern has.
func (p *Pattern) Captures() int { return len(p.prog.captures) }

func (p *Pattern) key() string { return p.source }

// Size estimates the memory the compiled pattern holds, in bytes.
func (p *Pattern) Size() int {
	n := len(p.source) + p.prog.size()
	if p.gmatch != p.prog {
		n += p.gmatch.size()
	}
	return n
}

// Find is the first match that starts at init (from 0; see Init) or later. ok is false if there is none. The error is
// ErrSubject or ErrWork.
func (p *Pattern) Find(subject string, init int) (m Match, ok bool, err error) {
	if p.literal {
		if err := checkSubject(subject); err != nil {
			return Match{}, false, err
		}
		start, end, ok := Plain(subject, p.source, init)
		return Match{Start: start, End: end}, ok, nil
	}
	return p.prog.find(subject, init)
}

// Plain finds text as it stands: string.find(s, text, init, true). The subject may be of any length. start and end are
// offsets from 0, end behind the last byte.
func Plain(subject, text string, init int) (start, end int, ok bool) {
	init = min(max(init, 0), len(subject))
	i := strings.Index(subject[init:], text)
	if i < 0 {
		return 0, 0, false
	}
	return init + i, init + i + len(text), true
}

// checkSubject refuses subjects that are too long to be matched.
func checkSubject(subject string) error {
	if len(subject) > MaxSubject {
		return fmt.Errorf("%d bytes: %w", len(subject), ErrSubject)
	}
	return nil
}
