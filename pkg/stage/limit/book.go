package limit

import (
	"hash/maphash"
	"strings"
	"sync"
	"time"
)

// name tells buckets apart: those of one limit, model and user, caller or address.
type name struct{ limit, model, subject string }

const (
	pages     = 64
	forgetful = 5 * time.Minute // an account unused for so long is forgotten
	sampled   = 8               // of so many accounts the one unused for longest makes room
)

// book has the accounts of buckets in use, a bounded number of them. Finding one takes a read lock of a 64th of the book.
type book struct {
	seed   maphash.Seed
	most   int // accounts on a page
	forget func(*account)
	pages  [pages]page
}

type page struct {
	mu   sync.RWMutex
	m    map[name]*account
	peak int      // entries that m has had; its memory is that of so many
	_    [64]byte // so that locks of pages do not share a cache line
}

func newBook(most int, forget func(*account)) *book {
	b := &book{seed: maphash.MakeSeed(), most: max(most/pages, 1), forget: forget}
	for i := range b.pages {
		b.pages[i].m = make(map[name]*account)
	}
	return b
}

func (b *book) page(n name) *page {
	by := n.subject
	if by == "" {
		by = n.limit + n.model // short strings: this is built on the stack
	}
	return &b.pages[maphash.String(b.seed, by)%pages]
}

// find gives the account, or nil.
func (b *book) find(n name) *account {
	p := b.page(n)
	p.mu.RLock()
	a := p.m[n]
	p.mu.RUnlock()
	return a
}

// open gives the account, made by create where there is none.
func (b *book) open(n name, create func(name) *account) *account {
	p := b.page(n)
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.m[n]; a != nil {
		return a
	}
	if len(p.m) >= b.most {
		b.evict(p)
	}
	n.subject = strings.Clone(n.subject) // it may be a part of something large
	a := create(n)
	p.m[n] = a
	p.peak = max(p.peak, len(p.m))
	return a
}

// evict forgets the account that was unused for longest among a few taken at random.
func (b *book) evict(p *page) {
	var oldest name
	var old *account
	seen := 0
	for n, a := range p.m {
		if old == nil || a.used.Load() < old.used.Load() {
			oldest, old = n, a
		}
		if seen++; seen == sampled {
			break
		}
	}
	if old != nil {
		delete(p.m, oldest)
		b.forget(old)
	}
}

// sweep forgets the accounts of a page that have been unused since before. It gives back the page's memory once most of it is idle.
func (b *book) sweep(i int, before moment) {
	p := &b.pages[i]
	p.mu.Lock()
	defer p.mu.Unlock()
	for n, a := range p.m {
		if moment(a.used.Load()) < before {
			delete(p.m, n)
			b.forget(a)
		}
	}
	if p.peak > 256 && len(p.m) < p.peak/4 {
		m := make(map[name]*account, len(p.m))
		for n, a := range p.m {
			m[n] = a
		}
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
