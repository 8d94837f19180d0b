package rest

import (
	"encoding/binary"
	"math"
	"strconv"
)

// decimal is a JSON number taken apart: ±mant × 10^exp, where mant has at most 19 digits.
type decimal struct {
	token []byte
	mant  uint64
	exp   int
	neg   bool
	exact bool // no digit is missing in mant
}

// decimal consumes a JSON number. It consumes nothing when there is none.
func (s *scanner) decimal() (d decimal, ok bool) {
	b, i := s.b, s.at
	if i < len(b) && b[i] == '-' {
		d.neg = true
		i++
	}
	first := i
	i = d.digits(b, i)
	count := i - first
	if count == 0 || (b[first] == '0' && count > 1) {
		return d, false
	}
	if i < len(b) && b[i] == '.' {
		frac := i + 1
		if i = d.digits(b, frac); i == frac {
			return d, false
		}
		d.exp = frac - i
		count += i - frac
	}
	if d.exact = count <= maxDigits; !d.exact {
		d.shorten(b[first:i])
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		if i, ok = d.exponent(b, i+1); !ok {
			return d, false
		}
	}
	d.token = b[s.at:i]
	s.at = i
	return d, true
}

// maxDigits is how many digits fit in mant whatever they are.
const maxDigits = 19

// digits adds digits to mant, which overflows when there are too many of them; see shorten.
func (d *decimal) digits(b []byte, i int) int {
	mant := d.mant
	for len(b)-i >= 8 {
		v := binary.LittleEndian.Uint64(b[i:])
		if (v&0xf0f0f0f0f0f0f0f0)|((v+0x0606060606060606)&0xf0f0f0f0f0f0f0f0)>>4 != 0x3333333333333333 {
			break
		}
		// Eight digits at once: pairs, then pairs of pairs, then both halves.
		v = (v & 0x0f0f0f0f0f0f0f0f) * (10<<8 + 1) >> 8
		v = (v & 0x00ff00ff00ff00ff) * (100<<16 + 1) >> 16
		v = (v & 0x0000ffff0000ffff) * (10000<<32 + 1) >> 32
		mant = mant*100_000_000 + v
		i += 8
	}
	for ; i < len(b) && b[i]-'0' <= 9; i++ {
		mant = mant*10 + uint64(b[i]-'0')
	}
	d.mant = mant
	return i
}

// shorten reads the digits of a long number again and keeps the first that count.
func (d *decimal) shorten(digits []byte) {
	d.mant, d.exp, d.exact = 0, 0, true
	used, point := 0, 0
	for _, c := range digits {
		if c == '.' {
			point = 1
			continue
		}
		if used == maxDigits {
			d.exact = d.exact && c == '0'
			d.exp += 1 - point
			continue
		}
		d.mant = d.mant*10 + uint64(c-'0')
		d.exp -= point
		if d.mant > 0 {
			used++
		}
	}
}

func (d *decimal) exponent(b []byte, i int) (int, bool) {
	neg := false
	if i < len(b) && (b[i] == '+' || b[i] == '-') {
		neg = b[i] == '-'
		i++
	}
	start, e := i, 0
	for ; i < len(b) && b[i]-'0' <= 9; i++ {
		if e < 100_000 { // far beyond every float, and far from overflow
			e = e*10 + int(b[i]-'0')
		}
	}
	if neg {
		e = -e
	}
	d.exp += e
	return i, i > start
}

// Powers of ten that a float64 holds exactly.
var tens = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// scaled computes mant × 10^exp with at most one rounding for mant and one for the scale.
func (d *decimal) scaled() (v float64, ok bool) {
	switch {
	case d.exp >= 0 && d.exp < len(tens):
		v = float64(d.mant) * tens[d.exp]
	case d.exp < 0 && -d.exp < len(tens):
		v = float64(d.mant) / tens[-d.exp]
	default:
		return 0, false
	}
	if d.neg {
		v = -v
	}
	return v, true
}

// float64 rounds to the nearest float64. A mantissa that a float64 holds, scaled once, is rounded right;
// the library does the rest.
func (d *decimal) float64() (float64, error) {
	if d.exact && d.mant < 1<<53 {
		if v, ok := d.scaled(); ok {
			return v, nil
		}
	}
	return strconv.ParseFloat(string(d.token), 64)
}

// float32 rounds to the nearest float32. The scaled value is off by a few units in the last place of a float64 at
// most, and those decide only where it stands next to the middle between two float32s: there, and where float32s
// get coarser, the library decides.
func (d *decimal) float32() (float32, error) {
	if v, ok := d.scaled(); ok {
		const below, middle, near = 1<<29 - 1, 1 << 28, 4 // of the 29 bits that a float32 lacks
		low := int64(math.Float64bits(v) & below)
		a := math.Abs(v)
		if (a > 0x1p-126 && a < 0x1p127 && (low < middle-near || low > middle+near)) || (v == 0 && d.exact) {
			return float32(v), nil
		}
	}
	v, err := strconv.ParseFloat(string(d.token), 32)
	return float32(v), err
}
