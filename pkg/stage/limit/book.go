package limit

import (
	"hash/maphash"
	"maps"
	"math/bits"
	"strings"
	"sync"
	"time"
)

// name tells buckets apart: those of one limit, model and user, caller or address.
type name struct {
	limit, model, subject string
	own                   bool // the subject is a caller that stands where a user would
}

const (
	pages     = 64
	forgetful = 5 * time.Minute // an account unused for so long is forgotten
	sampled   = 8               // of so many accounts the one unused for longest makes room
)

// book has the accounts of buckets in use, a bounded number of them. Finding one takes a read lock of a 64th of the
// book. Accounts are found by a seeded hash of their names: of two that ever had the same one, the newer replaces the
// other, which is forgotten as if it had been idle.
type book struct {
	seed   maphash.Seed
	most   int // accounts on a page
	forget func(*account)
	pages  [pages]page
}

type page struct {
	mu   sync.RWMutex
	m    map[uint64]*account
	peak int      // entries that m has had; its memory is that of so many
	_    [64]byte // so that locks of pages do not share a cache line
}

func newBook(most int, forget func(*account)) *book {
	b := &book{seed: maphash.MakeSeed(), most: max(most/pages, 1), forget: forget}
	for i := range b.pages {
		b.pages[i].m = make(map[uint64]*account)
	}
	return b
}

func (b *book) hash(n name) uint64 {
	h := maphash.String(b.seed, n.limit) ^ bits.RotateLeft64(maphash.String(b.seed, n.model), 21)
	if n.subject != "" {
		h ^= bits.RotateLeft64(maphash.String(b.seed, n.subject), 42)
	}
	if n.own {
		h = ^h
	}
	return h
}

// find gives the account, or nil.
func (b *book) find(n name) *account {
	h := b.hash(n)
	p := &b.pages[h%pages]
	p.mu.RLock()
	a := p.m[h]
	p.mu.RUnlock()
	if a == nil || !a.is(n) {
		return nil
	}
	return a
}

// open gives the account, made by create where there is none.
func (b *book) open(n name, create func(name) *account) *account {
	h := b.hash(n)
	p := &b.pages[h%pages]
	p.mu.Lock()
	defer p.mu.Unlock()
	switch a := p.m[h]; {
	case a != nil && a.is(n):
		return a
	case a != nil:
		b.forget(a)
	case len(p.m) >= b.most:
		b.evict(p)
	}
	n.subject = strings.Clone(n.subject) // it may be a part of something large
	a := create(n)
	p.m[h] = a
	p.peak = max(p.peak, len(p.m))
	return a
}

// evict forgets the account that was unused for longest among a few taken at random. What a bucket of this replica's own
// still had to remember goes with it: the bound on memory comes first.
func (b *book) evict(p *page) {
	var at uint64
	var old *account
	seen := 0
	for h, a := range p.m {
		if old == nil || a.used.Load() < old.used.Load() {
			at, old = h, a
		}
		if seen++; seen == sampled {
			break
		}
	}
	if old != nil {
		delete(p.m, at)
		b.forget(old)
	}
}

// sweep forgets the accounts of a page that have been unused since before and have nothing to remember. It gives back the page's memory once most of it is idle.
func (b *book) sweep(i int, before moment, settled func(*account) bool) {
	p := &b.pages[i]
	p.mu.Lock()
	defer p.mu.Unlock()
	for h, a := range p.m {
		if moment(a.used.Load()) < before && settled(a) {
			delete(p.m, h)
			b.forget(a)
		}
	}
	if p.peak > 256 && len(p.m) < p.peak/4 {
		m := make(map[uint64]*account, len(p.m))
		maps.Copy(m, p.m)
		p.m, p.peak = m, len(m)
	}
}

// each calls f for every account of a page.
func (b *book) each(i int, f func(*account)) {
	p := &b.pages[i]
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, a := range p.m {
		f(a)
	}
}

// size is the number of accounts.
func (b *book) size() int {
	n := 0
	for i := range b.pages {
		b.pages[i].mu.RLock()
		n += len(b.pages[i].m)
		b.pages[i].mu.RUnlock()
	}
	return n
}
