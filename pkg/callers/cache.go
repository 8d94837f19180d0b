package callers

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

const (
	cacheSets = 1 << 12
	cacheWays = 4               // tokens that share a set: the cache holds 16,384 in all
	cacheFor  = 5 * time.Minute // the longest that a token is believed without another look
)

// cache remembers tokens that have been verified, so that a call costs a hash and not a signature. It has a fixed
// size, takes no lock, and forgets whatever shares a set with what comes later.
type cache struct {
	sets [cacheSets][cacheWays]atomic.Pointer[verified]
	next [cacheSets]atomic.Uint32 // the way that is written next
}

// verified is what a token was found to be. It is never written again.
type verified struct {
	hash   Hash
	caller *inference.Caller
	user   string
	until  time.Time
	source *source
	keys   *keySet // that verified it; once the issuer has others the token is looked at again
}

func (c *cache) get(h *Hash, now time.Time) *verified {
	set := &c.sets[setOf(h)]
	for i := range set {
		if v := set[i].Load(); v != nil && v.hash == *h {
			if now.Before(v.until) && v.source.keys.Load() == v.keys {
				return v
			}
			return nil
		}
	}
	return nil
}

func (c *cache) put(v *verified) {
	n := setOf(&v.hash)
	set := &c.sets[n]
	for i := range set {
		if old := set[i].Load(); old == nil || old.hash == v.hash {
			set[i].Store(v)
			return
		}
	}
	set[c.next[n].Add(1)%cacheWays].Store(v)
}

func setOf(h *Hash) int { return int(binary.LittleEndian.Uint16(h[:2]) % cacheSets) }
