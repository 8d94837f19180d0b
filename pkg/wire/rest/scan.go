package rest

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// scanner walks the JSON of a request. It exists beside the JSON library because data may hold the tokens NaN,
// Infinity and -Infinity, which are not JSON, and because lists of numbers have to be read fast. Strings and
// values of free form are the library's.
type scanner struct {
	b  []byte
	at int
}

// space skips white space.
func (s *scanner) space() {
	for s.at < len(s.b) {
		switch s.b[s.at] {
		case ' ', '\n', '\t', '\r':
			s.at++
		default:
			return
		}
	}
}

// next skips white space and gives the byte there, 0 at the end.
func (s *scanner) next() byte {
	s.space()
	if s.at >= len(s.b) {
		return 0
	}
	return s.b[s.at]
}

// found describes what stands at the scanner, for messages.
func (s *scanner) found() string {
	if s.at >= len(s.b) {
		return "the JSON ends there"
	}
	end := s.at
	for end < len(s.b) && end < s.at+24 && !strings.ContainsRune(",]}\n\r", rune(s.b[end])) {
		end++
	}
	if end == s.at {
		end++
	}
	return "found " + snippet(s.b[s.at:end])
}

// snippet shows bytes of a client in a message: short, and harmless whatever they are.
func snippet(b []byte) string {
	const most = 24
	cut := ""
	if len(b) > most {
		b, cut = b[:most], "..."
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == utf8.RuneError || r == 0x7f {
			return '?'
		}
		return r
	}, string(b)) + cut
}

// expect consumes c.
func (s *scanner) expect(c byte, where string) error {
	if s.next() != c {
		return badRequest("%s: expected %q at byte %d of the JSON; %s", where, c, s.at, s.found())
	}
	s.at++
	return nil
}

// end makes sure that nothing but white space is left.
func (s *scanner) end() error {
	if s.next() != 0 || s.at < len(s.b) {
		return badRequest("text after the JSON of the request, at byte %d: %s; send one JSON object, and name its length in %s when raw tensors follow it", s.at, s.found(), HeadLength)
	}
	return nil
}

// object calls each with every key; each must consume the value.
func (s *scanner) object(where string, each func(key string) error) error {
	if err := s.expect('{', where); err != nil {
		return err
	}
	if s.next() == '}' {
		s.at++
		return nil
	}
	for {
		key, err := s.text(where)
		if err != nil {
			return err
		}
		if err := s.expect(':', where); err != nil {
			return err
		}
		if err := each(key); err != nil {
			return err
		}
		if s.next() == ',' {
			s.at++
			continue
		}
		return s.expect('}', where)
	}
}

// array calls each for every element; each must consume it.
func (s *scanner) array(where string, each func() error) error {
	if err := s.expect('[', where); err != nil {
		return err
	}
	if s.next() == ']' {
		s.at++
		return nil
	}
	for {
		if err := each(); err != nil {
			return err
		}
		if s.next() == ',' {
			s.at++
			continue
		}
		return s.expect(']', where)
	}
}

// quoted consumes a string and gives it with its quotes, unchecked but for where it ends.
func (s *scanner) quoted() (token []byte, ok bool) {
	start := s.at
	for i := start + 1; i < len(s.b); i++ {
		switch s.b[i] {
		case '"':
			s.at = i + 1
			return s.b[start:s.at], true
		case '\\':
			i++
		}
	}
	s.at = len(s.b)
	return nil, false
}

// text consumes a string.
func (s *scanner) text(where string) (string, error) {
	if s.next() != '"' {
		return "", badRequest("%s: expected a string at byte %d of the JSON; %s", where, s.at, s.found())
	}
	start := s.at
	token, ok := s.quoted()
	if !ok {
		return "", badRequest("%s: the string at byte %d of the JSON does not end", where, start)
	}
	var room [64]byte
	v, err := jsontext.AppendUnquote(room[:0], token)
	if err != nil {
		return "", badRequest("%s: the string at byte %d of the JSON is not valid: %v", where, start, reason(err))
	}
	return string(v), nil
}

// value consumes a value of any form, by the rules of strict JSON.
func (s *scanner) value(where string) (jsontext.Value, error) {
	s.space()
	d := jsontext.NewDecoder(bytes.NewBuffer(s.b[s.at:]))
	v, err := d.ReadValue()
	if err != nil {
		return nil, badRequest("%s: the value at byte %d is not valid JSON: %v", where, s.at, reason(err))
	}
	s.at += int(d.InputOffset())
	return v, nil
}

// reason shortens an error of the JSON library: its prefix says nothing to a client.
func reason(err error) string {
	return strings.TrimPrefix(err.Error(), "jsontext: ")
}

// skipList passes over a list without reading it, NaN and all, and gives its text.
func (s *scanner) skipList() (text []byte, ok bool) {
	start, depth := s.at, 0
	for s.at < len(s.b) {
		switch s.b[s.at] {
		case '[':
			depth++
		case ']':
			if depth--; depth == 0 {
				s.at++
				return s.b[start:s.at], true
			}
		case '"':
			if _, ok := s.quoted(); !ok {
				return nil, false
			}
			continue
		case '{', '}':
			return nil, false
		}
		s.at++
	}
	return nil, false
}

// number consumes a JSON number and reports whether it is written without fraction and exponent.
// It consumes nothing when there is none.
func (s *scanner) number() (token []byte, whole, ok bool) {
	b, i := s.b, s.at
	if i < len(b) && b[i] == '-' {
		i++
	}
	first := i
	i = digits(b, i)
	if i == first || (b[first] == '0' && i > first+1) {
		return nil, false, false
	}
	whole = true
	if i < len(b) && b[i] == '.' {
		whole = false
		frac := i + 1
		if i = digits(b, frac); i == frac {
			return nil, false, false
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		whole = false
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		exp := i
		if i = digits(b, exp); i == exp {
			return nil, false, false
		}
	}
	token = b[s.at:i]
	s.at = i
	return token, whole, true
}

func digits(b []byte, i int) int {
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i
}

// literal consumes word if it stands there.
func (s *scanner) literal(word string) bool {
	if len(s.b)-s.at < len(word) || string(s.b[s.at:s.at+len(word)]) != word {
		return false
	}
	s.at += len(word)
	return true
}
