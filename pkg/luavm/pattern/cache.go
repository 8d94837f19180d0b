package pattern

import (
	"sync"
	"sync/atomic"
)

// What the cache keeps, of Lua patterns and of regular expressions each.
const (
	cacheBytes   = 4 << 20
	cacheEntries = 4 << 10
)

// cache keeps what was compiled lately. Looking up takes no lock. There are two generations: what is asked for is (or
// moves) in the young one; when that has half of what may be kept it becomes the old one, and the old one is dropped.
// So what is in use stays, even if a script makes up patterns without end.
type cache[K comparable, V cached[K]] struct {
	young, old atomic.Pointer[generation]
	turn       sync.Mutex
}

// cached is a compiled pattern, and what it is found by. (The key one looks up with may be part of a far longer string,
// which must not be kept for it.)
type cached[K comparable] interface {
	key() K
	Size() int
}

type generation struct {
	entries sync.Map
	count   atomic.Int64
	bytes   atomic.Int64
}

// get gives the value of key, compiled now if it is not there. Errors are not kept.
func (c *cache[K, V]) get(key K, compile func() (V, error)) (V, error) {
	young := c.young.Load()
	if young != nil {
		if v, ok := young.entries.Load(key); ok {
			return v.(V), nil
		}
	}
	if old := c.old.Load(); old != nil {
		if v, ok := old.entries.Load(key); ok {
			c.put(v.(V))
			return v.(V), nil
		}
	}
	v, err := compile()
	if err != nil {
		return v, err
	}
	c.put(v)
	return v, nil
}

// put adds to the young generation, and turns it when it is full.
func (c *cache[K, V]) put(v V) {
	young := c.young.Load()
	if young == nil || young.count.Load() >= cacheEntries/2 || young.bytes.Load() >= cacheBytes/2 {
		young = c.turned(young)
	}
	if _, there := young.entries.LoadOrStore(v.key(), v); !there {
		young.count.Add(1)
		young.bytes.Add(int64(v.Size()))
	}
}

// turned makes a new young generation in place of full, unless somebody did already.
func (c *cache[K, V]) turned(full *generation) *generation {
	c.turn.Lock()
	defer c.turn.Unlock()
	if now := c.young.Load(); now != full {
		return now
	}
	fresh := new(generation)
	if full != nil {
		c.old.Store(full)
	}
	c.young.Store(fresh)
	return fresh
}

var patterns cache[string, *Pattern]

// Cached is Compile for patterns that may have been compiled before. It is cheap for those in use; a pattern that stands
// in the source of a script is better compiled once with the script.
func Cached(lua string) (*Pattern, error) {
	return patterns.get(lua, func() (*Pattern, error) { return Compile(lua) })
}
