package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/backoff"
)

var quickBackoff = backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.2, MaxDelay: 200 * time.Millisecond}

// gateway is a `gateway serve` under test.
type gateway struct {
	data, admin string
	config      string // path
	p           *process

	mu      sync.Mutex
	unready []string // what /readyz said that was not 200 while it was watched
}

// settings are what scenarios' configurations differ in.
type settings struct {
	endpoints string // YAML of upstreams.triton.endpoints
	models    string // further YAML of models
	top       string // further YAML of the top level
	fraud     string // further YAML of the model fraud, indented by four
	bare      string // likewise of the model bare
	before    string // listen.drain.before; 0s when empty
}

// file is the configuration: fraud answers DEGRADED in an outage; bare is the same model without that, to see errors as they are.
func (s settings) file(data, admin string) string {
	before := s.before
	if before == "" {
		before = "0s"
	}
	return fmt.Sprintf(`version: 1
auth: none
passthrough: true
control: [repository]
listen: {data: "%s", admin: "%s", drain: {before: %s, grace: 20s}}
upstreams:
  triton: {kind: triton, endpoints: %s}
models:
  - name: fraud
    targets: {model_v1: {upstream: triton, model: fraud, version: 1}}
    stable: model_v1
    fallback: {score: 0.5, protocols: [predict, v2]}
%s  - name: bare
    targets: {model_v1: {upstream: triton, model: fraud, version: 1}}
    stable: model_v1
%s%s%s`, data, admin, before, s.endpoints, s.fraud, s.bare, s.models, s.top)
}

func list(servers ...*server) string {
	var all []string
	for _, s := range servers {
		all = append(all, s.address)
	}
	return `["` + strings.Join(all, `", "`) + `"]`
}

// start runs a gateway with the configuration that s says, once it is ready. wrap may put a command before it.
func start(ctx context.Context, binary, dir, logs, name string, s settings, wrap ...string) (*gateway, error) {
	a, err := freeAddresses(2)
	if err != nil {
		return nil, err
	}
	g := &gateway{data: a[0], admin: a[1], config: filepath.Join(dir, name+".yaml")}
	if err := g.write(s); err != nil {
		return nil, err
	}
	argv := append(wrap, binary, "serve", "--pprof", "--config", g.config)
	if g.p, err = launch(name, filepath.Join(logs, name+".log"), bareEnv(), argv); err != nil {
		return nil, err
	}
	return g, g.await(ctx)
}

func (g *gateway) await(ctx context.Context) error {
	return await(ctx, g.p, 30*time.Second, func(ctx context.Context) error { return g.readyz(ctx) })
}

// write puts a configuration where the gateway reads it, at once as a whole.
func (g *gateway) write(s settings) error {
	next := g.config + ".next"
	if err := os.WriteFile(next, []byte(s.file(g.data, g.admin)), 0o644); err != nil {
		return err
	}
	return os.Rename(next, g.config)
}

func (g *gateway) hangup() { _ = g.p.cmd.Process.Signal(syscall.SIGHUP) }

func (g *gateway) readyz(ctx context.Context) error {
	_, err := get(ctx, "http://"+g.data+"/readyz")
	return err
}

func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = a.Body.Close() }()
	body, err := io.ReadAll(a.Body)
	if err != nil {
		return "", err
	}
	if a.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s: %s", url, a.Status, clip(string(body)))
	}
	return string(body), nil
}

// watchReadiness asks /readyz every 50 ms until ctx ends, and keeps every answer that is not 200.
func (g *gateway) watchReadiness(ctx context.Context) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := g.readyz(ctx); err != nil && ctx.Err() == nil {
			g.mu.Lock()
			g.unready = append(g.unready, err.Error())
			g.mu.Unlock()
		}
	}
}

func (g *gateway) unreadiness() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.unready
}

// metric adds up the series of name whose text has all of labels, such as `model="fraud"`. None gives 0.
func (g *gateway) metric(ctx context.Context, name string, labels ...string) float64 {
	page, err := get(ctx, "http://"+g.admin+"/metrics")
	if err != nil {
		return -1
	}
	return sum(page, name, labels...)
}

// sum adds up series of a page of metrics.
func sum(page, name string, labels ...string) float64 {
	var total float64
	lines := bufio.NewScanner(strings.NewReader(page))
	lines.Buffer(nil, 1<<20)
next:
	for lines.Scan() {
		rest, found := strings.CutPrefix(lines.Text(), name)
		if !found || rest == "" || (rest[0] != '{' && rest[0] != ' ') {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue next
			}
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err == nil {
			total += v
		}
	}
	return total
}
