package pattern

import (
	"fmt"
	"strconv"
	"strings"
)

// Replacer says what to put in place of a match. keep leaves the match as it is (Lua: the table or function gave nil or
// false). An error ends the replacement and comes back as it is. The match's captures are valid during the call only.
type Replacer func(m Match) (text string, keep bool, err error)

// Gsub replaces the first max matches (all if max is negative), as string.gsub; n is how many matches there were. A
// result of more than limit bytes is ErrResult; further errors: ErrSubject, ErrWork, and those of f.
func (p *Pattern) Gsub(subject string, max, limit int, f Replacer) (result string, n int, err error) {
	return p.prog.gsub(subject, max, limit, f)
}

// GsubString replaces matches by a text in which %0 stands for the match, %1 to %9 for its captures (%1 also for the
// match, if there are none) and %% for %. The error may be an *Error about repl, too.
func (p *Pattern) GsubString(subject, repl string, max, limit int) (result string, n int, err error) {
	parts, err := luaTemplate(repl, len(p.prog.captures))
	if err != nil {
		return "", 0, err
	}
	return p.prog.gsub(subject, max, limit, parts.replacer(subject, limit))
}

func (p *program) gsub(subject string, most, limit int, f Replacer) (string, int, error) {
	sc, err := p.start(subject, 0)
	if err != nil {
		return "", 0, err
	}
	defer sc.end()
	var (
		b    strings.Builder
		n    int
		done int // what is in b stands for subject[:done]
		dst  = make([]Capture, 0, len(p.captures))
	)
	for most < 0 || n < most {
		m, ok, err := sc.next(dst)
		if err != nil {
			return "", 0, err
		}
		if !ok {
			break
		}
		n++
		text, keep, err := f(m)
		if err != nil {
			return "", 0, err
		}
		if keep {
			continue
		}
		if b.Len()+m.Start-done+len(text) > limit {
			return "", 0, tooLong(limit)
		}
		b.WriteString(subject[done:m.Start])
		b.WriteString(text)
		done = m.End
	}
	if done == 0 && b.Len() == 0 {
		return within(subject, n, limit)
	}
	b.WriteString(subject[done:])
	return within(b.String(), n, limit)
}

func within(result string, n, limit int) (string, int, error) {
	if len(result) > limit {
		return "", 0, tooLong(limit)
	}
	return result, n, nil
}

// part is a piece of a template: a text, or the number of a capture (0 is the match) if text is "".
type part struct {
	text    string
	capture int
}

type template []part

// maxReferences is how many captures a replacement may name: captures can be empty, so that the limit of the result
// does not bound how often they are looked up.
const maxReferences = 64

// builder puts a template together.
type builder struct {
	source     string
	parts      template
	text       []byte // not in parts yet
	references int
}

func (b *builder) flush() {
	if len(b.text) > 0 {
		b.parts = append(b.parts, part{text: string(b.text)})
		b.text = b.text[:0]
	}
}

// reference adds what stands for capture n at from up to to.
func (b *builder) reference(n, from, to int) error {
	if b.references++; b.references > maxReferences {
		return b.fail(from, to, fmt.Sprintf("a replacement may name captures %d times at most", maxReferences), "use a function as the replacement")
	}
	b.flush()
	b.parts = append(b.parts, part{capture: n})
	return nil
}

func (b *builder) fail(from, to int, problem, remedy string) error {
	return &Error{Pattern: b.source, Item: b.source[from:to], Offset: from, Problem: problem, Remedy: remedy}
}

// finish gives the template.
func (b *builder) finish() template {
	b.flush()
	return b.parts
}

// luaTemplate reads the replacement of string.gsub for a pattern with so many captures.
func luaTemplate(repl string, captures int) (template, error) {
	if repl != "" && strings.IndexByte(repl, '%') < 0 {
		return template{{text: repl}}, nil
	}
	b := builder{source: repl}
	for at := 0; at < len(repl); at++ {
		if repl[at] != '%' {
			b.text = append(b.text, repl[at])
			continue
		}
		if at+1 == len(repl) {
			return nil, b.fail(at, at+1, "a replacement cannot end with %", "write %% for the character")
		}
		at++
		if repl[at] < '0' || repl[at] > '9' {
			b.text = append(b.text, repl[at])
			continue
		}
		n := int(repl[at] - '0')
		if n == 1 && captures == 0 {
			n = 0
		}
		if n > captures {
			return nil, b.fail(at-1, at+1, fmt.Sprintf("the pattern has %d captures", captures), "write %% for the character %")
		}
		if err := b.reference(n, at-1, at+1); err != nil {
			return nil, err
		}
	}
	return b.finish(), nil
}

// ngxTemplate reads the replacement of ngx.re.sub and ngx.re.gsub for a regular expression with so many captures.
func ngxTemplate(repl string, captures int) (template, error) {
	if repl != "" && strings.IndexByte(repl, '$') < 0 {
		return template{{text: repl}}, nil
	}
	b := builder{source: repl}
	for at := 0; at < len(repl); at++ {
		if repl[at] != '$' {
			b.text = append(b.text, repl[at])
			continue
		}
		if strings.HasPrefix(repl[at+1:], "$") {
			b.text = append(b.text, '$')
			at++
			continue
		}
		from := at + 1
		brace := strings.HasPrefix(repl[from:], "{")
		if brace {
			from++
		}
		end := from
		for end < len(repl) && end < from+3 && repl[end] >= '0' && repl[end] <= '9' {
			end++
		}
		n, err := strconv.Atoi(repl[from:end])
		if err != nil || brace && !strings.HasPrefix(repl[end:], "}") {
			return nil, b.fail(at, min(end+1, len(repl)), "this names no capture", "use $0 (the match), $1 or ${1} and so on, or $$ for the character")
		}
		if n > captures {
			return nil, b.fail(at, end, fmt.Sprintf("the regular expression has %d captures", captures), "use $$ for the character $")
		}
		if err := b.reference(n, at, end); err != nil {
			return nil, err
		}
		at = end - 1
		if brace {
			at = end
		}
	}
	return b.finish(), nil
}

// replacer fills in the template for each match, up to limit bytes.
func (t template) replacer(subject string, limit int) Replacer {
	return func(m Match) (string, bool, error) {
		switch len(t) {
		case 0:
			return "", false, nil
		case 1:
			return t[0].of(m, subject), false, nil
		}
		var b strings.Builder
		for i := range t {
			if b.WriteString(t[i].of(m, subject)); b.Len() > limit {
				return "", false, tooLong(limit)
			}
		}
		return b.String(), false, nil
	}
}

// of is what the part is in place of m.
func (p *part) of(m Match, subject string) string {
	switch {
	case p.text != "":
		return p.text
	case p.capture == 0:
		return subject[m.Start:m.End]
	}
	return m.Captures[p.capture-1].Text(subject)
}
