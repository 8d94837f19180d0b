package pattern

import "math/bits"

// set is a set of bytes.
type set [8]uint32

func (s *set) has(c byte) bool { return s[c>>5]>>(c&31)&1 != 0 }

func (s *set) add(c byte) { s[c>>5] |= 1 << (c & 31) }

func (s *set) addRange(lo, hi byte) {
	for c := int(lo); c <= int(hi); c++ {
		s.add(byte(c))
	}
}

func (s *set) addSet(o *set) {
	for i := range s {
		s[i] |= o[i]
	}
}

// complement is the set of all other bytes.
func (s *set) complement() set {
	var c set
	for i := range s {
		c[i] = ^s[i]
	}
	return c
}

// fold adds to the letters those of the other case.
func (s *set) fold() {
	for c := byte('a'); c <= 'z'; c++ {
		if upper := c - 'a' + 'A'; s.has(c) || s.has(upper) {
			s.add(c)
			s.add(upper)
		}
	}
}

// single gives the byte of a set that has only one.
func (s *set) single() (c byte, ok bool) {
	n := 0
	for i, word := range s {
		if word != 0 {
			n += bits.OnesCount32(word)
			c = byte(i<<5 + bits.TrailingZeros32(word))
		}
	}
	return c, n == 1
}

// full is the set of all bytes.
var full = (&set{}).complement()

// class is the set that %letter stands for in Lua, in the C locale: bytes above 127 are in no class. ok is false if the
// letter names none. %g (visible characters) is not in Lua 5.1, but in the LuaJIT that ngx runs.
func class(letter byte) (s set, ok bool) {
	switch letter | 0x20 {
	case 'a':
		s.addRange('a', 'z')
		s.addRange('A', 'Z')
	case 'c':
		s.addRange(0, 31)
		s.add(127)
	case 'd':
		s.addRange('0', '9')
	case 'g':
		s.addRange('!', '~')
	case 'l':
		s.addRange('a', 'z')
	case 'p':
		s.addRange('!', '/')
		s.addRange(':', '@')
		s.addRange('[', '`')
		s.addRange('{', '~')
	case 's':
		s.addRange('\t', '\r')
		s.add(' ')
	case 'u':
		s.addRange('A', 'Z')
	case 'w':
		s.addRange('0', '9')
		s.addRange('a', 'z')
		s.addRange('A', 'Z')
	case 'x':
		s.addRange('0', '9')
		s.addRange('a', 'f')
		s.addRange('A', 'F')
	case 'z':
		s.add(0)
	default:
		return set{}, false
	}
	switch {
	case letter >= 'a' && letter <= 'z':
		return s, true
	case letter >= 'A' && letter <= 'Z':
		return s.complement(), true
	}
	return set{}, false // 'a'|0x20 of something that is no letter
}
