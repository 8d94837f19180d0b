// Package promtest starts a real Prometheus for tests. It scrapes what the test names every 250 ms, keeps what it has in a
// folder of the test's, and is gone when the test is.
//
// Without a prometheus to be found (rig/prometheus.sh unpacks one) the tests that need it are skipped, except where CI is
// set: there they fail.
package promtest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long anything may take on a busy machine.
const patience = 3 * time.Minute

// Server is one process.
type Server struct {
	URL string

	t      testing.TB
	cmd    *exec.Cmd
	exited chan struct{}
	output output
	once   sync.Once
}

// Binary finds a prometheus: where PROMETHEUS says, where rig/prometheus.sh puts it, or on the path.
func Binary(t testing.TB) string {
	t.Helper()
	tried := []string{os.Getenv("PROMETHEUS")}
	if dir, err := os.Getwd(); err == nil {
		for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
				tried = append(tried, filepath.Join(dir, ".cache", "bin", "prometheus"))
				break
			}
		}
	}
	for _, name := range append(tried, "prometheus") {
		if name == "" {
			continue
		}
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const remedy = "NOT TESTED ON A REAL PROMETHEUS: there is none; rig/prometheus.sh unpacks one"
	if os.Getenv("CI") != "" {
		t.Fatal(remedy)
	}
	t.Skip(remedy)
	return ""
}

// Start starts a Prometheus that scrapes /metrics of targets, each host:port, and waits until it is ready.
func Start(t testing.TB, targets ...string) *Server {
	t.Helper()
	binary, dir := Binary(t), t.TempDir()
	settings := "global: {scrape_interval: 250ms, scrape_timeout: 250ms}\nscrape_configs: [{job_name: gateway, static_configs: [{targets: ['" + strings.Join(targets, "','") + "']}]}]\n"
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	var s *Server
	for n := range 5 { // somebody else may take the port first
		s = start(t, binary, dir, filepath.Join(dir, fmt.Sprint("data-", n)))
		if s.ready() {
			break
		}
	}
	t.Cleanup(s.Stop)
	s.Eventually(func() error {
		_, err := s.get("/-/ready")
		return err
	})
	return s
}

func start(t testing.TB, binary, dir, data string) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close() // it takes the port by itself
	s := &Server{URL: "http://" + addr, t: t, exited: make(chan struct{})}
	s.cmd = exec.Command(binary, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+data, "--web.listen-address="+addr, "--log.level=warn")
	s.cmd.Stdout, s.cmd.Stderr = &s.output, &s.output
	if err := s.cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", binary, err)
	}
	go func() { _ = s.cmd.Wait(); close(s.exited) }()
	return s
}

// ready waits until the server is, or has ended.
func (s *Server) ready() bool {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(patience); time.Now().Before(late); {
		select {
		case <-s.exited:
			return false
		case <-tick.C:
			if _, err := s.get("/-/ready"); err == nil {
				return true
			}
		}
	}
	return true // whoever waits for it tells why it is not
}

// Stop kills the server, as a crash would.
func (s *Server) Stop() {
	s.once.Do(func() { _ = s.cmd.Process.Kill() })
	<-s.exited
}

// Eventually tries until there is no error, or the test has waited long enough.
func (s *Server) Eventually(try func() error) {
	s.t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-s.exited:
			s.t.Fatalf("prometheus has ended:\n%s", s.output.String())
		default:
		}
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("still after %s: %v\n%s", patience, err, s.output.String())
		}
		<-tick.C
	}
}

func (s *Server) get(path string) (string, error) {
	client := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get(s.URL + path)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("HTTP %d: %s", answer.StatusCode, body)
	}
	return string(body), err
}

// output is what the server has said.
type output struct {
	mu sync.Mutex
	b  strings.Builder
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
