package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Scenarios of servers that answer badly, and of what lies between.

func slowOne(b *bench) {
	x, y := b.two()
	g := b.gateway(settings{endpoints: list(x, y)})
	c := b.client(g)
	b.begin(c, callDeadline)
	began := time.Now()
	b.must(x.fault(b, `{"kind": "slow", "model": "fraud", "delay": "5s"}`))
	b.sleep(12 * time.Second)
	b.must(x.heal(b))
	b.sleep(8 * time.Second)
	b.finish()
	b.none("failed because one server is slow", is(failed))
	slow := b.load.count(both(unary, after(began), slower(time.Second)))
	all := b.load.count(both(unary, after(began)))
	b.note("%d of %d calls took longer than 1 s, by second %s", slow, all, bySecond(b.load.records(both(unary, after(began), slower(time.Second))), began))
	b.check(float64(slow) <= 0.05*float64(all), "%d of %d calls took longer than 1 s: most could have gone to the other server", slow, all)
	b.none("took longer than the server is slow", both(unary, slower(5*time.Second+slack)))
}

func failingOne(b *bench) {
	x, y := b.two()
	r, err := newRelay(x.address, 0)
	b.must(err)
	b.after(r.close)
	g := b.gateway(settings{endpoints: fmt.Sprintf("[%q, %q]", r.address, y.address)})
	c := b.client(g)
	b.begin(c, callDeadline)
	began := time.Now()
	r.failing.Store(500)
	b.sleep(10 * time.Second)
	r.failing.Store(0)
	b.finish()
	bad := b.load.records(both(unary, after(began), is(failed)))
	if len(bad) > 0 {
		b.detect = bad[len(bad)-1].end().Sub(began)
	}
	b.check(b.detect <= 5*time.Second, "calls still failed %v after one server had begun to fail; it should be ejected by then", b.detect)
	b.none("were not ok once it was out", both(after(began.Add(5*time.Second)), not(is(ok))))
	b.none("were degraded: the other server was well", is(degraded))
}

func goaways(b *bench) {
	x, y := b.two("fraud", "echo_fp32")
	var addresses []string
	for _, s := range []*server{x, y} {
		r, err := newRelay(s.address, 300*time.Millisecond)
		b.must(err)
		b.after(r.close)
		addresses = append(addresses, r.address)
	}
	g := b.gateway(settings{endpoints: fmt.Sprintf("[%q, %q]", addresses[0], addresses[1])})
	c := b.client(g)
	b.begin(c, callDeadline, bare(c), flow{"large", 10, func(ctx context.Context, i int) (outcome, string) { return c.large(ctx, i, 256<<10) }})
	b.sleep(8 * time.Second)
	b.finish()
	b.none("were hurt by connections that end in order", not(is(ok)))
}

// tear breaks every connection to one server again and again in the way that toxic says, while big messages are under way.
func tear(b *bench, toxics ...string) {
	x, y := b.two("fraud", "echo_fp32")
	b.linger(x, y)
	w, err := newWire("x", x.address)
	b.must(err)
	b.after(w.close)
	g := b.gateway(settings{endpoints: fmt.Sprintf("[%q, %q]", w.address, y.address)})
	c := b.client(g)
	b.begin(c, callDeadline, bare(c), flow{"large", 10, func(ctx context.Context, i int) (outcome, string) { return c.large(ctx, i, 256<<10) }})
	began := time.Now()
	for range 12 {
		for _, toxic := range toxics {
			heal, err := w.poison(b, toxic)
			b.must(err)
			b.sleep(150 * time.Millisecond)
			heal()
			b.sleep(350 * time.Millisecond)
		}
	}
	retried := g.metric(b, "gateway_retries_total")
	b.note("%v calls were tried again", retried)
	b.check(retried > 0, "no call was tried again: the fault had no effect")
	b.recovery = b.within(5*time.Second, "the server whose connections are well again is up", func() bool {
		return g.metric(b, "gateway_endpoint_up", fmt.Sprintf("%q", w.address)) == 1
	})
	healed := time.Now()
	b.sleep(2 * time.Second)
	b.finish()
	b.none("were hurt by lost connections to one of two servers", both(unary, not(is(ok))))
	b.none("of streams were not answered in band", both(streamed, is(failed), func(r record) bool { return !r.inBand }))
	b.none("were hurt afterwards", both(not(is(ok)), after(healed.Add(500*time.Millisecond))))
	b.note("%d messages of streams were hurt, each answered in band", b.load.count(both(streamed, not(is(ok)), after(began))))
}

func resets(b *bench) {
	tear(b, `{"name": "t", "type": "reset_peer", "stream": "downstream", "attributes": {"timeout": 0}}`,
		`{"name": "t", "type": "reset_peer", "stream": "upstream", "attributes": {"timeout": 20}}`)
}

func halves(b *bench) {
	tear(b, `{"name": "t", "type": "limit_data", "stream": "downstream", "attributes": {"bytes": 40000}}`,
		`{"name": "t", "type": "limit_data", "stream": "upstream", "attributes": {"bytes": 40000}}`)
}

// pieces: frames come in parts, late; nothing may be misread or given up.
func pieces(b *bench) {
	x, y := b.two("fraud", "echo_fp32")
	w, err := newWire("x", x.address)
	b.must(err)
	b.after(w.close)
	g := b.gateway(settings{endpoints: fmt.Sprintf("[%q, %q]", w.address, y.address)})
	c := b.client(g)
	b.begin(c, callDeadline, bare(c), flow{"large", 2, func(ctx context.Context, i int) (outcome, string) { return c.large(ctx, i, 64<<10) }})
	for _, side := range []string{"downstream", "upstream"} {
		_, err := w.poison(b, fmt.Sprintf(`{"name": %q, "type": "slicer", "stream": %q, "attributes": {"average_size": 97, "size_variation": 60, "delay": 20}}`, side, side))
		b.must(err)
	}
	b.sleep(6 * time.Second)
	b.finish()
	b.none("were hurt by frames in pieces", not(is(ok)))
}

// names: the addresses behind a name change. The name stands in a hosts file of the gateway's own.
func names(b *bench) {
	if exec.CommandContext(b, "unshare", "-m", "true").Run() != nil {
		b.skip("a hosts file of its own needs unshare -m, as root")
	}
	hosts := filepath.Join(b.dir, b.file("hosts"))
	point := func(addresses ...string) {
		text := "127.0.0.1 localhost\n"
		for _, a := range addresses {
			text += a + " models.chaos\n"
		}
		b.must(os.WriteFile(hosts, []byte(text), 0o644))
	}
	x, y := b.sameport()
	for _, s := range []*server{x, y} {
		b.must(s.boot())
		b.must(s.ready(b))
	}
	_, port, err := net.SplitHostPort(x.address)
	b.must(err)
	point("127.0.0.1")
	g := b.gateway(settings{endpoints: "dns:///models.chaos:" + port},
		"unshare", "-m", "sh", "-c", `mount --bind "$0" /etc/hosts && exec "$@"`, hosts)
	c := b.client(g)
	b.begin(c, callDeadline, bare(c))
	point("127.0.0.1", "127.0.0.2")
	b.detect = b.within(17*time.Second, "a new address is found", func() bool { n, err := y.served(b, "fraud"); return err == nil && n > 10 })
	point("127.0.0.2")
	b.within(17*time.Second, "an address that is gone gets no calls", func() bool {
		before, err := x.served(b, "fraud")
		b.sleep(300 * time.Millisecond)
		n, err2 := x.served(b, "fraud")
		return err == nil && err2 == nil && n == before
	})
	x.kill()
	b.sleep(2 * time.Second)
	b.finish()
	b.none("were hurt by addresses that come and go", not(is(ok)))
}

// sameport gives two embedded servers on the same port of different addresses.
func (b *bench) sameport() (x, y *server) {
	x = b.server("a")
	_, port, err := net.SplitHostPort(x.address)
	b.must(err)
	a, err := freeAddresses(3)
	b.must(err)
	y, err = embedded(b.binary, b.logs, b.file("b"), append([]string{net.JoinHostPort("127.0.0.2", port)}, a...))
	b.must(err)
	b.after(y.close)
	return x, y
}
