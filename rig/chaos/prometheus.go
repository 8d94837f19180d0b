package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// noPrometheus: timeouts that go by a real Prometheus, which is killed, and comes back knowing nothing.
func noPrometheus(b *bench) {
	where, err := exec.CommandContext(b, filepath.Join(b.root, "rig/prometheus.sh")).Output()
	b.must(err)
	a, err := freeAddresses(1)
	b.must(err)
	x, y := b.two()
	g := b.gateway(settings{endpoints: list(x, y), top: fmt.Sprintf("prometheus: {url: \"http://%s\"}\n", a[0])})
	first, err := b.prometheus(strings.TrimSpace(string(where)), a[0], "one", g.admin)
	b.must(err)
	c := b.client(g)
	b.begin(c, callDeadline, flow{"more", 250, func(ctx context.Context, i int) (outcome, string) { return c.predict(ctx, i, "fraud") }})
	timeout := func(source string) float64 {
		return g.metric(b, "gateway_timeout_seconds", `model="fraud"`, fmt.Sprintf("source=%q", source))
	}
	b.within(2*time.Minute, "the timeout goes by Prometheus", func() bool { return timeout("prometheus") > 0 })
	kept := timeout("prometheus")
	killed := time.Now()
	first.kill()
	b.within(25*time.Second, "the last good value is known to be old", func() bool { return timeout("stale") > 0 })
	b.detect = time.Since(killed)
	b.check(timeout("stale") == kept, "the timeout went from %vs to %vs when Prometheus went away", kept, timeout("stale"))
	_, err = b.prometheus(strings.TrimSpace(string(where)), a[0], "two", "127.0.0.1:1") // it finds nothing to scrape, and says so
	b.must(err)
	b.sleep(15 * time.Second)
	b.check(timeout("stale") == kept || timeout("stats") > 0, "the timeout goes by %q", b.sources(g))
	b.within(90*time.Second, "the timeout goes by what the gateway has seen itself", func() bool { return timeout("stats") > 0 })
	b.recovery = time.Since(killed)
	b.note("%vs by Prometheus, kept for a minute, then %vs by the gateway's own hour", kept, timeout("stats"))
	b.check(b.recovery >= 45*time.Second, "the last good value was kept for %v only", b.recovery)
	b.finish()
	b.none("were hurt by a Prometheus that is gone", not(is(ok)))
}

// sources are the lines of the timeouts' metric, for people.
func (b *bench) sources(g *gateway) (lines []string) {
	page, err := get(b, "http://"+g.admin+"/metrics")
	if err != nil {
		return []string{err.Error()}
	}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "gateway_timeout_seconds{") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// prometheus starts one at address that scrapes target every second, with nothing kept from before.
func (b *bench) prometheus(binary, address, name, target string) (*process, error) {
	dir := filepath.Join(b.dir, b.file("prometheus-"+name))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	text := fmt.Sprintf("global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs: [{job_name: gateway, static_configs: [{targets: [%q]}]}]\n", target)
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return nil, err
	}
	p, err := launch("prometheus "+name, filepath.Join(b.logs, b.file("prometheus-"+name)+".log"), os.Environ(),
		[]string{binary, "--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(dir, "data"), "--web.listen-address=" + address, "--log.level=warn"})
	if err != nil {
		return nil, err
	}
	b.after(p.kill)
	return p, await(b, p, time.Minute, func(ctx context.Context) error {
		page, err := get(ctx, "http://"+address+"/-/ready")
		if err == nil && page == "" {
			err = errors.New("no answer")
		}
		return err
	})
}
