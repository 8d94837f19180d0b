package limit

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Base is the beginning of the keys of one limit's buckets, worked out once.
//
//	limit:{fraud}:per-user:ann    a limit per user of the model fraud; the braces keep all of a model in one slot
//	limit:{fraud}:per-user:!batch the same for the caller batch, where it names no user
//	limit:{fraud}:per-model       a limit of the model
//	limit:per-ip:192.0.2.7        a limit that spans models: every bucket in a slot of its own
//
// Names may be any bytes: what is not plain is escaped, what is long is replaced by its hash, and no two different
// names ever make one key.
type Base string

// maxPart is how long a part of a key may be, in bytes, before its hash takes its place.
const maxPart = 128

// ModelBase is for the buckets of a limit of one model.
func ModelBase(model, limit string) Base {
	return Base("limit:{" + plain(model, false) + "}:" + plain(limit, false))
}

// SpanningBase is for the buckets of a limit that spans models.
func SpanningBase(limit string) Base { return Base("limit:" + plain(limit, false)) }

// Key names the only bucket of a limit that is per model or global.
func (b Base) Key() string { return string(b) }

// For names the bucket of one user, caller or address.
func (b Base) For(subject string) string { return string(b) + ":" + plain(subject, true) }

// ForCaller names the bucket of a caller among those of users. No user's key has a ! there.
func (b Base) ForCaller(caller string) string { return string(b) + ":!" + plain(caller, true) }

// Tag is the part of a key that decides its slot: what is between the first braces, else all of it.
func Tag(key string) string {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if length := strings.IndexByte(key[open+1:], '}'); length > 0 {
			return key[open+1 : open+1+length]
		}
	}
	return key
}

// plain makes a part of a key of any bytes, one to one. Colons part the parts, so only the last part keeps its own.
func plain(s string, last bool) string {
	ok := len(s) <= maxPart
	for i := 0; ok && i < len(s); i++ {
		ok = isPlain(s[i], last)
	}
	if ok {
		return s
	}
	return escaped(s, last)
}

func escaped(s string, last bool) string {
	const digits = "0123456789ABCDEF"
	if len(s) <= maxPart {
		var b strings.Builder
		for i := range len(s) {
			if c := s[i]; isPlain(c, last) {
				b.WriteByte(c)
			} else {
				b.WriteByte('%')
				b.WriteByte(digits[c>>4])
				b.WriteByte(digits[c&15])
			}
		}
		if b.Len() <= maxPart {
			return b.String()
		}
	}
	sum := sha256.Sum256([]byte(s))
	return "#" + hex.EncodeToString(sum[:]) // nothing that is plain or escaped begins with #
}

func isPlain(c byte, last bool) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	case c == '.', c == '-', c == '_', c == '@', c == '/', c == '+', c == '=':
		return true
	}
	return last && c == ':' // addresses have them
}
