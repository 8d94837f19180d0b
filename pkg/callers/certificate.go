package callers

import (
	"crypto/x509"
	"strings"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// certificates are the client certificates of one caller.
type certificates struct {
	glob   string
	caller *inference.Caller
}

// byCertificate finds the first declared caller that one of the names in a verified certificate is of; nil when there
// is none. The common name does not count: nobody vouches for what is in it.
func (s *snapshot) byCertificate(leaf *x509.Certificate) *inference.Caller {
	for i := range s.names {
		if n := &s.names[i]; n.matches(leaf) {
			return n.caller
		}
	}
	return nil
}

func (n *certificates) matches(leaf *x509.Certificate) bool {
	if strings.Contains(n.glob, "://") {
		for _, u := range leaf.URIs {
			if matches(n.glob, u.String(), "/") {
				return true
			}
		}
		return false
	}
	for _, name := range leaf.DNSNames {
		if matches(strings.ToLower(n.glob), strings.ToLower(name), "./") {
			return true
		}
	}
	return false
}

// matches reports whether text is what glob stands for. A star in glob is any text, of at least one byte, without any
// of the bytes in borders.
func matches(glob, text, borders string) bool {
	// Where the last star can still be made longer: its place in glob, and in text what follows it.
	star, after := -1, 0
	g, t := 0, 0
	for t < len(text) {
		switch {
		case g < len(glob) && glob[g] == '*' && !strings.Contains(borders, text[t:t+1]):
			star, after = g, t+1
			g, t = g+1, t+1
		case g < len(glob) && glob[g] == text[t] && glob[g] != '*':
			g, t = g+1, t+1
		case star >= 0 && !strings.Contains(borders, text[after:after+1]):
			after++
			g, t = star+1, after
		default:
			return false
		}
	}
	return g == len(glob)
}
