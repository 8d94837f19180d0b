package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// scenario is a script of faults under load, and what must hold.
type scenario struct {
	name  string
	about string   // what must hold, in a sentence
	short string   // the model servers of the short form; "": it is not part of it
	long  []string // and those of the long one
	run   func(b *bench)
}

// stopped ends a scenario early: what follows would make no sense.
type stopped struct{ why string }

// bench is what a scenario works with. All it starts ends with it.
type bench struct {
	context.Context
	options
	name string

	closers  []func()
	problems []string
	notes    []string
	skipped  string

	load             *load
	detect, recovery time.Duration
	gateways         []*gateway
}

// options are the same for all scenarios of a run.
type options struct {
	root   string // of the source
	binary string // of the gateway
	dir    string // what belongs to this run
	logs   string
	long   bool
	cast   string // which model servers: embedded or real
}

// after has f run when the scenario is over, last first.
func (b *bench) after(f func()) { b.closers = append(b.closers, f) }

func (b *bench) close() {
	for i := len(b.closers) - 1; i >= 0; i-- {
		b.closers[i]()
	}
}

// must ends the scenario when the rig itself cannot go on.
func (b *bench) must(err error) {
	if err != nil {
		panic(stopped{err.Error()})
	}
}

// skip ends it because this machine cannot play it; the table says so.
func (b *bench) skip(why string) {
	b.skipped = why
	panic(stopped{})
}

// check notes what does not hold.
func (b *bench) check(holds bool, format string, args ...any) {
	if !holds {
		b.problems = append(b.problems, fmt.Sprintf(format, args...))
	}
}

func (b *bench) note(format string, args ...any) {
	b.notes = append(b.notes, fmt.Sprintf(format, args...))
}

// none checks that no call fits; those that do are told with their reasons.
func (b *bench) none(what string, fit func(record) bool) {
	if bad := b.load.records(fit); len(bad) > 0 {
		b.check(false, "%d calls %s, the first %v after the start\n%s", len(bad), what, bad[0].at.Sub(b.load.records(every)[0].at).Round(time.Millisecond), reasons(bad))
	}
}

// within waits until ok and gives how long that took; what is not so in time does not hold.
func (b *bench) within(limit time.Duration, what string, ok func() bool) time.Duration {
	start := time.Now()
	err := await(b, nil, limit, func(context.Context) error {
		if ok() {
			return nil
		}
		return errNot
	})
	b.check(err == nil, "%s: not within %v", what, limit)
	return time.Since(start)
}

// sleep lets the load go on.
func (b *bench) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-b.Done():
		panic(stopped{"ended by a signal"})
	}
}

// two gives two model servers that are ready: real ones when the cast is.
func (b *bench) two(models ...string) (x, y *server) {
	x, y = b.server("a", models...), b.server("b", models...)
	for _, s := range []*server{x, y} {
		b.must(s.boot())
		b.must(s.ready(b))
	}
	return x, y
}

// server prepares one. models are what a real one loads; fraud when none is named.
func (b *bench) server(name string, models ...string) *server {
	if len(models) == 0 {
		models = []string{"fraud"}
	}
	a, err := freeAddresses(4)
	b.must(err)
	var s *server
	if b.cast == castReal {
		s, err = realTriton(b.root, b.logs, b.file(name), filepath.Join(b.dir, "backends"), b.repository(), a, models)
	} else {
		s, err = embedded(b.binary, b.logs, b.file(name), a)
	}
	b.must(err)
	b.after(s.close)
	return s
}

// linger lets embedded servers take a while for each call, so that a fault finds many under way.
func (b *bench) linger(servers ...*server) {
	for _, s := range servers {
		if b.cast == castEmbedded {
			b.must(s.fault(b, `{"kind": "slow", "model": "fraud", "delay": "100ms"}`))
		}
	}
}

// file is a name for what belongs to this scenario.
func (b *bench) file(name string) string {
	words := strings.FieldsFunc(strings.ToLower(b.name), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	return strings.Join(append(words, name), "-")
}

// repository is the models of triton-models and those of this folder, in one.
func (b *bench) repository() string {
	dir := filepath.Join(b.dir, "models")
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	b.must(os.MkdirAll(dir, 0o755))
	for _, from := range []string{"triton-models", "rig/chaos/models"} {
		entries, err := os.ReadDir(filepath.Join(b.root, from))
		b.must(err)
		for _, e := range entries {
			if e.IsDir() {
				b.must(os.CopyFS(filepath.Join(dir, e.Name()), os.DirFS(filepath.Join(b.root, from, e.Name()))))
			}
		}
	}
	// One version is enough here, and starts twice as fast.
	config := filepath.Join(dir, "fraud", "config.pbtxt")
	text, err := os.ReadFile(config)
	b.must(err)
	b.must(os.WriteFile(config, bytes.Replace(text, []byte("versions: [ 1, 2 ]"), []byte("versions: [ 1 ]"), 1), 0o644))
	return dir
}

// gateway starts one; its readiness is watched from here on.
func (b *bench) gateway(s settings, wrap ...string) *gateway {
	g, err := start(b, b.binary, b.dir, b.logs, b.file(fmt.Sprintf("gateway-%d", len(b.gateways))), s, wrap...)
	if g != nil && g.p != nil {
		b.after(g.p.kill)
	}
	b.must(err)
	b.gateways = append(b.gateways, g)
	ctx, cancel := context.WithCancel(b)
	b.after(cancel)
	go g.watchReadiness(ctx)
	return g
}

// client makes one of all gateways.
func (b *bench) client(gateways ...*gateway) *client {
	var addresses []string
	for _, g := range gateways {
		addresses = append(addresses, g.data)
	}
	c, err := dial(addresses...)
	b.must(err)
	b.after(c.close)
	return c
}

// begin starts the usual load: 200 calls a second, three streams of each protocol; and waits until all is normal.
func (b *bench) begin(c *client, deadline time.Duration, more ...flow) {
	flows := append([]flow{
		{"predict", 120, func(ctx context.Context, i int) (outcome, string) { return c.predict(ctx, i, "fraud") }},
		{"kserve", 80, func(ctx context.Context, i int) (outcome, string) { return c.infer(ctx, i, "fraud") }},
	}, more...)
	var streams []stream
	for i := range 3 {
		streams = append(streams, c.predictStream(i, "fraud"), c.inferStream(i, "fraud"))
	}
	b.run(c, deadline, flows, streams...)
}

// run starts load of any kind once the gateway and the machine are warm.
func (b *bench) run(c *client, deadline time.Duration, flows []flow, streams ...stream) {
	b.must(await(b, nil, 30*time.Second, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		for i := range 20 {
			if o, why := c.predict(ctx, i, "fraud"); o != ok {
				return fmt.Errorf("before any fault: %s: %s", o, why)
			}
		}
		return nil
	}))
	b.load = begin(deadline, flows, streams...)
	b.after(b.load.stop)
	b.sleep(2 * time.Second)
	b.none("were not ok before any fault", not(is(ok)))
}

// finish ends the load and checks what holds of every scenario: no call outlasts its deadline, the gateway lives on and ready.
func (b *bench) finish() {
	b.load.end()
	b.none("outlasted their deadline", slower(b.load.deadline+slack))
	for _, g := range b.gateways {
		b.check(g.p.running(), "the gateway has ended:\n%s", g.p.tail())
		if u := g.unreadiness(); len(u) > 0 {
			b.check(false, "the gateway was unready %d times: %s", len(u), u[0])
		}
	}
}

// slack is what a busy machine may add to a time that is measured at the client.
const slack = time.Second

// lingering is a flow on a model that takes 100 ms for each call, on any server.
func lingering(c *client) flow {
	return flow{"lingering", 8, func(ctx context.Context, i int) (outcome, string) { return c.long(ctx, i, "echo", 100) }}
}

// bare is a flow on a model without fallback: errors as they are.
func bare(c *client) flow {
	return flow{"bare", 40, func(ctx context.Context, i int) (outcome, string) { return c.predict(ctx, i, "bare") }}
}
