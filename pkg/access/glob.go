package access

import (
	"path"
	"strings"
)

// pattern matches whole names: * is any run of characters, slashes included, ? is one, [a-z] one of a class, and a backslash
// makes the next character plain.
type pattern struct {
	// Of a pattern in which only stars are special:
	prefix, suffix string
	middle         []string // between the first and the last star, in order; none is empty
	least          int      // bytes that a name has at least
	// Any other:
	odd string // for path.Match, flat
}

// special are the characters that make a pattern of a name.
const special = `*?[\`

// compile makes a pattern of a text that has something special in it. One that is malformed matches nothing.
func compile(text string) pattern {
	if strings.ContainsAny(text, special[1:]) {
		return pattern{odd: flat(text)}
	}
	parts := strings.Split(text, "*")
	p := pattern{prefix: parts[0], suffix: parts[len(parts)-1]}
	p.least = len(p.prefix) + len(p.suffix)
	for _, part := range parts[1 : len(parts)-1] {
		if part != "" {
			p.middle = append(p.middle, part)
			p.least += len(part)
		}
	}
	return p
}

// match reports whether the whole of name fits. Nothing in it goes back: its time is bounded by the pattern times the name.
func (p *pattern) match(name string) bool {
	if p.odd != "" {
		ok, err := path.Match(p.odd, flat(name))
		return ok && err == nil
	}
	if len(name) < p.least || !strings.HasPrefix(name, p.prefix) || !strings.HasSuffix(name, p.suffix) {
		return false
	}
	rest := name[len(p.prefix) : len(name)-len(p.suffix)]
	for _, part := range p.middle { // the first place that fits leaves most for the parts after it
		i := strings.Index(rest, part)
		if i < 0 {
			return false
		}
		rest = rest[i+len(part):]
	}
	return true
}

// flat puts what no name has in place of the one character that path.Match never lets a star run over.
func flat(s string) string { return strings.ReplaceAll(s, "/", "\x00") }

// everything reports whether a pattern fits every name.
func everything(text string) bool { return text != "" && strings.Trim(text, "*") == "" }
