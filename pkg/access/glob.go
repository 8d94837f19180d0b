package access

import "strings"

// glob is a compiled pattern of model names. "*" stands for any run of bytes, none and slashes included; everything
// else stands for itself.
type glob struct {
	prefix, suffix string
	middle         []string // between the first and the last star, in order; none is empty
	least          int      // bytes that a name has at least
}

// compile makes a glob of a pattern with at least one star.
func compile(pattern string) glob {
	parts := strings.Split(pattern, "*")
	g := glob{prefix: parts[0], suffix: parts[len(parts)-1]}
	g.least = len(g.prefix) + len(g.suffix)
	for _, p := range parts[1 : len(parts)-1] {
		if p != "" {
			g.middle = append(g.middle, p)
			g.least += len(p)
		}
	}
	return g
}

// match reports whether the whole of name fits. It looks at each byte of name at most once for each part between stars.
func (g *glob) match(name string) bool {
	if len(name) < g.least || !strings.HasPrefix(name, g.prefix) || !strings.HasSuffix(name, g.suffix) {
		return false
	}
	rest := name[len(g.prefix) : len(name)-len(g.suffix)]
	for _, part := range g.middle { // the first place that fits leaves most for the parts after it
		i := strings.Index(rest, part)
		if i < 0 {
			return false
		}
		rest = rest[i+len(part):]
	}
	return true
}

// everything reports whether a pattern fits every name.
func everything(pattern string) bool { return pattern != "" && strings.Trim(pattern, "*") == "" }
