// Package redistest starts real Redis servers for tests: one, a cluster, or a master with a replica and sentinels. They
// listen on free ports of this machine, keep nothing, and are gone when the test is.
//
// Without a redis-server to be found (rig/redis.sh installs one) the tests that need it are skipped, except where CI is
// set: there they fail.
package redistest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Server is one process. Its methods fail the test when they cannot do what they promise.
type Server struct {
	Addr   string // host:port
	Socket string // path of its unix socket, "" for sentinels
	t      testing.TB
	binary string
	args   []string
	output *lockedBuffer
	cmd    *exec.Cmd
	exited chan struct{}
}

// patience is how long anything may take on a busy machine: sentinels that were starved do nothing for 30 s.
const patience = 3 * time.Minute

// Binary finds a redis-server: where REDIS_SERVER says, where rig/redis.sh installs it, or on the path.
func Binary(t testing.TB) string {
	t.Helper()
	tried := []string{os.Getenv("REDIS_SERVER")}
	if dir, err := os.Getwd(); err == nil {
		for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
				tried = append(tried, filepath.Join(dir, ".cache", "bin", "redis-server"))
				break
			}
		}
	}
	tried = append(tried, "redis-server")
	for _, name := range tried {
		if name == "" {
			continue
		}
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const remedy = "NOT TESTED ON A REAL REDIS: there is no redis-server; rig/redis.sh installs one"
	if os.Getenv("CI") != "" {
		t.Fatal(remedy)
	}
	t.Skip(remedy)
	return ""
}

// Start starts a Redis of its own with more arguments, as on its command line, and waits until it answers.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, Binary(t), args...)
}

func start(t testing.TB, binary string, args ...string) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "redis") //nolint:usetesting // t.TempDir makes paths that are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for range 5 { // somebody else may take the port first
		port := Port(t)
		s := &Server{
			Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Socket: filepath.Join(dir, "socket"), t: t, binary: binary,
			args: append([]string{
				"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no",
				"--unixsocket", filepath.Join(dir, "socket"), "--protected-mode", "no", "--repl-diskless-sync-delay", "0",
				"--daemonize", "no",
			}, args...),
		}
		if err = s.launch(); err == nil {
			t.Cleanup(s.Stop)
			return s
		}
	}
	t.Fatal(err)
	return nil
}

// Restart starts the server again where it was. It remembers nothing.
func (s *Server) Restart() {
	s.t.Helper()
	Eventually(s.t, s.launch) // whoever took the port meanwhile gives it back
}

// launch starts the process and waits until it answers; the error is that it ended instead.
func (s *Server) launch() error {
	s.t.Helper()
	s.output = &lockedBuffer{}
	s.cmd = exec.Command(s.binary, s.args...)
	s.cmd.Stdout, s.cmd.Stderr = s.output, s.output
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("starting %s: %v", s.binary, err)
	}
	s.exited = make(chan struct{})
	go func(cmd *exec.Cmd, exited chan struct{}) { _ = cmd.Wait(); close(exited) }(s.cmd, s.exited)
	var ended error
	Eventually(s.t, func() error {
		select {
		case <-s.exited:
			ended = fmt.Errorf("redis-server ended at once:\n%s", s.output)
			return nil
		default:
		}
		answer, err := s.Try("PING")
		if err == nil && answer != "PONG" {
			err = fmt.Errorf("PING was answered by %q", answer)
		}
		return err
	})
	return ended
}

// Stop kills the server, as a crash would.
func (s *Server) Stop() {
	_ = s.cmd.Process.Kill()
	<-s.exited
}

// Pause makes the server silent: connections stay open and nothing is answered. Resume ends that.
func (s *Server) Pause() {
	s.t.Helper()
	s.signal(stop)
	Eventually(s.t, func() error { return stopped(s.cmd.Process.Pid) }) // a signal may take a while to be heeded
}

// Resume lets a paused server go on.
func (s *Server) Resume() { s.signal(resume) }

func (s *Server) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// Do sends one command and returns the answer as text.
func (s *Server) Do(command ...string) string {
	s.t.Helper()
	answer, err := s.Try(command...)
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, s.output)
	}
	return answer
}

// Try is Do for commands that may fail.
func (s *Server) Try(command ...string) (string, error) { return ask(s.Addr, command) }

// Port is a port that nobody listens on, low enough for a cluster's bus ten thousand above it.
func Port(t testing.TB) int {
	t.Helper()
	for range 1000 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		if port += portShift; port < 1024 || port > 22000 {
			continue
		}
		if free(port) && free(port+10000) {
			return port
		}
	}
	t.Fatal("no two free ports ten thousand apart")
	return 0
}

// The system gives out ports from the upper range, and may give the same one to somebody else before the server listens:
// those far below are not given out.
const portShift = -27000

func free(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

// Eventually tries until there is no error, or the test has waited long enough.
func Eventually(t testing.TB, try func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still after %v: %v", patience, err)
		}
		<-tick.C
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
