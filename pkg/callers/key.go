package callers

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unsafe"
)

// Hash is the SHA-256 of a key. A key has at least 128 random bits, so its hash gives nothing away.
type Hash [sha256.Size]byte

const hashPrefix = "sha256:"

// String is how a configuration has it: "sha256:" and 64 hex digits.
func (h Hash) String() string { return hashPrefix + hex.EncodeToString(h[:]) }

// ParseHash reads what String writes. Its error never has text in it, since that may be a key put in the wrong place.
func ParseHash(text string) (h Hash, err error) {
	digits, ok := strings.CutPrefix(text, hashPrefix)
	if !ok || len(digits) != hex.EncodedLen(len(h)) {
		return Hash{}, fmt.Errorf("not the hash of a key, which is %s and 64 hex digits; make it with: gateway key hash", hashPrefix)
	}
	if _, err := hex.Decode(h[:], []byte(digits)); err != nil {
		return Hash{}, fmt.Errorf("not the hash of a key: what follows %s are not hex digits; make it with: gateway key hash", hashPrefix)
	}
	return h, nil
}

// HashKey is the hash of a key as it is sent.
func HashKey(key string) Hash {
	// Only read, and only until Sum256 returns: a copy would cost an allocation for each call.
	return sha256.Sum256(unsafe.Slice(unsafe.StringData(key), len(key)))
}

// KeyPrefix begins every key that NewKey makes, so that scanners for leaked secrets can know one.
const KeyPrefix = "mgw_"

const (
	alphabet  = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	keyDigits = 43 // 62^43 > 2^256
)

// NewKey makes a key of 256 random bits, in letters and digits.
func NewKey() string {
	key := make([]byte, 0, len(KeyPrefix)+keyDigits)
	key = append(key, KeyPrefix...)
	var random [64]byte
	for {
		_, _ = rand.Read(random[:]) // never fails
		for _, b := range random {
			if b >= 4*62 { // else some digits would be likelier than others
				continue
			}
			if key = append(key, alphabet[b%62]); len(key) == cap(key) {
				return string(key)
			}
		}
	}
}
