package limit

import (
	"context"
	"math"
	"time"
)

// wants reports whether a lease should be fetched now, and then counts on it that somebody does. The account is locked.
func (a *account) wants(now moment, peers float64) bool {
	need := a.balance < 0 || a.failing || a.balance*2 < a.size(peers)
	if !need || a.fetching || now < a.nextFetch {
		return false
	}
	a.fetching = true
	return true
}

// order is how many tokens to lease: what is owed, and what will be asked for soon.
func (a *account) order(peers float64) float64 {
	return math.Ceil(max(a.size(peers)-a.balance, 1))
}

// fetch starts fetching a lease, unless too many are under way: then a later call does.
func (s *Stage) fetch(a *account) {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.life.Err() != nil || !s.room() {
		a.mu.Lock()
		a.fetching = false
		a.mu.Unlock()
		return
	}
	s.running.Go(func() {
		defer s.fetching.Add(-1)
		s.lease(a)
	})
}

// room takes a place among the leases being fetched.
func (s *Stage) room() bool {
	if s.fetching.Add(1) > maxFetching {
		s.fetching.Add(-1)
		return false
	}
	return true
}

func (s *Stage) lease(a *account) {
	peers := s.share()
	a.mu.Lock()
	rate, want := a.rate, a.order(peers)
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.life, slackOfFetch*s.timeout)
	got, err := s.store.Lease(ctx, a.key, rate, want)
	cancel()
	if s.life.Err() != nil {
		return
	}
	if err != nil {
		s.metrics.LimitStoreFailed()
	}
	now := s.now()
	again := a.arrived(got, err, want, now)
	s.count(a, now)
	if again > 0 {
		time.AfterFunc(again, func() { s.again(a) })
	}
}

// arrived takes over a lease. Where the bucket had too few tokens for a hot account it gives the time after which to
// fetch again, so that no call has to find the bucket refilled.
func (a *account) arrived(l Leased, err error, want float64, now moment) (again time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fetching, a.failing = false, err != nil
	if err != nil {
		a.nextFetch = now + restFailed
		return 0
	}
	a.balance += l.Got
	a.known, a.knownAt = l.Left, now
	if l.Got >= want {
		a.nextFetch, a.over = 0, 0
		return 0
	}
	wait := min(max(l.RetryAfter, rest), slowestRate)
	pause := min(wait, remembered)
	a.nextFetch, a.over, a.freeAt, a.overCost = now+pause, now+pause, now+wait, 0
	if !a.hot() {
		return 0
	}
	a.over += arrival
	return pause
}

// again fetches for a bucket that was empty, if calls still come for it.
func (s *Stage) again(a *account) {
	a.mu.Lock()
	mine := !a.fetching && s.now()-moment(a.used.Load()) < time.Second
	a.fetching = a.fetching || mine
	a.mu.Unlock()
	if mine {
		s.fetch(a)
	}
}

// count keeps the number of leases held.
func (s *Stage) count(a *account, now moment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	holds := a.balance > 0 && !a.forgotten && !a.idle(now)
	switch {
	case holds && !a.holding:
		s.metrics.LimitLeases(1)
	case !holds && a.holding:
		s.metrics.LimitLeases(-1)
	}
	a.holding = holds
}

// forget is told of accounts that the book has dropped.
func (s *Stage) forget(a *account) {
	a.mu.Lock()
	a.forgotten = true
	a.mu.Unlock()
	s.count(a, 0)
}

// sweep goes through the book, a part of it each second, until the stage is closed.
func (s *Stage) sweep() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for i := 0; ; i = (i + 4) % pages {
		select {
		case <-tick.C:
		case <-s.life.Done():
			return
		}
		now := s.now()
		for p := i; p < i+4; p++ {
			s.accounts.each(p, func(a *account) { s.count(a, now) })
			s.accounts.sweep(p, now-forgetful, func(a *account) bool { return a.settled(now, s.share()) })
		}
	}
}
