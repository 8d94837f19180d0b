package callers

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

const (
	cacheSets = 1 << 12
	cacheWays = 2               // tokens that share a set: the cache holds 8,192 in all
	cacheMost = 4 << 10         // bytes of a token that is remembered: 32 MiB in all, were every one as long
	cacheFor  = 5 * time.Minute // the longest that a token is believed without another look
)

// cache remembers tokens that have been verified, so that a call costs a look and not a signature. It has a fixed
// size, takes no lock, and forgets whatever shares a set with what comes later. Tokens are compared whole: finding one by
// a hash that is fast and keyed costs a third of what a hash would that could stand for it.
type cache struct {
	seed maphash.Seed
	sets [cacheSets][cacheWays]atomic.Pointer[verified]
	next [cacheSets]atomic.Uint32 // the way that is written next
}

func newCache() *cache { return &cache{seed: maphash.MakeSeed()} }

// verified is what a token was found to be. It is never written again.
type verified struct {
	raw    string
	caller *inference.Caller
	user   string
	until  time.Time
	source *source
	keys   *keySet // that verified it; once the issuer has others the token is looked at again
}

func (c *cache) get(raw string, now time.Time) *verified {
	set := &c.sets[c.setOf(raw)]
	for i := range set {
		if v := set[i].Load(); v != nil && v.raw == raw {
			if now.Before(v.until) && v.source.keys.Load() == v.keys {
				return v
			}
			return nil
		}
	}
	return nil
}

// put remembers v as what raw was found to be.
func (c *cache) put(raw string, v *verified) {
	if len(raw) > cacheMost {
		return
	}
	v.raw = strings.Clone(raw) // else it would keep all headers that it came with
	n := c.setOf(raw)
	set := &c.sets[n]
	for i := range set {
		if old := set[i].Load(); old == nil || old.raw == v.raw {
			set[i].Store(v)
			return
		}
	}
	set[c.next[n].Add(1)%cacheWays].Store(v)
}

func (c *cache) setOf(raw string) uint64 { return maphash.String(c.seed, raw) % cacheSets }
