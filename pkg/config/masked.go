package config

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// mask stands in place of a header's value.
const mask = "masked"

var anyHash = regexp.MustCompile(`(?i)(sha256:[0-9a-f]{8})[0-9a-f]{56}`)

// Masked is Source to show to people: of hashes of keys only the beginning is left, and nothing of the values of headers
// toward upstreams. Passwords are never in it. Where a secret is written so that it cannot be cut out, Masked says so, and
// shows nothing.
func (c *Config) Masked() []byte {
	masked := anyHash.ReplaceAll(maskHeaders(c.Source), []byte("$1..."))
	if c.Source != nil && leaks(c.Source, masked) {
		return []byte("# not shown: a key or a header's value is written in a way that cannot be masked; write it plainly, in one line\n")
	}
	return masked
}

// plainHeader is a header's value as it stands in the text.
type plainHeader struct {
	path, value string
	place       place
}

// plainHeaders lists the values of headers toward upstreams that the text itself has, and the hashes of keys; nil, nil for
// what cannot be read.
func plainHeaders(source []byte) (headers []plainHeader, keys []string, ok bool) {
	r := newReader("", source)
	file := r.file(source)
	if file == nil {
		return nil, nil, false
	}
	for upstream, u := range file.Upstreams {
		for name, h := range u.Headers {
			if path := join(join("upstreams", upstream)+".headers", name); h.Value != "" {
				headers = append(headers, plainHeader{path, h.Value, r.at(path)})
			}
		}
	}
	for _, caller := range file.Callers {
		keys = append(keys, caller.Keys...)
	}
	return headers, keys, true
}

// maskHeaders replaces the values of headers where they stand, and again wherever else the text has them.
func maskHeaders(source []byte) []byte {
	headers, _, _ := plainHeaders(source)
	// From the end to the beginning, so that what is still to come stands where it stood.
	slices.SortFunc(headers, func(a, b plainHeader) int {
		if a.place.value == nil || b.place.value == nil {
			return 0
		}
		return cmp.Or(cmp.Compare(b.place.value.Line, a.place.value.Line), cmp.Compare(b.place.value.Column, a.place.value.Column))
	})
	lines := strings.Split(string(source), "\n")
	for _, h := range headers {
		at := h.place.value
		if at == nil || at.Line > len(lines) {
			continue
		}
		line := []rune(lines[at.Line-1])
		if at.Column-1 > len(line) {
			continue
		}
		before, after := string(line[:at.Column-1]), string(line[at.Column-1:])
		for _, quote := range []string{"", `"`, "'"} {
			if rest, ok := strings.CutPrefix(after, quote+h.value); ok {
				lines[at.Line-1] = before + quote + mask + rest
				break
			}
		}
	}
	text := strings.Join(lines, "\n")
	for _, h := range headers {
		if len(h.value) >= minSecret {
			text = strings.ReplaceAll(text, h.value, mask)
		}
	}
	return []byte(text)
}

// leaks reports whether a masked text still says what it must not, however it is written.
func leaks(source, masked []byte) bool {
	was, hashes, ok := plainHeaders(source)
	is, keys, ok2 := plainHeaders(masked)
	if !ok || !ok2 || len(is) != len(was) || len(keys) != len(hashes) {
		return true
	}
	for _, key := range keys {
		if _, err := ParseKeyHash(key); err == nil {
			return true
		}
	}
	for _, key := range hashes {
		if bytes.Contains(masked, []byte(key)) {
			return true
		}
	}
	return slices.ContainsFunc(is, func(h plainHeader) bool { return h.value != mask })
}
