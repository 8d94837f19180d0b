package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
)

// hashPrefix begins every hash of a key.
const hashPrefix = "sha256:"

// HashKey gives the hash of a key, as files hold it.
func HashKey(key string) KeyHash { return sha256.Sum256([]byte(key)) }

// String is the hash as files hold it: sha256: and 64 hex digits.
func (h KeyHash) String() string { return hashPrefix + hex.EncodeToString(h[:]) }

// ParseKeyHash reads what String writes. Its error never repeats the text, which may be a key itself.
func ParseKeyHash(text string) (KeyHash, error) {
	var h KeyHash
	digits, ok := strings.CutPrefix(text, hashPrefix)
	b, err := hex.DecodeString(digits)
	switch {
	case ok && err == nil && len(b) == len(h):
		copy(h[:], b)
		return h, nil
	case err == nil && len(b) == len(h):
		return h, errors.New("must begin with sha256: before its 64 hex digits")
	case ok:
		return h, errors.New("must have 64 hex digits after sha256:; gateway key new prints a key and its hash")
	}
	return h, errors.New("must be the hash of a key, sha256: and 64 hex digits, never the key itself; make a new one with gateway key new, which prints a key and its hash")
}

func isURL(s string) bool { return strings.HasPrefix(s, "https://") || strings.HasPrefix(s, "http://") }
