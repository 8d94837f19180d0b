package inference

import "math"

// Hash places a key, such as a user, in 32 evenly filled bits. Other salts place the same keys elsewhere, independently of
// each other. It is the same in every release, process and machine: users must not change sides with an upgrade.
//
// It is FNV-1a over 64 bits of salt, one zero byte and key, finalised as MurmurHash3 does, of which the upper 32 bits
// are taken.
func Hash(key, salt string) uint32 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := range len(salt) {
		h = (h ^ uint64(salt[i])) * prime
	}
	h *= prime // the zero byte: "ab" with salt "c" is not "b" with salt "ca"
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * prime
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return uint32(h >> 32)
}

// Bucket is the key's of 10,000 buckets of one size: its hash as a part of all hashes. A tenth of it is the key's of 1,000
// buckets, a hundredth the key's of 100.
func Bucket(key, salt string) int { return int(uint64(Hash(key, salt)) * 10_000 >> 32) }

// Span is a range of hashes, from Low up to but without High. A whole circle is 0 to 1<<32.
type Span struct{ Low, High uint64 }

// Holds reports whether a hash is inside.
func (s Span) Holds(hash uint32) bool { return uint64(hash) >= s.Low && uint64(hash) < s.High }

// Spans divides the hashes by shares of 100, which must make up 100. The share at rest gets what the others leave; they
// are laid out from both ends in turn: the first from the lowest hash up, the second from the highest down, the third
// behind the first. So of up to three shares, a change of one and of the rest moves no user but those between these two;
// and one that is added at the end of any number moves only those that it gets.
func Spans(shares []float64, rest int) []Span {
	const all = 1 << 32
	spans := make([]Span, len(shares))
	low, high, up := uint64(0), uint64(all), true
	for i, share := range shares {
		if i == rest {
			continue
		}
		width := min(uint64(math.Round(share/100*all)), high-low)
		if up {
			spans[i] = Span{low, low + width}
			low += width
		} else {
			spans[i] = Span{high - width, high}
			high -= width
		}
		up = !up
	}
	spans[rest] = Span{low, high}
	return spans
}
