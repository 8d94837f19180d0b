// Package readmap is a map for what nearly every call looks up and hardly any call adds: readers take no lock and
// allocate nothing, whatever the type of the key (sync.Map would box a struct on each look-up), and n additions
// cost O(n) copies altogether.
package readmap

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Map is such a map. The zero Map is empty and ready; it must not be copied.
type Map[K comparable, V any] struct {
	read atomic.Pointer[map[K]V] // never written once it is here

	mu     sync.Mutex
	dirty  map[K]V // everything, while it has more than read has; else nil
	misses int     // look-ups that read could not answer and dirty could
}

// Get looks k up.
func (m *Map[K, V]) Get(k K) (V, bool) {
	if read := m.read.Load(); read != nil {
		if v, ok := (*read)[k]; ok {
			return v, true
		}
	}
	return m.missed(k)
}

func (m *Map[K, V]) missed(k K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.all()[k]
	if ok && m.dirty != nil {
		m.misses++
		if m.misses >= len(m.dirty)/8 {
			m.publish()
		}
	}
	return v, ok
}

// GetOrAdd looks k up, and adds what create gives where there is none. It runs create under the map's lock;
// create may refuse by returning false, and its value is then returned but not kept.
func (m *Map[K, V]) GetOrAdd(k K, create func(size int) (V, bool)) V {
	if v, ok := m.Get(k); ok {
		return v
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.all()
	if v, ok := all[k]; ok {
		return v
	}
	v, keep := create(len(all))
	if !keep {
		return v
	}
	if m.dirty == nil {
		m.dirty = make(map[K]V, len(all)+len(all)/4+1)
		maps.Copy(m.dirty, all)
	}
	m.dirty[k] = v
	if len(m.dirty) <= small {
		m.publish()
	}
	return v
}

// Filter drops the entries that keep refuses, and returns how many those were.
func (m *Map[K, V]) Filter(keep func(K, V) bool) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.all()
	kept := make(map[K]V, len(all))
	for k, v := range all {
		if keep(k, v) {
			kept[k] = v
		}
	}
	dropped := len(all) - len(kept)
	if dropped > 0 {
		m.dirty = kept
		m.publish()
	}
	return dropped
}

// Len is the number of entries.
func (m *Map[K, V]) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.all())
}

// All calls yield for every entry of one moment, until yield returns false.
func (m *Map[K, V]) All(yield func(K, V) bool) {
	m.mu.Lock()
	if m.dirty != nil {
		m.publish()
	}
	read := m.read.Load()
	m.mu.Unlock()
	if read == nil {
		return
	}
	for k, v := range *read {
		if !yield(k, v) {
			return
		}
	}
}

// small maps are published on every addition: the copy costs less than the misses would.
const small = 32

// all is the map that has every entry. The lock must be held.
func (m *Map[K, V]) all() map[K]V {
	if m.dirty != nil {
		return m.dirty
	}
	if read := m.read.Load(); read != nil {
		return *read
	}
	return nil
}

// publish makes what is in dirty readable without the lock. The lock must be held.
func (m *Map[K, V]) publish() {
	dirty := m.dirty
	m.read.Store(&dirty)
	m.dirty, m.misses = nil, 0
}
