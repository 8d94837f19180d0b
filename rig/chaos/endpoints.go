package main

import (
	"fmt"
	"time"
)

// Scenarios of model servers that go away, and come back.

// callDeadline is what clients of scenarios allow; the users' own limit is 30 s.
const callDeadline = 10 * time.Second

func killOne(b *bench) {
	const sequences = 10
	x, y := b.two("fraud", "seqsum", "echo")
	b.linger(x, y)
	g := b.gateway(settings{endpoints: list(x, y)})
	c := b.client(g)
	b.begin(c, callDeadline, bare(c), lingering(c))
	b.load.sequences(b, c, sequences)
	b.sleep(time.Second)
	killed := time.Now()
	x.kill()
	b.detect = b.within(2*time.Second, "the lost server is known to be down", func() bool { return down(b, g, x) })
	b.sleep(3 * time.Second)
	b.must(x.boot())
	b.must(x.ready(b))
	back := time.Now()
	warm, err := x.served(b, "fraud")
	b.must(err)
	b.recovery = b.within(5*time.Second, "the server that is back gets calls", func() bool {
		n, err := x.served(b, "fraud")
		return err == nil && n > warm+10
	})
	b.sleep(time.Second)
	b.finish()
	b.none("were hurt by one of two servers", both(unary, not(is(ok)), not(lostSequence)))
	b.note("%v calls were tried again", g.metric(b, "gateway_retries_total"))
	lost := b.load.count(lostSequence)
	b.note("%d of %d sequences were on the server that was killed, and were told so", lost, sequences)
	b.check(lost > 0 && lost <= sequences, "%d of %d sequences were lost; those on the server that was killed should be, each once", lost, sequences)
	b.none("of streams were not answered in band", both(streamed, is(failed), func(r record) bool { return !r.inBand }))
	b.none("of streams were hurt although they began later", both(streamed, not(is(ok)), after(killed.Add(2*time.Second))))
	b.none("were hurt by its return", both(after(back), not(is(ok))))
	b.none("of sequences were lost although they began later", both(kindIs("sequence"), not(is(ok)), after(killed.Add(2*time.Second))))
	b.none("took long", both(unary, slower(2*time.Second)))
}

// down reports whether the gateway knows that s cannot be reached.
func down(b *bench, g *gateway, s *server) bool {
	page, err := get(b, "http://"+g.admin+"/metrics")
	return err == nil && sum(page, "gateway_endpoint_up", fmt.Sprintf("%q", s.address)) == 0
}

func killBoth(b *bench) {
	x, y := b.two()
	g := b.gateway(settings{endpoints: list(x, y)})
	c := b.client(g)
	b.begin(c, callDeadline)
	killed := time.Now()
	x.kill()
	y.kill()
	b.sleep(6 * time.Second)
	b.must(x.boot())
	b.must(y.boot())
	b.must(x.ready(b))
	back := time.Now()
	arrived := b.arrivals(x)
	b.must(y.ready(b))
	b.sleep(7 * time.Second)
	b.finish()
	b.detect = b.load.firstAfter(killed, is(degraded))
	b.recovery = b.load.normalAfter(back)
	b.check(b.detect >= 0 && b.detect <= 2*time.Second, "the first degraded answer came after %v; 2 s are allowed", b.detect)
	b.check(b.recovery <= 5*time.Second, "normal again %v after the servers were; 5 s are allowed", b.recovery)
	b.none("failed", both(unary, is(failed)))
	b.none("of streams were not answered in band", both(streamed, is(failed), func(r record) bool { return !r.inBand }))
	b.none("took longer than 2 s", slower(2*time.Second))
	b.none("were not degraded although no server was there", both(after(killed.Add(100*time.Millisecond)), before(back.Add(-3*time.Second)), is(ok)))
	// Three streams of each protocol, ten messages a second on each, beside 200 calls.
	steady := 260.0
	b.note("at most %.0f calls/s at the server that was back, %.0f/s in all before", *arrived, steady)
	b.check(*arrived <= 2*steady, "%.0f calls/s at the server that was back: a herd", *arrived)
}

// arrivals watches how many calls a second a server answers at most, in windows of half a second, until the scenario ends.
func (b *bench) arrivals(s *server) *float64 {
	most := new(float64)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		last, at := uint64(0), time.Now()
		for {
			select {
			case <-done:
				return
			case <-time.After(500 * time.Millisecond):
			}
			n, err := s.served(b, "fraud")
			now := time.Now()
			if err == nil && n >= last {
				*most = max(*most, float64(n-last)/now.Sub(at).Seconds())
				last, at = n, now
			}
		}
	}()
	b.load.ended = append(b.load.ended, func() { close(done); <-ended })
	return most
}

func freeze(b *bench) {
	x, y := b.two()
	g := b.gateway(settings{endpoints: list(x, y)})
	c := b.client(g)
	b.begin(c, callDeadline, bare(c))
	frozen := time.Now()
	x.pause()
	b.detect = b.within(7*time.Second, "the silent server is out", func() bool { return down(b, g, x) })
	b.sleep(2 * time.Second)
	back := time.Now()
	x.carryOn()
	b.within(5*time.Second, "the server that goes on is up", func() bool { return !down(b, g, x) })
	again := time.Now()
	idle, err := x.served(b, "fraud")
	b.must(err)
	b.recovery = b.within(5*time.Second, "the server that goes on gets calls", func() bool {
		n, err := x.served(b, "fraud")
		return err == nil && n > idle+10
	}) + again.Sub(back)
	b.sleep(2 * time.Second)
	b.finish()
	b.none("were hurt by a silent server", both(unary, not(is(ok))))
	b.none("of streams were not answered in band", both(streamed, is(failed), func(r record) bool { return !r.inBand }))
	b.none("hung although they came after it was out", both(after(frozen.Add(7*time.Second)), slower(time.Second)))
	b.none("waited for longer than it may take to be out", slower(7*time.Second+slack))
	b.note("%d of %d calls waited for more than 1 s", b.load.count(slower(time.Second)), b.load.count(every))
}

func drainOne(b *bench) {
	x, y := b.two()
	g := b.gateway(settings{endpoints: list(x, y)})
	c := b.client(g)
	b.begin(c, callDeadline, bare(c))
	began := time.Now()
	if b.cast == castReal {
		x.shutdown()
		b.detect = b.within(30*time.Second, "the server that ends is down", func() bool { return down(b, g, x) })
		select {
		case <-x.p.exited:
		case <-time.After(25 * time.Second):
			b.note("Triton does not end by itself: killed, as Kubernetes does")
			x.kill()
		}
	} else {
		b.must(x.fault(b, `{"kind": "stopping"}`))
		b.sleep(2 * time.Second)
		x.kill()
		b.detect = b.within(2*time.Second, "the server that ends is down", func() bool { return down(b, g, x) })
	}
	b.sleep(2 * time.Second)
	b.finish()
	if slow := b.load.records(slower(time.Second)); len(slow) > 0 {
		b.note("%d calls took longer than 1 s, by second after SIGTERM %s", len(slow), bySecond(slow, began))
	}
	b.none("were hurt by a server that ends in order", both(unary, not(is(ok))))
	b.none("of streams were not answered in band", both(streamed, is(failed), func(r record) bool { return !r.inBand }))
	b.none("of streams were hurt long after", both(streamed, not(is(ok)), after(began.Add(5*time.Second))))
}
